"""Recovery of a stalled assignment: in which order, how often, how far apart; and finally the user."""

from itertools import pairwise

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.base.errors import Refused
from llmc.goals.drive import by_hand, ladder
from llmc.goals.drive.by_hand import sent_again
from llmc.goals.drive.decide import watched
from llmc.goals.drive.intents import outcome
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.liveness import Run, Signals
from llmc.goals.drive.moves import after
from llmc.goals.drive.updates import Claim, Update
from llmc.goals.model import AssignmentStatus as S
from llmc.goals.model import BlockedReason, DeliveryContext, Goal, Mode, NodeKind, Origin, Recovery, Result
from llmc.goals.model import NodeStatus as N
from llmc.goals.plan.plan import Limits, Plan
from llmc.goals.plan.plan_text import read_plan
from llmc.goals.plan.replan import _going_on
from tests.support.goal_plans import nodes_of
from tests.support.goal_world import START, goal
from tests.support.one_leaf import OneLeaf, seen

IDLE = 900.0


def climb(
    leaf: OneLeaf, signals: Signals, step_s: float = 60.0, hours: float = 48.0
) -> list[tuple[str, float]]:
    """Everything that is sent while nothing changes, with its time."""
    found = []
    begin = leaf.now
    while leaf.now - begin < hours * 3600:
        found += [(purpose, leaf.now) for purpose in leaf.look(signals, after=step_s)]
        leaf.ended()
    return found


@pytest.mark.req("3-105", "3-108", "3-109", "3-X5", "3-X23", "3-021")
def test_the_whole_ladder() -> None:
    """Silent forever: two nudges, a planner, another worker, the user, three reminders, then nothing.

    Each wait is the base, doubled. Every step is in the history.
    Break: `2.0**step` instead of `2.0**doublings` in `backoff_s`.
    """
    leaf = OneLeaf(Policy(planner=True), risk_level="high").begin()
    sent = climb(leaf, seen())
    assert [purpose for purpose, _ in sent] == [
        "nudge",
        "nudge",
        "replan",
        "reassign",
        "escalate",
        "reminder",
        "reminder",
        "reminder",
    ]
    at = [time - START for _, time in sent]
    assert at[0] == IDLE
    # the second nudge has the same text: the interval counts, not the shorter backoff
    assert at[1] - at[0] == 300
    assert (at[2] - at[1], at[3] - at[2]) == (240, 480)
    assert at[4] - at[3] == 960, "a new worker gets a full silence; the backoff is longer"
    assert {later - sooner for sooner, later in pairwise(at[4:])} == {4 * 3600.0}
    history = [d.purpose for d in leaf.one.dispatch_history]
    assert history == ["work", *(purpose for purpose, _ in sent)]
    assert len({d.dispatch_id for d in leaf.one.dispatch_history}) == len(history)
    assert (leaf.one.status, leaf.node.status) == (S.BLOCKED, N.BLOCKED)
    assert leaf.one.blocked_reason is not None
    assert leaf.one.blocked_reason.options
    assert spent(leaf) == 6 == leaf.policy.max_retries + 4
    assert leaf.decided.next_due is None


@pytest.mark.req("3-X23", "3-111")
def test_the_waits() -> None:
    policy = Policy(backoff_base_s=120, backoff_max_s=1800)
    assert [ladder.backoff_s(step, policy) for step in (1, 2, 3, 4, 5, 6, 999)] == [
        120,
        240,
        480,
        960,
        1800,
        1800,
        1800,
    ]


@pytest.mark.req("3-104")
@pytest.mark.parametrize(
    ("first", "sent"),
    [
        (Recovery.NUDGE, ["nudge", "nudge", "replan", "reassign", "escalate"]),
        (Recovery.RESEND, ["replan", "reassign", "escalate"]),
        (Recovery.REPLAN, ["replan", "reassign", "escalate"]),
        (Recovery.REASSIGN, ["reassign", "escalate"]),
        (Recovery.ESCALATE, ["escalate"]),
    ],
)
def test_an_assignment_has_its_own_first_step(first: Recovery, sent: list[str]) -> None:
    """As set in the plan, and as `llmc work recovery` sets it for work that is already assigned.

    Break: start with LADDER[0] in `next_step`; leave `recovery_policy` out of `_new_assignment` or
    `set_recovery`.
    """
    text = f"# G\n## P\n### T\n- [ ] L\n  accept: it is there\n  risk: high\n  recovery: {first}\n  idle-after: 2h\n"
    plan = read_plan(text, Limits())
    assert isinstance(plan, Plan)
    [planned] = [n for n in nodes_of(plan, "goal_1", START) if n.kind is NodeKind.SUBTASK]
    said = {"recovery_policy": planned.recovery_policy, "idle_after_ms": planned.idle_after_ms}
    policy = Policy(planner=True, max_reminders=0)
    leaf = OneLeaf(policy, risk_level="high", **said).begin()
    assert (leaf.one.recovery_policy, leaf.one.idle_after_ms) == (first, 7_200_000)
    found = climb(leaf, seen(), hours=12)
    assert [purpose for purpose, _ in found] == sent
    assert 7200 <= found[0][1] - START < 7400, "and it is silent for as long as allowed"

    leaf = OneLeaf(policy, risk_level="high").begin()
    node = leaf.view.nodes[leaf.one.work_node_id]
    leaf.view = after(leaf.view, by_hand.set_recovery(leaf.view, node, leaf.now, first, 7_200_000))
    assert climb(leaf, seen(), hours=12) == found


@pytest.mark.req("3-104")
def test_a_person_keeps_it_over_another_plan_and_only_of_a_leaf() -> None:
    """Break: use only the new node's values in `_going_on`."""
    leaf = OneLeaf(Policy()).begin()
    node = leaf.view.nodes[leaf.one.work_node_id]
    with pytest.raises(Refused, match="only to plan items without children"):
        by_hand.set_recovery(leaf.view, leaf.view.nodes[node.parent_id], START, Recovery.REPLAN, None)
    changed = replace(node, recovery_policy=Recovery.REPLAN, idle_after_ms=5000)
    again = _going_on(changed, node, START)
    assert (again.recovery_policy, again.idle_after_ms) == (Recovery.REPLAN, 5000)
    other = _going_on(changed, replace(node, recovery_policy=Recovery.ESCALATE, idle_after_ms=9), START)
    assert (other.recovery_policy, other.idle_after_ms) == (Recovery.ESCALATE, 9)


@pytest.mark.req("3-107")
def test_a_planner_and_somebody_else_only_where_that_helps() -> None:
    """No planner, or a small leaf: no replanning. A user's own worker: no reassignment without permission.

    Break: leave `is_too_large` out of `_fits`.
    """
    small = OneLeaf(Policy(planner=True, max_reminders=0)).begin()
    assert "replan" not in [purpose for purpose, _ in climb(small, seen())]
    alone = OneLeaf(Policy(max_reminders=0), risk_level="high").begin()
    assert "replan" not in [purpose for purpose, _ in climb(alone, seen())]
    across = Policy(max_reminders=0, allow_cross_agent=True, allow_agents=("eve",))
    theirs = OneLeaf(across, suggested_agent_id="eve").begin()
    assert theirs.one.agent_id == "eve"
    assert [p for p, _ in climb(theirs, seen())] == ["nudge", "nudge", "escalate"]


@pytest.mark.req("3-106", "3-110", "3-109")
@pytest.mark.parametrize("result", [Result.TIMEOUT, Result.ERROR])
def test_what_may_not_have_arrived_is_sent_again_under_its_id(result: Result) -> None:
    """After the backoff and the interval; the history counts the tries. It does not wait for a silence.

    Break: `work.send` instead of `send_again` for RESEND in `_step`.
    """
    leaf = OneLeaf(Policy(max_reminders=0))
    assert leaf.look() == ["work"]
    first = leaf.decided.actions[0]
    leaf.ended(result)
    assert leaf.look(Signals(), after=60) == []
    assert leaf.look(Signals(), after=240) == ["work"]
    assert leaf.decided.actions[0].dispatch_id == first.dispatch_id
    assert leaf.decided.actions[0].text == first.text
    assert [(d.purpose, d.attempts) for d in leaf.one.dispatch_history] == [("work", 2)]
    leaf.ended(run_id="17")
    assert leaf.look(seen(run=Run.WAITING), after=100_000) == []
    lost = OneLeaf(Policy(max_reminders=0))
    lost.look()
    lost.ended(Result.TIMEOUT)
    assert climb_failing(lost) == ["work", "work", "reassign", "reassign", "escalate"]
    assert spent(lost) <= lost.policy.max_retries + 4


def spent(leaf: OneLeaf) -> int:
    """How many dispatches were sent that ask for work, including resends."""
    asked_nobody = ("reminder", "withdraw", "diagnose")
    return sum(d.attempts for d in leaf.one.dispatch_history if d.purpose not in asked_nobody)


def climb_failing(leaf: OneLeaf) -> list[str]:
    """Every delivery times out, except those to the user."""
    found = []
    for _ in range(2000):
        found += leaf.look(Signals(), after=60)
        for action in leaf.decided.actions:
            result = Result.OK if action.mode is Mode.ESCALATE else Result.TIMEOUT
            leaf.keep(outcome(leaf.view, action.dispatch_id, result, leaf.now, leaf.policy))
    return found


@pytest.mark.req("3-106")
def test_what_arrived_is_not_sent_again() -> None:
    """Accepted and then silent is not a reason. And a run that shows up is the missing proof.

    Break: leave `in_doubt` out of `_fits` for RESEND.
    """
    leaf = OneLeaf(Policy(max_reminders=0)).begin()
    climb(leaf, seen())
    assert {d.attempts for d in leaf.one.dispatch_history} == {1}
    late = OneLeaf()
    late.look()
    late.ended(Result.TIMEOUT)
    assert late.look(seen(run=Run.IN_FLIGHT), after=1000) == []
    assert late.one.dispatch_history[0].result is Result.ACCEPTED
    assert late.one.status is S.ACTIVE


@pytest.mark.req("3-111", "3-X8", "3-096")
def test_the_same_words_not_too_soon() -> None:
    """The interval is for the same text; another text may follow immediately.
    It is computed from the record, even after a restart.

    Break: compare no hashes in `not_before`.
    """
    leaf = OneLeaf(Policy(min_resend_interval_s=5000)).begin()
    assert leaf.look(seen(), after=IDLE) == ["nudge"]
    leaf.ended()
    nudge = leaf.one.dispatch_history[-1]
    assert ladder.not_before(leaf.one, nudge.instruction_hash, leaf.policy) == leaf.now + 5000
    other = ladder.not_before(leaf.one, "another", leaf.policy)
    assert other == leaf.one.backoff_until == leaf.now + 120
    assert leaf.look(seen(), after=4999) == []
    assert leaf.look(seen(), after=1) == ["nudge"]
    leaf.ended()
    assert leaf.look(seen(), after=240) == ["reassign"], "another text waits only for the backoff"


@pytest.mark.req("3-X4")
@pytest.mark.parametrize("proof", ["commit", "report", "work"])
def test_progress_sets_everything_back(proof: str) -> None:
    """A commit, a report, or activity for a whole silence after recovery: retries and waits are reset.

    Break: return the assignment as it is in `progressed`.
    """
    leaf = OneLeaf().begin()
    assert leaf.look(seen(), after=IDLE) == ["nudge"]
    leaf.ended()
    assert (leaf.one.retry_count, leaf.one.backoff_until) == (1, leaf.now + 120)
    at = leaf.now + {"commit": 10, "report": 10, "work": IDLE + 1}[proof]
    signs = {
        "commit": seen(committed_at=at),
        "report": seen(reports=(Update(status=Claim.IN_PROGRESS, summary="half"),)),
        "work": seen(run=Run.IN_FLIGHT, agent_wrote_at=at),
    }[proof]
    leaf.now = at
    leaf.look(signs)
    assert (leaf.one.status, leaf.one.retry_count, leaf.one.backoff_until) == (S.ACTIVE, 0, None)
    quiet = replaced(signs, run=Run.ENDED)
    assert leaf.look(quiet, after=IDLE) == ["nudge"], "counted from the first again"
    assert leaf.one.retry_count == 1


def test_answers_to_nudges_alone_are_no_progress() -> None:
    """An agent that only answers is nudged twice in total, not forever.

    Break: count any activity as progress.
    """
    leaf = OneLeaf(Policy(max_reminders=0)).begin()
    sent = []
    wrote = None
    for _ in range(1000):
        found = leaf.look(seen(agent_wrote_at=wrote), after=60)
        leaf.ended()
        if "nudge" in found:
            wrote = leaf.now + 5
        sent += found
    assert sent == ["nudge", "nudge", "reassign", "escalate"]


@pytest.mark.req("3-X16", "3-110")
def test_somebody_else_gets_it() -> None:
    """New id, new binding; the old session's activity no longer counts, and its run is withdrawn first.

    Break: keep `run_id` in `_reassign`.
    """
    leaf = OneLeaf(Policy(max_retries=0)).begin()
    leaf.look(seen(), after=1)
    assert leaf.one.session_key == "agent:auto:worker:auto-1"
    assert leaf.look(seen(), after=IDLE) == ["reassign"]
    action = leaf.decided.actions[0]
    assert (action.mode, action.replaces) == (Mode.SPAWN, (leaf.one.dispatch_history[0].dispatch_id,))
    assert "Another worker started this" in action.text
    assert (leaf.one.session_key, leaf.one.session_id, leaf.one.run_id) == ("", "", "")
    assert (leaf.one.spawned_by_key, leaf.one.status) == ("agent:auto:worker:auto-1", S.DISPATCHED)
    leaf.ended(run_id="18")
    assert leaf.look(seen(agent_wrote_at=leaf.now + 5), after=10) == []
    assert leaf.one.status is S.DISPATCHED, "that was the previous one"
    other = seen(run_id="18", run=Run.IN_FLIGHT, session_key="agent:auto:worker:auto-2", session_id="s-2")
    leaf.look(other, after=10)
    assert (leaf.one.session_key, leaf.one.session_id) == ("agent:auto:worker:auto-2", "s-2")
    assert leaf.one.status is S.ACTIVE


@pytest.mark.req("3-043", "3-105")
def test_a_failed_run_is_not_nudged() -> None:
    """There is no session to nudge: another worker gets it immediately.

    Break: leave `failed` out of `_fits`.
    """
    leaf = OneLeaf(Policy(max_reminders=0)).begin()
    assert leaf.look(seen(run=Run.FAILED, run_error="boom"), after=10) == ["reassign"]
    leaf.ended(run_id="18")
    assert leaf.look(seen(run_id="18", run=Run.FAILED, run_error="boom again"), after=10) == []
    assert leaf.look(seen(run_id="18", run=Run.FAILED, run_error="boom again"), after=120) == ["escalate"]
    assert leaf.one.blocked_reason is not None
    assert (leaf.one.blocked_reason.kind, leaf.one.blocked_reason.text) == ("failed", "boom again")


@pytest.mark.req("3-055", "3-100", "3-115")
def test_a_question_goes_to_a_person_at_once() -> None:
    """A question is certain, because the session itself says so; silence, however long, is not.

    The question goes only to the goal's origin. Break: send it without `delivery_context`.
    """
    context = DeliveryContext(channel="mail", to="ann")
    kept: Goal = goal(origin=Origin(origin_delivery_context=context))
    leaf = OneLeaf(kept=kept).begin()
    assert leaf.look(seen(), after=IDLE) == ["nudge"]
    assert leaf.one.status is S.STALLED
    assert [action.delivery_context for action in leaf.decided.actions] == [None]
    assert [action.session_key for action in leaf.decided.actions] == ["agent:auto:worker:auto-1"]
    leaf.ended()
    reason = BlockedReason(kind="credentials", text="needs a token", options=("give one", "skip"))
    waits = seen(waiting=reason, waiting_since=leaf.now + 5)
    assert leaf.look(waits, after=10) == ["escalate"]
    action = leaf.decided.actions[0]
    assert (action.mode, action.delivery_context, action.session_key) == (Mode.ESCALATE, context, "")
    assert "needs a token" in action.text
    assert (leaf.one.status, leaf.one.blocked_reason) == (S.BLOCKED, reason)
    leaf.ended()
    assert leaf.look(waits, after=3600) == []


@pytest.mark.req("3-X5")
def test_an_answer_lets_it_go_on() -> None:
    """To the session that asked, if it exists; otherwise as a new instruction.
    Both have the answer, and a new id.

    Break: leave `answer` out of `_instruction`.
    """
    reason = BlockedReason(kind="question", text="A or B?")
    for reachable in (True, False):
        leaf = OneLeaf().begin()
        waits = seen(run=Run.IN_FLIGHT, waiting=reason, waiting_since=START + 5)
        leaf.look(waits, after=10)
        leaf.ended()
        leaf.now += 50_000
        leaf.keep(sent_again(leaf.view, leaf.one.assignment_id, "Take A.", leaf.now))
        assert (leaf.one.status, leaf.node.status, leaf.one.retry_count) == (S.QUEUED, N.QUEUED, 0)
        still = seen(run=Run.IN_FLIGHT, waiting=reason, waiting_since=START + 5, reachable=reachable)
        assert leaf.look(still) == ["answer" if reachable else "work"]
        action = leaf.decided.actions[0]
        assert "Take A." in action.text
        assert action.mode is (Mode.SEND if reachable else Mode.SPAWN)
        leaf.ended()
        if reachable:
            assert leaf.look(still, after=10) == [], "that it still waits was seen before the answer"
            assert leaf.one.status is S.ACTIVE
        again = replaced(still, waiting_since=leaf.now + 5)
        if reachable:
            assert leaf.look(again, after=20) == ["escalate"], "a new question is asked"


def test_a_question_that_reached_nobody_is_asked_again() -> None:
    """With its id, after a wait, a bounded number of times.

    Break: treat ERROR like an answer in `reminder_due`.
    """
    leaf = OneLeaf(Policy(max_reminders=2)).begin()
    waits = seen(waiting=BlockedReason(kind="question", text="A or B?"), waiting_since=START + 5)
    assert leaf.look(waits, after=10) == ["escalate"]
    asked = leaf.decided.actions[0].dispatch_id
    leaf.ended(Result.ERROR)
    assert leaf.look(waits, after=60) == []
    assert leaf.look(waits, after=60) == ["escalate"]
    assert leaf.decided.actions[0].dispatch_id == asked
    leaf.ended(Result.ERROR)
    assert leaf.look(waits, after=600) == ["escalate"]
    leaf.ended(Result.ERROR)
    assert leaf.look(waits, after=1_000_000) == []


def test_a_word_to_the_worker_itself_unblocks() -> None:
    """`llmc answer auto-1` is an answer, too.

    Break: leave `told` out of `_unblock_by_progress`: the question stays in the inbox.
    """
    leaf = OneLeaf().begin()
    leaf.look(seen(waiting=BlockedReason(kind="question", text="A or B?"), waiting_since=START + 5), after=10)
    leaf.ended()
    leaf.look(seen(told_at=(START,)), after=10)
    assert leaf.one.status is S.BLOCKED, "from before the question"
    leaf.look(seen(told_at=(START, leaf.now + 8)), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)


def test_an_answer_goes_to_the_session_that_asked() -> None:
    """Break: do not check an answered assignment: whether its session still exists would be unknown."""
    leaf = OneLeaf().begin()
    here = {"reachable": True, "session_key": "agent:auto:worker:auto-1", "session_id": "s"}
    asks = BlockedReason(kind="question", text="A or B?")
    leaf.look(seen(waiting=asks, waiting_since=START + 5, **here), after=10)
    leaf.ended()
    leaf.keep(sent_again(leaf.view, leaf.one.assignment_id, "A", leaf.now))
    assert leaf.one.status is S.QUEUED
    assert watched(leaf.view) == (leaf.one.assignment_id,)
    leaf.look(seen(**here), after=1000)
    (action,) = leaf.decided.actions
    assert (action.purpose, action.mode, action.session_key) == ("answer", Mode.SEND, here["session_key"])


def test_a_commit_unblocks() -> None:
    """The worker was helped without our knowledge; a commit from before the question does not count.

    Break: do not compare with `asked.ts` in `_unblock_by_progress`.
    """
    stalled = OneLeaf(
        Policy(max_retries=0, allow_agents=("eve",), allow_cross_agent=True), suggested_agent_id="eve"
    )
    stalled.begin()
    assert stalled.look(seen(), after=IDLE) == ["escalate"]
    stalled.ended()
    stalled.look(seen(committed_at=START + 800), after=10)
    assert stalled.one.status is S.BLOCKED
    leaf = OneLeaf().begin()
    waits = seen(waiting=BlockedReason(kind="question", text="A or B?"), waiting_since=START + 5)
    leaf.look(waits, after=10)
    leaf.ended()
    leaf.look(seen(committed_at=START + 8), after=10)
    assert leaf.one.status is S.BLOCKED
    leaf.look(seen(committed_at=leaf.now + 8), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)
