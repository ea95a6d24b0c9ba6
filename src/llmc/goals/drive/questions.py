"""Open questions to the user, and what follows from an answer. Pure."""

from msgspec import Struct

from llmc.base.errors import Refused
from llmc.goals.drive import decide
from llmc.goals.drive.by_hand import freed
from llmc.goals.drive.moves import HUMAN
from llmc.goals.drive.rollup import joined
from llmc.goals.model import (
    Asking,
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    Event,
    Goal,
    GoalView,
    Node,
    NodeStatus,
)
from llmc.goals.plan.plan import children_of


class Question(Struct, frozen=True):
    """An open question; `id` is what `answer` takes. A question of the goal itself has no plan item."""

    id: str
    goal_id: str
    goal_title: str
    work_node_id: str
    node_name: str
    assignment_id: str
    reason: BlockedReason
    since: float


def questions(view: GoalView) -> list[Question]:
    """One for each blocked assignment, or for a blocked leaf without one."""
    waiting: dict[str, list[Assignment]] = {}
    for one in view.assignments.values():
        if one.status is AssignmentStatus.BLOCKED:
            waiting.setdefault(one.work_node_id, []).append(one)
    asking = [n for n in view.nodes.values() if n.status is NodeStatus.BLOCKED or n.node_id in waiting]
    parents = children_of(view.nodes) if asking else {}
    found = [_of_goal(view.goal, view.goal.asks)] if view.goal.asks is not None else []
    for node in asking:
        if node.node_id in waiting:
            found += [_question(view, node, one.blocked_reason, one) for one in waiting[node.node_id]]
        elif node.node_id not in parents:
            found.append(_question(view, node, node.blocked_reason, None))
    return found


def _of_goal(goal: Goal, asks: Asking) -> Question:
    return Question(
        id=goal.goal_id,
        goal_id=goal.goal_id,
        goal_title=goal.title,
        work_node_id="",
        node_name="the goal itself",
        assignment_id="",
        reason=asks.reason,
        since=asks.since,
    )


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
    goes_on = decide.answered(view, question.assignment_id, said, now)
    if goes_on.is_empty():  # no assignment: the plan item itself was blocked
        goes_on = freed(view, node, now, "answered", word=said)
    return joined(Change(events=(event,)), goes_on)


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
