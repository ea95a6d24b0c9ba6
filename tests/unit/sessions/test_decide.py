"""What each event of an agent means, row by row. There is no input for screen text, so it cannot matter."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import fields, replace

from llmc.agents.agent_events import AgentEvent
from llmc.agents.kinds import event_of
from llmc.attention.rules import CONFLICTS_LEFT
from llmc.base.names import PromptId, TaskId
from llmc.records.hook_events import HookEvent
from llmc.records.worker import (
    AcceptJournal,
    Assignment,
    Cause,
    Delivery,
    Outcome,
    Report,
    Status,
    WorkerRecord,
)
from llmc.sessions.rules.decide import (
    ABORTED_BY_HAND,
    Facts,
    GitFacts,
    after_validation,
    arrived_step,
    by_hand,
    client_says,
    has_started_unheard,
    judge,
    still_unresolved,
    waits_for_git,
    wants_git,
)
from tests.support.records import worker

S = Status
CLEAN = GitFacts(head="c0ffee", ahead=0, dirty=False, rebasing=False)
DIRTY = GitFacts(head="c0ffee", ahead=0, dirty=True, rebasing=False)
AHEAD = GitFacts(head="c0ffee", ahead=2, dirty=False, rebasing=False)
REBASING = GitFacts(head="c0ffee", ahead=1, dirty=True, rebasing=True)
NOTHING = {"report": Report(kind="done", text="as it is", at_unix=1.0, no_changes=True)}

RUNNING = [{"id": "b1", "type": "shell", "status": "running"}]
DONE = [{"id": "b1", "type": "shell", "status": "completed"}]


@dataclass(frozen=True)
class Row:
    """A worker's status, an event and facts, and its status afterwards (None: unchanged)."""

    was: Status
    event: dict[str, Any]
    then: Status | None
    reason: str = ""
    git: GitFacts | None = CLEAN
    exit_code: int | None = None
    prompt: str = "do it"
    record: dict[str, Any] = field(default_factory=dict)


#: the record of a worker that resolves the conflicts of a rebase
OURS_OPEN: dict[str, Any] = {
    "pre_rebase_sha": "0ff1ce",
    "rebase_base": "ba5e",
    "conflicted_files": ("a.txt",),
}


def hook(name: str, **payload: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s1", **payload}


def event(payload: dict[str, Any], instance: str = "i1", at: int = 1000) -> AgentEvent:
    """As it comes through intake: the rules see no hook."""
    hook = HookEvent(id=f"{at}000000000-77", worker="w1", instance=instance, payload=payload)
    return event_of(hook, "claude")


def typed(outcome: Outcome, then: Status | None = S.WORKING, prompt_id: str = "task-1") -> Delivery:
    return Delivery(prompt_id=PromptId(prompt_id), outcome=outcome, at_unix=1.0, text="...", then=then)


START = hook("SessionStart", source="startup", transcript_path="/t/1.jsonl")
STOP = hook("Stop")
ASKS = hook("PermissionRequest", tool_name="AskUserQuestion")
DIED = hook("PaneDied")
OURS = hook("UserPromptSubmit", prompt="[llmc task-1]\ndo it\n")
PERSONS = hook("UserPromptSubmit", prompt="and now this")


def failure(error: str, text: str = "") -> dict[str, Any]:
    return hook("StopFailure", error=error, last_assistant_message=text)


ROWS = {
    # The agent is ready: git says what the worker's status is.
    "starts fresh": Row(S.OFFLINE, START, S.IDLE, "ready", prompt=""),
    "starts, had a task": Row(S.OFFLINE, START, S.NEEDS_INPUT, "restarted"),
    "starts, commits there": Row(S.OFFLINE, START, S.NEEDS_REVIEW, git=AHEAD),
    "starts, commits there, no task": Row(S.OFFLINE, START, S.NEEDS_REVIEW, git=AHEAD, prompt=""),
    "starts in a rebase": Row(S.OFFLINE, START, S.REBASING, git=REBASING),
    "starts, git unknown": Row(S.OFFLINE, START, None, git=None),
    "starts dirty without a task": Row(S.OFFLINE, START, S.IDLE, git=DIRTY, prompt=""),
    "clears while working": Row(S.WORKING, START, None),
    "starts in error": Row(S.ERROR, START, None, git=AHEAD),
    # The end of a turn.
    "stops with commits": Row(S.WORKING, STOP, S.NEEDS_REVIEW, "stopped with commits", git=AHEAD),
    "stops clean": Row(S.WORKING, STOP, S.NEEDS_INPUT, "stopped_clean"),
    "stops dirty": Row(S.WORKING, STOP, S.NEEDS_INPUT, "stopped_dirty", git=DIRTY),
    "stops, git unknown": Row(S.WORKING, STOP, None, git=None),
    "stops in its own rebase": Row(S.WORKING, STOP, S.NEEDS_INPUT, "stopped_rebasing", git=REBASING),
    "rejected, stops in a rebase": Row(S.REJECTED, STOP, S.NEEDS_INPUT, "stopped_rebasing", git=REBASING),
    "stops again in its own rebase": Row(S.NEEDS_INPUT, STOP, None, git=REBASING),
    "nothing to change": Row(S.WORKING, STOP, S.NO_CHANGES, "as it is", record=NOTHING),
    "nothing to change, but dirty": Row(
        S.WORKING, STOP, S.NEEDS_INPUT, "stopped_dirty", git=DIRTY, record=NOTHING
    ),
    "nothing to change, but commits": Row(S.WORKING, STOP, S.NEEDS_REVIEW, git=AHEAD, record=NOTHING),
    "nothing to change, in a rebase": Row(
        S.WORKING, STOP, S.NEEDS_INPUT, "stopped_rebasing", git=REBASING, record=NOTHING
    ),
    "stops, background runs": Row(S.WORKING, hook("Stop", background_tasks=RUNNING), None, git=AHEAD),
    "stops, background over": Row(S.WORKING, hook("Stop", background_tasks=DONE), S.NEEDS_REVIEW, git=AHEAD),
    "a subagent stops": Row(S.WORKING, hook("Stop", agent_id="a1"), None, git=AHEAD),
    "SubagentStop": Row(S.WORKING, hook("SubagentStop"), None, git=AHEAD),
    "stops again, still nothing": Row(S.NEEDS_INPUT, STOP, None, git=DIRTY),
    "stops again, commits now": Row(S.NEEDS_INPUT, STOP, S.NEEDS_REVIEW, git=AHEAD),
    "stops again in review": Row(S.NEEDS_REVIEW, STOP, None, git=AHEAD),
    "stops while idle": Row(S.IDLE, STOP, None, prompt=""),
    "stops in error": Row(S.ERROR, STOP, None, git=AHEAD),
    "stops after offline": Row(S.OFFLINE, STOP, None, git=AHEAD),
    "rejected, fixed": Row(S.REJECTED, STOP, S.NEEDS_REVIEW, git=AHEAD),
    "rejected, undone": Row(S.REJECTED, STOP, S.NEEDS_INPUT, "stopped_clean"),
    "self-review done": Row(S.REVIEWING, STOP, S.NEEDS_REVIEW, git=AHEAD),
    "rebase resolved": Row(S.REBASING, STOP, S.NEEDS_REVIEW, git=AHEAD),
    "rebase goes on": Row(S.REBASING, STOP, None, git=REBASING),
    "rebase left nothing": Row(S.REBASING, STOP, None),
    # A rebase that llmc started.
    "conflicts resolved": Row(
        S.REBASING, STOP, S.NEEDS_REVIEW, "conflicts resolved", AHEAD, record=OURS_OPEN
    ),
    "all its commits dropped": Row(
        S.REBASING, STOP, S.NEEDS_REVIEW, "conflicts resolved", CLEAN, record=OURS_OPEN
    ),
    "aborted": Row(
        S.REBASING,
        STOP,
        S.NEEDS_REVIEW,
        "rebase aborted by the worker",
        GitFacts(head="0ff1ce", ahead=1, dirty=False, rebasing=False, on_base=False),
        record=OURS_OPEN,
    ),
    "first round": Row(S.REBASING, STOP, None, git=REBASING, record=OURS_OPEN),
    "second round": Row(S.REBASING, STOP, None, git=REBASING, record=OURS_OPEN | {"resolution_attempts": 1}),
    "third round": Row(
        S.REBASING, STOP, S.ERROR, git=REBASING, record=OURS_OPEN | {"resolution_attempts": 2}
    ),
    "resolved in the third": Row(
        S.REBASING, STOP, S.NEEDS_REVIEW, git=AHEAD, record=OURS_OPEN | {"resolution_attempts": 2}
    ),
    "markers left": Row(S.REBASING, STOP, None, git=replace(AHEAD, marked=("a.txt",)), record=OURS_OPEN),
    "uncommitted": Row(S.REBASING, STOP, None, git=replace(AHEAD, dirty=True), record=OURS_OPEN),
    "not on the base": Row(S.REBASING, STOP, None, git=replace(AHEAD, on_base=False), record=OURS_OPEN),
    "resolved, background": Row(
        S.REBASING, hook("Stop", background_tasks=RUNNING), None, git=AHEAD, record=OURS_OPEN
    ),
    "a turn without a task ends": Row(
        S.WORKING, STOP, S.IDLE, "finished a prompt that was not a task", prompt=""
    ),
    "a person's turn ends dirty": Row(S.WORKING, STOP, S.NEEDS_INPUT, "stopped_dirty", git=DIRTY, prompt=""),
    "a person's turn committed": Row(S.WORKING, STOP, S.NEEDS_REVIEW, git=AHEAD, prompt=""),
    # The turn failed.
    "usage limit": Row(S.WORKING, failure("rate_limit"), S.NEEDS_INPUT, "limit"),
    "overloaded": Row(S.WORKING, failure("overloaded"), S.NEEDS_INPUT, "api", git=AHEAD),
    "logged out": Row(S.WORKING, failure("authentication_failed"), S.ERROR, "authentication_failed"),
    "no such model": Row(S.REVIEWING, failure("model_not_found"), S.ERROR, "model_not_found"),
    "logged out in a rebase": Row(S.REBASING, failure("authentication_failed"), S.ERROR),
    "limit in a rebase": Row(S.REBASING, failure("rate_limit"), None),
    "logged out after a question": Row(S.NEEDS_INPUT, failure("billing_error"), S.ERROR),
    "limit after a question": Row(S.NEEDS_INPUT, failure("rate_limit"), None),
    "a failure without a label": Row(S.WORKING, hook("StopFailure"), S.NEEDS_INPUT, "agent"),
    "git does not matter": Row(S.WORKING, failure("rate_limit"), S.NEEDS_INPUT, "limit", git=None),
    "a subagent fails": Row(S.WORKING, hook("StopFailure", error="rate_limit", agent_id="a"), None),
    "a failure in review": Row(S.NEEDS_REVIEW, failure("authentication_failed"), None, git=AHEAD),
    # It asks.
    "asks": Row(S.WORKING, ASKS, S.NEEDS_INPUT, "question"),
    "wants to run something": Row(
        S.REJECTED, hook("PermissionRequest", tool_name="Bash"), S.NEEDS_INPUT, "permission"
    ),
    "asks twice": Row(S.NEEDS_INPUT, ASKS, None),
    "asks in error": Row(S.ERROR, ASKS, None),
    # It ends.
    "exits": Row(S.IDLE, DIED, S.OFFLINE, "exited", exit_code=0),
    "is interrupted away": Row(S.WORKING, DIED, S.OFFLINE, "exited", exit_code=130),
    "crashes": Row(S.WORKING, DIED, S.OFFLINE, "crashed", exit_code=1),
    "is killed": Row(S.NEEDS_REVIEW, DIED, S.OFFLINE, "crashed", exit_code=137),
    "vanishes": Row(S.REBASING, DIED, S.OFFLINE, "crashed", exit_code=None),
    "dies in error": Row(S.ERROR, DIED, None, exit_code=1),
    "dies while offline": Row(S.OFFLINE, DIED, None, exit_code=1),
    "the session ends": Row(S.WORKING, hook("SessionEnd", reason="clear"), None),
    # A prompt arrives.
    "ours, late": Row(
        S.IDLE, OURS, S.WORKING, "late receipt", record={"delivery": typed(Outcome.UNCONFIRMED)}
    ),
    "ours, after a crash of llmc": Row(S.IDLE, OURS, S.WORKING, record={"delivery": typed(Outcome.TYPED)}),
    "ours, known": Row(S.WORKING, OURS, None, record={"delivery": typed(Outcome.ACKNOWLEDGED)}),
    "ours, late, already there": Row(S.WORKING, OURS, None, record={"delivery": typed(Outcome.UNCONFIRMED)}),
    "ours, late, in error": Row(
        S.ERROR, OURS, None, record={"delivery": typed(Outcome.UNCONFIRMED), "since_unix": 2.0}
    ),
    "ours, joined to a person's words": Row(
        S.IDLE,
        hook("UserPromptSubmit", prompt="half a thought[llmc task-1]\ndo it\n"),
        S.WORKING,
        "late receipt",
        record={"delivery": typed(Outcome.UNCONFIRMED)},
    ),
    "ours, quoted": Row(
        S.IDLE,
        hook("UserPromptSubmit", prompt="<task-notification>\n[llmc task-1]\n"),
        S.WORKING,
        "a prompt llmc did not send",
        record={"delivery": typed(Outcome.UNCONFIRMED)},
    ),
    "ours, an earlier one": Row(
        S.IDLE, OURS, None, record={"delivery": typed(Outcome.UNCONFIRMED, prompt_id="task-2")}
    ),
    "ours, nobody knows it": Row(S.IDLE, OURS, None),
    "a person's, idle": Row(S.IDLE, PERSONS, S.WORKING, prompt=""),
    "a person's, answers": Row(S.NEEDS_INPUT, PERSONS, S.WORKING),
    "a person's, after no_changes": Row(S.NO_CHANGES, PERSONS, S.WORKING),
    "a person's, while working": Row(S.WORKING, PERSONS, None),
    "a person's, in review": Row(S.NEEDS_REVIEW, PERSONS, None),
    "a person's, in error": Row(S.ERROR, PERSONS, S.WORKING),
    "a person's, in error over a rebase": Row(
        S.ERROR, PERSONS, S.REBASING, record=OURS_OPEN | {"resolution_attempts": 3}
    ),
    # Everything else.
    "a notification": Row(S.WORKING, hook("Notification", message="✻ Stopped · done"), None, git=AHEAD),
    "an unknown hook": Row(S.WORKING, hook("HookOfNextYear"), None, git=AHEAD),
    "no hook at all": Row(S.WORKING, {}, None, git=AHEAD),
}


@pytest.mark.req("1-012", "1-015", "1-017", "1-071", "1-074")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_every_row(row: Row) -> None:
    """Breaks when one line of `judge` or of the functions below it changes its meaning."""
    record = worker(row.was, current_prompt=row.prompt, **row.record)
    verdict = judge(record, event(row.event), Facts(git=row.git, exit_code=row.exit_code))
    assert (verdict.change.to if verdict.change else None) == row.then
    if row.reason:
        assert verdict.change is not None
        assert verdict.change.reason == row.reason
    if verdict.change and verdict.change.to is S.NEEDS_REVIEW:
        assert row.git is not None
        assert verdict.change.fields == {"commit_sha": row.git.head}


def test_what_waits_is_what_is_there_but_not_while_it_is_accepted() -> None:
    """Breaks when a turn that ends during an accept changes what that accept is about."""
    waits = worker(S.NEEDS_REVIEW, commit_sha="old")
    assert judge(waits, event(STOP), Facts(git=AHEAD)).fields == {"commit_sha": AHEAD.head}
    taken = replace(waits, accept=AcceptJournal(step="validate", started_unix=1.0, tip="old"))
    assert judge(taken, event(STOP), Facts(git=AHEAD)).fields == {}


@pytest.mark.req("1-059")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("instance", ["", "i0"])
def test_another_launch_changes_nothing(row: Row, instance: str) -> None:
    """Breaks when the instance is not compared, or an event without one is trusted without an agent."""
    facts = Facts(git=row.git, exit_code=row.exit_code)
    for record in (worker(row.was, **row.record), worker(row.was, **{**row.record, "instance": ""})):
        verdict = judge(record, event(row.event, instance), facts)
        assert (verdict.change, verdict.fields, verdict.action) == (None, {}, "hook_ignored")


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ({}, {"resolution_attempts": 1, "conflict_prompt_due": True}),
        ({"resolution_attempts": 1}, {"resolution_attempts": 2, "conflict_prompt_due": True}),
        ({"resolution_attempts": 2}, {"resolution_attempts": 3, "conflict_prompt_due": False}),
        ({"delivery": typed(Outcome.ACKNOWLEDGED, None, "conflict-1")}, {"resolution_attempts": 1}),
        ({"delivery": typed(Outcome.ACKNOWLEDGED, None, "message-1")}, {}),
        ({"rebase_started_at_unix": 1001.0}, {}),
    ],
    ids=["first", "second", "third", "its prompt", "a person's message", "a stop from before"],
)
def test_rounds_are_counted(record: dict[str, Any], fields: dict[str, Any]) -> None:
    """Breaks when a conversation with the user, or the end of the turn before the rebase, uses up a round."""
    verdict = judge(worker(S.REBASING, **OURS_OPEN, **record), event(STOP), Facts(git=REBASING))
    assert {key: verdict.fields.get(key) for key in fields} == fields
    assert bool(verdict.fields) == bool(fields)


def test_an_agent_that_starts_in_our_rebase_is_told() -> None:
    """Breaks when a restarted agent is left alone with conflicts it may not remember."""
    verdict = judge(worker(S.OFFLINE, **OURS_OPEN), event(START), Facts(git=REBASING))
    assert verdict.fields["conflict_prompt_due"] is True


@pytest.mark.req("1-134")
@pytest.mark.parametrize(
    "left", [{}, {"rebasing": True}, {"marked": ("a.txt",)}, {"dirty": True}, {"on_base": False}]
)
def test_resolved_is_what_git_and_the_validation_say(left: dict[str, Any]) -> None:
    """Breaks when a configured validation is not waited for, or starts before git is done."""
    record = worker(S.REBASING, **OURS_OPEN, validate_rebase=True)
    verdict = judge(record, event(STOP), Facts(git=replace(AHEAD, **left)))
    assert verdict.change is None
    assert verdict.fields.get("validation_due", False) is (not left)
    assert verdict.action == ("rebase_unresolved" if left else "rebase_resolved")


VALIDATED = OURS_OPEN | {"validate_rebase": True, "validation_due": True}


@pytest.mark.req("1-134", "2-022")
@pytest.mark.parametrize(
    ("attempts", "code", "then", "fields"),
    [
        (0, 0, S.NEEDS_REVIEW, {}),
        (2, 0, S.NEEDS_REVIEW, {}),
        (0, 7, None, {"resolution_attempts": 1, "conflict_prompt_due": True, "validation_output": "broken"}),
        (1, 7, None, {"resolution_attempts": 2, "conflict_prompt_due": True, "validation_output": "broken"}),
        (2, 7, S.ERROR, {"resolution_attempts": 3}),
    ],
)
def test_the_validation_of_resolved_conflicts(
    attempts: int, code: int, then: Status | None, fields: dict[str, Any]
) -> None:
    """Breaks when a failure is not sent back, is not a round, or is sent back forever."""
    record = worker(S.REBASING, **VALIDATED, resolution_attempts=attempts)
    verdict = after_validation(record, "c0ffee", code, "broken")
    assert (verdict.change.to if verdict.change else None) is then
    assert {key: verdict.fields.get(key) for key in fields} == fields
    assert (verdict.action == "validation_failed") is (code != 0)
    if then is S.ERROR:
        assert verdict.change is not None
        assert verdict.change.fields["cause"] == "command"
        assert "broken" in verdict.change.fields["error_reason"]


def test_the_validation_of_a_clean_rebase_is_a_person_s_matter() -> None:
    """Breaks when a default branch that is itself broken sends every waiting worker back to work."""
    record = worker(S.REBASING, validation_due=True, since_unix=5.0)
    for code, reason in ((0, "rebased"), (1, "rebased, but fails validation")):
        change = after_validation(record, "c0ffee", code, "broken").change
        assert change is not None
        assert (change.to, change.reason, change.fields["since_unix"]) == (S.NEEDS_REVIEW, reason, 5.0)


def test_a_stop_from_before_the_failed_validation_is_no_round() -> None:
    """Breaks when the same work is validated again before its worker was told about the failure."""
    record = worker(
        S.REBASING, **OURS_OPEN, validate_rebase=True, validation_output="x", conflict_prompt_due=True
    )
    verdict = judge(record, event(STOP), Facts(git=AHEAD))
    assert (verdict.change, verdict.fields) == (None, {})


def test_a_restart_before_the_validation_does_not_skip_it() -> None:
    verdict = judge(worker(S.OFFLINE, **VALIDATED), event(START), Facts(git=AHEAD))
    assert verdict.change is not None
    assert verdict.change.to is S.REBASING
    assert "conflict_prompt_due" not in verdict.fields


@pytest.mark.parametrize(
    ("tasks", "since"),
    [(RUNNING, 1000.0), ([*RUNNING, {"type": "agent", "status": "running"}], 0.0), (DONE, None)],
)
def test_only_shells_in_the_background_start_the_grace(
    tasks: list[dict[str, str]], since: float | None
) -> None:
    """Breaks when an agent that works in the background is mistaken for a forgotten shell."""
    verdict = judge(worker(S.WORKING), event(hook("Stop", background_tasks=tasks)), Facts(git=AHEAD))
    assert verdict.fields.get("background_since_unix") == since
    assert (verdict.change is None) is (since is not None)


@pytest.mark.req("1-019", "2-033")
def test_screen_text_is_no_input() -> None:
    """Breaks when `judge` gets something to guess from."""
    assert {f.name for f in fields(Facts)} == {"git", "exit_code", "agent_lives", "resumes"}
    assert {f.name for f in fields(GitFacts)} == {"head", "ahead", "dirty", "rebasing", "on_base", "marked"}


@pytest.mark.parametrize("cause", list(Cause))
def test_a_cause_passes_by_itself_or_needs_a_person_or_neither(cause: Cause) -> None:
    assert not (cause.passes_by_itself and cause.needs_a_person)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("rate_limit", Cause.LIMIT),
        ("server_error", Cause.API),
        ("overloaded", Cause.API),
        ("authentication_failed", Cause.AUTH),
        ("oauth_org_not_allowed", Cause.AUTH),
        ("billing_error", Cause.AUTH),
        ("model_not_found", Cause.CONFIG),
        ("invalid_request", Cause.AGENT),
        ("max_output_tokens", Cause.AGENT),
        ("unknown", Cause.AGENT),
        ("a label of next year", Cause.AGENT),
        ("", Cause.AGENT),
    ],
)
def test_stop_failure_labels(error: str, cause: Cause) -> None:
    """Breaks when a line of the table of causes changes."""
    verdict = judge(worker(S.WORKING), event(failure(error, "the client's words")), Facts())
    assert verdict.change is not None
    fields = verdict.change.fields
    assert (fields["error_reason"], fields["cause"]) == ("the client's words", cause)
    assert (verdict.change.to is S.ERROR) == cause.needs_a_person


def test_a_limit_is_dated_and_counted() -> None:
    """The message may name a time without its day. Break: date it when it is read, hours later without a daemon."""
    limit = event(failure("rate_limit", "resets 3pm"), at=2000)
    verdict = judge(worker(S.WORKING), limit, Facts(resumes=3))
    assert verdict.change is not None
    assert (verdict.change.fields["since_unix"], verdict.change.fields["stopped_after"]) == (2000.0, 3)


def test_a_failure_without_words_is_named_by_its_label() -> None:
    verdict = judge(worker(S.WORKING), event(failure("authentication_failed")), Facts())
    assert verdict.change is not None
    assert verdict.change.fields["error_reason"] == "authentication_failed"


def test_a_late_receipt_completes_the_delivery() -> None:
    """Breaks when the prompt's text stays in state after delivery."""
    record = worker(S.IDLE, delivery=typed(Outcome.UNCONFIRMED))
    verdict = judge(record, event(OURS), Facts())
    done = verdict.fields["delivery"]
    assert (done.outcome, done.text, done.reason) == (Outcome.ACKNOWLEDGED, "", "late receipt")
    assert verdict.action == "prompt_delivered"
    assert verdict.details["prompt_id"] == "task-1"


@pytest.mark.parametrize("outcome", [Outcome.ACKNOWLEDGED, Outcome.QUEUED])
def test_a_receipt_that_is_known_is_not_told_again(outcome: Outcome) -> None:
    """Breaks when a prompt that a client sends once more counts as a new receipt:
    `queued` would become `late`.
    """
    verdict = judge(worker(S.IDLE, delivery=typed(outcome)), event(OURS), Facts())
    assert (verdict.change, verdict.fields, verdict.action) == (None, {}, "hook_received")


def test_a_session_start_keeps_what_it_does_not_say() -> None:
    """Breaks when a SessionStart without an id or a transcript erases the known ones."""
    verdict = judge(worker(S.WORKING), event(START), Facts())
    assert verdict.fields == {"claude_session_id": "s1", "transcript_path": "/t/1.jsonl"}
    assert judge(worker(S.WORKING), event({"hook_event_name": "SessionStart"}), Facts()).fields == {}


@pytest.mark.req("1-043")
@pytest.mark.parametrize("was", [S.WORKING, S.ERROR])
def test_crashes_are_counted_and_forgotten_after_a_day(was: Status) -> None:
    """Breaks when the age of the last crash is not checked, or an error's crash is not counted."""
    day = 24 * 3600
    record = worker(was, crash_count=2, last_crash_unix=1000.0)
    soon = judge(record, event(DIED, at=1000 + day - 1), Facts(exit_code=1)).fields
    later = judge(record, event(DIED, at=1000 + day), Facts(exit_code=1)).fields
    assert (soon["crash_count"], later["crash_count"]) == (3, 1)
    assert soon["last_crash_unix"] == 1000 + day - 1
    assert judge(record, event(DIED), Facts(exit_code=0)).fields == {}


@pytest.mark.parametrize(("code", "text"), [(7, "code 7"), (None, "disappeared")])
def test_a_crash_says_how(code: int | None, text: str) -> None:
    verdict = judge(worker(S.WORKING), event(DIED), Facts(exit_code=code))
    assert verdict.change is not None
    assert text in verdict.change.fields["error_reason"]
    assert verdict.change.fields["cause"] == "crash"


def test_a_turn_while_work_waits_for_review_names_the_new_commit() -> None:
    """Break: ignore a Stop in needs_review. `status` would show the new commit as reviewed."""
    waits = worker(S.NEEDS_REVIEW, commit_sha="seen", reviewed_sha="seen")
    assert judge(waits, event(STOP), Facts(git=AHEAD)).fields == {"commit_sha": "c0ffee"}
    for facts in (CLEAN, REBASING):
        assert judge(waits, event(STOP), Facts(git=facts)).fields == {}


@pytest.mark.parametrize("name", ["Stop", "StopFailure", "SessionStart"])
def test_git_is_asked_only_where_it_matters(name: str) -> None:
    assert wants_git(event(hook(name)))
    assert not wants_git(event(hook(name, agent_id="a1")))
    assert not wants_git(event(hook("Notification")))


@pytest.mark.parametrize(
    ("record", "to"),
    [
        (worker(S.IDLE), None),
        (worker(S.IDLE, delivery=typed(Outcome.TYPED)), S.WORKING),
        (worker(S.WORKING, delivery=typed(Outcome.TYPED)), None),
        (worker(S.ERROR, delivery=typed(Outcome.TYPED), since_unix=2.0), None),
        (worker(S.ERROR, delivery=typed(Outcome.TYPED), since_unix=0.5), S.WORKING),
        (worker(S.ERROR, delivery=typed(Outcome.TYPED), since_unix=0.5, pre_rebase_sha="abc"), S.REBASING),
        (worker(S.NEEDS_REVIEW, delivery=typed(Outcome.TYPED, S.REJECTED)), S.REJECTED),
        (worker(S.IDLE, delivery=typed(Outcome.TYPED, None)), None),
    ],
)
def test_arrival(record: WorkerRecord, to: Status | None) -> None:
    change = arrived_step(record, "arrived")
    assert (change.to if change else None) == to


@pytest.mark.parametrize(
    ("status", "busy", "idle", "for_s", "to"),
    [
        (Status.WORKING, False, True, 6, Status.NEEDS_INPUT),
        (Status.WORKING, False, True, 4, None),
        (Status.WORKING, True, False, 60, None),
        (Status.REJECTED, False, True, 6, Status.NEEDS_INPUT),
        (Status.NEEDS_INPUT, True, False, 2, Status.WORKING),
        (Status.NEEDS_INPUT, True, False, 0.5, None),
        (Status.NEEDS_INPUT, False, False, 60, None),
        (Status.NEEDS_REVIEW, True, False, 2, Status.WORKING),
        (Status.IDLE, True, False, 60, None),
        (Status.ERROR, False, True, 60, None),
        (Status.REBASING, False, True, 60, None),
    ],
)
def test_what_only_the_status_file_shows(
    status: Status, busy: bool, idle: bool, for_s: float, to: Status | None
) -> None:
    """Breaks when the debounce is dropped: a flicker of 20 ms between two turns would count."""
    step = client_says(worker(status), busy, idle, for_s)
    assert (step.to if step else None) is to


@pytest.mark.parametrize(
    ("status", "for_s", "to"),
    [
        (S.WORKING, 3.0, S.NEEDS_INPUT),
        (S.WORKING, 2.9, None),
        (S.REJECTED, 3.0, S.NEEDS_INPUT),
        (S.IDLE, 9.0, None),
        (S.NEEDS_INPUT, 9.0, None),
    ],
)
def test_a_dialog_in_the_middle_of_a_task_needs_a_person(
    status: Status, for_s: float, to: Status | None
) -> None:
    """Break: leave `is_waiting` out of client_says; the worker would be working forever."""
    step = client_says(worker(status), False, False, for_s, is_waiting=True)
    assert (step.to if step else None) is to
    assert step is None or step.reason == "dialog"
    task = Assignment(task_id=TaskId("7"), claim="c1", since_unix=1.0)
    assert client_says(worker(status, assignment=task), False, False, for_s, is_waiting=True) is None


def test_what_is_asked_is_kept_and_the_latest_counts() -> None:
    """No hook reports that a question was answered. Break: keep the reason of the previous one."""
    asks = event(hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"}))
    verdict = judge(worker(S.NEEDS_INPUT, reason="question"), asks, Facts())
    assert verdict.change is None
    assert (verdict.fields["reason"], verdict.fields["asked"].text) == ("permission", "Bash: make")


def test_a_limit_while_conflicts_are_resolved_is_remembered() -> None:
    """Its rebase stays open; auto mode waits. Break: leave the fields out; patrol would call it stalled."""
    task = Assignment(task_id=TaskId("7"), claim="c1", since_unix=1.0)
    limit = event(failure("rate_limit", "resets 3pm"), at=2000)
    verdict = judge(worker(S.REBASING, assignment=task, **OURS_OPEN), limit, Facts(git=REBASING))
    assert verdict.change is None
    assert verdict.fields == {
        "cause": "limit",
        "error_reason": "resets 3pm",
        "since_unix": 2000.0,
        "stopped_after": 0,
    }
    assert judge(worker(S.REBASING, **OURS_OPEN), limit, Facts(git=REBASING)).fields == {}
    crash = event(failure("unknown", "odd"), at=2000)
    assert judge(worker(S.REBASING, assignment=task, **OURS_OPEN), crash, Facts(git=REBASING)).fields == {}


@pytest.mark.parametrize(
    ("told", "lives", "ignored"),
    [("%5", False, False), ("%5", True, False), ("%6", False, True), ("", False, False), ("", True, True)],
)
def test_the_end_of_another_pane_is_nothing_to_an_agent(told: str, lives: bool, ignored: bool) -> None:
    """Break: leave `_is_of_another_pane` out of `_exited`;
    an old session's hook would speak for a user's shell.
    """
    record = worker(S.WORKING, pane_id="%5")
    verdict = judge(record, event(hook("PaneDied", pane=told)), Facts(exit_code=1, agent_lives=lives))
    assert (verdict.action == "hook_ignored") is ignored
    assert (verdict.change is None) is ignored


def test_an_error_over_a_rebase_ends_when_git_says_so() -> None:
    """Break: trust an open rebase, markers, changes, or the very commit that failed; or miss an abort."""
    record = worker(S.ERROR, pre_rebase_sha="before", conflicted_files=("a",), reason=CONFLICTS_LEFT)
    done = GitFacts(head="after", ahead=1, dirty=False, rebasing=False)
    found = by_hand(record, done)
    assert found is not None
    assert (found.to, found.fields["commit_sha"]) == (S.NEEDS_REVIEW, "after")
    aborted = by_hand(record, replace(done, head="before", on_base=False))
    assert aborted is not None
    assert aborted.reason == ABORTED_BY_HAND
    for facts in (
        replace(done, rebasing=True),
        replace(done, marked=("a",)),
        replace(done, dirty=True),
        replace(done, on_base=False),
        replace(done, ahead=0),
    ):
        assert by_hand(record, facts) is None, facts
    assert by_hand(replace(record, failed_sha="after"), done) is None
    assert by_hand(replace(record, pre_rebase_sha=""), done) is None
    assert by_hand(worker(S.NEEDS_INPUT, pre_rebase_sha="before"), done) is None
    # The message says what is true now.
    assert still_unresolved(record, replace(done, dirty=True)) == (
        "conflicts still unresolved: uncommitted changes"
    )
    known = replace(record, error_reason="unresolved after 3 rounds: uncommitted changes")
    assert still_unresolved(known, replace(done, dirty=True)) == ""


@pytest.mark.parametrize(
    ("path", "believed"),
    [
        ("/r/.llmc/home/w1/projects/x/1.jsonl", True),
        ("/r/.llmc/home/w1/../w2/projects/x/1.jsonl", False),
        ("/r/.llmc/home/w10/projects/x/1.jsonl", False),
        ("/home/user/.claude/projects/x/1.jsonl", False),
        ("/r/.llmc/home/w1/x/projects/x/1.jsonl", False),
        ("/r/.llmc/home/w1/projects/x/y/1.jsonl", False),
        ("/r/.llmc/home/w1/projects/../1.jsonl", False),
        ("/r/.llmc/home/w1/x.jsonl", False),
        ("/r/.llmc/home/w1/projects/x/settings.json", False),
        ("/etc/passwd", False),
    ],
)
def test_a_contained_agent_names_only_a_conversation_of_its_own(path: str, believed: bool) -> None:
    """llmc reads it, and copies it to another home.

    Break: trust any path below its home: a directory may be a link.
    """
    begun = event(hook("SessionStart", source="startup", transcript_path=path))
    record = worker(S.IDLE, contained=True, config_dir="/r/.llmc/home/w1")
    verdict = judge(record, begun, Facts())
    assert (verdict.fields.get("transcript_path") == path) is believed
    assert (verdict.action == "hook_ignored") is not believed
    assert judge(replace(record, contained=False), begun, Facts()).fields["transcript_path"] == path


def test_a_report_is_not_longer_than_a_command_line() -> None:
    """It is stored in state.json. Break: store all of it."""
    told = event(hook("Report", kind="x" * 1000, text="y" * 100_000))
    said = judge(worker(S.WORKING), told, Facts()).fields["report"]
    assert (len(said.kind), len(said.text)) == (100, 65_536)


@pytest.mark.parametrize(
    ("status", "instance", "is_idle", "for_s", "started"),
    [
        (S.OFFLINE, "i1", True, 5.0, True),
        (S.OFFLINE, "i1", True, 4.9, False),  # its hook may still come
        (S.OFFLINE, "i1", False, 60.0, False),
        (S.OFFLINE, "", True, 60.0, False),  # the pane is not its launch
        (S.WORKING, "i1", True, 60.0, False),
    ],
)
def test_a_start_that_no_hook_reported(
    status: Status, instance: str, is_idle: bool, for_s: float, started: bool
) -> None:
    """Break: wait for the hook forever: a lost one leaves a running agent offline."""
    record = worker(status, instance=instance)
    assert has_started_unheard(record, is_idle, for_s) is started


@pytest.mark.parametrize(
    ("payload", "instance", "git", "age_s", "waits"),
    [
        (START, "i1", None, 0.0, True),
        (STOP, "i1", None, 29.0, True),
        (STOP, "i1", None, 30.0, False),  # it must not hold up the events after it for ever
        (STOP, "i1", None, -3600.0, False),  # the clock was set back
        (STOP, "i1", CLEAN, 0.0, False),
        (PERSONS, "i1", None, 0.0, False),
        (START, "older", None, 0.0, False),
    ],
)
def test_an_event_that_git_must_explain_waits_for_git(
    payload: dict[str, Any], instance: str, git: GitFacts | None, age_s: float, waits: bool
) -> None:
    """Break: judge it without git, which changes nothing and uses it up; or wait without a limit."""
    record = worker(S.OFFLINE, instance="i1")
    seen = event(payload, instance, at=1000)
    assert waits_for_git(record, seen, Facts(git=git), 1000 + age_s) is waits
