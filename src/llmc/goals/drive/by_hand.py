"""A person's word about a part of a plan, as the change that follows from it. Pure."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.drive.ladder import progressed
from llmc.goals.drive.moves import HUMAN, move_assignment, move_node, override_node, release_node
from llmc.goals.drive.rollup import after, children_of, joined, line_of
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    Crystallization,
    Event,
    Evidence,
    GoalStatus,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
    Recovery,
)
from llmc.goals.plan.plan import is_ready, shape_of
from llmc.goals.report.crystals import of_parts

_CLOSED = (NodeStatus.BLOCKED, NodeStatus.DONE, NodeStatus.CANCELLED)


def proof_by_word(
    node: Node, text: str, commits: tuple[str, ...], now: float, crystallization_id: str
) -> Crystallization:
    """What a person says of finished work."""
    return Crystallization(
        crystallization_id=crystallization_id,
        goal_id=node.goal_id,
        work_node_id=node.node_id,
        level=node.kind,
        created_at=now,
        summary=text,
        evidence=Evidence(commits=commits),
    )


def done(view: GoalView, node: Node, now: float, proof: Crystallization) -> Change:
    """A leaf is done, whoever did it; the next tick takes it back from whoever has it."""
    if children_of(view).get(node.node_id):
        raise Refused(
            f"{node.kind} {node.node_id} has parts, and is done when they are",
            hint=f'To say so all the same: llmc work override {node.node_id} --status done --reason "why"',
        )
    moved = move_node(node, NodeStatus.DONE, now, reason=proof.summary, actor=HUMAN, proof=proof)
    return joined(Change(crystallizations=(proof,)), moves([moved], []))


def told_above(
    view: GoalView, change: Change, known: Mapping[str, Crystallization], now: float, ids: Callable[[], str]
) -> Change:
    """The change, and what the parts came to for everything that is done by it: evidence is not lost on the way up."""
    then = after(view, change)
    below = children_of(then)
    told = {**known, **{one.work_node_id: one for one in change.crystallizations}}
    changed = {one.node_id for one in change.nodes} - {one.work_node_id for one in change.crystallizations}
    made: list[Crystallization] = []

    def tell(node: Node | None, parts: list[Node]) -> None:
        rows = [(part, told.get(part.node_id)) for part in parts]
        made.append(of_parts(ids(), then.goal, node, rows, now))
        told[made[-1].work_node_id] = made[-1]

    for kind in (NodeKind.TASK, NodeKind.PHASE):
        for node in then.nodes.values():
            is_done = node.kind is kind and node.node_id in changed and node.status is NodeStatus.DONE
            if is_done and below.get(node.node_id):
                tell(node, below[node.node_id])
    if change.goal is not None and then.goal.status is GoalStatus.COMPLETED:
        tell(None, below.get("", []))
    return joined(change, Change(crystallizations=tuple(made)))


def block(view: GoalView, node: Node, now: float, why: BlockedReason) -> Change:
    """It cannot go on; what has parts is blocked with all of them that are open."""
    parts = [one for one in leaves_of(view, node) if one is node or one.status not in _CLOSED]
    if not parts:
        raise Refused(
            f"{node.kind} {node.node_id} has no open parts", hint="`llmc goal show` draws where they stand."
        )
    nodes = [move_node(one, NodeStatus.BLOCKED, now, actor=HUMAN, blocked=why) for one in parts]
    given = [
        move_assignment(one, AssignmentStatus.BLOCKED, now, actor=HUMAN, blocked=why)
        for part in parts
        for one in at_it(view, part)
        if one.status is not AssignmentStatus.BLOCKED
    ]
    return moves(nodes, given)


def unblock(view: GoalView, node: Node, now: float, reason: str) -> Change:
    """It can go on, with all of its parts that were blocked."""
    parts = [one for one in leaves_of(view, node) if one.status is NodeStatus.BLOCKED]
    if not parts:
        hint = "Nothing keeps it."
        raise Refused(f"{node.kind} {node.node_id} is {node.status}, not blocked", hint=hint)
    change = Change()
    for one in parts:
        change = joined(change, freed(view, one, now, reason, word=reason))
    return change


def reopen(view: GoalView, node: Node, now: float, reason: str) -> Change:
    """A leaf was done and is not."""
    if node.status is not NodeStatus.DONE or children_of(view).get(node.node_id):
        hint = "A part with parts of its own is opened by theirs."
        raise Refused(f"{node.kind} {node.node_id} is {node.status}, and not opened by itself", hint=hint)
    above = {one.node_id: replace(one, status=NodeStatus.TODO) for one in line_of(view, node)}
    ready = is_ready(node.node_id, {**view.nodes, **above}, shape_of(view.nodes))
    to = NodeStatus.QUEUED if ready else NodeStatus.TODO
    moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
    word = f"This was done before, and is to be done again: {reason}"
    return moves([(replace(moved, overridden=False, word=word), event)], [])


def override(
    node: Node, to: NodeStatus, now: float, reason: str, actor: str, proof: Crystallization | None
) -> Change:
    """It is what somebody says, whatever its parts are."""
    moved = override_node(node, to, now, reason=reason, actor=actor, proof=proof)
    return joined(Change(crystallizations=(proof,) if proof else ()), moves([moved], []))


def set_recovery(
    view: GoalView, node: Node, now: float, recovery: Recovery | None, idle_after_ms: int | None
) -> Change:
    """How a leaf is recovered, for whoever has it now and for whoever gets it later; None: as for all work."""
    if children_of(view).get(node.node_id) or node.kind is NodeKind.PHASE:
        hint = "`llmc goal show` draws its parts."
        raise Refused(f"nobody works on {node.kind} {node.node_id} itself; say it of its parts", hint=hint)
    changed = replace(node, recovery_policy=recovery, idle_after_ms=idle_after_ms, updated_at=now)
    given = tuple(
        replace(
            one,
            recovery_policy=recovery or Recovery.NUDGE,
            idle_after_ms=idle_after_ms,
            expected_next_update_at=None,  # it was reckoned with the other limit
            updated_at=now,
        )
        for one in at_it(view, node)
    )
    data = {"recoveryPolicy": recovery or "", "idleAfterMs": idle_after_ms, "actor": HUMAN}
    event = Event(ts=now, type="work.recovery", goal_id=node.goal_id, work_node_id=node.node_id, data=data)
    return Change(nodes=(changed,), assignments=given, events=(event,))


def follow_again(node: Node, now: float, reason: str) -> Change:
    """The end of an override: its parts decide again."""
    return moves([release_node(node, now, reason=reason)], [])


def freed(view: GoalView, node: Node, now: float, reason: str, *, word: str = "") -> Change:
    """Out of blocked: queued when its turn has come; the next tick sends it, with the person's word, to whoever does it."""
    to = NodeStatus.QUEUED if is_ready(node.node_id, view.nodes, shape_of(view.nodes)) else NodeStatus.TODO
    moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
    return moves([(replace(moved, overridden=False, word=word or node.word), event)], let_go(view, node, now))


def let_go(view: GoalView, node: Node, now: float) -> list[tuple[Assignment, Event]]:
    """Whoever is at it waits for nobody any more: it is sent again, and the counters of recovery begin anew."""
    given = []
    for one in at_it(view, node):
        if one.status is AssignmentStatus.BLOCKED:
            fresh = progressed(one, now, now)
            given.append(
                move_assignment(fresh, AssignmentStatus.QUEUED, now, reason="a person freed it", actor=HUMAN)
            )
    return given


def at_it(view: GoalView, node: Node) -> list[Assignment]:
    """The open assignments of a node."""
    mine = [one for one in view.assignments.values() if one.work_node_id == node.node_id]
    return [one for one in mine if one.status.is_open]


def leaves_of(view: GoalView, node: Node) -> list[Node]:
    """The leaves below it; itself, where there are none."""
    below = children_of(view).get(node.node_id)
    return [leaf for child in below for leaf in leaves_of(view, child)] if below else [node]


def moves(nodes: list[tuple[Node, Event]], given: list[tuple[Assignment, Event]]) -> Change:
    return Change(
        nodes=tuple(one for one, _ in nodes),
        assignments=tuple(one for one, _ in given),
        events=(*(event for _, event in nodes), *(event for _, event in given)),
    )
