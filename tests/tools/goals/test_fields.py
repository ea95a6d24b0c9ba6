"""llmc itself sets every field of every goal record: one that only tests set is dead."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmc.config.goal_options import GoalPlanner
from llmc.goals import dispatch, goals, model, planning, work
from llmc.goals.dispatch import Done
from llmc.goals.model import Change, DeliveryContext, GoalView, Row
from llmc.goals.planning import replan_by_hand
from llmc.goals.store.rows import Writer
from tests.support.goal_workshop import Clock, Workshop, worker_at

#: fields that keep their initial value in this test, and why
UNSEEN = {
    ("Assignment", "agent_id"): "a person's own worker: tests/tools/goals/test_signals.py",
    ("Goal", "repo_context_snapshot"): "the source here is no repository: tests/e2e/test_goal_truth.py",
    ("CriteriaCheck", "commit"): "the same",
}
PLAN: dict[str, Any] = {
    "planVersion": 1,
    "goal": {"title": "Import", "successCriteria": ["`true` passes"], "constraints": ["none"]},
    "phases": [
        {
            "id": "P1",
            "name": "First",
            "objective": "o",
            "acceptance": ["a"],
            "tasks": [
                {
                    "id": "T1.1",
                    "name": "One",
                    "objective": "read",
                    "outcome": "rows",
                    "acceptance": ["it reads"],
                    "definitionOfDone": "merged",
                    "suggestedAgentId": "auto",
                    "suggestedAgentType": "coder",
                    "requiredTools": ["Bash"],
                    "estimatedEffort": "1h",
                    "riskLevel": "low",
                    "verify": "true",
                    "recoveryPolicy": "resend_last",
                    "idleAfter": "15m",
                },
                {"id": "T1.2", "name": "Two", "objective": "o", "acceptance": ["a"], "deps": ["T1.1"]},
                {"id": "T1.3", "name": "Three", "objective": "o", "acceptance": ["a"], "deps": ["T1.2"]},
            ],
        }
    ],
}
ADVICE = {
    "actions": [
        {"type": "nudge", "message": "Go on."},
        {"type": "escalate", "question": "A or B?", "options": ["A", "B"]},
    ]
}


class Filled:
    """Which fields of which records were ever set to something other than their default."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> "Filled":
        real = Writer.apply

        def apply(writer: Writer, change: Change, *, typed: bool = False) -> None:
            for record in (
                change.goal,
                *change.nodes,
                *change.assignments,
                *change.crystallizations,
                *change.events,
            ):
                self.take(record)
            real(writer, change, typed=typed)

        monkeypatch.setattr(Writer, "apply", apply)
        return self

    def take(self, value: Any) -> None:
        if isinstance(value, tuple):
            for one in value:
                self.take(one)
        if not isinstance(value, Row):
            return
        for one in msgspec.structs.fields(type(value)):
            held = getattr(value, one.name)
            usual = one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory()
            if held != usual and held not in ("", (), None):
                self.seen.add((type(value).__name__, one.name))
            self.take(held)


def wanted() -> set[tuple[str, str]]:
    kinds = [
        kind
        for kind in vars(model).values()
        if isinstance(kind, type) and issubclass(kind, Row) and kind is not Row
    ]
    return {(kind.__name__, one.name) for kind in kinds for one in msgspec.structs.fields(kind)}


class Made(Workshop):
    """A goal created by a command and planned by a planner, not written by a test."""

    goal_id = ""

    def __init__(self, directory: Path, **goals: Any) -> None:
        super().__init__(directory, **goals)
        self.store.path.unlink()

    @property
    def view(self) -> GoalView:
        return self.store.view(self.goal_id)

    def report(self, worker: str, kind: str, text: str, at: float, **more: Any) -> None:
        """As the daemon writes it to the event log, from `llmc report`."""
        row = {
            "seq": 1,
            "ts": at,
            "action": "agent_reported",
            "worker": worker,
            "kind": kind,
            "text": text,
            **more,
        }
        with self.project.root.events.open("a") as log:
            log.write(json.dumps(row) + "\n")


@pytest.mark.req(
    *("3-061", "3-062", "3-063", "3-064", "3-065", "3-066", "3-067", "3-068", "3-069", "3-071", "3-072"),
    *("3-073", "3-075", "3-076"),
)
def test_every_field_is_filled_by_what_llmc_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: do not set `idle_after_ms` in `_new_assignment`; forget `message_id` in `_crystallized`; or any other."""
    filled, clock = Filled().watch(monkeypatch), Clock().set_up(monkeypatch)
    monkeypatch.setattr(goals, "now_unix", clock)
    monkeypatch.setattr(dispatch, "_send", lambda *_: Done(model.Result.OK, "typed", "p1"))
    for name, value in (("plan", PLAN), ("diagnose", ADVICE)):
        (tmp_path / name).write_text(json.dumps(value))
    command = f"if [ -e {tmp_path}/mute ]; then false; elif [ $LLMC_PLAN_ATTEMPT = 1 ] && [ $LLMC_PLAN_KIND = plan ]; then echo no; else cat {tmp_path}/$LLMC_PLAN_KIND; fi"
    shop = Made(tmp_path / "root", tick_every=300.0, planner=GoalPlanner(command=command, diagnose=True))
    wish = goals.new_goal(
        title="Import CSV files",
        problem_statement="by hand",
        success_criteria=("docs",),
        non_goals=("Excel",),
        constraints=("no new dependency",),
        assumptions=("small files",),
        risks=(goals.risk_of("odd encodings | wrong names | detect"),),
        tags=("import",),
        stakeholders=("finance",),
        priority=model.Priority.HIGH,
        owner="ada",
        budget_usd=5.0,
        origin=model.Origin(
            source_session_key="agent:adam:worker:adam",
            origin_delivery_context=goals.reply_to("webhook:ada", "t1", "main"),
        ),
    )
    made = planning.create(shop.project, wish, planning.first_plan)
    assert made.planned, made
    shop.goal_id = made.view.goal.goal_id
    assert shop.view.goal.origin.origin_delivery_context == DeliveryContext(
        channel="webhook", to="ada", thread="t1", account="main"
    )
    (tmp_path / "mute").touch()
    planning.create(shop.project, goals.new_goal(title="Unplanned"), planning.first_plan)
    (tmp_path / "mute").unlink()

    _drive(shop, clock, tmp_path, monkeypatch)
    _finish(shop, tmp_path)
    missing = wanted() - filled.seen - UNSEEN.keys()
    assert not missing, sorted(missing)
    assert not UNSEEN.keys() & filled.seen, "these no longer need an exception"


def _drive(shop: Made, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent, reported on, goes silent, is reassigned, asked about, and answered."""

    def reset(project: Any, worker: str) -> None:
        for claim in tuple(shop.source.books().claims.values()):
            shop.source.release(claim, "reset")
        with project.store.transaction() as tx:
            tx.remove(worker)

    monkeypatch.setattr(dispatch, "reset_unattended", reset)
    talk = folder / "talk.jsonl"

    def begin() -> str:
        clock.now += 1
        taken = shop.take()
        assert taken is not None
        worker = worker_at(shop, taken[1], clock.now, talk)
        at = datetime.fromtimestamp(clock.now + 1, UTC).isoformat()
        talk.write_text(
            json.dumps({"type": "assistant", "timestamp": at, "message": {"content": "Hm."}}) + "\n"
        )
        os.utime(talk, (clock.now + 1, clock.now + 1))
        with shop.project.store.transaction() as tx:
            tx.put(msgspec.structs.replace(tx.worker(worker), claude_session_id="s-1"))
        return worker

    shop.tick()
    worker = begin()
    clock.now += 5
    shop.tick()
    shop.report(worker, "blocked", "no key", clock.now)
    clock.now += 5
    shop.tick()
    (question,) = [one for one in work.open_questions(shop.project) if one.work_node_id]
    reset(shop.project, worker)  # it was needed for another task: the session that asked is gone
    work.answer(shop.project, question.id, "it is in the vault")
    clock.now += 5
    shop.tick()
    worker = begin()
    clock.now += 5
    said = {
        "next": ["docs"],
        "currentState": "half",
        "decisions": [{"decision": "by hand", "rationale": "two formats"}],
        "openQuestions": ["Tabs?"],
        "evidence": {
            "filesTouched": ["a.py"],
            "commandsRun": ["make"],
            "testsRun": [{"command": "make", "result": "ok"}],
            "commits": ["1a2b"],
            "prs": ["1"],
            "issues": ["2"],
            "externalRefs": ["https://example.com"],
        },
    }
    shop.report(worker, "progress", "halfway", clock.now, update=said, message_id="m-1")
    clock.now += 5
    shop.tick()
    for _ in range(12):  # silent long enough for the whole ladder, and a reminder
        shop.pass_time(clock, 900.0)
        if not shop.source.books().claims and shop.tasks():
            begin()
    clock.now += 5 * 3600.0
    shop.pass_time(clock, 2400.0)
    (question,) = [one for one in work.open_questions(shop.project) if one.work_node_id]
    work.answer(shop.project, question.id, "1")
    shop.tick()


def _finish(shop: Made, folder: Path) -> None:
    """The user's commands, another plan, and the end."""
    work.block(shop.project, "T1.2", shop.goal_id, reason="which server?")
    work.unblock(shop.project, "T1.2", shop.goal_id, reason="the second")
    work.override(shop.project, "T1.3", shop.goal_id, status="done", reason="not worth it")
    other = json.loads(json.dumps(PLAN))
    tasks = other["phases"][0]["tasks"]
    tasks[1] |= {"id": "T1.9", "deps": ["T1.1"], "acceptance": ["b"]}
    tasks[0]["acceptance"] = ["it reads all"]
    tasks[2:] = [{"id": "T1.4", "name": "Four", "objective": "o", "acceptance": ["a"]}]
    (folder / "other.json").write_text(json.dumps(other))
    replan_by_hand(shop.project, shop.goal_id, "smaller", folder / "other.json")
    del tasks[2]
    (folder / "other.json").write_text(json.dumps(other))
    replan_by_hand(shop.project, shop.goal_id, "not four", folder / "other.json")
    for node_id in ("T1.1", "T1.9"):
        work.done(shop.project, node_id, shop.goal_id, summary="by hand", commits=("1a2b",))
    shop.tick()
    work.answer(shop.project, shop.goal_id, "complete it anyway")
    assert shop.view.goal.status is model.GoalStatus.COMPLETED
