"""An auto worker's next step: every status, with and without a task."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.attention.rules import ABORTED
from llmc.auto.landing import a_command_comes_first
from llmc.auto.rules import steps
from llmc.auto.rules.steps import (
    AskToFinish,
    Do,
    GiveUp,
    Park,
    Situation,
    Stop,
    in_its_way,
    next_step,
    not_told,
    releases_task,
)
from llmc.base.names import PromptId, TaskId
from llmc.landing.accept_journal import STEPS
from llmc.records.state import AutoState, State
from llmc.records.worker import (
    AcceptJournal,
    Assignment,
    Cause,
    Delivery,
    Obstacle,
    Outcome,
    SelfReview,
    Status,
    WorkerRecord,
)
from llmc.sessions.rules.decide import ANOTHER_MODEL, FOUND_COMMITS
from tests.support.records import worker

S = Status
TASK = Assignment(task_id=TaskId("7"), claim="c1", since_unix=100.0, last_prompt="task-0")
NOW = Situation()


def at_work(status: Status, **fields: Any) -> WorkerRecord:
    return worker(status, **{"assignment": TASK, "current_prompt": "do it", **fields})


def delivery(
    outcome: Outcome, at_unix: float = 101.0, obstacle: Obstacle | None = None, prompt_id: str = "task-1"
) -> Delivery:
    return Delivery(
        prompt_id=PromptId(prompt_id), outcome=outcome, at_unix=at_unix, reason="why", obstacle=obstacle
    )


PERSONS = (Obstacle.HELD, Obstacle.ATTACHED, Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)
LEFT = (Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)


FREE: dict[Status, steps.Step] = {
    S.OFFLINE: Do.RESTART,
    S.IDLE: Do.ASSIGN,
    S.WORKING: Do.WAIT,
    S.NEEDS_INPUT: Do.WAIT,
    S.NEEDS_REVIEW: Do.WAIT,
    S.REVIEWING: Do.WAIT,
    S.REJECTED: Do.WAIT,
    S.REBASING: Do.WAIT,
    S.NO_CHANGES: Do.CLEAN,
    S.ERROR: Do.CLEAN,
}


@pytest.mark.parametrize("status", Status)
def test_without_a_task(status: Status) -> None:
    """The user may talk to it; what is left of a finished task goes.

    Break: drop `current_prompt` from the rule.
    """
    assert next_step(worker(status), NOW) == FREE[status]
    busy = Situation(taking=False)
    assert next_step(worker(status), busy) == (Do.WAIT if status is S.IDLE else FREE[status])
    rest = next_step(worker(status, current_prompt="of an earlier task"), NOW)
    assert rest == (FREE[status] if status in (S.OFFLINE, S.IDLE) else Do.CLEAN)


def test_commits_that_a_start_found_are_nobodys() -> None:
    """Break: wait for a user who is not there; the worker would never work again."""
    assert next_step(worker(S.NEEDS_REVIEW, reason=FOUND_COMMITS), NOW) == Do.CLEAN


BUSY: dict[Status, steps.Step] = {
    S.OFFLINE: GiveUp(Cause.CRASH, "the agent exited"),
    S.IDLE: Do.DELIVER,
    S.WORKING: Do.WAIT,
    S.NEEDS_INPUT: Do.ASK_TO_COMMIT,
    S.NEEDS_REVIEW: Do.ACCEPT,
    S.REVIEWING: Do.WAIT,
    S.REJECTED: Do.WAIT,
    S.REBASING: Do.WAIT,
    S.NO_CHANGES: Do.COMPLETE_UNCHANGED,
    S.ERROR: Stop(Cause.CONFIG, "it broke"),
}


@pytest.mark.req("0-043", "0-044")
@pytest.mark.parametrize("status", Status)
def test_with_a_task(status: Status) -> None:
    """Break: any line of the table in steps._with_task."""
    assert next_step(at_work(status, reason="stopped_clean"), NOW) == BUSY[status]


@pytest.mark.parametrize("status", Status)
def test_a_person_or_an_accept_comes_first(status: Status) -> None:
    """Break: leave `held` or `accept` out of the first line of next_step."""
    assert next_step(at_work(status, held=True), NOW) == Do.WAIT
    journal = AcceptJournal(step="land", started_unix=1.0, tip="c0ffee")
    assert next_step(at_work(status, accept=journal), Situation(claimed=False)) == Do.WAIT


@pytest.mark.req("4-065")
@pytest.mark.parametrize("status", Status)
def test_a_task_the_ledger_gave_back_is_over(status: Status) -> None:
    """A crash came between. Break: continue with a task that another worker may have by now."""
    after = next_step(at_work(status), Situation(claimed=False))
    assert after == Do.CLEAN
    counted = next_step(at_work(status), Situation(claimed=False, completed=True))
    assert counted == (Do.COMPLETE_UNCHANGED if status is S.NO_CHANGES else Do.CLEAN)


@pytest.mark.req("0-060")
def test_work_waits_while_the_source_is_in_use() -> None:
    assert next_step(at_work(S.NEEDS_REVIEW), Situation(landing=False)) == Do.WAIT


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, Do.DELIVER),
        (delivery(Outcome.ACKNOWLEDGED, at_unix=99.0, prompt_id="task-0"), Do.DELIVER),
        # The clock was set back: to before the task was claimed, and to after that.
        (delivery(Outcome.ACKNOWLEDGED, at_unix=700.0, prompt_id="task-0"), Do.DELIVER),
        (delivery(Outcome.ACKNOWLEDGED, at_unix=99.0), Do.WAIT),
        (delivery(Outcome.PENDING), Do.WAIT),
        (delivery(Outcome.TYPED), Do.WAIT),
        (delivery(Outcome.QUEUED), Do.WAIT),
        (delivery(Outcome.REFUSED), GiveUp(Cause.AGENT, "cannot deliver the prompt: why")),
        (delivery(Outcome.UNCONFIRMED), GiveUp(Cause.AGENT, "cannot deliver the prompt: why")),
    ],
)
def test_a_task_is_told_once(last: Delivery | None, expected: steps.Step) -> None:
    """Break: deliver again when the outcome is unknown; a prompt would be typed twice."""
    assert next_step(at_work(S.IDLE, delivery=last), NOW) == expected


def test_which_obstacles_are_persons() -> None:
    """Break: treat a dead, busy or asking agent as a user;
    the worker would wait for a user who was never there.
    """
    assert tuple(o for o in Obstacle if o.is_person) == PERSONS
    assert tuple(o for o in Obstacle if o.is_in_the_box) == LEFT


@pytest.mark.parametrize("obstacle", Obstacle)
@pytest.mark.parametrize("status", [S.IDLE, S.NEEDS_INPUT, S.NEEDS_REVIEW, S.REBASING, S.WORKING])
@pytest.mark.parametrize("kind", ["task", "commit", "resume", "verify", "review", "conflict", "validation"])
def test_a_prompt_that_met_a_person_is_nobodys_failure(obstacle: Obstacle, status: Status, kind: str) -> None:
    """Break: leave `met_a_person` out of _with_task, or a kind out of its list: it charges the task."""
    last = delivery(Outcome.REFUSED, obstacle=obstacle, prompt_id=f"{kind}-1")
    record = at_work(status, delivery=last, reason="stopped_clean")
    assert (next_step(record, NOW) == Do.TELL) == obstacle.is_person
    unsure = replace(last, outcome=Outcome.UNCONFIRMED)
    assert next_step(replace(record, delivery=unsure), NOW) != Do.TELL, "it was typed"
    earlier = replace(last, prompt_id=PromptId("task-0"))
    assert next_step(replace(record, delivery=earlier), NOW) != Do.TELL, "of the previous task"


@pytest.mark.parametrize("kind", ["message", "goal", "budget", "reject"])
def test_what_the_task_can_do_without_stops_nothing(kind: str) -> None:
    """Break: count any refused prompt; a user's own message that hit a draft would take the task away."""
    last = delivery(Outcome.REFUSED, obstacle=Obstacle.DRAFT, prompt_id=f"{kind}-1")
    assert next_step(at_work(S.WORKING, delivery=last), NOW) == Do.WAIT


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNCONFIRMED])
def test_an_agent_that_ended_at_its_delivery_crashed(outcome: Outcome) -> None:
    """Break: count it as the agent's own failure; two of them would end the night as `agent`."""
    after = next_step(at_work(S.IDLE, delivery=delivery(outcome, obstacle=Obstacle.DEAD)), NOW)
    assert isinstance(after, GiveUp)
    assert (after.cause, after.counts) == (Cause.CRASH, True)
    assert not_told(None, "why").cause is Cause.AGENT


def test_a_prompt_that_is_due_is_a_step() -> None:
    """Break: silently wait for a prompt that a dialog blocks; the task would time out, and be charged."""
    assert next_step(at_work(S.WORKING, self_review=SelfReview.DUE), NOW) == Do.TELL
    assert next_step(at_work(S.REBASING, conflict_prompt_due=True), NOW) == Do.TELL
    assert next_step(at_work(S.REBASING), NOW) == Do.WAIT
    over = Situation(busy_s=3601.0, task_timeout_s=3600.0)
    assert isinstance(next_step(at_work(S.WORKING, self_review=SelfReview.DUE), over), GiveUp)


GIVE_UP = GiveUp(Cause.AGENT, "why")
TYPES = [Do.ASSIGN, Do.DELIVER, Do.ASK_TO_COMMIT, AskToFinish("near"), GIVE_UP, Do.TELL, Do.RESUME, Do.CLEAN]
TYPES_NOTHING = [Do.COMPLETE_UNCHANGED, Park(Cause.LIMIT, ""), Stop(Cause.AUTH, ""), Do.RESTART, Do.WAIT]


def test_what_a_person_left_is_in_the_way_of_what_types_or_ends() -> None:
    """Break: leave a step out of in_its_way: it would type behind a draft, or end the session that has it."""
    assert all(in_its_way(todo) == set(PERSONS) for todo in TYPES)
    assert all(in_its_way(todo) == {Obstacle.HELD, Obstacle.ATTACHED} for todo in TYPES_NOTHING)
    assert in_its_way(Do.ACCEPT) == {Obstacle.HELD, Obstacle.ATTACHED, Obstacle.DIALOG}, (
        "a draft stops no landing"
    )


@pytest.mark.parametrize("obstacle", PERSONS)
def test_whose_task_goes_to_somebody_else(obstacle: Obstacle) -> None:
    """Break: keep an unstarted task; or take finished work, or a held worker's task, from its worker."""
    assert releases_task(Do.DELIVER, obstacle)
    for todo in (Do.ASK_TO_COMMIT, Do.TELL, Do.RESUME, GIVE_UP):
        assert releases_task(todo, obstacle) == (obstacle in LEFT)
    for todo in (Do.ACCEPT, AskToFinish("near"), Do.CLEAN, Do.ASSIGN, Do.WAIT):
        assert not releases_task(todo, obstacle)


@pytest.mark.parametrize(
    "reason", ["stopped_clean", "stopped_dirty", "stopped_rebasing", "interrupted", "restarted"]
)
def test_it_is_asked_for_a_commit_once(reason: str) -> None:
    """Break: leave `asked_to_commit` out; it is asked forever."""
    assert next_step(at_work(S.NEEDS_INPUT, reason=reason), NOW) == Do.ASK_TO_COMMIT
    asked = replace(TASK, asked_to_commit=True)
    after = next_step(at_work(S.NEEDS_INPUT, reason=reason, assignment=asked), NOW)
    assert isinstance(after, GiveUp)
    assert (after.cause, after.counts) == (Cause.AGENT, True)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"reason": "question"}, Cause.AGENT),
        ({"reason": "permission"}, Cause.AGENT),
        ({"reason": "blocked", "error_reason": "no network"}, Cause.TASK),
        ({"reason": "agent", "cause": "agent", "error_reason": "too long"}, Cause.AGENT),
    ],
)
def test_nobody_answers_questions(fields: dict[str, str], cause: Cause) -> None:
    after = next_step(at_work(S.NEEDS_INPUT, **fields), NOW)
    assert isinstance(after, GiveUp)
    assert (after.cause, after.counts) == (cause, True)


def test_a_part_that_asks_keeps_its_conversation_while_nobody_needs_its_worker() -> None:
    """Break: give it up immediately: the answer starts the task over, without its conversation and work."""
    part = replace(TASK, dispatch="D_1")
    asks = at_work(S.NEEDS_INPUT, reason="blocked", error_reason="Which colour?", assignment=part)
    assert next_step(asks, NOW) == Do.WAIT
    needed = next_step(asks, replace(NOW, needed=True))
    assert needed == GiveUp(Cause.TASK, "Which colour?", counts=False, hold="blocked"), (
        "its goal has it done again"
    )
    dialog = next_step(at_work(S.NEEDS_INPUT, reason="question", assignment=part), NOW)
    assert isinstance(dialog, GiveUp), "no message can answer that"


@pytest.mark.parametrize("status", [S.NEEDS_INPUT, S.REBASING])
@pytest.mark.parametrize("cause", [Cause.LIMIT, Cause.API])
def test_what_passes_by_itself_parks_and_never_counts(status: Status, cause: Cause) -> None:
    """Break: give the task up at a limit; or leave a rebase at the limit to patrol, which calls it stuck."""
    record = at_work(status, cause=cause, error_reason="resets 3pm", reason="limit")
    assert next_step(record, Situation(resuming=False)) == Park(cause, "resets 3pm")
    assert next_step(record, Situation(resuming=True)) == Do.RESUME


def test_a_model_of_the_tasks_own() -> None:
    """Break: end auto mode, or count a failure, because one task names an unavailable model."""
    own = replace(TASK, model="opsu")
    failed = worker(S.ERROR, auto=True, assignment=own, cause=Cause.CONFIG, error_reason="no such model")
    wanted = GiveUp(Cause.TASK, "no such model", counts=False, hold="quarantined")
    assert next_step(failed, NOW) == wanted
    assert next_step(replace(failed, assignment=TASK), NOW) == Stop(Cause.CONFIG, "no such model")
    between = next_step(at_work(S.OFFLINE, reason=ANOTHER_MODEL), NOW)
    assert isinstance(between, GiveUp)
    assert not between.counts


@pytest.mark.req("1-135")
def test_a_worker_that_aborts_its_rebase_does_not_land_for_ever() -> None:
    """Break: accept an aborted rebase; it conflicts again, is aborted again, and costs each time."""
    after = next_step(at_work(S.NEEDS_REVIEW, reason=ABORTED), NOW)
    assert isinstance(after, GiveUp)
    assert (after.cause, after.counts) == (Cause.TASK, True)
    assert next_step(at_work(S.NEEDS_REVIEW, reason="commits"), NOW) == Do.ACCEPT


@pytest.mark.req("0-056")
@pytest.mark.parametrize("cause", Cause)
def test_an_error_by_its_cause(cause: Cause) -> None:
    """Break: retry after `auth`. From an earlier run it is over: the user had time to fix it."""
    record = at_work(S.ERROR, cause=cause, error_reason="it broke")
    stops = cause in (Cause.AUTH, Cause.CONFIG, Cause.DISK)
    assert next_step(record, NOW) == (Stop(cause, "it broke") if stops else GiveUp(cause, "it broke"))
    assert next_step(replace(record, assignment=None), NOW) == Do.CLEAN


@pytest.mark.req("0-052")
def test_a_lost_session_counts_against_no_task() -> None:
    gone = next_step(at_work(S.OFFLINE, cause="tmux", error_reason="its tmux session is gone"), NOW)
    assert gone == GiveUp(Cause.TMUX, "its tmux session is gone", counts=False)
    crashed = next_step(at_work(S.OFFLINE, cause="crash", error_reason="code 7"), NOW)
    assert crashed == GiveUp(Cause.CRASH, "code 7")


@pytest.mark.parametrize("status", [S.WORKING, S.REJECTED, S.REVIEWING, S.REBASING])
def test_a_task_has_its_time(status: Status) -> None:
    """Break: measure from the start of the task; a park of five hours would use it up."""
    slow = Situation(busy_s=3600.0, task_timeout_s=3600.0)
    assert next_step(at_work(status), slow) == Do.WAIT
    over = next_step(at_work(status), Situation(busy_s=3601.0, task_timeout_s=3600.0))
    assert over == GiveUp(Cause.AGENT, "timed out after 3600 s")


def test_a_default_branch_that_fails_is_charged_to_nobody() -> None:
    """Break: ASSIGN in `_free`, or ACCEPT in `_land`, without checking `base_fails`; or count the GiveUp."""
    fails = Situation(base_fails=True)
    due = replace(fails, base_due=True)
    assert next_step(worker(S.IDLE), fails) == Do.WAIT
    assert next_step(worker(S.IDLE), due) == Do.CHECK_BASE
    assert next_step(worker(S.IDLE), replace(due, work_waits=True)) == Do.WAIT, "its accept shows it"
    assert next_step(worker(S.IDLE), replace(due, taking=False)) == Do.WAIT
    assert next_step(at_work(S.NEEDS_REVIEW), fails) == Do.WAIT
    assert next_step(at_work(S.NEEDS_REVIEW), due) == Do.ACCEPT
    assert next_step(at_work(S.NEEDS_REVIEW), replace(due, landing=False)) == Do.WAIT
    given_back = next_step(at_work(S.NEEDS_REVIEW), replace(fails, ending=True))
    assert isinstance(given_back, GiveUp)
    assert not given_back.counts
    assert not given_back.hold


situations = st.builds(
    Situation,
    base_fails=st.booleans(),
    base_due=st.booleans(),
    work_waits=st.booleans(),
    ending=st.booleans(),
    taking=st.booleans(),
    landing=st.booleans(),
    resuming=st.booleans(),
    claimed=st.booleans(),
    completed=st.booleans(),
    busy_s=st.floats(0, 1e6),
    task_timeout_s=st.floats(1, 1e6),
)
records = st.builds(
    lambda status, **fields: worker(status, **fields),
    st.sampled_from(Status),
    assignment=st.none() | st.just(TASK) | st.just(replace(TASK, asked_to_commit=True, sent_back=2)),
    held=st.booleans(),
    cause=st.sampled_from(["", *Cause]),
    reason=st.sampled_from(["", "stopped_clean", "question", "blocked", "limit"]),
    current_prompt=st.sampled_from(["", "do it"]),
    delivery=st.none()
    | st.builds(delivery, st.sampled_from(Outcome), st.floats(0, 200), st.none() | st.sampled_from(Obstacle)),
)


@given(records, situations)
def test_in_no_situation_is_work_lost_or_taken_twice(record: WorkerRecord, situation: Situation) -> None:
    """Break: let a worker with a task take another, or count what resolves itself."""
    todo = next_step(record, situation)
    has_task = record.assignment is not None and situation.claimed
    if record.held:
        assert todo == Do.WAIT
    if todo is Do.ASSIGN:
        assert record.assignment is None
        assert record.status is S.IDLE
        assert situation.taking
        assert not situation.base_fails
    if todo is Do.ACCEPT:
        assert has_task
        assert record.status is S.NEEDS_REVIEW
        assert situation.landing
    if isinstance(todo, GiveUp):
        assert has_task
        waited = situation.base_fails and record.status is S.NEEDS_REVIEW
        assert todo.counts == (not waited and (record.cause != Cause.TMUX or record.status is not S.OFFLINE))
        assert todo.cause not in (Cause.LIMIT, Cause.API) or record.status in (S.ERROR,)
        told = record.delivery is None or record.delivery.prompt_id == TASK.last_prompt
        met = not told and record.delivery is not None and record.delivery.met_a_person
        assert not met or record.status in (S.OFFLINE, S.ERROR), "a user in the way charges no task"
    if isinstance(todo, Stop):
        assert record.cause in (Cause.AUTH, Cause.CONFIG, Cause.DISK)
    if todo is Do.CLEAN:
        assert not has_task, "a task's work is given up, never just deleted"


def test_nothing_begins_between_a_landing_and_the_end_of_its_command() -> None:
    """Break: leave out `verify` or `finish`, or what is due: a task that just landed would be in neither."""

    def comes_first(record: WorkerRecord, auto: AutoState | None = None) -> bool:
        return a_command_comes_first(State(workers={record.name: record}, auto=auto or AutoState()))

    landed = ("verify", "complete", "reset", "finish")
    for name in STEPS:
        journal = AcceptJournal(step=name, started_unix=1.0, tip="c0ffee")
        assert comes_first(at_work(S.NEEDS_REVIEW, accept=journal)) == (name in landed)
        own = worker(S.NEEDS_REVIEW, accept=journal)
        assert not comes_first(own), "the user's own work has no such command"
    assert not comes_first(at_work(S.NEEDS_REVIEW))
    assert comes_first(worker(S.IDLE), AutoState(post_accept_due=("7",)))
