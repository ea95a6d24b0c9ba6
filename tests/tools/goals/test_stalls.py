"""When silence is a stall, on real transcripts and records: in time, never while active, and bounded."""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.config.goal_options import GoalPlanner
from llmc.goals import dispatch, signals
from llmc.goals import work as by_user
from llmc.goals.desk import Aside
from llmc.goals.dispatch import Done
from llmc.goals.model import AssignmentStatus, Change, NodeStatus, Recovery, Result
from llmc.goals.runner import Runner
from tests.support import on_postgres
from tests.support.goal_plans import node as planned
from tests.support.goal_workshop import LEAF, Clock, Workshop, worker_at

pytestmark = on_postgres.PLAYED

IDLE_S, TICK_S = 900.0, 120.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().set_up(monkeypatch)


class AtWork:
    """A worker that has the leaf, and a conversation."""

    def __init__(self, directory: Path, clock: Clock, **goals: Any) -> None:
        self.shop = Workshop(directory / "root", **goals)
        self.clock = clock
        self.transcript = directory / "talk.jsonl"
        self.shop.tick()
        assert self.begin()

    def begin(self) -> bool:
        """Whether there was something to start."""
        self.clock.now += 1
        taken = self.shop.take()
        if taken is not None:
            worker_at(self.shop, taken[1], self.clock.now, self.transcript)
            self.say()
        return taken is not None

    def say(self) -> None:
        """The agent writes something."""
        at = datetime.fromtimestamp(self.clock.now, UTC).isoformat()
        self._grow(self.transcript, {"type": "assistant", "timestamp": at, "message": {"content": "Hm."}})

    def tool_prints(self) -> None:
        self._grow(self.transcript, {"type": "user", "message": {"content": [{"type": "tool_result"}]}})

    def subagent_writes(self) -> None:
        folder = self.transcript.with_suffix("") / "subagents"
        folder.mkdir(parents=True, exist_ok=True)
        self._grow(folder / "agent-1.jsonl", {"type": "assistant"})

    def _grow(self, path: Path, row: dict[str, Any]) -> None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        os.utime(path, (self.clock.now, self.clock.now))

    def stalls(self) -> list[float]:
        with self.shop.store.reading() as found:
            return [event.ts for _, event in found.events() if event.type == "assignment.stalled"]


@pytest.mark.req("3-039")
@pytest.mark.parametrize("own_limit_s", [None, 300.0])
def test_a_stall_is_found_within_the_limit_and_one_tick(
    tmp_path: Path, clock: Clock, own_limit_s: float | None
) -> None:
    """Break: use the configured limit for an assignment that has its own, in signals._of_worker."""
    work = AtWork(tmp_path, clock)
    if own_limit_s is not None:
        work.shop.store.apply(
            Change(assignments=(replace(work.shop.one(), idle_after_ms=int(own_limit_s * 1000)),))
        )
    work.shop.pass_time(clock, 200)
    work.say()
    last = clock.now
    work.shop.pass_time(clock, 3 * IDLE_S)
    limit_s = own_limit_s or IDLE_S
    assert limit_s <= work.stalls()[0] - last <= limit_s + TICK_S


@pytest.mark.req("3-X3", "3-036")
@pytest.mark.parametrize("sign", ["say", "tool_prints", "subagent_writes", "commits", "parked"])
def test_nothing_that_stirs_is_stalled(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """Break: leave out session_updated_at, the commits, or is_parked."""
    work = AtWork(tmp_path, clock)
    signs: dict[str, Callable[[], object]] = {
        "commits": lambda: monkeypatch.setattr(signals, "_committed", _at(clock.now)),
        "parked": lambda: None,
    }
    if sign == "parked":
        with work.shop.project.store.transaction() as tx:
            tx.update_auto(parked_until_unix=clock.now + 1e6, parked_cause="limit")
    for _ in range(8):
        work.shop.pass_time(clock, IDLE_S - 10)
        signs.get(sign, getattr(work, sign, None) or (lambda: None))()
        work.shop.tick()
    assert work.stalls() == []
    assert work.shop.one().status is AssignmentStatus.ACTIVE
    assert [one.purpose for one in work.shop.history()] == ["work"]


def _at(when: float) -> Callable[..., float]:
    return lambda *_: when


@pytest.mark.req("3-X2")
def test_our_own_prompt_is_no_sign_of_life(tmp_path: Path, clock: Clock) -> None:
    """Break: leave is_echo out of signals._of_worker."""
    work = AtWork(tmp_path, clock)
    last = clock.now
    work.shop.pass_time(clock, IDLE_S - 100)
    with work.shop.project.store.transaction() as tx:
        tx.emit("prompt_pending", worker="auto-1", prompt_id="message-1")
    _stamp_last_event(work.shop, clock.now)
    clock.now += 1
    work.tool_prints()  # as our own prompt makes the conversation grow
    work.shop.pass_time(clock, 2 * IDLE_S)
    assert work.stalls()[0] - last <= IDLE_S + TICK_S + 1


def _stamp_last_event(shop: Workshop, at: float) -> None:
    """Events have the real clock's time; this one has the test's."""
    path = shop.project.root.events
    *before, last = path.read_text().splitlines()
    path.write_text("\n".join([*before, json.dumps({**json.loads(last), "ts": at})]) + "\n")


@pytest.mark.req("3-108", "3-X5", "3-028")
@pytest.mark.soak
def test_the_effort_for_one_assignment_is_bounded(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let next_step nudge without a limit, or remind without one."""
    asked = tmp_path / "asked"
    work = AtWork(tmp_path, clock, planner=GoalPlanner(command=f"echo x >> {asked}"))
    monkeypatch.setattr(dispatch, "_send", lambda *_: Done(Result.OK))
    _fall_silent(work, clock, monkeypatch)
    purposes = [one.purpose for one in work.shop.history()]
    assert purposes == ["work", "nudge", "nudge", "reassign", "escalate", "reminder", "reminder", "reminder"]
    spent = sum(one.attempts for one in work.shop.history() if one.purpose != "reminder")
    assert spent <= 2 + 4
    assert not asked.exists(), "no model was asked about what rules can decide"


def _fall_silent(work: AtWork, clock: Clock, monkeypatch: pytest.MonkeyPatch, rounds: int = 60) -> None:
    """The assigned worker is silent for a long time, and so is every worker that gets it next."""

    def reset(project: Any, worker: str) -> None:
        for claim in tuple(work.shop.source.books().claims.values()):
            work.shop.source.release(claim, "reset")
        with project.store.transaction() as tx:
            tx.remove(worker)

    monkeypatch.setattr(dispatch, "reset_unattended", reset)
    for _ in range(rounds):
        work.shop.pass_time(clock, IDLE_S)
        if work.shop.source.books().claims == {}:
            work.begin()


@pytest.mark.req("3-087", "3-086")
@pytest.mark.parametrize("answer", ["advice", "garbage"])
def test_a_planner_is_asked_about_a_stall_where_that_is_wanted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Once, when the rules are exhausted: its message is sent, then its question is asked. Anything but
    nudges and questions is refused, and then the user is asked as without it.

    Break: leave `_advised` out of `_step`; take `advice.question` out of `stalled_reason`; no DIAGNOSE in `_act`.
    """
    told, sent = tmp_path / "told", []
    said: dict[str, Any] = {
        "actions": [
            {"type": "nudge", "message": "Leave the grammar, split at commas."},
            {"type": "escalate", "question": "CSV or TSV?", "options": ["CSV", "TSV"]},
        ]
    }
    if answer == "garbage":
        said = {"actions": [{"type": "shell", "message": "rm -rf /"}]}
    (tmp_path / "said").write_text(json.dumps(said))
    command = f"cat >> {told}; echo $LLMC_PLAN_KIND >> {told}.kinds; cat {tmp_path}/said"
    work = AtWork(tmp_path, clock, planner=GoalPlanner(command=command, diagnose=True, max_repair_attempts=1))

    def send(project: Any, action: Any) -> Done:
        sent.append(action.text)
        return Done(Result.OK)

    monkeypatch.setattr(dispatch, "_send", send)
    _fall_silent(work, clock, monkeypatch, rounds=10)
    purposes = [one.purpose for one in work.shop.history() if one.purpose != "reminder"]
    usual = ["work", "nudge", "nudge", "reassign", "diagnose"]
    assert "no activity for" in told.read_text(), "it gets the observations"
    reason = work.shop.one().blocked_reason
    assert reason is not None
    if answer == "advice":
        assert purposes == [*usual, "nudge", "escalate"]
        assert "split at commas" in sent[-1]
        assert (reason.question, reason.options) == ("CSV or TSV?", ("CSV", "TSV"))
        assert Path(f"{told}.kinds").read_text().split() == ["diagnose"]
    else:
        assert purposes == [*usual, "escalate"]
        assert reason.question == f"How should llmc proceed with {LEAF}?"
        (asked,) = [one for one in work.shop.history() if one.purpose == "diagnose"]
        assert (asked.result, "did not return a valid answer" in asked.notes) == (Result.ERROR, True)
        assert Path(f"{told}.kinds").read_text().split() == ["diagnose"] * 2, "sent back only once"


@pytest.mark.parametrize("meanwhile", ["nothing", "worker", "user"])
def test_a_split_counts_only_while_the_work_is_stalled(tmp_path: Path, clock: Clock, meanwhile: str) -> None:
    """The planner takes minutes. If the worker resumes or the user blocks the item, its answer is not used.

    Break: leave `_still_wanted` out of `_used` in planning.py.
    """
    gate, split = tmp_path / "go", {"planVersion": 1, "subtasks": [planned("S1.1.8"), planned("S1.1.9")]}
    (tmp_path / "split").write_text(json.dumps(split))
    command = f"while ! test -e {gate}; do sleep 0.02; done; cat {tmp_path}/split"
    work = AtWork(tmp_path, clock, planner=GoalPlanner(command=command, max_repair_attempts=0))
    shop, answered = work.shop, threading.Event()
    shop.tick()
    leaf = replace(shop.view.nodes[LEAF], risk_level="high")
    one = replace(shop.one(), recovery_policy=Recovery.REPLAN)
    shop.store.apply(Change(nodes=(leaf,), assignments=(one,)))
    with ThreadPoolExecutor(1) as pool:
        shop.runner = Runner(shop.project, Aside(pool, answered.set))
        shop.pass_time(clock, IDLE_S + TICK_S)
        assert [each.purpose for each in shop.history()] == ["work", "replan"]
        if meanwhile == "worker":
            work.say()
            shop.tick()
            assert shop.one().status is AssignmentStatus.ACTIVE
        elif meanwhile == "user":
            by_user.block(shop.project, LEAF, reason="needs the new server")
        gate.touch()
        assert answered.wait(30)
    shop.tick()
    if meanwhile == "nothing":
        assert sorted(shop.view.nodes) == ["P1", "S1.1.8", "S1.1.9", "T1.1"]
        return
    ends = {"worker": (NodeStatus.IN_PROGRESS, AssignmentStatus.ACTIVE)}
    kept = ends.get(meanwhile, (NodeStatus.BLOCKED, AssignmentStatus.BLOCKED))
    assert (shop.view.nodes[LEAF].status, shop.one().status) == kept
    assert shop.source.books().claims != {}, "the worker keeps its task"
    log = (shop.project.root.logs / "goals.log").read_text()
    assert f"replan {LEAF}: error (not used: the work resumed or changed while the planner ran)" in log
