"""What every test gets: no access to the user's home, tmux server or credentials, and a fleet on request."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from llmc.base import faults
from tests.support import on_postgres
from tests.support.fleet import SANDBOX, Fleet
from tests.support.loopback_api import LoopbackApi
from tests.support.npm_client import Unavailable
from tests.support.order import by_file, in_parts
from tests.support.webhook import Webhook

pytest_plugins = ["tests.support.requirements", "tests.support.shared_tasks"]

# Started in the background by a shell, the suite and all its programs would ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    alone, uncontained = item.get_closest_marker("alone"), item.get_closest_marker("uncontained")
    if alone is not None and on_postgres.is_on():
        pytest.skip(f"only for a root without a fleet: {alone.args[0]}")
    if uncontained is not None and SANDBOX != "off":
        pytest.skip(f"only for agents that are not contained: {uncontained.args[0]}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, the longest tests come first, then the end-to-end tests, spread evenly over the workers."""
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    if workers > 1:
        longest = {at: limit for at, item in enumerate(items) if (limit := limit_of(item)) >= LONGEST_S}
        found = by_file([item.nodeid for item in items])
        files = [(file, [at for at in tests if at not in longest]) for file, tests in found]
        slow = ("tests/e2e/", "tests/tools/")
        kinds = [[(size_of(file), at) for file, at in files if file.startswith(kind)] for kind in slow]
        quick = [one for file, at in files if not file.startswith(slow) for one in at]
        first = [(limit, [at]) for at, limit in longest.items()]
        items[:] = [items[at] for at in in_parts([first, *kinds], quick, workers)]


#: a test that may take this long would run alone at the end
LONGEST_S = 600


def limit_of(item: pytest.Item) -> int:
    """The time limit that a test sets itself."""
    found = item.get_closest_marker("timeout")
    return int(found.args[0]) if found is not None and found.args else 0


def size_of(file: str) -> int:
    """The size of a file says roughly how long its tests take."""
    return (Path(__file__).parents[1] / file).stat().st_size


def pytest_collection_finish() -> None:
    """Keep the objects made by collection until the end: the garbage collector need not check them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show hostile text in a failure as escapes: text that cannot be sent would end the whole run."""
    report = yield
    if report.longrepr is not None and not isinstance(report.longrepr, tuple):
        text = str(report.longrepr)
        if (plain := text.encode("utf-8", "backslashreplace").decode()) != text:
            report.longrepr = plain
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trap = tmp_path_factory.mktemp("trap") / "choose-a-root-explicitly"
    trap.write_text("a file, so that nothing can be created below it")
    return trap


@pytest.fixture(autouse=True)
def _faults_count_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault point that an earlier test passed counts as not passed yet."""
    monkeypatch.setattr(faults, "_passed", type(faults._passed)())


@pytest.fixture(autouse=True)
def _nothing_of_a_person(monkeypatch: pytest.MonkeyPatch, trap: Path) -> None:
    """The default home, root and tmux server are traps: a test that uses them by accident fails."""
    monkeypatch.setenv("HOME", str(trap))
    monkeypatch.setenv("TMUX_TMPDIR", str(trap))
    for name in list(os.environ):
        if name in ("LLMC_PORTABLE", on_postgres.SWITCH):
            continue  # `make soak` runs the tests with it
        if name.startswith(("LLMC_", "CLAUDE", "ANTHROPIC_", "GIT_")) or name in (
            "TMUX",
            "TMUX_PANE",
            "XDG_STATE_HOME",
        ):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def api() -> Iterator[LoopbackApi]:
    with LoopbackApi() as server:
        yield server


@pytest.fixture(params=["scripted", pytest.param("claude", marks=pytest.mark.real_client)])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A fleet on each agent: a scenario is written once and runs on all of them."""
    server = None if request.param == "scripted" else request.getfixturevalue("api")
    try:
        made = Fleet(request.param, server)
    except Unavailable as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture
def scripted() -> Iterator[Fleet]:
    """A fleet on the scripted agent only, for what does not depend on the agent."""
    made = Fleet("scripted")
    yield made
    made.close()


@pytest.fixture
def hook() -> Iterator[Webhook]:
    """Receives notifications."""
    with Webhook() as server:
        yield server
