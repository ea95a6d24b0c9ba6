"""User actions on plan items: status changes, recovery settings, and answers to open questions. Pure."""

import shlex
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.drive.ladder import progressed
from llmc.goals.drive.moves import (
    HUMAN,
    after,
    joined,
    move_assignment,
    move_node,
    override_node,
    release_node,
)
from llmc.goals.drive.words import MAX_QUESTION, cancels, fit, of_node, of_parts
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
from llmc.goals.plan.plan import children_of, is_closed, is_ready, shape_of


def proof_by_user(
    node: Node, text: str, commits: tuple[str, ...], now: float, crystallization_id: str
) -> Crystallization:
    """The user's summary of finished work."""
    return of_node(crystallization_id, node, now, summary=text, evidence=Evidence(commits=commits))


def done(view: GoalView, node: Node, now: float, proof: Crystallization) -> Change:
    """Mark a leaf done; the next tick withdraws it from its worker."""
    if node.node_id in children_of(view.nodes):
        raise Refused(
            f"cannot mark {node.kind} {node.node_id} done: its status is derived from its children",
            hint=f'To override the status: llmc work override {shlex.quote(node.node_id)} --goal {node.goal_id} --status done --reason "..."',
        )
    moved = move_node(node, NodeStatus.DONE, now, reason=proof.summary, actor=HUMAN, proof=proof)
    return joined(Change(crystallizations=(proof,)), moved_to([moved], []))


def told_above(
    view: GoalView, change: Change, known: Mapping[str, Crystallization], now: float, ids: Callable[[], str]
) -> Change:
    """The change plus summaries for all parents it completes, so that evidence moves up."""
    then = after(view, change)
    below = children_of(then.nodes)
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
    """Block a leaf, or all open leaves of a parent, until the user unblocks them."""
    why = replace(why, by=HUMAN)
    parts = [one for one in _leaves_below(view, node) if one is node or one.status.is_unblocked]
    if not parts:
        raise Refused(
            f"cannot block {node.kind} {node.node_id}: all its children are done, cancelled or already blocked",
            hint=f"Run `llmc goal show {node.goal_id}` to see the plan.",
        )
    nodes = [move_node(one, NodeStatus.BLOCKED, now, actor=HUMAN, blocked=why) for one in parts]
    given = [
        move_assignment(one, AssignmentStatus.BLOCKED, now, actor=HUMAN, blocked=why)
        for part in parts
        for one in open_assignments(view, part)
        if one.status is not AssignmentStatus.BLOCKED
    ]
    return moved_to(nodes, given)


def unblock(view: GoalView, node: Node, now: float, reason: str) -> Change:
    """Unblock a leaf, or all blocked leaves of a parent."""
    parts = [one for one in _leaves_below(view, node) if one.status is NodeStatus.BLOCKED]
    held = _held_parents(view, node)
    if held and (node in held or not parts):
        first = held[0]
        raise Refused(
            f"cannot unblock {node.kind} {node.node_id}: {first.node_id} is blocked by an override",
            hint=f'To clear it: llmc work override {shlex.quote(first.node_id)} --goal {first.goal_id} --clear --reason "..."',
        )
    if not parts:
        hint = f"Run `llmc goal show {node.goal_id}` to see the plan."
        raise Refused(
            f"cannot unblock {node.kind} {node.node_id}: it is {node.status}, not blocked", hint=hint
        )
    change = Change()
    for one in parts:
        change = joined(change, freed(view, one, now, reason, word=reason))
    return change


def reopen(view: GoalView, node: Node, now: float, reason: str) -> Change:
    shape = shape_of(view.nodes)
    if node.status is not NodeStatus.DONE or node.node_id in shape.children:
        hint = "Only done plan items without children can be reopened. To reopen a parent, run `llmc work reopen` for one of its children."
        raise Refused(f"cannot reopen {node.kind} {node.node_id} (status: {node.status})", hint=hint)
    line = (node.node_id, *shape.parents[node.node_id])
    reopened = {one: replace(view.nodes[one], status=NodeStatus.TODO) for one in line}
    ready = is_ready(node.node_id, {**view.nodes, **reopened}, shape)
    to = NodeStatus.QUEUED if ready else NodeStatus.TODO
    moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
    word = f"This work was done but has been reopened: {reason}"
    return moved_to([(replace(moved, overridden=False, word=word), event)], [])


def override(
    view: GoalView,
    node: Node,
    to: NodeStatus,
    now: float,
    reason: str,
    actor: str,
    proof: Crystallization | None,
) -> Change:
    """Set a status and hold it, except that of a leaf that is to be done: landing must end its work."""
    moved, event = override_node(node, to, now, reason=reason, actor=actor, proof=proof)
    held = not to.is_waiting or node.node_id in children_of(view.nodes)
    made = moved_to([(replace(moved, overridden=held), event)], [])
    return joined(Change(crystallizations=(proof,) if proof else ()), made)


def set_recovery(
    view: GoalView, node: Node, now: float, recovery: Recovery | None, idle_after_ms: int | None
) -> Change:
    """Set the recovery options of a leaf, for its current and later assignments; None: the defaults."""
    if node.node_id in children_of(view.nodes) or node.kind is NodeKind.PHASE:
        hint = f"Run `llmc work recovery` for each of its children instead. To see the plan, run `llmc goal show {node.goal_id}`."
        raise Refused(
            f"cannot set recovery options for {node.kind} {node.node_id}: recovery options apply only to plan items without children",
            hint=hint,
        )
    changed = replace(node, recovery_policy=recovery, idle_after_ms=idle_after_ms, updated_at=now)
    given = tuple(
        replace(
            one,
            recovery_policy=recovery or Recovery.NUDGE,
            idle_after_ms=idle_after_ms,
            expected_next_update_at=None,  # it was computed with the old limit
            updated_at=now,
        )
        for one in open_assignments(view, node)
    )
    data = {"recoveryPolicy": recovery or "", "idleAfterMs": idle_after_ms, "actor": HUMAN}
    return Change(nodes=(changed,), assignments=given, events=(node.event("work.recovery", now, data),))


def follow_again(node: Node, now: float, reason: str) -> Change:
    return moved_to([release_node(node, now, reason=reason)], [])


def freed(view: GoalView, node: Node, now: float, reason: str, *, word: str = "") -> Change:
    """Unblock a leaf and queue it if it is ready; the next tick sends it with the user's text."""
    to = NodeStatus.QUEUED if is_ready(node.node_id, view.nodes, shape_of(view.nodes)) else NodeStatus.TODO
    moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
    return moved_to(
        [(replace(moved, overridden=False, word=word or node.word), event)], let_go(view, node, now)
    )


def let_go(view: GoalView, node: Node, now: float) -> list[tuple[Assignment, Event]]:
    """Queue the blocked assignments of a node again, with fresh recovery counters."""
    given = []
    for one in open_assignments(view, node):
        if one.status is AssignmentStatus.BLOCKED:
            fresh = progressed(one, now, now)
            given.append(
                move_assignment(
                    fresh, AssignmentStatus.QUEUED, now, reason="unblocked by the user", actor=HUMAN
                )
            )
    return given


def open_assignments(view: GoalView, node: Node) -> list[Assignment]:
    mine = [one for one in view.assignments.values() if one.work_node_id == node.node_id]
    return [one for one in mine if one.status.is_open]


def _leaves_below(view: GoalView, node: Node) -> list[Node]:
    """The leaves of a node, or the node itself."""
    return [view.nodes[leaf] for leaf in shape_of(view.nodes).leaves_below(node.node_id)]


def _held_parents(view: GoalView, node: Node) -> list[Node]:
    """The node and the items below it that have children and are blocked by an override."""
    shape = shape_of(view.nodes)
    return [
        one
        for one in view.nodes.values()
        if one.overridden and one.status is NodeStatus.BLOCKED and one.node_id in shape.children
        if one is node or node.node_id in shape.parents[one.node_id]
    ]


def moved_to(nodes: list[tuple[Node, Event]], given: list[tuple[Assignment, Event]]) -> Change:
    return Change(
        nodes=tuple(one for one, _ in nodes),
        assignments=tuple(one for one, _ in given),
        events=(*(event for _, event in nodes), *(event for _, event in given)),
    )


class Question(Struct, frozen=True):
    """An open question; `id` is what `answer` takes. A question about the goal itself has no plan item."""

    id: str
    goal_id: str
    goal_title: str
    work_node_id: str
    node_name: str
    assignment_id: str
    reason: BlockedReason
    since: float

    @property
    def command(self) -> str:
        """The command that answers it, without the answer; plans of several goals may have the same item."""
        command = f"llmc answer {shlex.quote(self.id)}"
        return f"{command} --goal {self.goal_id}" if self.id == self.work_node_id else command


def questions(view: GoalView) -> list[Question]:
    """The goal's own question, and one for each blocked assignment or blocked leaf without one."""
    waiting: dict[str, list[Assignment]] = {}
    for one in view.assignments.values():
        if one.status is AssignmentStatus.BLOCKED:
            waiting.setdefault(one.work_node_id, []).append(one)
    found = []
    if (asks := view.goal.asks) is not None:
        goal_id = view.goal.goal_id
        found.append(
            Question(goal_id, goal_id, view.goal.title, "", "the goal itself", "", asks.reason, asks.since)
        )
    asking = [n for n in view.nodes.values() if n.status is NodeStatus.BLOCKED or n.node_id in waiting]
    if not asking:
        return found
    shape = shape_of(view.nodes)
    for node in asking:
        if is_closed(node.node_id, view.nodes, shape):
            continue
        if node.node_id in waiting:
            found += [_question(view, node, one.blocked_reason, one) for one in waiting[node.node_id]]
        elif node.node_id not in shape.children:
            found.append(_question(view, node, node.blocked_reason, None))
    return found


def answered(view: GoalView, question: Question, text: str, now: float) -> Change:
    """Unblock the work; the answer is recorded as an event."""
    if question not in questions(view):
        raise Refused(
            "this question has already been answered", hint="Run `llmc inbox` to see open questions."
        )
    node = view.nodes[question.work_node_id]
    event = Event(
        ts=now,
        type="assignment.answered" if question.assignment_id else "work.answered",
        goal_id=question.goal_id,
        assignment_id=question.assignment_id,
        work_node_id=question.work_node_id,
        data={
            "answer": chosen(text, question.reason.options),
            "question": question.reason.question or question.reason.text,
            "actor": HUMAN,
        },
    )
    said = str(event.data["answer"])
    if cancels(question.reason, said):
        gone = move_node(node, NodeStatus.CANCELLED, now, reason="cancelled by the user", actor=HUMAN)
        return joined(Change(events=(event,)), moved_to([gone], []))
    goes_on = sent_again(view, question.assignment_id, said, now)
    if goes_on.is_empty():  # no assignment: the plan item itself was blocked
        goes_on = freed(view, node, now, "answered", word=said)
    return joined(Change(events=(event,)), goes_on)


def sent_again(view: GoalView, assignment_id: str, text: str, now: float) -> Change:
    """Queue the assignment again with the user's answer and fresh recovery counters."""
    assignment = view.assignments.get(assignment_id)
    if assignment is None or assignment.status is not AssignmentStatus.BLOCKED:
        return Change()
    said = fit(text.strip(), MAX_QUESTION)
    fresh = replace(progressed(assignment, now, now), answer=said)
    freed, event = move_assignment(fresh, AssignmentStatus.QUEUED, now, reason="answered by the user")
    nodes: tuple[Node, ...] = ()
    events = [event]
    node = view.nodes.get(assignment.work_node_id)
    if node is not None and node.status is NodeStatus.BLOCKED and not node.overridden:
        moved, told = move_node(node, NodeStatus.QUEUED, now, reason="answered by the user")
        nodes, events = (moved,), [event, told]
    return Change(nodes=nodes, assignments=(freed,), events=tuple(events))


def chosen(text: str, options: tuple[str, ...]) -> str:
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    return text


def _question(view: GoalView, node: Node, reason: BlockedReason | None, given: Assignment | None) -> Question:
    return Question(
        id=given.assignment_id if given else node.node_id,
        goal_id=view.goal.goal_id,
        goal_title=view.goal.title,
        work_node_id=node.node_id,
        node_name=node.name,
        assignment_id=given.assignment_id if given else "",
        reason=reason or BlockedReason(kind="unknown", text="no reason given"),
        since=given.updated_at if given else node.updated_at,
    )
