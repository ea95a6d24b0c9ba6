"""Goals for the eye and for scripts: a line, an assignment with what is known of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from llmc.api.goal_ticks import settle, undriven
from llmc.base.errors import LlmcError, UsageError
from llmc.cli.output import completion, note, paint
from llmc.config.durations import format_duration
from llmc.goals.drive.questions import Question
from llmc.goals.drive.rollup import progress
from llmc.goals.goals import open_store
from llmc.goals.model import Assignment, AssignmentStatus, Crystallization, Event, Goal, GoalStatus, GoalView
from llmc.goals.store.store import GoalStore
from llmc.repo.project import Project, open_project

_COLORS = {
    "done": "green",
    "completed": "green",
    "in_progress": "cyan",
    "active": "cyan",
    "queued": "yellow",
    "blocked": "red",
    "stalled": "red",
    "paused": "yellow",
}


def complete_goal(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        completion(view.goal.goal_id, help=view.goal.title)
        for view in _known(ctx)
        if view.goal.goal_id.startswith(incomplete)
    ]


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    nodes = [node for view in _known(ctx) for node in view.nodes.values()]
    return [
        completion(node.node_id, help=f"{node.status}: {node.name}")
        for node in nodes
        if node.node_id.startswith(incomplete)
    ]


def _known(ctx: click.Context) -> list[GoalView]:
    try:
        project = open_project((ctx.find_root().params or {}).get("root"))
        with open_store(project).reading() as found:
            return found.views()
    except (LlmcError, OSError):
        return []


def the_goal(store: GoalStore, given: str | None) -> str:
    """The goal that was named; where none was, the only one that is not over, or the only one."""
    if given:
        return given
    with store.reading() as found:
        goals = [view.goal for view in found.views()]
    going = [goal for goal in goals if goal.status.goes_on]
    meant = going or goals
    if len(meant) == 1:
        return meant[0].goal_id
    problem = f"there are {len(meant)} goals" if meant else "there is no goal"
    hint = "Name one; `llmc goal list` shows them." if meant else "Make one: llmc goal create --title ..."
    raise UsageError(problem, hint=hint)


def warn(store: GoalStore, unreadable: Mapping[str, str] | None = None) -> None:
    """A damaged store, or one that took a damaged one's place, is said with everything that is read from it; so are
    goals that could not be read."""
    with store.reading() as found:
        mode = found.safe_mode()
    if store.damage:
        note(
            paint(f"{store.damage}. ", "red", err=True)
            + "Nothing was changed; what it holds cannot be shown."
        )
    elif mode is not None:
        note(
            paint(f"safe mode: {mode.reason}. ", "red", err=True)
            + f"The file is kept as {mode.file}; `llmc overseer safe-mode --clear` ends it."
        )

    for goal_id, why in (unreadable or {}).items():
        note(paint(f"{goal_id}: {why}. ", "red", err=True) + "It is left out; `llmc overseer export` has it.")


def note_undriven(project: Project, goals: Iterable[Goal]) -> None:
    """That nothing will be done is said where somebody might wait for it."""
    if any(goal.status is GoalStatus.ACTIVE for goal in goals) and (why := undriven(project)):
        note(paint(why, "yellow", err=True))


def note_settled(project: Project, reason: str) -> None:
    """What a person's word changes for workers happens at once, or it is said when."""
    if said := settle(project, reason):
        note(said)


def summary(view: GoalView) -> dict[str, Any]:
    """One goal in a few fields."""
    whole = progress(view)[""]
    goal = view.goal
    return {
        "goalId": goal.goal_id,
        "title": goal.title,
        "status": goal.status,
        "priority": goal.priority,
        "tags": list(goal.tags),
        "percent": whole.percent,
        "done": whole.done,
        "total": whole.total,
        "nodes": dict(Counter(str(node.status) for node in view.nodes.values())),
        "assignments": dict(Counter(str(one.status) for one in view.assignments.values())),
        "updatedAt": goal.updated_at,
    }


def goal_line(view: GoalView) -> str:
    row = summary(view)
    of = f"{row['done']}/{row['total']}" if row["total"] else "no plan"
    urgent = "" if row["priority"] == "normal" else f" [{row['priority']}]"
    word = painted(f"{row['status']:<9}", row["status"])
    return f"{row['goalId']}  {word} {row['percent']:>3}% {of:>7}{urgent}  {row['title']}"


def painted(text: str, status: str) -> str:
    return paint(text, _COLORS.get(status, "bright_black"))


def assignment_row(
    one: Assignment, stalled: Event | None, proofs: Iterable[Crystallization]
) -> dict[str, Any]:
    """What is asked about work that does not get on: why, what was sent last and whether it arrived, until when
    nothing is sent, and what shows progress."""
    last = one.dispatch_history[-1] if one.dispatch_history else None
    why = one.blocked_reason.text if one.blocked_reason else ""
    if one.status is AssignmentStatus.STALLED and stalled is not None:
        why = str(stalled.data.get("reason", ""))
    ours = [proof for proof in proofs if proof.work_node_id == one.work_node_id]
    return {
        "assignmentId": one.assignment_id,
        "goalId": one.goal_id,
        "workNodeId": one.work_node_id,
        "agentId": one.agent_id,
        "sessionKey": one.session_key,
        "status": one.status,
        "why": why,
        "lastDispatch": msgspec.to_builtins(last) if last else None,
        "retryCount": one.retry_count,
        "backoffUntil": one.backoff_until,
        "lastObservedActivityAt": one.last_observed_activity_at,
        "evidence": msgspec.to_builtins(ours[-1].evidence) if ours else None,
    }


def assignment_line(row: dict[str, Any], now: float) -> str:
    parts = [f"{row['workNodeId']} of {row['goalId']} is {row['status']}"]
    parts += [row["why"]] if row["why"] else []
    if (sent := row["lastDispatch"]) is not None:
        parts.append(f"last {sent['purpose']} {_ago(sent['ts'], now)}: {sent['result']}")
    if row["backoffUntil"] and row["backoffUntil"] > now:
        parts.append(f"nothing is sent for {format_duration(row['backoffUntil'] - now)}")
    if row["lastObservedActivityAt"]:
        parts.append(f"last sign of work {_ago(row['lastObservedActivityAt'], now)}")
    return f"  {row['assignmentId']}  {'; '.join(parts)}"


def question_row(one: Question) -> dict[str, Any]:
    return {
        "id": one.id,
        "goalId": one.goal_id,
        "goalTitle": one.goal_title,
        "workNodeId": one.work_node_id,
        "assignmentId": one.assignment_id,
        "name": one.node_name,
        "kind": one.reason.kind,
        "text": one.reason.text,
        "question": one.reason.question,
        "options": list(one.reason.options),
        "since": one.since,
    }


def question_lines(one: Question, now: float) -> list[str]:
    asked = one.reason.question or one.reason.text
    part = one.node_name if one.id == one.work_node_id else f"{one.work_node_id} {one.node_name}".strip()
    lines = [f"{one.id}  {part} ({one.goal_title}), {_ago(one.since, now)}", f"    {asked}"]
    lines += [f"    {number}. {option}" for number, option in enumerate(one.reason.options, 1)]
    return [*lines, f'    llmc overseer answer {one.id} "..."']


def _ago(then: float, now: float) -> str:
    return f"{format_duration(max(0.0, now - then))} ago"
