"""`llmc goal show` and `handoff`, and output that the goal commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from llmc.api import goal_views
from llmc.api.goal_orders import settle, undriven
from llmc.api.goal_views import Asking, Goal, GoalCost, GoalStatus, GoalView, Question, Troubles
from llmc.api.roots import Project
from llmc.base.files import write_atomic
from llmc.cli.arguments import (
    complete_with,
    output_option,
    project_of,
)
from llmc.cli.fast import sheet
from llmc.cli.output import completion, json_option, note, paint, print_json, say, say_lines
from llmc.config.durations import format_duration

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
    """Complete plan item IDs, which several plans can have; offer each only once."""
    nodes = {node.node_id: node for view in _known(ctx) for node in view.nodes.values()}
    return [
        completion(node.node_id, help=f"{node.status}: {node.name}")
        for node in nodes.values()
        if node.node_id.startswith(incomplete)
    ]


complete_question = complete_with(
    lambda project: {one.id: one.reason.question for one in goal_views.open_questions(project)}
)


def _known(ctx: click.Context) -> list[GoalView]:
    return goal_views.known((ctx.find_root().params or {}).get("root"))


def note_troubles(found: Troubles) -> None:
    """Warn of a damaged store, of safe mode, and of goals that could not be read."""
    mode = found.safe_mode
    if found.damage:
        note(paint(f"{found.damage}. ", "red", err=True) + "Restore a good copy of the file.")
    elif mode is not None:
        note(
            paint(f"safe mode: {mode.reason}. ", "red", err=True)
            + f"The damaged file is {mode.file}. To end safe mode: llmc goal safe-mode --clear"
        )

    for goal_id, why in found.unreadable.items():
        note(
            paint(f"{goal_id}: {why}. ", "red", err=True)
            + "Skipped this goal; `llmc goal export` includes its data."
        )


def note_undriven(project: Project, goals: Iterable[Goal]) -> None:
    """Say why no goal makes progress, if one is active."""
    if any(goal.status is GoalStatus.ACTIVE for goal in goals) and (why := undriven(project)):
        note(paint(why, "yellow", err=True))


def note_settled(project: Project, reason: str) -> None:
    """Apply a change to workers if no daemon does, and print what is left to say about it."""
    if said := settle(project, reason):
        note(said)


def goal_line(view: GoalView) -> str:
    row = goal_views.summary(view)
    of = f"{row['done']}/{row['total']}" if row["total"] else "no plan"
    urgent = "" if row["priority"] == "normal" else f" [{row['priority']}]"
    word = painted(f"{row['status']:<9}", row["status"])
    return f"{row['goalId']}  {word} {row['percent']:>3}% {of:>7}{urgent}  {row['title']}"


def painted(text: str, status: str) -> str:
    return paint(text, _COLORS.get(status, "bright_black"))


#: readable names for purposes of messages, where needed
_PURPOSES = {"resend_last": "same instruction again"}
#: the outcome of a message, as in `llmc goal why`
_RESULTS = {
    "pending": "outcome not known yet",
    "accepted": "accepted",
    "ok": "done",
    "timeout": "unconfirmed",
    "error": "failed",
}


def assignment_line(row: dict[str, Any], now: float) -> str:
    parts = [f"{row['workNodeId']} of {row['goalId']} is {row['status']}"]
    parts += [row["why"]] if row["why"] else []
    if (sent := row["lastDispatch"]) is not None:
        purpose, result = _PURPOSES.get(sent["purpose"], sent["purpose"]), _RESULTS[sent["result"]]
        parts.append(f"last message ({purpose}) {_ago(sent['ts'], now)}: {result}")
    if row["backoffUntil"] and row["backoffUntil"] > now:
        parts.append(f"next message in {format_duration(row['backoffUntil'] - now)}")
    if row["lastObservedActivityAt"]:
        parts.append(f"last activity {_ago(row['lastObservedActivityAt'], now)}")
    return f"  {row['assignmentId']}  {'; '.join(parts)}"


def question_row(one: Question | Asking) -> dict[str, Any]:
    """The JSON row of a question; a worker's question has no goal, and a goal's question has no worker."""
    if isinstance(one, Asking):
        ids = {"id": one.worker, **dict.fromkeys(("goalId", "goalTitle", "workNodeId", "assignmentId"), "")}
        asked = {"kind": "question", "text": one.text, "question": one.text, "options": list(one.options)}
        return {**ids, "name": "", **asked, "since": one.since, "worker": one.worker, "next": one.next}
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
        "worker": "",
        "next": one.command,
    }


def question_lines(one: Question | Asking, now: float) -> list[str]:
    row = question_row(one)
    lines = [f"{_asker(one)}, {_ago(one.since, now)}", f"    {row['question'] or row['text']}"]
    lines += [f"    {number}. {option}" for number, option in enumerate(row["options"], 1)]
    text = ' "..."' if row["next"].startswith("llmc answer ") else ""
    return [*lines, f"    {row['next']}{text}"]


def _asker(one: Question | Asking) -> str:
    if isinstance(one, Asking):
        return one.worker
    part = one.node_name if one.id == one.work_node_id else f"{one.work_node_id} {one.node_name}".strip()
    return f"{one.id}  {part} ({one.goal_title})"


def _ago(then: float, now: float) -> str:
    return f"{format_duration(max(0.0, now - then))} ago"


#: maximum number of decisions, questions and steps shown
MOST_SAID = 10

goal_argument = click.argument("goal_id", metavar="GOAL", shell_complete=complete_goal)
#: optional for commands that only read
_optional_goal = click.argument("goal_id", metavar="[GOAL]", required=False, shell_complete=complete_goal)


def add_to(group: click.Group) -> None:
    for one in (show, handoff):
        group.add_command(one)


@click.command("show")
@_optional_goal
@click.option("--mermaid", is_flag=True, help="Print the plan as a Mermaid diagram")
@json_option
@click.pass_context
def show(ctx: click.Context, goal_id: str | None, mermaid: bool, as_json: bool) -> None:
    """Show a goal's plan, progress and cost

    You can omit GOAL if only one goal is unfinished.

    \b
    Example:
      llmc goal show goal_1f0c9a7e42
    """
    project = project_of(ctx)
    view = goal_views.goal(project, goal_views.the_goal(project, goal_id))
    note_troubles(goal_views.troubles(project))
    if mermaid:
        say_lines(goal_views.mermaid(view), nl=False)
        return
    spent, said = goal_views.cost(project, view), goal_views.said(project, view)
    if as_json:
        print_json({**goal_views.goal_tree(view), "cost": cost_row(spent, view), **said})
        return
    draw(view)
    for line in (*about(view, spent), *said_lines(said)):
        say(line)
    note_undriven(project, [view.goal])


@click.command("handoff")
@_optional_goal
@output_option
@json_option
@click.pass_context
def handoff(ctx: click.Context, goal_id: str | None, output: Path | None, as_json: bool) -> None:
    """Write a handoff document for a goal

    Includes the purpose, state, decisions, next steps, open questions and evidence.

    \b
    Example:
      llmc goal handoff goal_1f0c9a7e42 --output HANDOFF.md
    """
    project = project_of(ctx)
    goal_id = goal_views.the_goal(project, goal_id)
    view = goal_views.goal(project, goal_id)
    note_troubles(goal_views.troubles(project))
    text = goal_views.handoff_text(project, view)
    if output is not None:
        write_atomic(output, text.encode())
    if as_json:
        print_json({"goalId": goal_id, "file": str(output) if output else None, "markdown": text})
    elif output is not None:
        say(f"wrote {output}")
    else:
        say_lines(text, nl=False)


def draw(view: GoalView) -> None:
    """Print the plan as a tree, in color on a terminal."""
    width, _ = sheet()
    for line in goal_views.plan_tree(view, width):
        say("".join(_styled(text, style) for text, style in line).rstrip())


def _styled(text: str, style: str) -> str:
    if style == "bold":
        return paint(text, "", bold=True)
    return paint(text, "bright_black" if style == "dim" else style) if style else text


def about(view: GoalView, spent: GoalCost) -> list[str]:
    """The definition and the cost of a goal; planning has its own line."""
    goal = view.goal
    facts = {
        "problem": goal.problem_statement,
        "criteria": "; ".join(goal.success_criteria),
        "non-goals": "; ".join(goal.non_goals),
        "constraints": "; ".join(goal.constraints),
        "owner": goal.owner,
    }
    if goal.asks is not None:
        facts["question"] = f"{goal.asks.reason.question} (llmc answer {goal.goal_id} ...)"
    if goal.checked is not None:
        found = [f"`{one.command}` {one.result}" for one in goal.checked.results]
        found += [f"not checked automatically: {text}" for text in goal_views.unchecked(goal)]
        said = f"checked at commit {goal.checked.commit[:12]}" + (
            "" if goal.checked.by == "overseer" else ", marked completed by you"
        )
        facts["checks"] = "; ".join([*found, said])
    lines = [f"{name + ':':<12} {' '.join(value.split())}" for name, value in facts.items() if value]
    unpriced = f" (plus unpriced tokens from {', '.join(spent.unpriced)})" if spent.unpriced else ""
    lines += [
        f"{'work:':<12} ${spent.work:.2f}{unpriced}",
        f"{'planning:':<12} ${spent.overhead:.2f}",
    ]
    if goal.budget_usd:
        left = max(0.0, goal.budget_usd - spent.total)
        rest = f"${left:.2f} left" if not spent.unpriced else "not enforced because some tokens have no price"
        lines.append(f"{'budget:':<12} ${goal.budget_usd:.2f}, {rest}")
    return lines


def said_lines(said: dict[str, Any]) -> list[str]:
    """The latest decisions, questions and next steps of workers; `llmc goal handoff` has all of them."""
    why = [
        f"{row['decision']} ({row['rationale']})" if row["rationale"] else row["decision"]
        for row in said["decisions"]
    ]
    rows = {
        "decision:": list(zip(said["decisions"], why, strict=True)),
        "question:": [(row, row["question"]) for row in said["openQuestions"]],
        "next step:": [(row, row["action"]) for row in said["nextActions"]],
    }
    return [
        f"{name:<12} {row['workNodeId']}: {' '.join(text.split())}"
        for name, found in rows.items()
        for row, text in found[-MOST_SAID:]
    ]


def cost_row(spent: GoalCost, view: GoalView) -> dict[str, Any]:
    return {
        "workUsd": spent.work,
        "overseerUsd": spent.overhead,
        "totalUsd": spent.total,
        "unpriced": list(spent.unpriced),
        "budgetUsd": view.goal.budget_usd,
    }
