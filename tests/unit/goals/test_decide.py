"""Decisions about a goal: readiness, order, limits, intents, pauses, ends; the same for the same facts."""

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.goals.drive import by_hand
from llmc.goals.drive.by_hand import block, sent_again, unblock
from llmc.goals.drive.decide import Decided, decide, full_room, in_order, orphans, watched
from llmc.goals.drive.intents import outcome
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.liveness import Merged, Message, Report, Run, Signals
from llmc.goals.drive.updates import Claim, Update
from llmc.goals.drive.words import instruction_hash
from llmc.goals.model import (
    Assignment,
    BlockedReason,
    Change,
    Evidence,
    GoalStatus,
    GoalView,
    Mode,
    Node,
    Priority,
    Result,
)
from llmc.goals.model import AssignmentStatus as S
from llmc.goals.model import NodeStatus as N
from tests.support.goal_world import START, applied, goal, plan
from tests.support.one_leaf import OneLeaf, seen

IDLE = 900.0


def numbers() -> Iterator[str]:
    return (f"id-{number}" for number in count(1))


def decided(view: GoalView, policy: Policy | None = None, now: float = START, **more: object) -> Decided:
    return decide(view, {}, policy or Policy(), now, numbers().__next__, **more)  # type: ignore[arg-type]


def sent(found: Decided) -> list[str]:
    return [action.work_node_id for action in found.actions]


def with_node(view: GoalView, node_id: str, **fields: object) -> GoalView:
    return replaced(view, nodes={**view.nodes, node_id: replace(view.nodes[node_id], **fields)})


@pytest.mark.req("3-019", "3-X10")
def test_a_large_plan_begins_small() -> None:
    """245 leaves: as many are sent as may be in progress, in plan order, and no more at the next tick.

    Break: leave `in_progress` out of `_send_work`.
    """
    view = GoalView(goal(), plan(5, 7, 7, chained=False))
    first = decided(view, Policy(max_in_progress=3))
    assert sent(first) == ["S1.1.1", "S1.1.2", "S1.1.3"]
    assert sum(node.status is N.QUEUED for node in first.change.nodes) == 245
    assert len(first.change.assignments) == 3
    after = applied(view, first.change)
    again = decided(after, Policy(max_in_progress=3), START + 120)
    assert [action.dispatch_id for action in again.actions] == [a.dispatch_id for a in first.actions]
    few = decided(view, Policy(max_in_progress=100, max_dispatches_per_tick=5))
    assert len(few.actions) == 5
    assert few.next_due == START + 120


@pytest.mark.req("3-X10")
def test_only_what_is_ready_is_queued() -> None:
    """A leaf waits for what it, its task and its phase depend on; a phase or task means all its leaves.

    Break: use only the leaf's own `depends_on` in `shape_of`.
    """
    nodes = plan(2, 2, 2)
    nodes["T1.2"] = replace(nodes["T1.2"], depends_on=("T1.1",))
    view = GoalView(goal(), nodes)
    wide = Policy(max_in_progress=100, max_dispatches_per_tick=100)
    assert sent(decided(view, wide)) == ["S1.1.1"]
    view = with_node(view, "S1.1.1", status=N.DONE)
    assert sent(decided(view, wide)) == ["S1.1.2"]
    view = with_node(view, "S1.1.2", status=N.DONE)
    assert sent(decided(view, wide)) == ["S1.2.1"]
    view = with_node(view, "S1.2.1", status=N.CANCELLED)
    view = with_node(view, "S1.2.2", status=N.DONE)
    assert sent(decided(view, wide)) == ["S2.1.1", "S2.2.1"], "the second phase, now that the first is closed"


def test_a_persons_word_closes_what_is_below() -> None:
    """Break: leave `_closed_above` out of `is_ready`."""
    wide = Policy(max_in_progress=100, max_dispatches_per_tick=100)
    view = GoalView(goal(), plan(1, 2, 2, chained=False))
    assert sent(decided(with_node(view, "T1.1", status=N.DONE, overridden=True), wide)) == [
        "S1.2.1",
        "S1.2.2",
    ]
    assert sent(decided(with_node(view, "T1.1", status=N.BLOCKED, overridden=True), wide)) == [
        "S1.2.1",
        "S1.2.2",
    ]
    assert sent(decided(with_node(view, "T1.1", status=N.CANCELLED), wide)) == ["S1.2.1", "S1.2.2"]
    assert "S1.1.1" not in sent(decided(with_node(view, "S1.1.1", status=N.BLOCKED), wide))
    held = with_node(view, "S1.1.1", status=N.IN_PROGRESS, overridden=True)
    assert "S1.1.1" not in sent(decided(held, wide)), "the user does it"


def test_a_task_without_subtasks_is_a_leaf() -> None:
    nodes: dict[str, Node] = {key: node for key, node in plan(1, 1, 1).items() if key != "S1.1.1"}
    assert sent(decided(GoalView(goal(), nodes))) == ["T1.1"]


@pytest.mark.req("3-019")
def test_goals_share_the_room_by_priority() -> None:
    """The urgent goal first; the next one gets what is left. Break: sort only by age in `in_order`."""
    views = [
        GoalView(goal(goal_id="low", priority=Priority.LOW, created_at=1.0), plan(1, 1, 2, chained=False)),
        GoalView(
            goal(goal_id="urgent", priority=Priority.URGENT, created_at=3.0), plan(1, 1, 2, chained=False)
        ),
        GoalView(goal(goal_id="normal", created_at=2.0), plan(1, 1, 2, chained=False)),
    ]
    policy = Policy(max_in_progress=3)
    room = full_room(views, policy, START)
    begun = []
    for view in in_order(views):
        found = decided(view, policy, room=room)
        room = found.room
        begun += [(view.goal.goal_id, leaf) for leaf in sent(found)]
    assert begun == [("urgent", "S1.1.1"), ("urgent", "S1.1.2"), ("normal", "S1.1.1")]


@pytest.mark.req("3-020", "3-027")
def test_the_same_facts_make_the_same_decision_once() -> None:
    """Twice from the same facts: equal. Again after it is stored, at the same time: nothing.

    Break: leave out `just_made` in `_settle`.
    """
    view = GoalView(goal(), plan(2, 2, 2))
    first, second = decided(view), decided(view)
    assert first == second
    again = decided(applied(view, first.change))
    assert again.change == Change()
    assert again.actions == ()


@pytest.mark.req("3-095", "3-096", "3-X7")
def test_the_intent_is_there_before_the_action() -> None:
    """With its id, the hash of its text, and no result; only the delivery itself makes it accepted.

    Break: write ACCEPTED in `intend`.
    """
    leaf = OneLeaf()
    leaf.look()
    action = leaf.decided.actions[0]
    entry = leaf.one.dispatch_history[0]
    assert (entry.dispatch_id, entry.result, entry.mode) == (action.dispatch_id, Result.PENDING, Mode.SPAWN)
    assert entry.instruction_hash == leaf.one.instruction_hash == instruction_hash(action.text)
    assert leaf.one.last_instruction_text == action.text
    assert leaf.look(after=1) == ["work"], "its outcome is unknown: once more"
    assert leaf.decided.actions[0].dispatch_id == action.dispatch_id
    assert leaf.look(Signals(delivering=True), after=1) == [], "it is on its way"
    leaf.keep(
        outcome(
            leaf.view, action.dispatch_id, Result.ACCEPTED, leaf.now, leaf.policy, "n" * 9000, run_id="17"
        )
    )
    entry = leaf.one.dispatch_history[0]
    assert (entry.result, entry.run_id, entry.attempts, len(entry.notes)) == (Result.ACCEPTED, "17", 2, 500)
    assert leaf.look(after=1) == []
    late = outcome(leaf.view, action.dispatch_id, Result.TIMEOUT, leaf.now, leaf.policy)
    assert late.is_empty(), "what was accepted stays accepted"
    assert outcome(leaf.view, "no such", Result.OK, leaf.now, leaf.policy).is_empty()


@pytest.mark.req("3-100")
def test_how_an_instruction_travels() -> None:
    """To the pool as a task file; to a user's own worker, where allowed, as a message.

    Break: always SPAWN in `_instruction`.
    """
    across = Policy(allow_cross_agent=True, allow_agents=("auto", "eve"))
    view = GoalView(goal(), plan(1, 1, 2, chained=False))
    view = with_node(view, "S1.1.2", suggested_agent_id="eve")
    found = decided(view, across)
    assert [(a.mode, a.session_key) for a in found.actions] == [
        (Mode.SPAWN, ""),
        (Mode.SEND, "agent:eve:worker:eve"),
    ]
    assert [a.mode for a in decided(view).actions] == [Mode.SPAWN, Mode.SPAWN]
    assert decided(view, Policy(allow_agents=())).actions == ()


@pytest.mark.req("3-X11")
def test_the_node_follows() -> None:
    """queued, in progress, blocked, in progress, done: it follows its assignment.

    Break: no `move_node` in `_is_active`.
    """
    leaf = OneLeaf()
    leaf.look()
    assert (leaf.one.status, leaf.node.status) == (S.DISPATCHED, N.QUEUED)
    leaf.ended(run_id="17")
    leaf.look(seen(run=Run.IN_FLIGHT), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)
    leaf.look(seen(reports=(Update(status=Claim.BLOCKED, summary="no key"),)), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.BLOCKED, N.BLOCKED)
    leaf.ended()
    leaf.look(seen(reports=(Update(status=Claim.IN_PROGRESS, summary="found it"),)), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)
    landed = Merged("1a2b3c", leaf.now, Evidence(files_touched=("a.py",)))
    leaf.look(seen(merged=landed), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.DONE, N.DONE)
    assert leaf.crystals["S1.1.1"].evidence.commits == ("1a2b3c",)
    assert {crystal.level for crystal in leaf.crystals.values()} == {"subtask", "task", "phase", "goal"}
    assert leaf.look(seen(merged=landed), after=10_000) == []
    assert leaf.decided.change.is_empty()


@pytest.mark.req("3-090", "3-094", "3-X2", "3-X12", "3-X14")
def test_reports_are_heard_once() -> None:
    """From `llmc report`, or from the agent's latest own message; ours,
    the user's and earlier ones do not count.

    Break: read messages of any role in `_said`.
    """
    block = (
        '```json\n{"overseerUpdate": {"status": "in_progress", "summary": "S", "blockers": ["a key"]}}\n```'
    )
    leaf = OneLeaf().begin()
    old = Message("0", "assistant", START - 5, block)
    text = Message("1", "assistant", START + 10, "I am DONE, all works.")
    ours = Message("2", "llmc", START + 11, block)
    person = Message("3", "person", START + 12, block)
    leaf.look(seen(messages=(old, text, ours, person)), after=20)
    assert (leaf.one.status, leaf.crystals) == (S.ACTIVE, {})
    said = Message("4", "assistant", START + 30, block)
    assert leaf.look(seen(messages=(text, said)), after=20) == ["escalate"]
    assert leaf.one.status is S.BLOCKED, "blockers count, whatever the status says"
    assert leaf.one.blocked_reason is not None
    assert "a key" in leaf.one.blocked_reason.text
    assert leaf.crystals["S1.1.1"].known_blockers == ("a key",)
    leaf.ended()
    leaf.keep(sent_again(leaf.view, leaf.one.assignment_id, "here", leaf.now))
    leaf.look(seen(messages=(said,)), after=10)
    leaf.ended()
    before = len([event for event in leaf.events if event.type == "work.reported"])
    assert leaf.look(seen(messages=(replaced(said, at=leaf.now + 1),)), after=10) == []
    assert len([event for event in leaf.events if event.type == "work.reported"]) == before == 1


@pytest.mark.req("3-091", "3-X13")
def test_a_bad_report_changes_nothing_but_the_log() -> None:
    """Malformed, or about something else: logged once, never applied.

    Break: leave `not_about` out of `_heard`.
    """
    leaf = OneLeaf().begin()
    leaf.look(seen(run=Run.IN_FLIGHT), after=5)
    before = leaf.one
    foreign = Update(work_node_id="S9.9.9", status=Claim.BLOCKED, summary="x")
    broken = Message("1", "assistant", START + 6, '```json\n{"overseerUpdate": {"status": "great"}}\n```')
    for _ in range(3):
        leaf.look(seen(run=Run.IN_FLIGHT, reports=(foreign,), messages=(broken,)), after=10)
    assert leaf.types().count("update.refused") == 2
    assert (leaf.one.status, leaf.one.retry_count, leaf.crystals) == (before.status, 0, {})
    assert leaf.one.last_progress_at is None


def test_many_reports_at_once_are_one_question() -> None:
    """All are stored; the latest one counts. What was reported before the last instruction no longer counts.

    Break: leave `report.at > began` out of `hear`.
    """
    leaf = OneLeaf().begin()
    said = (
        Update(status=Claim.BLOCKED, summary="no key"),
        Update(status=Claim.IN_PROGRESS, summary="found one"),
        Update(status=Claim.BLOCKED, summary="it is the wrong one"),
    )
    assert leaf.look(seen(reports=said), after=10) == ["escalate"]
    assert "wrong one" in leaf.decided.actions[0].text
    assert leaf.types().count("work.reported") == 3
    leaf.ended()
    leaf.keep(sent_again(leaf.view, leaf.one.assignment_id, "here", leaf.now))
    old = Report(leaf.now, Update(status=Claim.BLOCKED, summary="no key at all"))
    assert leaf.look(seen(reports=(old,)), after=10) == ["answer"]
    leaf.ended()
    late = replaced(old, update=Update(status=Claim.BLOCKED, summary="no key anywhere"))
    assert leaf.look(seen(reports=(old, late)), after=10) == []
    assert leaf.types().count("work.reported") == 5


def test_done_is_what_is_merged() -> None:
    """A worker's claim to be done is only a claim; without evidence not even that.

    Break: move to DONE in `_goes_on`.
    """
    leaf = OneLeaf().begin()
    leaf.look(seen(reports=(Update(status=Claim.DONE, summary="all"),)), after=10)
    assert leaf.types()[-1] == "work.claim_refused"
    proof = Evidence(commits=("1a2b",))
    leaf.look(seen(reports=(Update(status=Claim.DONE, summary="all", evidence=proof),)), after=10)
    assert leaf.types()[-1] == "work.says_done"
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)
    assert leaf.crystals["S1.1.1"].current_state == "reported as done, but not landed yet"


def status(leaf: OneLeaf, wanted: GoalStatus) -> None:
    leaf.view = replaced(leaf.view, goal=replace(leaf.view.goal, status=wanted))


def test_a_paused_goal_sends_nothing_and_takes_back_what_nobody_has() -> None:
    """Claimed work may finish. After resuming, it is sent again, with a new id.

    Break: `_drive` for paused goals.
    """
    leaf = OneLeaf().begin()
    status(leaf, GoalStatus.PAUSED)
    assert leaf.look(seen(run=Run.WAITING, session_key="", session_id="", reachable=False), after=10) == [
        "withdraw"
    ]
    assert leaf.decided.actions[0].replaces == ("D-2",)
    assert leaf.look(after=1) == ["withdraw"], "its outcome is unknown: once more"
    leaf.ended(Result.OK)
    assert (leaf.one.status, leaf.one.run_id) == (S.QUEUED, "")
    assert leaf.look(Signals(), after=100_000) == []
    assert leaf.decided.change.is_empty()
    status(leaf, GoalStatus.ACTIVE)
    assert leaf.look(Signals()) == ["work"]
    assert leaf.decided.actions[0].dispatch_id not in ("D-1", "D-2", "D-3")
    leaf.ended(run_id="18")
    leaf.look(seen(run_id="18", run=Run.IN_FLIGHT), after=10)
    status(leaf, GoalStatus.PAUSED)
    silent = seen(run_id="18", run=Run.ENDED)
    assert leaf.look(silent, after=100_000) == [], "no nudges"
    leaf.look(replaced(silent, merged=Merged("1a2b", leaf.now)), after=10)
    assert (leaf.one.status, leaf.node.status) == (S.DONE, N.DONE)


@pytest.mark.parametrize("again", [N.TODO, N.QUEUED])
def test_what_the_user_wants_done_again_is_done_once(again: N) -> None:
    """Break: keep `overridden` for a leaf that waits, in `by_hand.override`."""
    leaf = OneLeaf().begin()
    leaf.look(seen(merged=Merged("1a2b", leaf.now)), after=10)
    assert leaf.node.status is N.DONE
    leaf.keep(by_hand.override(leaf.view, leaf.node, again, leaf.now, "it fails", "human", None))
    assert leaf.look(after=10) == ["work"]
    leaf.ended(run_id="18")
    leaf.look(seen(run_id="18", merged=Merged("3c4d", leaf.now)), after=10)
    assert leaf.node.status is N.DONE
    assert leaf.look(after=10_000) == []


@pytest.mark.parametrize("given_up", ["answered", "overridden", "the goal"])
@pytest.mark.parametrize("then", ["landed", "reported", "blocked"])
def test_news_about_what_the_user_cancelled_stops_no_tick(given_up: str, then: str) -> None:
    """The worker finished before the withdrawal reached it. Break: only look at `overridden` in `Round.move_node`."""
    leaf = OneLeaf().begin()
    leaf.look(seen(run=Run.IN_FLIGHT), after=10)
    if given_up == "overridden":
        leaf.keep(by_hand.override(leaf.view, leaf.node, N.CANCELLED, leaf.now, "no", "human", None))
    else:
        leaf.keep(Change(nodes=(replace(leaf.node, status=N.CANCELLED),)))
    if given_up == "the goal":
        leaf.view = replaced(leaf.view, goal=replace(leaf.view.goal, status=GoalStatus.CANCELLED))
    facts = {
        "landed": seen(merged=Merged("1a2b", leaf.now)),
        "reported": seen(reports=(Update(status=Claim.IN_PROGRESS, summary="nearly"),)),
        "blocked": seen(reports=(Update(status=Claim.BLOCKED, summary="no key"),)),
    }
    leaf.look(facts[then], after=10)
    assert leaf.node.status is N.CANCELLED
    assert leaf.one.status is (S.DONE if then == "landed" else S.CANCELLED)
    if then == "landed":
        assert leaf.crystals["S1.1.1"].evidence.commits == ("1a2b",), "the landing is on record"
        assert leaf.look(after=10_000) == []


@pytest.mark.parametrize("end", [GoalStatus.CANCELLED, GoalStatus.ARCHIVED, "node", "gone", "above"])
def test_what_nobody_wants_is_taken_back_once(end: str) -> None:
    """Cancelled, with one withdrawal that is completed. Break: no `withdraw` in `_close`."""
    leaf = OneLeaf().begin()
    leaf.look(seen(run=Run.IN_FLIGHT), after=10)
    if end == "node":
        leaf.view = with_node(leaf.view, "S1.1.1", status=N.DONE, overridden=True)
    elif end == "above":
        leaf.view = with_node(leaf.view, "T1.1", status=N.CANCELLED)
    elif end == "gone":
        leaf.view = replaced(leaf.view, nodes={})
    else:
        status(leaf, GoalStatus(end))
    running = seen(run=Run.IN_FLIGHT)
    assert leaf.look(running, after=10) == ["withdraw"]
    assert leaf.one.status is S.CANCELLED
    assert leaf.look(running, after=10) == ["withdraw"], "its outcome is unknown"
    leaf.ended(Result.ERROR)
    assert leaf.look(running, after=10) == []
    assert leaf.look(running, after=120) == ["withdraw"]
    leaf.ended(Result.OK)
    assert len({d.dispatch_id for d in leaf.one.dispatch_history}) == 2
    assert leaf.look(running, after=100_000) == []
    assert leaf.decided.change.is_empty()
    assert leaf.types().count("assignment.orphaned") == (end == "gone")


@pytest.mark.req("3-X27")
def test_orphans_are_reported_once() -> None:
    """Of a deleted goal or plan item: closed, reported, and left alone.

    Break: keep their status in `orphans`.
    """
    one = Assignment(
        assignment_id="A_1",
        goal_id="gone",
        work_node_id="S1.1.1",
        status=S.ACTIVE,
        created_at=START,
        updated_at=START,
    )
    change = orphans([one], ["goal_1"], START)
    assert [event.type for event in change.events] == ["assignment.cancelled", "assignment.orphaned"]
    assert orphans(change.assignments, ["goal_1"], START + 1).is_empty()
    assert orphans([one], ["gone"], START).is_empty()


def test_a_person_who_blocks_or_unblocks_is_heard() -> None:
    """A node that the user blocked is left alone; one that the user unblocked is sent again."""
    leaf = OneLeaf().begin()
    leaf.look(seen(), after=10)
    leaf.view = with_node(leaf.view, "S1.1.1", status=N.BLOCKED)
    assert leaf.look(seen(), after=100_000) == []
    asked = OneLeaf().begin()
    asked.look(seen(reports=(Update(status=Claim.BLOCKED, summary="no key"),)), after=10)
    asked.ended()
    asked.view = with_node(asked.view, "S1.1.1", status=N.QUEUED)
    assert asked.look(seen(reachable=False), after=400) == ["work"]
    assert asked.decided.actions[0].dispatch_id not in ("D-1", "D-2", "D-3")


@pytest.mark.parametrize("asked_before", [False, True])
def test_only_the_user_lifts_a_block_by_the_user(asked_before: bool) -> None:
    """A commit or a report of the worker, or a message to it, lifts only a block that llmc asked about.

    Break: leave `by` out of `block` in by_hand.py, or `is_held` out of `last_question` or `_goes_on`.
    """
    leaf = OneLeaf().begin()
    if asked_before:
        leaf.look(seen(reports=(Update(status=Claim.BLOCKED, summary="no key"),)), after=10)
        leaf.ended()
        leaf.keep(sent_again(leaf.view, leaf.one.assignment_id, "here", leaf.now))
        assert leaf.look(seen(), after=400) == ["answer"]
        leaf.ended()
    leaf.look(seen(run=Run.IN_FLIGHT, agent_wrote_at=leaf.now + 10), after=20)
    assert (leaf.one.status, leaf.node.status) == (S.ACTIVE, N.IN_PROGRESS)
    why = BlockedReason(kind="human", text="needs the new server")
    leaf.keep(block(leaf.view, leaf.node, leaf.now, why))
    at_work = {"run": Run.IN_FLIGHT, "committed_at": leaf.now + 5, "told_at": (leaf.now + 5,)}
    said = Update(status=Claim.IN_PROGRESS, summary="the tests pass")
    assert leaf.look(seen(**at_work), after=10) == []
    assert leaf.look(seen(**at_work, reports=(said,)), after=10) == []
    assert (leaf.one.status, leaf.node.status) == (S.BLOCKED, N.BLOCKED)
    assert leaf.crystals["S1.1.1"].summary == "the tests pass", "the report is stored"
    assert leaf.look(seen(**at_work), after=10 * Policy().reminder_every_s) == [], "no reminder of it"
    leaf.keep(unblock(leaf.view, leaf.node, leaf.now, "it is there"))
    assert leaf.look(seen(reachable=False), after=10) == ["work"]


UNCLAIMED = seen(run=Run.WAITING, session_key="", session_id="", reachable=False)
WHY = BlockedReason(kind="human", text="needs the new server")


@pytest.mark.parametrize("how", ["blocked", "overridden", "above"])
@pytest.mark.parametrize("since", [S.DISPATCHED, S.ACTIVE])
@pytest.mark.parametrize("paused", [False, True])
def test_what_the_user_blocks_is_taken_back_from_the_pool(how: str, since: S, paused: bool) -> None:
    """A worker that has it may finish; once it is unblocked, it is sent again, with a new id.

    Break: leave out a part of `_is_held`; or move only what is DISPATCHED back in `outcome`.
    """
    leaf = OneLeaf().begin()
    if since is S.ACTIVE:
        leaf.look(seen(run=Run.IN_FLIGHT), after=10)
    if how == "blocked":
        leaf.keep(block(leaf.view, leaf.node, leaf.now, WHY))
    else:
        held = leaf.node if how == "overridden" else leaf.view.nodes["T1.1"]
        leaf.keep(by_hand.override(leaf.view, held, N.BLOCKED, leaf.now, "wait", "human", None))
    if paused:
        status(leaf, GoalStatus.PAUSED)
    assert leaf.look(seen(run=Run.IN_FLIGHT), after=10) == [], "a worker has it"
    assert leaf.look(UNCLAIMED, after=10) == ["withdraw"]
    assert leaf.decided.actions[0].replaces == ("D-2",)
    assert leaf.look(UNCLAIMED, after=10) == ["withdraw"], "its outcome is unknown"
    leaf.ended(Result.ERROR)
    assert leaf.look(UNCLAIMED, after=1) == []
    assert leaf.look(UNCLAIMED, after=400) == ["withdraw"]
    leaf.ended(Result.OK)
    assert len({d.dispatch_id for d in leaf.one.dispatch_history}) == 2
    assert leaf.look(Signals(), after=100_000) == []
    assert leaf.decided.change.is_empty()
    status(leaf, GoalStatus.ACTIVE)
    assert leaf.look(Signals(), after=10) == []
    if how == "above":
        leaf.keep(by_hand.follow_again(leaf.view.nodes["T1.1"], leaf.now, "it is there"))
    else:
        leaf.keep(unblock(leaf.view, leaf.node, leaf.now, "it is there"))
    assert leaf.look(Signals(), after=10) == ["work"]
    assert leaf.decided.actions[0].dispatch_id not in ("D-1", "D-2", "D-3")


def test_a_paused_goal_takes_back_what_a_worker_returned() -> None:
    """Break: withdraw only what is DISPATCHED in `_rest`; another worker would start it."""
    leaf = OneLeaf().begin()
    leaf.look(seen(run=Run.IN_FLIGHT), after=10)
    status(leaf, GoalStatus.PAUSED)
    assert leaf.look(UNCLAIMED, after=10) == ["withdraw"]
    leaf.ended(Result.OK)
    assert leaf.look(Signals(), after=10) == []
    status(leaf, GoalStatus.ACTIVE)
    assert leaf.look(Signals(), after=400) == ["work"]


@pytest.mark.parametrize("how", ["blocked", "overridden"])
def test_what_was_not_sent_yet_is_not_sent_to_what_the_user_blocks(how: str) -> None:
    """As while the user is attached to the worker. Break: settle what is pending in `_hold`."""
    leaf = OneLeaf(Policy(allow_cross_agent=True, allow_agents=("eve",)), suggested_agent_id="eve")
    assert leaf.look() == ["work"]
    assert leaf.look(Signals(), after=60) == ["work"], "it could not be tried"
    if how == "blocked":
        leaf.keep(block(leaf.view, leaf.node, leaf.now, WHY))
    else:
        leaf.keep(by_hand.override(leaf.view, leaf.node, N.BLOCKED, leaf.now, "wait", "human", None))
    for seen_then in (None, Signals(), seen(run_id="")):
        assert leaf.look(seen_then, after=600) == []
    assert (leaf.one.pending, leaf.node.status) == (None, N.BLOCKED)
    assert leaf.types().count("dispatch.dropped") == 1
    leaf.keep(unblock(leaf.view, leaf.node, leaf.now, "it is there"))
    assert leaf.look(Signals(), after=10) == ["work"]


def test_what_is_unblocked_before_it_was_taken_back_is_sent_once() -> None:
    """A late withdrawal would send it again. Break: keep what is pending of a QUEUED assignment in `_drive`."""
    leaf = OneLeaf().begin()
    leaf.keep(block(leaf.view, leaf.node, leaf.now, WHY))
    assert leaf.look(UNCLAIMED, after=10) == ["withdraw"], "it could not be tried"
    leaf.keep(unblock(leaf.view, leaf.node, leaf.now, "it is there"))
    assert leaf.look(UNCLAIMED, after=10) == ["work"]
    assert leaf.decided.actions[0].replaces == ("D-2",), "the task that is still in the pool"
    leaf.ended(run_id="18")
    assert leaf.look(replaced(UNCLAIMED, run_id="18"), after=600) == []
    assert (leaf.one.status, leaf.one.pending) == (S.DISPATCHED, None)


@pytest.mark.req("3-024")
def test_what_is_looked_at() -> None:
    """Break: watch closed assignments in `watched`, or leave `self.due(at)` out of `is_early`."""
    statuses = (N.QUEUED, N.IN_PROGRESS, N.DONE, N.CANCELLED, N.BLOCKED)
    view = GoalView(goal(), plan(1, 1, len(statuses), chained=False))
    for number, wanted in enumerate(statuses, 1):
        view = with_node(view, f"S1.1.{number}", status=wanted)
    assert sent(decided(view, Policy(max_in_progress=9))) == ["S1.1.1", "S1.1.2"]
    leaf = OneLeaf().begin()
    mine, done = (
        leaf.one,
        replace(leaf.one, assignment_id="A_9", status=S.DONE, expected_next_update_at=START),
    )
    leaf.view = replaced(leaf.view, assignments={mine.assignment_id: mine, "A_9": done})
    assert watched(leaf.view) == (mine.assignment_id,)
    assert leaf.look(seen(), after=IDLE - 1) == []
    assert leaf.decided.next_due == START + IDLE
    assert leaf.look(seen(), after=1) == ["nudge"]
    status(leaf, GoalStatus.COMPLETED)
    leaf.ended()
    assert watched(leaf.view) == ()


@pytest.mark.req("3-028")
def test_a_planner_is_asked_after_the_rules() -> None:
    """Not before the nudges are used up, and only once. Break: REPLAN first in LADDER."""
    leaf = OneLeaf(Policy(planner=True, max_reminders=0), risk_level="high").begin()
    purposes = []
    for _ in range(2000):
        purposes += leaf.look(seen(), after=60)
        leaf.ended()
    assert purposes.index("replan") == 2
    assert purposes.count("replan") == 1
