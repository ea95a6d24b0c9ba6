"""Orders and typed commands on the screen: none ends because the screen does, and none ends unseen."""

import threading

from llmc.api.said import BAD, GOOD, Said, Show
from llmc.base.errors import LlmcError
from llmc.base.proc import ShuttingDown
from llmc.repo.project import Project
from llmc.tui.typed import Typed
from tests.tools.tui.conftest import Driver, drive

COMMAND = "llmc accept w1 --yes"


class Slow:
    """An order that goes on after the screen was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def act(self, show: Show) -> Said:
        show("validate")
        assert self.closed.wait(20)
        show("land")
        return Said(COMMAND, "landed", 1.0, GOOD)


def test_an_order_goes_on_when_the_screen_is_closed(project: Project) -> None:
    """Break: show a step with `call_from_thread`, which raises in the accept once the screen has gone."""
    order = Slow()

    async def leave(screen: Driver) -> None:
        screen.app._run("w1", (COMMAND, order.act))
        await screen.until(lambda: "w1" in screen.app.jobs)
        await screen.press("q")
        assert screen.app.confirm is not None
        assert screen.app.confirm.question == f"{COMMAND} is still running. Quit when it finishes?"
        await screen.confirm()

    app = drive(project, leave)
    order.closed.set()
    told: list[str] = []
    app.finish(told.append)
    assert told == [f"waiting for {COMMAND} to finish", f"{COMMAND}  landed"]


def test_every_order_that_runs_is_asked_about(project: Project) -> None:
    """Break: ask about the first order only; or exit at the first `y`."""
    order, stopped = Slow(), threading.Event()

    def run(words: object, stopping: object) -> tuple[int, str]:
        assert callable(stopping)
        while not stopping():
            stopped.wait(0.02)
        raise ShuttingDown

    async def leave(screen: Driver) -> None:
        screen.app._run_command("wait w1")
        screen.app._run("w1", (COMMAND, order.act))
        await screen.until(lambda: "w1" in screen.app.jobs)
        await screen.press("q")
        assert screen.app.confirm is not None
        assert screen.app.confirm.question == "llmc wait w1 is still running. Stop it and quit?"
        await screen.confirm()
        await screen.until(lambda: screen.app.confirm is not None)
        assert COMMAND in screen.app.confirm.question
        await screen.press("escape")
        assert screen.app.confirm is not None, "too early"
        await screen.until(lambda: screen.app.confirm.listens)
        await screen.press("escape")
        assert screen.app.is_running
        await screen.press("ctrl+c")

    app = drive(project, leave, Typed(lambda words: [], run, lambda words: False, lambda line: []))
    order.closed.set()
    told: list[str] = []
    app.finish(told.append)
    assert told[-1] == f"{COMMAND}  landed"
    assert "llmc wait w1  stopped" in told


def test_an_error_of_the_runner_is_the_outcome(project: Project) -> None:
    """Break: run a typed command without `guarded`: its thread dies, and the bar shows the command for ever;
    or strip `llmc` twice.
    """

    def run(words: object, stopping: object) -> tuple[int, str]:
        raise LlmcError("printed more than 16 MiB", hint="Run it in a terminal.")

    async def type_it(screen: Driver) -> None:
        screen.app._run_command("llmc llmc status")
        await screen.until(lambda: screen.app.said[-1].outcome != "...")

    app = drive(project, type_it, Typed(lambda words: [], run, lambda words: False, lambda line: []))
    last = app.said[-1]
    assert (last.command, last.tone) == ("llmc llmc status", BAD)
    assert last.outcome.startswith("printed more than 16 MiB  Run it in a terminal.")
