"""An agent with other hooks, files, keys and another screen: llmc needs nothing of Claude Code's for it."""

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.agents.glance import glance
from llmc.agents.kinds import event_of, tool_children
from llmc.agents.protocol import ClientStatus
from llmc.auto.usage import Meters
from llmc.base.names import PaneId, PromptId, SessionName
from llmc.base.panes import Pane
from llmc.records.hook_events import HookEvent
from llmc.records.items import Glance
from llmc.records.worker import Asked, Delivery, Outcome, Status, Tokens, WorkerRecord
from llmc.sessions import leftovers, sessions, typist
from llmc.sessions.rules.decide import Facts, GitFacts, judge
from llmc.supervisor.remediation import RemediationLog
from llmc.workers.answering import _Dialog
from tests.support import other_agent
from tests.support.records import worker
from tests.support.waiting import wait_until

HERE = Pane(PaneId("%1"), SessionName("s"), False, False, None, os.getpid(), 1)


class Shows:
    """A tmux that shows one screen, and records the keys."""

    def __init__(self, shown: str = "$ \n") -> None:
        self.shown = shown
        self.keys: list[tuple[str, ...]] = []

    def screen(self, _: Any) -> tuple[str, None]:
        return self.shown, None

    def capture(self, _: Any) -> str:
        return self.shown

    def send_keys(self, _: Any, *keys: str) -> None:
        self.keys.append(keys)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    other_agent.register(monkeypatch)


@pytest.fixture
def record(tmp_path: Path) -> WorkerRecord:
    at = {"config_dir": str(tmp_path), "transcript_path": str(tmp_path / "talk-1")}
    return worker(Status.WORKING, agent=other_agent.NAME, current_prompt="do it", **at)


def says(record: WorkerRecord, *rows: str, state: str = "") -> None:
    """What it writes into its files."""
    with Path(record.transcript_path).open("a") as file:
        file.writelines(f"{row}\n" for row in rows)
    if state:
        Path(record.config_dir, f"{HERE.pid}.state").write_text(state)


def project_of(pane: Shows) -> Any:
    return SimpleNamespace(tmux=pane, root=None, pane=lambda _: HERE, pane_now=lambda _: HERE)


def test_its_hooks_move_a_worker(record: WorkerRecord) -> None:
    """Break: let agents/kinds.py read each hook as Claude Code's."""
    hook = HookEvent(id="1-1", worker="w1", instance="i1", payload={"hook_event_name": "fell_silent"})
    facts = Facts(git=GitFacts(head="c0ffee", ahead=1, dirty=False, rebasing=False))
    change = judge(record, event_of(hook, record.agent), facts).change
    assert change is not None
    assert change.to is Status.NEEDS_REVIEW


def test_its_own_files_say_how_it_is_and_what_waits_in_it(record: WorkerRecord) -> None:
    """Break: read Claude Code's status file or queue in sessions/."""
    says(record, "you> a", state=f"awake {time.time()}")
    assert sessions.status_of(record, HERE) is ClientStatus.BUSY
    assert not leftovers.has_queue(record, HERE)
    says(record, "later> b")
    assert leftovers.has_queue(record, HERE)
    says(record, state="asleep 1.0")
    assert leftovers.is_idle(record, HERE)


def test_the_status_asks_it_in_its_own_way(record: WorkerRecord) -> None:
    """Break: read Claude Code's status file in records/sight.py."""
    says(record, state="asking 1.0")
    asked = glance(record.agent, record.config_dir, HERE.pid)
    says(record, state="asleep 1.0")
    rests = glance(record.agent, record.config_dir, HERE.pid)
    assert (asked, rests) == (Glance("it asks"), Glance(rests=True))
    assert glance("", "", HERE.pid) == Glance()


def test_the_typist_uses_its_keys_and_believes_its_transcript(record: WorkerRecord) -> None:
    """Break: send `/clear` or C-u, or look for rows of Claude Code's transcript."""
    pane = Shows()
    delivery = Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.TYPED, at_unix=1.0, text="Do it")
    told = _Seated(project_of(pane), record, delivery)
    assert told._proof_in_transcript() is None
    says(record, r"later> [llmc task-1]\n\nDo it")
    assert told._proof_in_transcript() is Outcome.QUEUED
    pane.shown = f"some talk\n$ {told.header}\n"
    assert told._box_is_ours()
    told.cleared = True
    told._new_conversation(was_busy=False)
    pane.shown = "$ \n"
    typist.leave(project_of(pane), record)
    sessions.interrupt(project_of(pane), record, HERE)
    assert pane.keys == [(":new", "Enter"), (":bye", "Enter"), ("C-c",)]


def test_a_question_is_answered_with_its_keys(record: WorkerRecord) -> None:
    """Break: press the number of an option, or look for the answer in rows of Claude Code's transcript."""
    asked = Asked(tool="ask", text="Which?", at_unix=1.0, options=("red", "green"), answerable=True)
    pane = Shows("Which?\n")
    says(record, state="choosing 1.0")
    dialog = _Dialog(project_of(pane), record, asked, PromptId("answer-1"))
    assert dialog._shown() is None, "the user opened that one"
    says(record, "re Which?> green", state="asking 1.0")
    dialog._choose(2)
    assert (pane.keys, dialog.given) == ([("b",)], "green")


def test_its_tokens_count_and_its_words_are_kept(record: WorkerRecord, tmp_path: Path) -> None:
    """Break: meter or print rows of Claude Code's transcript."""
    says(record, "you> go", "cost> opus 3", "cost> opus 4", "me> done")
    path = record.transcript_path
    assert Meters().read(record, {path}) == {path: {"opus": Tokens(output_tokens=7)}}
    log = RemediationLog(tmp_path / "log.txt")
    assert log.follow(other_agent.OtherReader().transcript(path))
    assert log.turn_is_over
    assert log.path.read_text().startswith("agent: go\n")


def test_what_it_started_is_found_by_its_own_mark(record: WorkerRecord) -> None:
    """Break: know only one mark: this agent's leftover processes would keep writing after a reset."""
    mine = f"o{os.getpid()}"
    env = {**os.environ, "LLMC_INSTANCE": mine}
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**env, "OTHER_CHILD": "1"}) as child,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env),
    ):
        wait_until(lambda: tool_children(mine))
        assert [process.pid for process in tool_children(mine)] == [child.pid]


class _Seated(typist.Typist):
    cleared = False

    def _living_pane(self) -> Any:
        return HERE

    def _events(self) -> list[Any]:
        return []

    def _cleared(self, _: set[str]) -> bool:
        return self.cleared

    def _remember(self, delivery: Delivery) -> None:
        self.delivery = replace(delivery)
