"""The goals' lane: one tick at a time, on demand or by the clock; switched by the configuration; stopped."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.config.paths import Root
from llmc.daemon import goal_lane
from llmc.daemon.goal_lane import GoalsLane
from llmc.goals.desk import Aside
from llmc.goals.ticks import Ticked
from llmc.repo.project import Project, bare_project
from tests.support.waiting import wait_until


class Ticks:
    """A runner whose ticks last until they are released."""

    def __init__(self, project: Project) -> None:
        self.reasons: list[str] = []
        self.every: list[float] = []
        self.at_once = self.most_at_once = 0
        self.go = threading.Semaphore(0)

    def tick(self, project: Project, reason: str) -> Ticked:
        self.every.append(project.config.overseer.goals.tick_every)
        self.reasons.append(reason)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.go.acquire(timeout=10)
        self.at_once -= 1
        return Ticked(True, False)


def configured(project: Project, *, enabled: bool = True, tick_every: float = 3600.0) -> Project:
    wanted = replace(project.config.overseer.goals, enabled=enabled, tick_every=tick_every)
    overseer = replace(project.config.overseer, goals=wanted)
    return replaced(project, config=replace(project.config, overseer=overseer))


async def until(count: int, ticks: Ticks) -> None:
    await asyncio.get_running_loop().run_in_executor(None, wait_until, lambda: len(ticks.reasons) >= count)


@pytest.mark.req("3-023", "3-033", "3-034")
def test_the_lane_ticks_one_at_a_time_and_follows_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `_poke` that starts one while another runs; `update` that keeps the old project;
    `stop` that leaves the timer.
    """
    project = bare_project(Root(tmp_path))

    async def run() -> None:
        made: list[Ticks] = []

        def runner(one: Project, _: Aside) -> Ticks:
            made.append(Ticks(one))
            return made[-1]

        monkeypatch.setattr(goal_lane, "Runner", runner)
        with ThreadPoolExecutor(4) as pool:
            lane = GoalsLane(asyncio.get_running_loop(), pool)
            lane.update(configured(project, enabled=False))
            lane.poke()
            await asyncio.sleep(0.3)
            assert made == [], "not switched on: nothing runs"
            lane.update(configured(project))
            (ticks,) = made
            await until(1, ticks)
            for _ in range(5):
                lane.poke()
            await asyncio.sleep(0.3)
            assert ticks.reasons == ["start"], "one at a time"
            ticks.go.release()
            await until(2, ticks)
            ticks.go.release()
            await asyncio.sleep(0.5)
            assert ticks.reasons == ["start", "wake"], "five requests are one more tick"
            # Another interval counts from the next tick on, without a request.
            lane.update(configured(project, tick_every=0.05))
            lane.poke()
            for count in (3, 4, 5):
                await until(count, ticks)
                ticks.go.release()
            assert ticks.reasons[2:5] == ["wake", "interval", "interval"]
            assert ticks.every[2] == 0.05
            lane.update(configured(project, enabled=False))
            ticks.go.release(9)
            await asyncio.sleep(0.3)
            count = len(ticks.reasons)
            lane.poke()
            await asyncio.sleep(0.3)
            assert len(ticks.reasons) == count, "switched off while it runs"
            lane.update(configured(project, tick_every=0.05))
            again = made[1]
            again.go.release(99)
            await until(2, again)
            lane.stop()
            await asyncio.sleep(0.2)
            count = len(again.reasons)
            await asyncio.sleep(0.3)
            assert len(again.reasons) == count, "stopped"
            assert max(ticks.most_at_once, again.most_at_once) == 1

    asyncio.run(run())


@pytest.mark.req("3-033", "3-034")
def test_a_lane_that_is_switched_off_and_on_within_a_tick_has_one_tick_and_then_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `_begin` without its check of `_ticking` (two at a time); or one that forgets a request."""
    project = bare_project(Root(tmp_path))

    async def run() -> None:
        ticks = Ticks(project)
        monkeypatch.setattr(goal_lane, "Runner", lambda _, __: ticks)
        with ThreadPoolExecutor(4) as pool:
            lane = GoalsLane(asyncio.get_running_loop(), pool)
            lane.update(configured(project))
            await until(1, ticks)
            lane.update(configured(project, enabled=False))
            lane.update(configured(project))
            await asyncio.sleep(0.3)
            assert ticks.reasons == ["start"], "the first one is not over"
            ticks.go.release(9)
            await until(2, ticks)  # the next interval is an hour away
            lane.stop()
        assert ticks.most_at_once == 1

    asyncio.run(run())
