"""How an assignment is judged: by its own signs, in order; silence, due times, clock jumps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.liveness import Message, Run, Signals, State, judge
from llmc.goals.model import Assignment, BlockedReason
from llmc.goals.model import AssignmentStatus as S
from llmc.goals.model import NodeStatus as N
from tests.support.goal_world import START
from tests.support.one_leaf import OneLeaf, seen

IDLE = 900.0
POLICY = Policy()


def given_to(**fields: object) -> Assignment:
    """An assignment whose work was sent and accepted at START."""
    return replace(OneLeaf(POLICY).begin().one, **fields)


@pytest.mark.req("3-036", "3-037", "3-X3")
def test_a_run_in_flight_comes_first() -> None:
    """However long it is silent, and whatever report was due. Break: judge the due time before the run."""
    late = given_to(expected_next_update_at=START + 10)
    found = judge(late, seen(run=Run.IN_FLIGHT), POLICY, START + 100_000)
    assert (found.state, found.stalls_at) == (State.ALIVE, None)
    waits = judge(late, seen(run=Run.WAITING), POLICY, START + 100_000)
    assert (waits.state, waits.stalls_at) == (State.QUIET, None)
    assert judge(late, seen(run=Run.FAILED, run_error="boom"), POLICY, START + 1).state is State.FAILED


@pytest.mark.req("3-036", "3-038")
def test_a_session_that_stirs_is_alive() -> None:
    """Its own time counts if it is newer than the dispatch.

    Break: `>=` zero instead of `> since` in `activity`.
    """
    one = given_to()
    stirred = judge(one, seen(session_updated_at=START + 50), POLICY, START + 60)
    assert (stirred.state, stirred.active_at, stirred.stalls_at) == (
        State.ALIVE,
        START + 50,
        START + 50 + IDLE,
    )
    before = judge(one, seen(session_updated_at=START - 50), POLICY, START + 60)
    assert (before.state, before.active_at) == (State.QUIET, None)
    leaf = OneLeaf().begin()
    leaf.look(seen(session_updated_at=START + 50), after=60)
    assert (leaf.one.status, leaf.one.last_observed_activity_at) == (S.ACTIVE, START + 50)
    assert leaf.node.status is N.IN_PROGRESS


@pytest.mark.req("3-X2")
def test_our_own_prompt_is_no_sign_of_life() -> None:
    """A session becomes active when our text arrives; that is us. What the agent writes itself always counts.

    Break: leave out `is_echo`.
    """
    one = given_to()
    echo = seen(session_updated_at=START + 100, prompted_at=(START + 99,))
    assert judge(one, echo, POLICY, START + 110).active_at is None
    both = seen(session_updated_at=START + 100, prompted_at=(START + 99,), agent_wrote_at=START + 101)
    assert judge(one, both, POLICY, START + 110).active_at == START + 101
    ours = seen(messages=(Message("m", "llmc", START + 100, "How does it stand?"),))
    assert judge(one, ours, POLICY, START + 110).active_at is None
    leaf = OneLeaf().begin()
    assert leaf.look(seen(), after=IDLE) == ["nudge"]
    leaf.ended()
    nudged = seen(session_updated_at=leaf.now + 1, prompted_at=(leaf.now,))
    assert leaf.look(nudged, after=300) == ["nudge"], "the first one is not taken as an answer"


@pytest.mark.req("3-039")
def test_silence_is_a_stall() -> None:
    """Not a second before `idle_after`, and its own limit wins.

    Break: ignore `idle_after_ms` in `idle_after`.
    """
    leaf = OneLeaf().begin()
    assert leaf.look(seen(), after=IDLE - 1) == []
    assert (leaf.one.status, leaf.decided.next_due) == (S.DISPATCHED, START + IDLE)
    assert leaf.look(seen(), after=1) == ["nudge"]
    assert leaf.one.status is S.STALLED
    assert "assignment.stalled" in leaf.types()
    patient = given_to(idle_after_ms=7_200_000, expected_next_update_at=None)
    assert judge(patient, seen(), POLICY, START + IDLE).stalls_at == START + 7200
    hasty = given_to(idle_after_ms=60_000, expected_next_update_at=None)
    assert judge(hasty, seen(), POLICY, START + 30).stalls_at == START + 60


@pytest.mark.req("3-040", "3-X3")
def test_an_expected_update_comes_sooner_than_silence() -> None:
    """It is a stall when it does not come; any activity since cancels it, and progress postpones it.

    Break: always return `silent` in `_due`.
    """
    due = given_to(expected_next_update_at=START + 100)
    assert judge(due, seen(), POLICY, START + 99).stalls_at == START + 100
    assert judge(due, seen(agent_wrote_at=START + 120), POLICY, START + 130).stalls_at == START + 120 + IDLE
    leaf = OneLeaf().begin()
    assert leaf.one.expected_next_update_at == START + IDLE
    leaf.look(seen(agent_wrote_at=START + 300), after=310)
    assert leaf.one.expected_next_update_at == START + 300 + IDLE


@pytest.mark.req("3-041")
def test_a_stalled_one_that_stirs_is_active_again() -> None:
    """Break: only move from `dispatched` in `_is_active`."""
    leaf = OneLeaf().begin()
    leaf.look(seen(agent_wrote_at=START + 10), after=20)
    leaf.look(seen(agent_wrote_at=START + 10), after=IDLE)
    assert leaf.one.status is S.STALLED
    leaf.ended()
    leaf.look(seen(agent_wrote_at=leaf.now + 5), after=30)
    assert leaf.one.status is S.ACTIVE


@pytest.mark.req("3-035")
def test_one_that_works_says_nothing_about_another() -> None:
    """Activity of a worker's other run does not count for this one. Break: leave out `is_of_former_run`."""
    found = judge(given_to(run_id="18"), seen(run_id="17", run=Run.IN_FLIGHT), POLICY, START + IDLE + 1)
    assert found.state is State.QUIET
    assert found.stalls_at == START + IDLE


@pytest.mark.req("3-042", "3-043")
def test_what_messages_tell_apart() -> None:
    """Slow, failed or waiting: only the latest 20 messages count, and never ours.

    Break: use all messages in `sampled`.
    """
    one = given_to()
    at = START + IDLE
    slow = seen(messages=(Message("1", "assistant", at - 5, "compiling"),))
    assert judge(one, slow, POLICY, at).state is State.ALIVE
    person = seen(messages=(Message("1", "person", at - 5, "use A"),))
    assert judge(one, person, POLICY, at).state is State.ALIVE
    error = Message("2", "error", at - 4, "API error 500")
    failed = judge(one, seen(messages=(*slow.messages, error)), POLICY, at)  # type: ignore[misc]
    assert (failed.state, failed.why) == (State.FAILED, "API error 500")
    recovered = (error, Message("3", "assistant", at - 1, "again"))
    assert judge(one, seen(messages=recovered), POLICY, at).state is State.ALIVE
    many = (Message("0", "assistant", at - 5, "old"), *[Message("n", "llmc", at - 4, "?")] * 20)
    assert judge(one, seen(messages=many), POLICY, at).active_at is None
    reason = BlockedReason(kind="question", text="A or B?")
    assert judge(one, seen(waiting=reason, waiting_since=START + 5), POLICY, at).state is State.WAITING
    assert judge(one, seen(waiting=reason, waiting_since=START - 5), POLICY, at).state is State.QUIET


@pytest.mark.req("3-042")
def test_messages_are_wanted_of_stale_ones_only() -> None:
    """And only while there is room. Break: `_wants_sample` before the time is up."""
    leaf = OneLeaf(Policy(max_samples_per_tick=1)).begin()
    leaf.look(seen(messages=None), after=100)
    assert leaf.decided.wants_samples == ()
    assert leaf.look(seen(messages=None), after=IDLE) == []
    assert leaf.decided.wants_samples == (leaf.one.assignment_id,)
    assert leaf.look(seen(messages=())) == ["nudge"]
    blind = OneLeaf(Policy(max_samples_per_tick=0)).begin()
    assert blind.look(seen(messages=None), after=IDLE) == ["nudge"]


def test_nothing_is_concluded_from_nothing() -> None:
    leaf = OneLeaf().begin()
    assert leaf.look(None, after=100_000) == []
    assert leaf.decided.change.is_empty()


def test_a_jump_of_the_clock_grants_one_full_time() -> None:
    """Break: ignore `granted_until` in `judge`."""
    leaf = OneLeaf().begin()
    leaf.now += 100_000
    granted = leaf.now + IDLE
    assert leaf.look(seen(), granted_until=granted) == []
    assert (leaf.one.status, leaf.decided.next_due) == (S.DISPATCHED, granted)
    assert leaf.look(seen(), after=IDLE, granted_until=granted) == ["nudge"]
    failed = OneLeaf().begin()
    failed.now += 100_000
    assert failed.look(seen(run=Run.FAILED), granted_until=failed.now + IDLE) == []


def test_a_clock_set_back_makes_nobody_wait_for_it() -> None:
    """Times that are now in the future count as now: the stall is found one full silence later.

    Break: return the assignment as it is in `unskewed`.
    """
    leaf = OneLeaf()
    leaf.now += 1_000_000
    leaf.begin()
    leaf.look(seen(agent_wrote_at=leaf.now + 10), after=20)
    leaf.now -= 500_000
    signs = seen(agent_wrote_at=leaf.now + 500_000)
    assert leaf.look(signs) == []
    leaf.now += IDLE + 100
    assert leaf.look(seen()) == ["nudge"]


@given(
    st.lists(st.floats(min_value=1, max_value=5_000), min_size=1, max_size=30),
    st.floats(min_value=0, max_value=IDLE - 1),
)
def test_no_stall_while_events_arrive(times: list[float], later: float) -> None:
    """A session that was active less than `idle_after` ago is not called stalled, whatever came before."""
    one = given_to()
    last = START + sum(times)
    found = judge(one, Signals(agent_wrote_at=last), POLICY, last + later)
    assert found.state is State.ALIVE
    assert found.stalls_at == last + IDLE
