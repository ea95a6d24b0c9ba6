"""Explains the state of goals, plan items and assignments from the store alone. Pure."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from llmc.goals.drive import ladder
from llmc.goals.drive.goal_end import wants_check
from llmc.goals.drive.ladder import Policy, Situation, may_touch, worker_of
from llmc.goals.drive.words import sent_words
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Crystallization,
    Dispatch,
    Event,
    GoalStatus,
    GoalView,
    Node,
    Recovery,
    Result,
)
from llmc.goals.plan.plan import waits_of
from llmc.goals.report.draw import some

S = AssignmentStatus

MAX_SHOWN = 10
_MEANS = {
    Result.PENDING: "outcome not known yet",
    Result.ACCEPTED: "accepted",
    Result.OK: "done",
    Result.TIMEOUT: "unconfirmed",
    Result.ERROR: "failed",
}
_STEPS = {
    Recovery.NUDGE: "llmc asks the worker for a status update",
    Recovery.RESEND: "llmc sends the instruction again with the same ID",
    Recovery.REPLAN: "llmc asks the planner for smaller steps",
    Recovery.REASSIGN: "llmc reassigns the work to another worker",
    Recovery.ESCALATE: "llmc asks you how to proceed",
}


_AT_A_TICK = (
    "llmc sends the instruction at the next goal tick, unless overseer.goals.max_in_progress is reached "
    "(to run a tick now: llmc goal tick)"
)


class Clock(Struct, frozen=True):
    """Now, and how times are shown: "4m ago", "in 2m"."""

    now: float
    ago: Callable[[float], str]
    to_come: Callable[[float], str]


class Why(Struct, frozen=True):
    lines: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)


class Next(Struct, frozen=True):
    """What happens next; `at` None: no fixed time."""

    what: str
    at: float | None = None


def why_assignment(
    view: GoalView,
    assignment: Assignment,
    stalled: Event | None,
    proofs: Sequence[Crystallization],
    policy: Policy,
    clock: Clock,
) -> Why:
    """Explain an assignment. `stalled`: its newest stall event; `proofs`: summaries of its goal."""
    node = view.nodes.get(assignment.work_node_id)
    last = assignment.last_dispatch
    ours = [proof for proof in proofs if proof.work_node_id == assignment.work_node_id]
    reason = reason_of(assignment, stalled)
    comes = next_of(view, assignment, node, policy, clock.now)
    backoff = assignment.backoff_until if (assignment.backoff_until or 0.0) > clock.now else None
    name = f": {node.name}" if node else " (no longer in the plan)"
    lines = [
        f"{assignment.assignment_id}: {assignment.work_node_id}{name}",
        f"  goal      {view.goal.goal_id} ({view.goal.status}): {view.goal.title}",
        f"  status    {assignment.status}" + (f": {reason}" if reason else ""),
        f"  worker    {worker_of(assignment.session_key) or f'none yet (pool {assignment.agent_id})'}"
        + (f", task {assignment.run_id}" if assignment.run_id else ""),
        f"  sent      {_sent(last, len(assignment.dispatch_history), clock)}",
        f"  retries   {assignment.retry_count} of {policy.max_retries} since the last progress (after that, llmc takes the next recovery step)",
        "  backoff   " + (f"ends {clock.to_come(backoff)}" if backoff else "none"),
        *_progress_lines(assignment, ours, clock),
        f"  next      {comes.what}" + (f" {clock.to_come(comes.at)}" if comes.at is not None else ""),
    ]
    data = {
        "kind": "assignment",
        "assignmentId": assignment.assignment_id,
        "goalId": view.goal.goal_id,
        "goalStatus": view.goal.status,
        "workNodeId": assignment.work_node_id,
        "sessionKey": assignment.session_key,
        "status": assignment.status,
        "stalled": assignment.status is S.STALLED,
        "why": reason,
        "lastDispatch": msgspec.to_builtins(last) if last else None,
        "accepted": last is not None and last.result.is_good,
        "retryCount": assignment.retry_count,
        "backoffUntil": backoff,
        "lastObservedActivityAt": assignment.last_observed_activity_at,
        "lastProgressAt": assignment.last_progress_at,
        "evidence": msgspec.to_builtins(ours[-1].evidence) if ours else None,
        "summary": ours[-1].summary if ours else "",
        "next": {"what": comes.what, "at": comes.at},
    }
    return Why(tuple(lines), data)


def next_of(view: GoalView, assignment: Assignment, node: Node | None, policy: Policy, now: float) -> Next:
    """What the rules do next if nothing changes."""
    if not assignment.status.is_open:
        return Next(f"nothing; the work is {assignment.status}")
    if view.goal.status is not GoalStatus.ACTIVE:
        word = f"llmc goal resume {view.goal.goal_id}"
        rest = f"; to resume it: {word}" if view.goal.status is GoalStatus.PAUSED else ""
        return Next(f"nothing while the goal is {view.goal.status}{rest}")
    if not may_touch(assignment, policy):
        return Next(f"nothing; overseer.goals.policy does not let goals use {assignment.agent_id}")
    if assignment.status is S.BLOCKED:
        answer = f'waiting for your answer: llmc answer {assignment.assignment_id} "..."'
        due = ladder.reminder_due(assignment, policy)
        return Next(f"{answer}; next reminder" if due is not None else answer, due)
    if (pending := assignment.pending) is not None:
        return Next(
            f"the next tick completes this delivery with the same ID: {sent_words(pending.purpose, pending.mode)}"
        )
    if assignment.status is S.QUEUED:
        backoff = assignment.backoff_until
        later = "llmc sends the instruction at the first goal tick after the backoff, which ends"
        return Next(_AT_A_TICK if backoff is None else later, backoff)
    if assignment.status is not S.STALLED or node is None:
        seen = max(assignment.last_observed_activity_at or 0.0, assignment.last_dispatch_at or 0.0)
        return Next(
            "without new activity, llmc marks the work as stalled",
            seen + assignment.idle_after_s(policy.idle_after_s),
        )
    step = ladder.next_step(assignment, node, Situation(reachable=bool(assignment.session_key)), policy)
    return Next(_STEPS[step], max(assignment.backoff_until or 0.0, now))


def reason_of(assignment: Assignment, stalled: Event | None) -> str:
    """Why it is stalled or blocked."""
    if assignment.status is S.STALLED and stalled is not None:
        return str(stalled.data.get("reason", ""))
    return assignment.blocked_reason.text if assignment.blocked_reason else ""


def _sent(last: Dispatch | None, count: int, clock: Clock) -> str:
    if last is None:
        return "nothing yet"
    how = _MEANS[last.result] + (f" ({last.notes})" if last.notes else "")
    tries = f", tried {last.attempts} times" if last.attempts > 1 else ""
    return f"{sent_words(last.purpose, last.mode)} {clock.ago(last.ts)}: {how}{tries}; {count} sent in total"


def _progress_lines(assignment: Assignment, ours: Sequence[Crystallization], clock: Clock) -> list[str]:
    seen, progress_at = assignment.last_observed_activity_at, assignment.last_progress_at
    lines = [
        "  activity  " + (f"last seen {clock.ago(seen)}" if seen else "none yet"),
        "  progress  "
        + (
            f"last confirmed {clock.ago(progress_at)}"
            if progress_at
            else "none confirmed yet (no commit, report or answer)"
        ),
    ]
    if ours:
        proof = ours[-1]
        lines.append(f"  evidence  {clock.ago(proof.created_at)}: {proof.summary}")
        found = [("commits", proof.evidence.commits), ("files", proof.evidence.files_touched)]
        found.append(("tests", tuple(test.command for test in proof.evidence.tests_run)))
        lines += [f"            {word}: {some(rows, MAX_SHOWN)}" for word, rows in found if rows]
    return lines


def why_node(view: GoalView, node: Node) -> Why:
    """Explain a plan item without an assignment: whether it can start, and its dependencies."""
    found = waits_of(view)
    waits = found.waiting.get(node.node_id, ())
    behind = found.holds_up.get(node.node_id, 0)
    comes = _comes_of_node(view, node, waits, is_ready=node.node_id in found.ready)
    reason = node.blocked_reason.text if node.blocked_reason else ""
    lines = [
        f"{node.node_id}: {node.name}",
        f"  goal      {view.goal.goal_id} ({view.goal.status}): {view.goal.title}",
        f"  status    {node.status}" + (f": {reason}" if reason else ""),
        "  worker    none",
        f"  waits for {some(waits, MAX_SHOWN) or 'nothing'}",
        f"  blocks    {_others(behind)}" if behind else "  blocks    nothing",
        f"  next      {comes}",
    ]
    data = {
        "kind": "node",
        "goalId": view.goal.goal_id,
        "goalStatus": view.goal.status,
        "workNodeId": node.node_id,
        "status": node.status,
        "why": reason,
        "waitsFor": list(waits),
        "holdsUp": behind,
        "next": {"what": comes, "at": None},
    }
    return Why(tuple(lines), data)


def _comes_of_node(view: GoalView, node: Node, waits: Sequence[str], *, is_ready: bool) -> str:
    if not node.status.is_open:
        return f"nothing; the work is {node.status}"
    if node.status == "blocked":
        return f'waiting for your answer: llmc answer {shlex.quote(node.node_id)} "..." --goal {view.goal.goal_id}'
    if view.goal.status is not GoalStatus.ACTIVE:
        return f"nothing while the goal is {view.goal.status}"
    if is_ready:
        return _AT_A_TICK
    return (
        f"starts after {some(waits, MAX_SHOWN)}"
        if waits
        else "nothing; its status is derived from its children"
    )


def why_goal(view: GoalView, percent: int) -> Why:
    """Explain a goal: ready, running and blocked items, and those that hold up the most work."""
    found = waits_of(view)
    open_ = [a for a in view.assignments.values() if a.status.is_open]
    by = {status: [a.work_node_id for a in open_ if a.status is status] for status in S}
    most = list(found.holds_up.items())[:MAX_SHOWN]
    lines = [f"{view.goal.goal_id} ({view.goal.status}) {percent}%: {view.goal.title}"]
    if not view.nodes:
        lines.append(f"  no plan yet; to create one: llmc goal plan {view.goal.goal_id}")
    if view.goal.status is GoalStatus.PAUSED:
        lines.append(
            f"  llmc sends nothing while the goal is paused; to resume: llmc goal resume {view.goal.goal_id}"
        )
    if view.goal.asks is not None:
        by[S.BLOCKED] = [view.goal.goal_id, *by[S.BLOCKED]]
    if wants_check(view):
        lines.append("  the plan is done; the next tick checks the success criteria")
    rows = {
        "ready": found.ready,
        "sent": by[S.DISPATCHED],
        "working": by[S.ACTIVE],
        "stalled": by[S.STALLED],
        "needs you": by[S.BLOCKED],
    }
    lines += [
        f"  {word:<9} {some(ids, MAX_SHOWN) or 'nothing'}"
        for word, ids in rows.items()
        if ids or word == "ready"
    ]
    if by[S.BLOCKED]:
        lines.append("            llmc inbox")
    lines += [
        f"  waiting   {leaf} for {some(ids, MAX_SHOWN)}"
        for leaf, ids in list(found.waiting.items())[:MAX_SHOWN]
    ]
    if len(found.waiting) > MAX_SHOWN:
        lines.append(f"            and {len(found.waiting) - MAX_SHOWN} more")
    lines += [f"  blocking  {leaf} (blocks {_others(count)})" for leaf, count in most[:3] if count]
    data = {
        "kind": "goal",
        "goalId": view.goal.goal_id,
        "status": view.goal.status,
        "percent": percent,
        "ready": list(found.ready),
        "sent": by[S.DISPATCHED],
        "atWork": by[S.ACTIVE],
        "stalled": by[S.STALLED],
        "asksYou": by[S.BLOCKED],
        "waiting": {leaf: list(ids) for leaf, ids in found.waiting.items()},
        "holdsUp": dict(found.holds_up),
    }
    return Why(tuple(lines), data)


def _others(count: int) -> str:
    return f"{count} other plan item" + ("s" if count > 1 else "")
