"""What the typist trusts, and when it presses nothing: without an agent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmc.agents.agent_events import Box, Composer
from llmc.agents.protocol import ClientStatus
from llmc.base.names import PaneId, PromptId, SessionName
from llmc.base.panes import Pane
from llmc.records.hook_events import HookEvent
from llmc.records.worker import Delivery, Outcome
from llmc.sessions import typist
from llmc.sessions.typist import Typist
from tests.support.records import worker


class Seated(Typist):
    """With an agent that the test describes."""

    status, box, lives = ClientStatus.IDLE, Composer(Box.EMPTY), True

    def __init__(self, outcome: Outcome, transcript: Path = Path("/none")) -> None:
        self.keys: list[tuple[str, ...]] = []
        project: Any = SimpleNamespace(root=None)
        record = worker(instance="i-2", transcript_path=str(transcript))
        delivery = Delivery(prompt_id=PromptId("task-1"), outcome=outcome, at_unix=1.0, text="Do it")
        super().__init__(project, record, delivery)

    def _living_pane(self) -> Any:
        return None

    def _status(self) -> ClientStatus:
        return self.status

    def _box(self) -> Composer:
        return self.box

    def _keys(self, *keys: str) -> None:
        self.keys.append(keys)

    def _lives(self) -> bool:
        return self.lives


def test_where_proof_is_looked_for(tmp_path: Path) -> None:
    """Break: for text typed before a crash, check only new rows; or for a first try, check old ones."""
    transcript = tmp_path / "t.jsonl"
    transcript.write_text("x" * 100)
    assert Seated(Outcome.PENDING, transcript).transcript_offset == 100
    assert Seated(Outcome.TYPED, transcript).transcript_offset == 0


def test_what_another_launch_said_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: trust every event of the inbox."""
    names = {"1-1.json": "i-1", "2-1.json": "i-2"}

    def load(_: Any, name: str, event_id: str) -> HookEvent:
        return HookEvent(id=event_id, worker=name, instance=names[event_id], payload={})

    monkeypatch.setattr(typist.inbox, "pending_ids", lambda *_: list(names))
    monkeypatch.setattr(typist.inbox, "load", load)
    assert [event.instance for event in Seated(Outcome.PENDING)._events()] == ["i-2"]


def test_only_our_own_text_is_taken_back() -> None:
    """Break: press C-u although a dialog is open, or another text is in the box."""
    seated = Seated(Outcome.TYPED)
    seated.box = Composer(Box.DRAFT, f"{seated.header}\nDo it")
    assert seated._box_is_ours()
    seated.status = ClientStatus.WAITING
    assert "no longer in its input box" in seated._take_back()
    seated.status, seated.box = ClientStatus.IDLE, Composer(Box.DRAFT, "a person's draft")
    assert "no longer in its input box" in seated._take_back()
    assert seated.keys == []


def test_blanks_are_not_removed_under_a_dialog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: clear the line whatever the client reports."""
    monkeypatch.setattr(typist, "_see", lambda condition, _: condition())
    seated = Seated(Outcome.PENDING)
    seated.box = Composer(Box.BLANK)
    seated.status = ClientStatus.WAITING
    assert not seated._wait_for_an_empty_box()
    assert seated.keys == []
    seated.status = ClientStatus.IDLE
    seated._wait_for_an_empty_box()
    assert seated.keys == [("C-u",) * typist.CLEARING_KEYS]


@pytest.mark.parametrize(("starved", "trace"), [(True, typist._Trace.UNCLEAR), (False, typist._Trace.NONE)])
def test_an_agent_that_waits_for_cpu_time_does_not_rest(
    monkeypatch: pytest.MonkeyPatch, starved: bool, trace: typist._Trace
) -> None:
    """Break: trust only its status file; the keys it has not read yet would be typed again."""
    monkeypatch.setattr(typist, "REST_S", 0.05)
    monkeypatch.setattr(typist, "DOUBT_S", 0.3)
    monkeypatch.setattr(typist.inbox, "pending_ids", lambda *_: [])
    monkeypatch.setattr(typist.processes, "waits_for_a_turn", lambda _: starved)
    seated = Seated(Outcome.TYPED)
    seated.pane = Pane(PaneId("%1"), SessionName("s"), False, False, None, pid=1, server_pid=0)
    assert seated._trace_of_an_earlier_try() is trace


@pytest.mark.parametrize(("busy", "outcome"), [(True, Outcome.QUEUED), (False, Outcome.ACKNOWLEDGED)])
def test_what_a_busy_agent_confirms_is_queued(busy: bool, outcome: Outcome) -> None:
    """Its turn continues first. Break: report it as acknowledged; an interrupt would then send it."""
    seated = Seated(Outcome.PENDING)
    seated.proof = Outcome.ACKNOWLEDGED
    assert seated._press_enter(busy) == (outcome, "", None)
    assert seated.keys == [("Enter",)]
