"""User commands on plan items, answers to questions, and `why`."""

import time
from collections.abc import Callable, Iterable
from functools import partial

from llmc.base.clock import now_unix
from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.text import did_you_mean
from llmc.config.durations import format_duration
from llmc.goals.drive import by_hand, goal_end
from llmc.goals.drive.by_hand import Question, answered, chosen, questions
from llmc.goals.drive.clean import check_typed
from llmc.goals.drive.moves import HUMAN, after, progress, settled
from llmc.goals.goals import after_change, cancel, change, new_id, open_store, open_views
from llmc.goals.model import (
    Assignment,
    BlockedReason,
    Change,
    GoalStatus,
    GoalView,
    Node,
    NodeStatus,
    Recovery,
)
from llmc.goals.plan.plan import shape_of
from llmc.goals.planning import plan, policy_of, replan_by_hand
from llmc.goals.report.why import Clock, Why, why_assignment, why_goal, why_node
from llmc.goals.store.goal_store import unknown_goal
from llmc.goals.store.rows import Reader
from llmc.repo.project import Project


def why(project: Project, id: str, goal_id: str = "") -> Why:
    """Explain a goal, a plan item or an assignment, from the store alone."""
    store = open_store(project)
    with store.reading() as found:
        if store.damage:
            raise store.damaged()
        if found.goal(id) is not None:
            view = found.view(id)
            assert view is not None
            return why_goal(view, progress(view)[""].percent)
        return _of_part(project, found, id, goal_id)


def _of_part(project: Project, found: Reader, id: str, goal_id: str) -> Why:
    given = found.assignment(id)
    if given is None:
        view = view_with(found, id, goal_id)
        given = _newest(view, id)
        if given is None:
            return why_node(view, view.nodes[id])
    elif (of_goal := found.view(given.goal_id)) is not None:
        view = of_goal
    else:
        raise NotFound(
            f"{id} belongs to goal {given.goal_id}, which no longer exists",
            hint="Run `llmc goal events` to see what happened.",
        )
    return why_assignment(
        view,
        given,
        found.last_event("assignment.stalled", given.assignment_id),
        found.crystallizations(given.goal_id),
        policy_of(project),
        clock(now_unix()),
    )


def _newest(view: GoalView, node_id: str) -> Assignment | None:
    """The open assignment of a plan item, or the last one."""
    ours = [one for one in view.assignments.values() if one.work_node_id == node_id]
    return max(ours, key=lambda one: (one.status.is_open, one.created_at), default=None)


def clock(now: float) -> Clock:
    """Past times as ages, and future times with the time of day."""

    def to_come(at: float) -> str:
        hour = time.strftime("%H:%M:%S", time.localtime(at))
        return f"in {format_duration(at - now)} ({hour})" if at > now + 0.5 else f"at the next tick ({hour})"

    return Clock(now, lambda at: f"{format_duration(max(0.0, now - at))} ago", to_come)


def done(
    project: Project, node_id: str, goal_id: str = "", *, summary: str = "", commits: tuple[str, ...] = ()
) -> Node:
    text = check_typed("summary", summary) or "marked done by the user"
    seen = tuple(check_typed("commit", one) for one in commits)

    def write(view: GoalView, node: Node, now: float) -> Change:
        return by_hand.done(view, node, now, by_hand.proof_by_user(node, text, seen, now, new_id("C")))

    return _on_node(project, node_id, goal_id, write)


def block(project: Project, node_id: str, goal_id: str = "", *, reason: str, kind: str = HUMAN) -> Node:
    why = BlockedReason(kind=check_typed("kind", kind), text=check_typed("reason", reason))
    return _on_node(project, node_id, goal_id, partial(by_hand.block, why=why))


def unblock(project: Project, node_id: str, goal_id: str = "", *, reason: str = "") -> Node:
    check_typed("reason", reason)
    return _on_node(project, node_id, goal_id, partial(by_hand.unblock, reason=reason))


def reopen(project: Project, node_id: str, goal_id: str = "", *, reason: str) -> Node:
    check_typed("reason", reason)
    return _on_node(project, node_id, goal_id, partial(by_hand.reopen, reason=reason), reached=True)


def open_again(project: Project, commit: str, reason: str) -> str:
    """Reopen the plan item that this commit completed; a line about it, or "". Safe to repeat."""
    with open_store(project).reading() as found:
        merged = [(view, node) for view in found.views() for node in _merged_as(found, view, commit)]
    for view, node in merged:
        said = f"{node.node_id} of goal {view.goal.goal_id} was reopened"
        if node.status is NodeStatus.DONE:
            try:
                reopen(project, node.node_id, view.goal.goal_id, reason=reason)
            except Refused as error:
                return f"{node.node_id} of goal {view.goal.goal_id} was not reopened: {error.message}"
            return said
        if reason in node.word:  # reopened before a crash
            return said
    return ""


def _merged_as(found: Reader, view: GoalView, commit: str) -> list[Node]:
    """Leaves that this commit completed; a leaf's own commit is the first in its summary."""
    latest = {one.work_node_id: one for one in found.crystallizations(view.goal.goal_id)}
    came_to = {node_id for node_id, one in latest.items() if one.evidence.commits[:1] == (commit,)}
    return [view.nodes[leaf] for leaf in shape_of(view.nodes).leaves if leaf in came_to]


def override(
    project: Project, node_id: str, goal_id: str = "", *, status: str, reason: str, actor: str = HUMAN
) -> Node:
    check_typed("reason", reason)

    def write(view: GoalView, node: Node, now: float) -> Change:
        to = NodeStatus(status)
        proof = by_hand.proof_by_user(node, reason, (), now, new_id("C")) if to is NodeStatus.DONE else None
        return by_hand.override(view, node, to, now, reason, actor, proof)

    return _on_node(project, node_id, goal_id, write)


def follow_again(project: Project, node_id: str, goal_id: str = "", *, reason: str = "") -> Node:
    check_typed("reason", reason)
    return _on_node(project, node_id, goal_id, lambda _, node, now: by_hand.follow_again(node, now, reason))


def set_recovery(
    project: Project, node_id: str, goal_id: str = "", *, recovery: str | None, idle_after_s: float | None
) -> Node:
    """None: unchanged; "" or 0: the defaults."""

    def write(view: GoalView, node: Node, now: float) -> Change:
        step = node.recovery_policy if recovery is None else Recovery(recovery) if recovery else None
        limit = node.idle_after_ms if idle_after_s is None else round(idle_after_s * 1000) or None
        return by_hand.set_recovery(view, node, now, step, limit)

    return _on_node(project, node_id, goal_id, write)


def open_questions(project: Project) -> list[Question]:
    """The open questions of all goals, oldest first."""
    with open_store(project).reading() as found:
        views = open_views(found)
    return sorted((one for view in views for one in questions(view)), key=lambda one: one.since)


def answer(project: Project, question_id: str, text: str, goal_id: str = "") -> Question:
    """Answer a question and let the work continue."""
    check_typed("answer", text)
    if not text.strip():
        raise UsageError("the answer is empty", hint="Pass the answer as text or as the number of an option.")
    question = _asked(open_questions(project), question_id, goal_id)
    if not question.work_node_id:
        _answer_goal(project, question, chosen(text.strip(), question.reason.options))
        return question
    on = (question.work_node_id, question.goal_id)
    _on_node(project, *on, lambda view, _, now: answered(view, question, text.strip(), now))
    return question


def _answer_goal(project: Project, question: Question, said: str) -> None:
    """Answer a question about the goal itself: plan or check again, complete, keep the plan, or cancel."""
    store, goal_id = open_store(project), question.goal_id
    if said == goal_end.CANCEL:
        cancel(project, goal_id, "cancelled by the user")
        return
    if question.reason.kind == goal_end.PLAN:
        hint = goal_end.hinted(store.view(goal_id), said)
        if hint != store.view(goal_id).goal.problem_statement:
            change(project, goal_id, {"problem_statement": hint})
        plan(project, goal_id)
        return
    if question.reason.kind == goal_end.REPLAN:
        if goal_end.FORMER.get(said, said) != goal_end.KEEP:
            replan_by_hand(project, goal_id, goal_end.wish_of(question.reason, said), None)
            return
    elif said not in question.reason.options:
        listed = ", ".join(f"{n} ({option})" for n, option in enumerate(question.reason.options, 1))
        raise UsageError(f"{said!r} is not one of the options", hint=f"Options: {listed}")

    def write(view: GoalView) -> Change:
        if view.goal.asks is None or view.goal.asks.reason != question.reason:
            raise Refused(
                "this question has already been answered", hint="Run `llmc inbox` to see open questions."
            )
        if question.reason.kind == goal_end.REPLAN:
            return goal_end.kept(view, now_unix())
        return goal_end.answered(view, said, now_unix())

    store.update(goal_id, write)
    after_change(project, store)


def _asked(open_: list[Question], question_id: str, goal_id: str) -> Question:
    mine = [one for one in open_ if goal_id in ("", one.goal_id)]
    found = [one for one in mine if question_id in (one.id, one.work_node_id)]
    if not found:
        hint = (
            did_you_mean(question_id, [one.id for one in open_], cutoff=0.3)
            or "Run `llmc inbox` to see open questions."
        )
        raise NotFound(f"no open question {question_id!r}", hint=hint)
    if len(found) > 1:
        listed = ", ".join(f"`{one.command} ...`" for one in found)
        raise UsageError(f"{question_id} matches several questions", hint=f"Run one of {listed}.")
    return found[0]


def _on_node(
    project: Project,
    node_id: str,
    goal_id: str,
    write: Callable[[GoalView, Node, float], Change],
    *,
    reached: bool = False,
) -> Node:
    """Change a node and update its parents, in one transaction."""
    now, store = now_unix(), open_store(project)
    with store.writing() as tx:
        view = view_with(tx, node_id, goal_id, reached=reached)
        if view.goal.status.is_over:
            hint = f"Run `llmc goal show {view.goal.goal_id}` to see the plan."
            raise Refused(
                f"cannot change the plan of goal {view.goal.goal_id}: the goal is {view.goal.status}",
                hint=hint,
            )
        change = settled(view, write(view, view.nodes[node_id], now), now)
        change = goal_end.nothing_left(view, change, now)
        known = {one.work_node_id: one for one in tx.crystallizations(view.goal.goal_id)}
        tx.apply(by_hand.told_above(view, change, known, now, partial(new_id, "C")))
    after_change(project, store)
    return after(view, change).nodes[node_id]


def view_with(found: Reader, node_id: str, goal_id: str, *, reached: bool = False) -> GoalView:
    """The goal with this node: the named one, or the only open one that has it.

    Ids repeat across plans: a completed goal counts only if no other goal matches, or with `reached`.
    """
    if goal_id:
        view = found.view(goal_id)
        if view is None:
            raise unknown_goal(goal_id, found.goal_ids())
        if node_id not in view.nodes:
            raise _unknown_node(node_id, f"goal {goal_id}", view.nodes)
        return view
    having = [view for one in found.goals_with(node_id) if (view := found.readable(one))]
    wanted = [view for view in having if not view.goal.status.is_over]
    under_way = [view for view in wanted if reached or view.goal.status is not GoalStatus.COMPLETED]
    open_ = under_way or wanted or having
    if len(open_) > 1:
        names = ", ".join(view.goal.goal_id for view in open_)
        raise UsageError(
            f"{node_id} is in the plans of {len(open_)} goals", hint=f"Pass --goal with one of these: {names}"
        )
    if not open_:
        plans = found.views()
        raise _unknown_node(node_id, "any plan", [known for view in plans for known in view.nodes])
    return open_[0]


def _unknown_node(node_id: str, where: str, known: Iterable[str]) -> NotFound:
    hint = did_you_mean(node_id, known, "Run `llmc goal show GOAL` to see its plan.", 0.3)
    return NotFound(f"no plan item {node_id!r} in {where}", hint=hint)
