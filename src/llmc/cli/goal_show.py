"""llmc goal show|handoff: a goal for people."""

from pathlib import Path
from typing import Any

import click

from llmc.base.files import write_atomic
from llmc.cli.arguments import project_of
from llmc.cli.fast import sheet
from llmc.cli.goal_views import complete_goal, note_undriven, the_goal, warn
from llmc.cli.output import json_option, paint, print_json, say, say_lines
from llmc.goals.drive.criteria import unchecked
from llmc.goals.drive.rollup import progress
from llmc.goals.goals import GoalCost, GoalSpending, open_store
from llmc.goals.model import GoalView
from llmc.goals.report import draw
from llmc.goals.report.handoff import goal_tree, said_of
from llmc.goals.report.handoff import handoff as written
from llmc.repo.project import Project

#: so many decisions, questions and steps are shown
MOST_SAID = 10

goal_argument = click.argument("goal_id", metavar="GOAL", shell_complete=complete_goal)
#: where to look at the only one does no harm
_perhaps_a_goal = click.argument("goal_id", metavar="[GOAL]", required=False, shell_complete=complete_goal)


def add_to(group: click.Group) -> None:
    for one in (show, handoff):
        group.add_command(one)


@click.command("show")
@_perhaps_a_goal
@click.option("--mermaid", is_flag=True, help="Print the plan as a Mermaid diagram.")
@json_option
@click.pass_context
def show(ctx: click.Context, goal_id: str | None, mermaid: bool, as_json: bool) -> None:
    """Draw a goal's plan: what is done, assignees, blockers, and what it has cost. The only goal need not be named.

    \b
    Example:
      llmc goal show goal_1f0c9a7e42
    """
    project = project_of(ctx)
    store = open_store(project)
    view = store.view(the_goal(store, goal_id))
    warn(store)
    if mermaid:
        say_lines(draw.mermaid(view), nl=False)
        return
    spent = GoalSpending().of(project, view)
    with store.reading() as found:
        said = said_of(view, found.crystallizations(view.goal.goal_id))
    if as_json:
        print_json({**goal_tree(view), "cost": cost_row(spent, view), **said})
        return
    for line in drawn(view):
        say(line)
    for line in (*about(view, spent), *said_lines(said)):
        say(line)
    note_undriven(project, [view.goal])


@click.command("handoff")
@_perhaps_a_goal
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Into this file.")
@json_option
@click.pass_context
def handoff(ctx: click.Context, goal_id: str | None, output: Path | None, as_json: bool) -> None:
    """Print all that somebody needs to go on with a goal: purpose, state, decisions, next steps, questions, evidence.

    \b
    Example:
      llmc goal handoff goal_1f0c9a7e42 --output HANDOFF.md
    """
    project = project_of(ctx)
    goal_id = the_goal(open_store(project), goal_id)
    text = handoff_of(project, goal_id)
    if output is not None:
        write_atomic(output, text.encode())
    if as_json:
        print_json({"goalId": goal_id, "file": str(output) if output else None, "markdown": text})
    elif output is not None:
        say(f"wrote {output}")
    else:
        say_lines(text, nl=False)


def handoff_of(project: Project, goal_id: str) -> str:
    store = open_store(project)
    view = store.view(goal_id)
    warn(store)
    with store.reading() as found:
        crystals = found.crystallizations(goal_id)
    return written(view, crystals, percents(view))


def percents(view: GoalView) -> dict[str, int]:
    return {node_id: one.percent for node_id, one in progress(view).items()}


def drawn(view: GoalView) -> list[str]:
    """The plan as a tree, coloured on a terminal."""
    width, _ = sheet()
    lines = draw.plan_tree(view, percents(view), width)
    return ["".join(_styled(text, style) for text, style in line).rstrip() for line in lines]


def _styled(text: str, style: str) -> str:
    if style == "bold":
        return paint(text, "", bold=True)
    return paint(text, "bright_black" if style == "dim" else style) if style else text


def about(view: GoalView, spent: GoalCost) -> list[str]:
    """What was said of the goal, and what it has cost: the overseer's own part is a line of its own."""
    goal = view.goal
    facts = {
        "problem": goal.problem_statement,
        "done when": "; ".join(goal.success_criteria),
        "not": "; ".join(goal.non_goals),
        "constraints": "; ".join(goal.constraints),
        "owner": goal.owner,
    }
    if goal.asks is not None:
        facts["asks"] = f"{goal.asks.reason.question} (llmc overseer answer {goal.goal_id} ...)"
    if goal.checked is not None:
        found = [f"`{one.command}` {one.result}" for one in goal.checked.results]
        found += [f"not checked, for you to judge: {text}" for text in unchecked(goal)]
        said = f"on {goal.checked.commit[:12]}" + (
            "" if goal.checked.by == "overseer" else ", completed by a person"
        )
        facts["checked"] = "; ".join([*found, said])
    lines = [f"{name + ':':<12} {' '.join(value.split())}" for name, value in facts.items() if value]
    unpriced = f" (and tokens without a price: {', '.join(spent.unpriced)})" if spent.unpriced else ""
    lines += [
        f"{'work:':<12} ${spent.work:.2f}{unpriced}",
        f"{'overseer:':<12} ${spent.overhead:.2f} for planning",
    ]
    if goal.budget_usd:
        left = max(0.0, goal.budget_usd - spent.total)
        rest = (
            f"of which ${left:.2f} are left" if not spent.unpriced else "which cannot be kept without prices"
        )
        lines.append(f"{'budget:':<12} ${goal.budget_usd:.2f}, {rest}")
    return lines


def said_lines(said: dict[str, Any]) -> list[str]:
    """What workers decided, asked and want to do next; `llmc goal handoff` has all of it."""
    why = [
        f"{row['decision']} ({row['rationale']})" if row["rationale"] else row["decision"]
        for row in said["decisions"]
    ]
    rows = {
        "decided:": list(zip(said["decisions"], why, strict=True)),
        "open:": [(row, row["question"]) for row in said["openQuestions"]],
        "next:": [(row, row["action"]) for row in said["nextActions"]],
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
