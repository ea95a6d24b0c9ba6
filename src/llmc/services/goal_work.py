"""A person's word about a part of a plan: it is done, it cannot go on, it can; and answers to what goals ask."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from llmc.errors import NotFound, Refused, UsageError
from llmc.goals.clean import check_typed
from llmc.goals.decide import answered
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
    NodeStatus,
)
from llmc.goals.rollup import after, children_of, is_ready, joined, line_of, settled
from llmc.goals.transitions import (
    HUMAN,
    OPEN_ASSIGNMENT,
    move_assignment,
    move_node,
    override_node,
    release_node,
)
from llmc.services.goals import new_id, open_store
from llmc.services.project import Project
from llmc.state.goal_rows import Reader
from llmc.state.goal_store import unknown_goal
from llmc.tools.clock import now_unix

_OVER = (GoalStatus.CANCELLED, GoalStatus.ARCHIVED)


@dataclass(frozen=True)
class Question:
    """Something that waits for a person; `id` is what `answer` takes."""

    id: str
    goal_id: str
    goal_title: str
    work_node_id: str
    node_name: str
    assignment_id: str
    reason: BlockedReason
    since: float


def done(
    project: Project, node_id: str, goal_id: str = "", *, summary: str = "", commits: tuple[str, ...] = ()
) -> Node:
    """It is done, whoever did it; the next tick takes it back from whoever has it."""
    text = check_typed("summary", summary) or "a person says that it is done"

    def write(view: GoalView, node: Node, now: float) -> Change:
        if children_of(view).get(node_id):
            raise Refused(
                f"{node.kind} {node_id} has parts, and is done when they are",
                hint=f'To say so all the same: llmc work override {node_id} --status done --reason "why"',
            )
        proof = _word_of_a_person(node, text, commits, now)
        moved, event = move_node(node, NodeStatus.DONE, now, reason=text, actor=HUMAN, proof=proof)
        return _change(moved, [], (event,), proof)

    return _on_node(project, node_id, goal_id, write)


def block(project: Project, node_id: str, goal_id: str = "", *, reason: str, kind: str = HUMAN) -> Node:
    """Nothing is sent for it until `unblock`; what has parts is blocked with all of them that are open."""
    why = BlockedReason(kind=check_typed("kind", kind), text=check_typed("reason", reason))

    def write(view: GoalView, node: Node, now: float) -> Change:
        closed = (NodeStatus.BLOCKED, NodeStatus.DONE, NodeStatus.CANCELLED)
        parts = [one for one in _leaves_of(view, node) if one is node or one.status not in closed]
        if not parts:
            raise Refused(f"{node.kind} {node_id} has no open parts", hint="`llmc goal show` draws them.")
        nodes = [move_node(one, NodeStatus.BLOCKED, now, actor=HUMAN, blocked=why) for one in parts]
        given = [
            move_assignment(one, AssignmentStatus.BLOCKED, now, actor=HUMAN, blocked=why)
            for part in parts
            for one in _open(view, part.node_id)
            if one.status is not AssignmentStatus.BLOCKED
        ]
        return _moved(nodes, given)

    return _on_node(project, node_id, goal_id, write)


def unblock(project: Project, node_id: str, goal_id: str = "", *, reason: str = "") -> Node:
    """It can go on: at once where nothing else keeps it."""
    check_typed("reason", reason)

    def write(view: GoalView, node: Node, now: float) -> Change:
        parts = [one for one in _leaves_of(view, node) if one.status is NodeStatus.BLOCKED]
        if not parts:
            raise Refused(f"{node.kind} {node_id} is {node.status}, not blocked", hint="Nothing keeps it.")
        freed = Change()
        for one in parts:
            freed = joined(freed, _freed(view, one, now, reason))
        return freed

    return _on_node(project, node_id, goal_id, write)


def reopen(project: Project, node_id: str, goal_id: str = "", *, reason: str) -> Node:
    """It was done and is not; so are those above it."""
    check_typed("reason", reason)

    def write(view: GoalView, node: Node, now: float) -> Change:
        if node.status is not NodeStatus.DONE or children_of(view).get(node_id):
            hint = "A part with parts of its own is opened by theirs."
            raise Refused(f"{node.kind} {node_id} is {node.status}, and not opened by itself", hint=hint)
        to = NodeStatus.QUEUED if _would_be_ready(view, node) else NodeStatus.TODO
        moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
        return _change(replace(moved, overridden=False), [], (event,))

    return _on_node(project, node_id, goal_id, write)


def override(
    project: Project, node_id: str, goal_id: str = "", *, status: str, reason: str, actor: str = HUMAN
) -> Node:
    """It is what a person says, whatever its parts are."""
    check_typed("reason", reason)

    def write(view: GoalView, node: Node, now: float) -> Change:
        proof = _word_of_a_person(node, reason, (), now) if status == NodeStatus.DONE else None
        moved, event = override_node(node, NodeStatus(status), now, reason=reason, actor=actor, proof=proof)
        return _change(moved, [], (event,), proof)

    return _on_node(project, node_id, goal_id, write)


def follow_again(project: Project, node_id: str, goal_id: str = "", *, reason: str = "") -> Node:
    """The end of an override: its parts decide again."""
    check_typed("reason", reason)

    def write(view: GoalView, node: Node, now: float) -> Change:
        moved, event = release_node(node, now, reason=reason)
        return _change(moved, [], (event,))

    return _on_node(project, node_id, goal_id, write)


def inbox(project: Project) -> list[Question]:
    """What waits for a person, the oldest first."""
    with open_store(project).reading() as found:
        views = open_views(found)
    return sorted((one for view in views for one in questions_of(view)), key=lambda one: one.since)


def open_views(found: Reader) -> list[GoalView]:
    """The goals of which something may still be asked."""
    open_ = [goal.goal_id for goal in found.goals() if goal.status not in _OVER]
    return [view for goal_id in open_ if (view := found.view(goal_id))]


def answer(project: Project, question_id: str, text: str, goal_id: str = "") -> Question:
    """What a person says to a question; the work goes on, and the answer is in the log for whoever delivers it."""
    check_typed("answer", text)
    if not text.strip():
        raise UsageError("the answer is empty", hint="Say what is to be done.")
    asked = inbox(project)
    found = [
        one for one in asked if question_id in (one.id, one.work_node_id) and goal_id in ("", one.goal_id)
    ]
    if not found:
        raise _no_question(question_id, [one.id for one in asked])
    if len(found) > 1:
        ids = ", ".join(dict.fromkeys(one.id for one in found))
        raise UsageError(f"{question_id} means several questions", hint=f"Name one of {ids}, or --goal.")
    question = found[0]
    said = _chosen(text.strip(), question.reason.options)

    def write(view: GoalView, node: Node, now: float) -> Change:
        if question not in questions_of(view):
            raise Refused("this was answered meanwhile", hint="`llmc overseer inbox` shows what is open.")
        freed = answered(view, question.assignment_id, said, now)
        if freed.is_empty():  # nobody is at it: the part itself was blocked
            freed = _freed(view, node, now, "answered")
        event = Event(
            ts=now,
            type="assignment.answered" if question.assignment_id else "work.answered",
            goal_id=question.goal_id,
            assignment_id=question.assignment_id,
            work_node_id=question.work_node_id,
            data={
                "answer": said,
                "question": question.reason.question or question.reason.text,
                "actor": HUMAN,
            },
        )
        return _change_with(freed, event)

    _on_node(project, question.work_node_id, question.goal_id, write)
    return question


def _on_node(
    project: Project, node_id: str, goal_id: str, write: Callable[[GoalView, Node, float], Change]
) -> Node:
    """One transaction: find the node, change it, let its parents follow."""
    store, now = open_store(project), now_unix()
    with store.writing() as tx:
        view = view_with(tx, node_id, goal_id)
        if view.goal.status in _OVER:
            raise Refused(
                f"goal {view.goal.goal_id} is {view.goal.status}", hint="Nothing of it is worked on."
            )
        change = settled(view, write(view, view.nodes[node_id], now), now)
        tx.apply(change)
    project.wake()
    return after(view, change).nodes[node_id]


def view_with(found: Reader, node_id: str, goal_id: str) -> GoalView:
    """The goal that is meant: the one that is named, or the only one that is not over and has such a node."""
    if goal_id:
        view = found.view(goal_id)
        if view is None:
            raise unknown_goal(goal_id, found.goal_ids())
        if node_id not in view.nodes:
            raise _unknown_node(node_id, f"goal {goal_id}", view.nodes)
        return view
    having = [view for one in found.goals_with(node_id) if (view := found.view(one))]
    open_ = [view for view in having if view.goal.status not in _OVER] or having
    if len(open_) > 1:
        names = ", ".join(view.goal.goal_id for view in open_)
        raise UsageError(f"{node_id} is in the plans of {len(open_)} goals", hint=f"Add --goal: {names}")
    if not open_:
        plans = [view for one in found.goal_ids() if (view := found.view(one))]
        raise _unknown_node(node_id, "any plan", [known for view in plans for known in view.nodes])
    return open_[0]


def _freed(view: GoalView, node: Node, now: float, reason: str) -> Change:
    """Out of blocked: queued when its turn has come, and whoever waited with it goes on."""
    ready = is_ready(view, node)
    to = NodeStatus.QUEUED if ready else NodeStatus.TODO
    moved, event = move_node(node, to, now, reason=reason, actor=HUMAN)
    given = _let_go(view, node, now)
    return _change_with(Change(nodes=(moved,), assignments=given.assignments, events=given.events), event)


def _would_be_ready(view: GoalView, node: Node) -> bool:
    """Whether it could begin once those above it follow it."""
    above = {one.node_id: replace(one, status=NodeStatus.TODO) for one in line_of(view, node)}
    return is_ready(GoalView(view.goal, {**view.nodes, **above}), node)


def _let_go(view: GoalView, node: Node, now: float) -> Change:
    """Its assignments wait for nobody any more: the counters of recovery begin anew."""
    given = []
    for one in _open(view, node.node_id):
        if one.status is AssignmentStatus.BLOCKED:
            sent = one.last_dispatch_at is not None
            to = AssignmentStatus.ACTIVE if sent else AssignmentStatus.QUEUED
            moved, event = move_assignment(one, to, now, reason="a person freed it", actor=HUMAN)
            fresh = replace(
                moved,
                retry_count=0,
                last_retry_at=None,
                backoff_until=None,
                reminders=0,
                expected_next_update_at=None,
            )
            given.append((fresh, event))
    return _moved([], given)


def _leaves_of(view: GoalView, node: Node) -> list[Node]:
    """The leaves below it; itself, where there are none."""
    below = children_of(view).get(node.node_id)
    return [leaf for child in below for leaf in _leaves_of(view, child)] if below else [node]


def questions_of(view: GoalView) -> list[Question]:
    """Of the parts that wait: each assignment, or the node itself where nobody is at it."""
    children = children_of(view)
    found = []
    for node in view.nodes.values():
        waiting = [one for one in _open(view, node.node_id) if one.status is AssignmentStatus.BLOCKED]
        if waiting:
            found += [_question(view, node, one.blocked_reason, one) for one in waiting]
        elif node.status is NodeStatus.BLOCKED and (node.overridden or not children.get(node.node_id)):
            found.append(_question(view, node, node.blocked_reason, None))
    return found


def _question(view: GoalView, node: Node, reason: BlockedReason | None, given: Assignment | None) -> Question:
    return Question(
        id=given.assignment_id if given else node.node_id,
        goal_id=view.goal.goal_id,
        goal_title=view.goal.title,
        work_node_id=node.node_id,
        node_name=node.name,
        assignment_id=given.assignment_id if given else "",
        reason=reason or BlockedReason(kind="unknown", text="nobody said why"),
        since=given.updated_at if given else node.updated_at,
    )


def _chosen(text: str, options: tuple[str, ...]) -> str:
    """The number of an option stands for it."""
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    return text


def _word_of_a_person(node: Node, text: str, commits: tuple[str, ...], now: float) -> Crystallization:
    return Crystallization(
        crystallization_id=new_id("C"),
        goal_id=node.goal_id,
        work_node_id=node.node_id,
        level=node.kind,
        created_at=now,
        summary=text,
        evidence=Evidence(commits=tuple(check_typed("commit", one) for one in commits)),
    )


def _open(view: GoalView, node_id: str) -> list[Assignment]:
    return [
        one
        for one in view.assignments.values()
        if one.work_node_id == node_id and one.status in OPEN_ASSIGNMENT
    ]


def _moved(nodes: list[tuple[Node, Event]], given: list[tuple[Assignment, Event]]) -> Change:
    return Change(
        nodes=tuple(one for one, _ in nodes),
        assignments=tuple(one for one, _ in given),
        events=(*(event for _, event in nodes), *(event for _, event in given)),
    )


def _change(
    node: Node,
    given: list[tuple[Assignment, Event]],
    events: tuple[Event, ...],
    proof: Crystallization | None = None,
) -> Change:
    return Change(
        nodes=(node,),
        assignments=tuple(one for one, _ in given),
        events=(*events, *(event for _, event in given)),
        crystallizations=(proof,) if proof else (),
    )


def _change_with(change: Change, event: Event) -> Change:
    return Change(nodes=change.nodes, assignments=change.assignments, events=(event, *change.events))


def _unknown_node(node_id: str, where: str, known: Iterable[str]) -> NotFound:
    import difflib

    near = difflib.get_close_matches(node_id, dict.fromkeys(known), 1, 0.3)
    hint = f'Did you mean "{near[0]}"?' if near else "`llmc goal show GOAL` draws its plan."
    return NotFound(f"there is no {node_id!r} in {where}", hint=hint)


def _no_question(question_id: str, known: list[str]) -> NotFound:
    import difflib

    near = difflib.get_close_matches(question_id, known, 1, 0.3)
    hint = f'Did you mean "{near[0]}"?' if near else "`llmc overseer inbox` lists what is asked."
    return NotFound(f"nothing waits for an answer under {question_id!r}", hint=hint)
