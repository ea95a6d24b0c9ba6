"""The rules of patrol, row by row: facts, record and clock in, at most one decision out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.attention.rules import ABORTED
from llmc.base.names import PromptId, TaskId
from llmc.daemon.watches import Watch
from llmc.records.worker import AcceptJournal, Assignment, Delivery, Outcome, SelfReview, Status, WorkerRecord
from llmc.sessions.rules.decide import INTERRUPTED, GitFacts
from llmc.workers.rules import (
    NO_STOP_S,
    STALLED_S,
    Clock,
    Decision,
    EndBackground,
    EndTurn,
    Limits,
    Move,
    Rebase,
    Remember,
    Seen,
    clock_jump,
    decide,
)
from tests.support.records import worker

S = Status
NOW = 10_000.0
CLEAN = GitFacts(head="c0ffee", ahead=0, dirty=False, rebasing=False)
AHEAD = replace(CLEAN, ahead=2)
CONFLICTED = replace(CLEAN, ahead=1, dirty=True, rebasing=True)
RESTS = Seen(git=AHEAD)
LIMITS = Limits(background_grace_s=60.0, patrol_interval_s=60.0)
LONG_AGO = NOW - 301


def looked(record: WorkerRecord, seen: Seen, clock: Clock | None = None) -> Decision | None:
    return decide(record, seen, LIMITS, clock or Clock(NOW))


def moved_to(decision: Decision | None) -> Status | None:
    return decision.change.to if isinstance(decision, Move) else None


# --- commits of a turn that never ended -------------------------------------------------------------------------

SEEN_LONG_AGO = {"commits_seen_unix": LONG_AGO}


@pytest.mark.req("1-083")
@pytest.mark.parametrize("status", [S.WORKING, S.REJECTED, S.REVIEWING])
def test_commits_are_remembered_and_after_a_wait_they_are_the_end(status: Status) -> None:
    """Breaks when the wait is left out, or counts from the status instead of from the commits."""
    assert looked(worker(status), RESTS) == Remember({"commits_seen_unix": NOW})
    just = worker(status, since_unix=1.0, commits_seen_unix=NOW - NO_STOP_S + 1)
    assert looked(just, RESTS) is None
    done = looked(worker(status, **SEEN_LONG_AGO), RESTS)
    assert isinstance(done, Move)
    assert (done.change.to, done.change.fields) == (S.NEEDS_REVIEW, {"commit_sha": "c0ffee"})


@pytest.mark.parametrize(
    ("seen", "record"),
    [
        (replace(RESTS, turn_runs=True), {}),
        (replace(RESTS, dialog_open=True), {}),
        (replace(RESTS, taken=True), {}),
        (replace(RESTS, git=None), {}),
        (replace(RESTS, client_unknown=True, last_trace_unix=NOW - 299), {}),
        (replace(RESTS, client_idle=True), {}),
        (RESTS, {"commits_seen_unix": NOW + 50}),
        (RESTS, {"self_review": SelfReview.DUE}),
    ],
    ids=[
        "a turn runs",
        "a dialog",
        "a person has it",
        "git unknown",
        "it still writes",
        "interrupted just now",
        "clock set back",
        "its self-review comes next",
    ],
)
def test_a_commit_alone_ends_no_turn(seen: Seen, record: dict[str, Any]) -> None:
    """Breaks when one of the conditions is dropped."""
    assert looked(worker(S.WORKING, **{**SEEN_LONG_AGO, **record}), seen) is None


def test_without_a_status_file_its_traces_tell() -> None:
    quiet = replace(RESTS, client_unknown=True, last_trace_unix=LONG_AGO)
    assert moved_to(looked(worker(S.WORKING, **SEEN_LONG_AGO), quiet)) is S.NEEDS_REVIEW


def test_commits_that_are_gone_are_forgotten() -> None:
    """Breaks when the next commit inherits the age of one that was reverted."""
    gone = replace(RESTS, git=CLEAN)
    assert looked(worker(S.WORKING, **SEEN_LONG_AGO), gone) == Remember({"commits_seen_unix": 0.0})
    assert looked(worker(S.WORKING), gone) is None


def test_a_rest_without_a_stop_counts_a_question_does_not() -> None:
    """Breaks when patrol treats a worker that waits for an answer as done."""
    interrupted = worker(S.NEEDS_INPUT, reason=INTERRUPTED, **SEEN_LONG_AGO)
    assert moved_to(looked(interrupted, RESTS)) is S.NEEDS_REVIEW
    assert looked(worker(S.NEEDS_INPUT, reason="question", **SEEN_LONG_AGO), RESTS) is None


# --- shells left behind -----------------------------------------------------------------------------------------


def test_shells_left_behind_are_ended_after_the_grace() -> None:
    """Breaks when they are ended immediately, during a turn, or with nothing committed."""
    left = worker(S.WORKING, background_since_unix=NOW - 60)
    assert looked(left, RESTS) == EndBackground()
    assert looked(worker(S.WORKING, background_since_unix=NOW - 59), RESTS) is None
    for other in ({"turn_runs": True}, {"dialog_open": True}, {"taken": True}, {"git": CLEAN}, {"git": None}):
        assert looked(left, replace(RESTS, **other)) is None


# --- a rebase without progress ----------------------------------------------------------------------------------


def rebasing(**fields: Any) -> WorkerRecord:
    sent = Delivery(prompt_id=PromptId("conflict-1"), outcome=Outcome.ACKNOWLEDGED, at_unix=LONG_AGO)
    old = {"since_unix": LONG_AGO, "rebase_started_at_unix": LONG_AGO, "delivery": sent}
    return worker(S.REBASING, **{"pre_rebase_sha": "0ff1ce", **old, **fields})


STUCK = Seen(git=CONFLICTED, last_trace_unix=LONG_AGO)


@pytest.mark.req("2-024")
def test_five_minutes_without_progress_are_an_error() -> None:
    """Breaks when the limit differs, or the error has no reason."""
    failed = looked(rebasing(), STUCK)
    assert isinstance(failed, Move)
    assert failed.change.to is S.ERROR
    assert failed.change.fields["cause"] == "git"
    assert "the rebase has made no progress for 5 minutes" in failed.change.fields["error_reason"]
    assert failed.action == "rebase_stalled"
    assert STALLED_S == 300


@pytest.mark.req("2-024")
@pytest.mark.parametrize(
    ("record", "seen", "clock"),
    [
        ({}, {"turn_runs": True}, {}),
        ({}, {"last_trace_unix": NOW - 299}, {}),
        ({}, {"taken": True}, {}),
        ({}, {"git": None}, {}),
        ({"rebase_started_at_unix": NOW - 299}, {}, {}),
        ({"since_unix": NOW - 299}, {}, {}),
        ({"validation_due": True}, {}, {}),
        ({}, {"dialog_open": True}, {}),
        ({}, {}, {"age_cap_s": 299.0}),
        ({}, {}, {"now": 5.0}),
    ],
    ids=[
        "a turn runs",
        "it wrote",
        "a person has it",
        "git unknown",
        "begun lately",
        "since lately",
        "validated",
        "it waits for an answer",
        "after a pause",
        "clock set back",
    ],
)
def test_what_counts_as_progress(
    record: dict[str, Any], seen: dict[str, Any], clock: dict[str, float]
) -> None:
    """Breaks when one of the signs of life is not checked."""
    assert looked(rebasing(**record), replace(STUCK, **seen), Clock(**{"now": NOW, **clock})) is None


RESOLVED = replace(STUCK, git=replace(CLEAN, head="ab1e", ahead=1), client_idle=True, last_trace_unix=NOW)


@pytest.mark.req("1-136")
def test_a_rebase_that_a_person_ended_by_hand_is_no_failure() -> None:
    """Breaks when only a Stop can end a rebase: the user's work would be an error five minutes later."""
    assert looked(rebasing(), RESOLVED) == EndTurn()
    aborted = replace(CLEAN, head="0ff1ce", ahead=1, on_base=False)
    assert looked(rebasing(), replace(RESOLVED, git=aborted)) == EndTurn()
    assert looked(rebasing(), replace(RESOLVED, client_idle=False)) is None
    assert looked(rebasing(), replace(RESOLVED, turn_runs=True)) is None
    assert looked(rebasing(validation_output="it fails"), RESOLVED) is None, "it was told to fix that"
    quiet = replace(RESOLVED, last_trace_unix=LONG_AGO)
    assert looked(rebasing(validation_output="it fails"), quiet) == EndTurn()
    untold = rebasing(validation_output="it fails", conflict_prompt_due=True)
    assert moved_to(looked(untold, quiet)) is S.ERROR


def test_why_nothing_moves_is_said() -> None:
    refused = Delivery(
        prompt_id=PromptId("conflict-1"), outcome=Outcome.REFUSED, at_unix=LONG_AGO, reason="a draft"
    )
    untold = looked(rebasing(conflict_prompt_due=True, delivery=refused), STUCK)
    assert isinstance(untold, Move)
    assert "cannot send the conflicts to the agent: a draft" in untold.change.fields["error_reason"]
    asks = looked(
        rebasing(assignment=Assignment(task_id=TaskId("1"), claim="c", since_unix=1.0)),
        replace(STUCK, dialog_open=True),
    )
    assert isinstance(asks, Move), "an auto worker has no user to answer"
    assert "a dialog is open" in asks.change.fields["error_reason"]


# --- waiting work stays on the latest base
# ----------------------------------------------------------------------

BEHIND = replace(RESTS, behind=1)


@pytest.mark.req("1-084")
def test_waiting_work_is_rebased_when_the_branch_moved() -> None:
    assert looked(worker(S.NEEDS_REVIEW), BEHIND) == Rebase()
    assert looked(worker(S.NEEDS_REVIEW), RESTS) is None


@pytest.mark.req("1-084", "1-136")
@pytest.mark.parametrize(
    ("record", "seen"),
    [
        ({"reason": ABORTED}, {}),
        ({"accept": AcceptJournal(step="validate", started_unix=1.0, tip="c0ffee")}, {}),
        ({}, {"taken": True}),
        ({}, {"turn_runs": True}),
        ({}, {"dialog_open": True}),
        ({}, {"git": None}),
        ({}, {"git": replace(AHEAD, dirty=True)}),
        ({}, {"git": replace(AHEAD, rebasing=True)}),
        ({}, {"git": CLEAN}),
        ({}, {"rebase_failed_s": 60.0}),
        ({"status": S.IDLE, "commit_sha": None}, {}),
        ({"status": S.ERROR, "commit_sha": None}, {}),
    ],
    ids=[
        "its worker gave it up",
        "being accepted",
        "a person has it",
        "a turn runs",
        "a dialog",
        "git unknown",
        "dirty",
        "a rebase of its own",
        "nothing left",
        "failed at the last patrol",
        "idle",
        "error",
    ],
)
def test_when_it_is_left_alone(record: dict[str, Any], seen: dict[str, Any]) -> None:
    """Breaks when one of the conditions is dropped; without the first, a conflict is sent every minute."""
    given = {**record}
    status = given.pop("status", S.NEEDS_REVIEW)
    assert looked(worker(status, **given), replace(BEHIND, **seen)) is None


# --- the clock --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "monotonic", "wall", "jumped"),
    [
        (60, 60, 60, False),
        (60, 64, 60, False),
        (60, 60, 66, True),
        (60, 60, -3600, True),
        (60, 240, 240, False),
        (60, 241, 241, True),
        (1, 3.9, 3.9, False),
    ],
)
def test_a_clock_that_cannot_be_trusted(interval: float, monotonic: float, wall: float, jumped: bool) -> None:
    """Breaks when only one of the clocks is read."""
    assert bool(clock_jump(interval, monotonic, wall)) is jumped


def test_after_a_jump_a_full_limit_is_granted() -> None:
    """Breaks when patrol judges right after the machine slept: every worker looks stalled then."""
    watch = Watch(wall=NOW, monotonic=100.0)
    assert watch.clock("w1", NOW, 100.0).age_s(0.0) == NOW
    assert "moved by 3600 s" in watch.tick(NOW + 3600, 160.0, 60.0)
    assert looked(rebasing(), STUCK, watch.clock("w1", NOW + 3600, 160.0)) is None
    assert looked(rebasing(), STUCK, watch.clock("w1", NOW + 3899, 459.0)) is None
    assert moved_to(looked(rebasing(), STUCK, watch.clock("w1", NOW + 3900, 460.0))) is S.ERROR
    assert watch.tick(NOW + 3660, 220.0, 60.0) == ""


def test_age_limits_pause_while_a_person_has_the_worker() -> None:
    """Breaks when the time of a hold counts, or one worker's hold pauses another's."""
    watch = Watch(wall=NOW, monotonic=0.0)
    watch.see("w1", True, 100.0)
    watch.see("w1", False, 500.0)
    watch.see("w1", False, 560.0)
    assert watch.clock("w1", NOW, 600.0).age_cap_s == 100.0
    assert watch.clock("w2", NOW, 600.0).age_cap_s == float("inf")


def test_a_failed_rebase_is_remembered_for_its_worker() -> None:
    watch = Watch(wall=NOW, monotonic=0.0)
    assert watch.since_rebase_failed_s("w1", 10.0) == float("inf")
    watch.rebase_failed("w1", 10.0)
    assert watch.since_rebase_failed_s("w1", 70.0) == 60.0
    assert watch.since_rebase_failed_s("w2", 70.0) == float("inf")


@given(now=st.floats(0, 1e10), since=st.floats(0, 1e10), cap=st.floats(0, 1e10))
def test_an_age_is_never_below_zero_nor_above_what_is_trusted(now: float, since: float, cap: float) -> None:
    assert 0 <= Clock(now, cap).age_s(since) <= cap


@given(
    status=st.sampled_from(list(Status)),
    turn_runs=st.booleans(),
    behind=st.integers(0, 2),
    ahead=st.integers(0, 2),
    marks=st.tuples(*[st.floats(0, NOW)] * 3),
)
def test_nothing_is_done_to_a_worker_that_a_person_has(
    status: Status, turn_runs: bool, behind: int, ahead: int, marks: tuple[float, ...]
) -> None:
    seen = Seen(git=replace(CLEAN, ahead=ahead), turn_runs=turn_runs, behind=behind, taken=True)
    times = dict(zip(("commits_seen_unix", "background_since_unix", "since_unix"), marks, strict=True))
    assert looked(worker(status, **times), seen) is None


def test_a_rebase_that_a_limit_stopped_is_not_stalled() -> None:
    """Break: leave the cause out of stalled_rebase; the task would be given up, and the attempt counted."""
    task = Assignment(task_id=TaskId("7"), claim="c1", since_unix=1.0)
    assert looked(rebasing(assignment=task, cause="limit"), STUCK) is None
    assert isinstance(looked(rebasing(assignment=task), STUCK), Move)
