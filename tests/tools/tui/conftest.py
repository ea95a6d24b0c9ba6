"""The screen without a terminal, on a root with a change to review and without agents."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from llmc.api.subscription import Subscription
from llmc.records.transitions import step
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.tui.drawing import Brush
from llmc.tui.fleet_app import FleetApp
from llmc.tui.theme import THEMES
from llmc.tui.typed import Typed
from tests.support.repos import Mold, project_at, worker_of
from tests.support.web import plain_root

NOTHING_TYPED = Typed(lambda words: [], lambda words, stopping: (0, ""), lambda words: False, lambda line: [])


def to_review(folder: Path) -> None:
    """Two workers; w1 has a change that waits for review."""
    plain_root(folder)
    project = project_at(folder / "root")
    with project.store.transaction() as tx:
        for status in (Status.IDLE, Status.WORKING):
            tx.move("w1", step(status, "test"))
        tx.move("w1", step(Status.NEEDS_REVIEW, "test", commit_sha=worker_of(project)[1].head()))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(to_review) / "root")


class Driver:
    """A screen that is driven by keys."""

    def __init__(self, app: FleetApp, pilot: Pilot[Any]) -> None:
        self.app, self._pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def until(self, probe: Callable[[], object]) -> None:
        while not probe():
            await self._pilot.pause(0.02)

    async def confirm(self) -> None:
        """Press `y` as soon as the question listens to keys."""
        await self.until(lambda: self.app.confirm is not None and self.app.confirm.listens)
        await self._pilot.press("y")

    async def open_diff(self, worker: str = "w1") -> None:
        assert self.app.store.go_to(worker)
        await self.press("d")
        await self.until(lambda: self.app.diff is not None)


def drive(
    project: Project, keys: Callable[[Driver], Awaitable[None]], typed: Typed = NOTHING_TYPED
) -> FleetApp:
    """Show the screen, press keys, and close it."""
    app = FleetApp(project, Subscription(project).start(), Brush(THEMES["dark"]), typed, [])

    async def run() -> None:
        async with app.run_test(size=(120, 36)) as pilot, asyncio.timeout(60):
            driver = Driver(app, pilot)
            await driver.until(lambda: app.store.fleet is not None and app.form is not None)
            await keys(driver)
            app.exit(None)

    asyncio.run(run())
    return app
