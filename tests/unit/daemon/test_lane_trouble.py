"""A worker whose lane keeps failing is on the attention list, and a night does not wait for it."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmc.base.errors import LlmcError, Refused
from llmc.config.paths import Root
from llmc.daemon import lanes
from llmc.daemon.lanes import PASSES_S, Rounds
from llmc.records.store import Store
from llmc.records.worker import Status
from tests.support.records import worker

GONE = LlmcError("w1 is no worktree any more", hint="`llmc doctor --repair` makes it again.")

Tell = Callable[[Exception | None], dict[str, Any]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(lanes, "monotonic", lambda: made.now)
    return made


def lane(store: Store, auto: Any = None) -> Rounds:
    project: Any = SimpleNamespace(store=store)
    nothing: Any = None
    return Rounds(lambda: project, logging.getLogger("test"), nothing, nothing, auto, {}, nothing, nothing)


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """Reports a round, and returns what is then on the list."""
    store = Store(Root(tmp_path))
    store.create()
    with store.transaction() as tx:
        tx.put(worker(Status.WORKING))
    made = lane(store)
    name = next(iter(store.read().workers))

    def told(error: Exception | None) -> dict[str, Any]:
        made.tell_trouble(name, error)
        return {key: (item.kind, item.text, item.next) for key, item in store.read().attention.items()}

    return told


def test_an_error_that_stays_is_in_the_list(tell: Tell, clock: SimpleNamespace) -> None:
    """Break: only log it; the worker is `working` forever, and `status` shows nothing."""
    assert tell(GONE) == {}, "it may pass"
    clock.now += PASSES_S
    ((kind, text, following),) = tell(GONE).values()
    assert (kind, following) == ("trouble", "llmc doctor --repair")
    assert text.endswith("the daemon cannot continue with this worker: w1 is no worktree any more")
    assert tell(None) == {}
    assert tell(GONE) == {}, "counted from its own start"


def test_what_is_refused_for_long_is_no_trouble(tell: Tell, clock: SimpleNamespace) -> None:
    """Break: report a refusal; a user who has the worker would be notified about themselves."""
    tell(Refused("somebody is attached"))
    clock.now += 10 * PASSES_S
    assert tell(Refused("somebody is attached")) == {}


def test_a_bug_is_told_at_once(tell: Tell, clock: SimpleNamespace) -> None:
    ((kind, text, _),) = tell(ZeroDivisionError("oh")).values()
    assert (kind, text.endswith("bug in llmc: ZeroDivisionError: oh")) == ("bug", True)


def test_auto_mode_hears_of_a_lane_that_fails(tmp_path: Path) -> None:
    """Break: only raise; the task waits until the user looks."""
    heard: list[str] = []
    auto = SimpleNamespace(workers=("w1",), could_not_look=lambda name, error: heard.append(error.message))
    made = lane(Store(Root(tmp_path)), auto)

    def fails() -> Any:
        raise GONE

    made._current = fails
    with pytest.raises(LlmcError):
        made.look("w1", False)
    assert heard == ["w1 is no worktree any more"]
