"""The worker state machine: every pair of its table, and long random lives of a worker."""

from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from llmc.agents.kinds import event_of
from llmc.base.names import PromptId, TaskId
from llmc.records.hook_events import HookEvent
from llmc.records.transitions import ALLOWED, IllegalTransition, apply, is_allowed, problems, step
from llmc.records.worker import AcceptJournal, Assignment, Delivery, Outcome, Status, WorkerRecord
from llmc.sessions.rules.decide import Facts, GitFacts, judge
from tests.support.records import BROUGHT, worker


def busy_fields() -> dict[str, Any]:
    """Everything a worker may have from its last task."""
    delivery = Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.ACKNOWLEDGED, at_unix=1.0)
    return {
        "current_prompt": "do it",
        "delivery": delivery,
        "error_reason": "an old one",
        "cause": "limit",
        "accept": AcceptJournal(step="land", started_unix=1.0, tip="abc"),
        "instance": "i1",
    }


def test_the_wait_for_an_answer_is_not_charged_to_the_task() -> None:
    """Break: count it: a task that is answered after the night is given up as too slow."""
    task = Assignment(task_id=TaskId("7"), claim="c", since_unix=1.0, waited_s=5.0)
    asks = worker(Status.NEEDS_INPUT, reason="blocked", since_unix=10.0, assignment=task)
    answered = apply(asks, step(Status.WORKING, "prompt arrived"), 100.0)
    assert answered.assignment == replace(task, waited_s=95.0)
    stopped = replace(asks, reason="stopped_clean")
    assert apply(stopped, step(Status.WORKING, "prompt arrived"), 100.0).assignment == task
    assert apply(asks, step(Status.IDLE, "reset"), 100.0).assignment is None


@pytest.mark.req("1-010", "1-041", "1-042")
@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_every_pair(before: Status, after: Status) -> None:
    """Breaks when `apply` does not check the table, or does not clear the fields of the old status."""
    record = worker(before, **busy_fields())
    change = step(after, "because", **BROUGHT.get(after, {}))
    assert is_allowed(record, after) == ((before, after) in ALLOWED)
    if (before, after) not in ALLOWED:
        with pytest.raises(IllegalTransition, match=f"{before} -> {after}"):
            apply(record, change, 50.0)
        return
    moved = apply(record, change, 50.0)
    assert (moved.status, moved.reason) == (after, "because")
    assert (moved.since_unix, moved.last_activity_unix) == (50.0, 50.0)
    assert moved.commit_sha == ("c0ffee" if after is Status.NEEDS_REVIEW else None)
    assert moved.error_reason == ("it broke" if after is Status.ERROR else "")
    assert moved.cause == ("config" if after is Status.ERROR else "")
    assert moved.instance == ("" if after is Status.OFFLINE else "i1")
    assert moved.delivery == record.delivery, "a prompt that arrives late must still be known"
    assert (moved.current_prompt, moved.accept) == (
        ("", None) if after is Status.IDLE else (record.current_prompt, record.accept)
    )
    assert problems(moved) == []


@pytest.mark.req("1-010", "1-017")
def test_the_table_itself() -> None:
    """No step to the current status, every status can be reached and left, error only by the user."""
    names = "offline idle working needs_input needs_review reviewing rejected rebasing no_changes error"
    assert [status.value for status in Status] == names.split()
    assert all(before is not after for before, after in ALLOWED)
    assert {after for _, after in ALLOWED} == set(Status)
    assert {before for before, _ in ALLOWED} == set(Status)
    assert [after for before, after in ALLOWED if before is Status.ERROR] == [
        *(Status.IDLE, Status.WORKING, Status.REBASING, Status.NEEDS_REVIEW)
    ]


@pytest.mark.req("1-042")
@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (worker(Status.NEEDS_REVIEW, commit_sha=None), "commit_sha"),
        (worker(Status.WORKING, commit_sha="c0ffee"), "commit_sha"),
        (worker(Status.REVIEWING, commit_sha="c0ffee"), "commit_sha"),
        (worker(Status.ERROR, error_reason=""), "without a reason"),
        (worker(Status.IDLE, accept=AcceptJournal(step="land", started_unix=1.0, tip="a")), "accept"),
        (worker(worktree_path="relative"), "absolute"),
    ],
)
def test_problems_names_each_contradiction(record: WorkerRecord, problem: str) -> None:
    """Breaks when one check of `problems` is dropped."""
    assert len(problems(record)) == 1
    assert problem in problems(record)[0]


HOOKS = [
    "SessionStart",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "PermissionRequest",
    "Notification",
    "SubagentStop",
    "PaneDied",
    "Report",
    "SomethingNew",
    "",
]
ERRORS = [
    "rate_limit",
    "overloaded",
    "authentication_failed",
    "model_not_found",
    "max_output_tokens",
    "new",
    "",
]
PROMPTS = ["[llmc task-1]\ndo it\n", "[llmc task-2]\nelse\n", "a person's own words", ""]

PAYLOADS = st.fixed_dictionaries(
    {"hook_event_name": st.sampled_from(HOOKS)},
    optional={
        "session_id": st.sampled_from(["s1", "s2", ""]) | st.none(),
        "source": st.sampled_from(["startup", "resume", "clear"]),
        "transcript_path": st.sampled_from(["/t/1.jsonl", "", 7]),
        "agent_id": st.sampled_from(["", "a1"]),
        "background_tasks": st.sampled_from(
            [[], [{"status": "running"}], [{"status": "completed"}], "odd", None]
        ),
        "error": st.sampled_from(ERRORS) | st.none(),
        "last_assistant_message": st.sampled_from(["", "it said no"]),
        "prompt": st.sampled_from(PROMPTS),
        "tool_name": st.sampled_from(["AskUserQuestion", "Bash"]),
        "kind": st.sampled_from(["done", "blocked", "progress", ""]),
        "text": st.sampled_from(["because", ""]),
        "no_changes": st.booleans(),
    },
)
GIT = st.none() | st.builds(
    GitFacts,
    head=st.sampled_from(["c0ffee", "0ff1ce"]),
    ahead=st.integers(0, 2),
    dirty=st.booleans(),
    rebasing=st.booleans(),
    on_base=st.booleans(),
    marked=st.sampled_from([(), ("a.txt",)]),
)
FACTS = st.builds(Facts, git=GIT, exit_code=st.none() | st.sampled_from([0, 130, 1, 137]))
PERSONS_STEPS = st.sampled_from(
    [Status.IDLE, Status.REJECTED, Status.REVIEWING, Status.REBASING, Status.NO_CHANGES]
)


class Life(RuleBasedStateMachine):
    """A worker whose agent reports anything at any time, while llmc launches it and users run commands."""

    @initialize()
    def added(self) -> None:
        self.record = worker(instance="")
        self.now = 100.0
        self.launches = 0

    def move(self, to: Status) -> None:
        fields = BROUGHT.get(to, {})
        self.record = apply(self.record, step(to, "a command", **fields), self.now)

    @rule(payload=PAYLOADS, facts=FACTS)
    def the_agent_says(self, payload: dict[str, Any], facts: Facts) -> None:
        """As sessions/intake.py does it: fields, then the step."""
        self.now += 1
        event = HookEvent(
            id=f"{int(self.now)}000000000-1", worker="w1", instance=self.record.instance, payload=payload
        )
        before = self.record
        verdict = judge(before, event_of(event, "claude"), facts)
        assert "status" not in verdict.fields
        self.record = replace(before, **verdict.fields)
        if verdict.change:
            self.record = apply(self.record, verdict.change, self.now)
        if before.status is Status.ERROR:
            assert self.record.status is Status.ERROR
        if not before.instance:
            assert self.record == before, "without an agent nothing can report for it"

    @rule(payload=PAYLOADS, facts=FACTS, instance=st.sampled_from(["", "an-earlier-one"]))
    def another_agent_says(self, payload: dict[str, Any], facts: Facts, instance: str) -> None:
        event = HookEvent(id="1-1", worker="w1", instance=instance, payload=payload)
        verdict = judge(self.record, event_of(event, "claude"), facts)
        assert (verdict.change, verdict.fields) == (None, {})

    @rule()
    def launch(self) -> None:
        if self.record.status is Status.OFFLINE:
            self.launches += 1
            self.record = replace(self.record, instance=f"i{self.launches}", error_reason="", cause="")

    @rule(problem=st.sampled_from(["did not report ready", "no trust"]))
    def launch_fails(self, problem: str) -> None:
        if self.record.status is Status.OFFLINE:
            self.record = replace(self.record, error_reason=problem, cause="config")

    @rule(then=st.sampled_from([Status.WORKING, None]), outcome=st.sampled_from(list(Outcome)))
    def prompt(self, then: Status | None, outcome: Outcome) -> None:
        delivery = Delivery(prompt_id=PromptId("task-1"), outcome=outcome, at_unix=self.now, then=then)
        self.record = replace(self.record, delivery=delivery, current_prompt="do it")
        if then and outcome.arrived and is_allowed(self.record, then):
            self.move(then)

    @rule(to=PERSONS_STEPS)
    def command(self, to: Status) -> None:
        if is_allowed(self.record, to):
            self.move(to)

    @rule()
    def rebase_begins(self) -> None:
        if self.record.status is Status.NEEDS_REVIEW:
            self.record = replace(
                self.record, pre_rebase_sha="0ff1ce", rebase_base="ba5e", rebase_started_at_unix=self.now
            )

    @invariant()
    def consistent(self) -> None:
        assert problems(self.record) == []
        assert (self.record.status is Status.NEEDS_REVIEW) == (self.record.commit_sha is not None)
        if self.record.status in (Status.WORKING, Status.NEEDS_REVIEW, Status.REBASING, Status.REVIEWING):
            assert self.record.resolution_attempts < 3
            assert not self.record.error_reason, "an earlier failure is shown as a current one"


class TestLife(Life.TestCase):  # type: ignore[misc, name-defined]
    """Breaks with an illegal step in `judge`, a field that a step forgets,
    or a trusted event of another launch.
    """

    settings = settings(stateful_step_count=40)
