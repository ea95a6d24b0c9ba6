"""Goals: `llmc goal create`, `plan`, `list`, `update`, `pause`, `resume`, `cancel`, `archive`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from llmc.api import goal_orders, goal_views
from llmc.api.goal_orders import Goal, Priority
from llmc.api.roots import Project
from llmc.base.errors import Exit, UsageError
from llmc.cli import goal_show, goal_verbs
from llmc.cli.arguments import (
    OPTIONAL,
    WORKER,
    Group,
    Number,
    confirm,
    project_of,
)
from llmc.cli.goal_show import draw, goal_argument, goal_line, note_settled, note_troubles, note_undriven
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.config.durations import format_duration

PRIORITIES = click.Choice([priority.value for priority in Priority])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


_DOLLARS = Number(0)

reason_option = click.option("--reason", default="", help="Reason to record in the goal's event log")


@click.group("goal", cls=Group)
def goal() -> None:
    """Manage goals

    A goal is a large objective with a plan of phases, tasks and subtasks.

    \b
    Examples:
      llmc goal create --title "Import CSV files" --verify "make test"
      llmc goal list
      llmc goal show goal_1f0c9a7e42
      llmc goal pause goal_1f0c9a7e42
    """


def definition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that define a goal, except its title."""
    several = {
        "--criterion": ("criteria", "Success criterion in plain words (repeatable)"),
        "--verify": (
            "verify",
            "Command that must pass before the goal is completed (repeatable)",
        ),
        "--non-goal": ("non_goals", "Work that is out of scope for the goal (repeatable)"),
        "--constraint": ("constraints", "Constraint that the work must respect (repeatable)"),
        "--assumption": ("assumptions", "Assumption that the goal is based on (repeatable)"),
        "--risk": ("risks", 'Risk to the goal, as "risk | impact | mitigation" (repeatable)'),
        "--stakeholder": ("stakeholders", "Person or group affected by the goal (repeatable)"),
        "--tag": ("tags", "Tag for the goal (repeatable)"),
    }
    single = [
        click.option("--problem", default=None, help="Problem that the goal solves"),
        click.option(
            "--priority", type=PRIORITIES, default=None, help="Priority of the goal [default: normal]"
        ),
        click.option(
            "--owner", default=None, help="Name of the person who answers questions (not an address)"
        ),
        click.option(
            "--reply-to",
            default=None,
            metavar="CHANNEL[:TO]",
            help="Where to send questions in addition to the inbox: a channel from [notify], `notify` for all channels, or `inbox` for none [default: notify]",
        ),
        click.option("--reply-thread", default="", help="Thread to post in on the --reply-to channel"),
        click.option("--reply-account", default="", help="Account to use on the --reply-to channel"),
        click.option(
            "--budget",
            metavar="DOLLARS",
            type=_DOLLARS,
            default=None,
            help="Maximum to spend on the goal, in dollars; 0 means no limit",
        ),
    ]
    lists = [click.option(name, dest, multiple=True, help=about) for name, (dest, about) in several.items()]
    for option in reversed([*single, *lists]):
        function = option(function)
    return function


@goal.command("create")
@click.option("--title", required=True, help="Title of the goal, on one line")
@definition_options
@click.option(
    "--from-session",
    default="",
    type=WORKER,
    help="Worker whose session the goal came from",
)
@click.option(
    "--plan/--no-plan", "planned", default=True, show_default=True, help="Plan the goal after creating it"
)
@click.option("--from", "file", type=_FILE, help="Read the plan from this file instead of generating one")
@json_option
@click.pass_context
def create(ctx: click.Context, /, file: Path | None, planned: bool, as_json: bool, **given: Any) -> int:
    """Create a goal and plan it

    If planning fails, the goal is still saved, and the exit code is 1. With --from, llmc rejects
    an invalid plan and creates no goal.

    \b
    Examples:
      llmc goal create --title "Import CSV files" --problem "No import yet"
      llmc goal create --title "Release 2.0" --from plan.md
      llmc goal create --title "Think about search" --no-plan
    """
    if file and not planned:
        raise UsageError("--from and --no-plan cannot be used together")
    project = project_of(ctx)

    def kept(goal: Goal) -> None:
        """Name the goal before planning, which may take minutes and be interrupted."""
        if not as_json:
            say(f"created {goal.goal_id}: {goal.title}")
        if planned and file is None:
            limit = format_duration(project.config.overseer.goals.planner.timeout)
            note(f"planning ... (up to {limit} per attempt)")

    made = goal_orders.create(project, given, planned=planned, file=file, kept=kept)
    note_troubles(goal_views.troubles(project))
    if as_json:
        print_json(
            {
                **goal_views.summary(made.view),
                "planned": made.planned,
                "problem": made.problem,
                "hint": made.hint,
            }
        )
    elif made.planned:
        draw(made.view)
    if made.planned:
        note_undriven(project, [made.view.goal])
    if made.problem and not as_json:
        note(paint("goal created, but planning failed: ", "red", err=True) + f"{made.problem}. {made.hint}")
    return Exit.FAILED if made.problem else Exit.DONE


@goal.command("plan")
@goal_argument
@click.option("--from", "file", type=_FILE, help="Read the plan from this file")
@click.option("--replan", "again", is_flag=True, help="Replace the existing plan")
@click.option("--why", default="", help="Reason for --replan, such as what was wrong with the old plan")
@json_option
@click.pass_context
def plan(ctx: click.Context, goal_id: str, file: Path | None, again: bool, why: str, as_json: bool) -> None:
    """Plan a goal, or replace its plan

    --replan keeps finished plan items and does not interrupt workers.

    \b
    Examples:
      llmc goal plan goal_1f0c9a7e42 --from plan.md
      llmc goal plan goal_1f0c9a7e42 --replan --why "no server after all"

    \b
    Plan file format (lines after a name are instructions for the worker):
      # Import CSV files
      success: the docs explain how to import a file
      ## P1: Read files
      ### T1.1: Parser
      - [ ] Read rows
        accept: a two-row file yields two rows
        verify: make test
      - [ ] Detect the dialect
        accept: tabs and semicolons are recognized
        deps: S1.1.1
      ## P2: Show them
      deps: P1
      ### T2.1: Preview in the browser
      accept: the first ten rows are shown
    """
    project = project_of(ctx)
    if why and not again:
        raise UsageError("--why requires --replan")
    if not again:
        view = goal_orders.plan(project, goal_id, file)
        print_json(goal_views.goal_tree(view)) if as_json else draw(view)
        note_undriven(project, [view.goal])
        return
    view, revision = goal_orders.replan(project, goal_id, why, file)
    if as_json:
        print_json({**goal_views.goal_tree(view), "revision": msgspec.to_builtins(revision)})
        return
    draw(view)
    for line in goal_views.revision_lines(revision):
        say(line)
    note_settled(project, "replan")


@goal.command("list")
@click.option("--all", "every", is_flag=True, help="Include archived goals")
@json_option
@click.pass_context
def list_(ctx: click.Context, every: bool, as_json: bool) -> None:
    """List goals with status and progress

    \b
    Example:
      llmc goal list --all
    """
    project = project_of(ctx)
    found = goal_views.goals(project)
    note_troubles(found.troubles)
    note_undriven(project, (view.goal for view in found.views))
    shown = [view for view in found.views if every or view.goal.status != "archived"]
    if as_json:
        rows = [goal_views.summary(view) for view in shown]
        print_json({"goals": rows, "unreadable": found.troubles.unreadable})
        return
    for view in shown:
        say(goal_line(view))
    if not shown:
        say("no goals" if not found.views else "only archived goals; to list them: llmc goal list --all")


@goal.command("update")
@goal_argument
@click.option("--title", default=None, help="Title of the goal, on one line")
@definition_options
@json_option
@click.pass_context
def update(ctx: click.Context, /, goal_id: str, as_json: bool, **given: Any) -> None:
    """Update a goal's fields

    Options that can be repeated replace all earlier values of that field.

    \b
    Example:
      llmc goal update goal_1f0c9a7e42 --priority urgent --owner ada
    """
    fields = goal_orders.changes(given)
    if not fields:
        raise UsageError(
            "specify at least one field to update", hint="Run `llmc goal update --help` to list the options."
        )
    if not fields.get("title", "x").strip():
        raise UsageError("the title must not be empty", hint=f'Run: llmc goal update {goal_id} --title "..."')
    _say(goal_orders.change(project_of(ctx), goal_id, fields), as_json)


def _mover(name: str, act: Callable[[Project, str, str], Goal], about: str, why: str) -> None:
    """Define pause, resume or archive."""

    def run(ctx: click.Context, goal_id: str, reason: str, as_json: bool) -> None:
        project = project_of(ctx)
        _say(act(project, goal_id, reason), as_json)
        if name != "archive":
            note_settled(project, f"goal {name}")

    run.__doc__ = f'{about}\n\n\b\nExample:\n  llmc goal {name} goal_1f0c9a7e42 --reason "{why}"\n'
    goal.command(name)(goal_argument(reason_option(json_option(click.pass_context(run)))))


_mover(
    "pause",
    goal_orders.pause,
    "Pause a goal\n\nNo new work starts until `llmc goal resume`. Work in progress continues.",
    "not tonight",
)
_mover("resume", goal_orders.resume, "Resume a paused goal", "the server is back")


@goal.command("cancel")
@goal_argument
@reason_option
@click.option("--yes", "-y", is_flag=True, help=f"Do not ask for confirmation {OPTIONAL}")
@json_option
@click.pass_context
def cancel(ctx: click.Context, goal_id: str, reason: str, yes: bool, as_json: bool) -> None:
    """Cancel a goal and its unfinished work

    Landed commits are kept. A cancelled goal cannot be resumed.

    \b
    Example:
      llmc goal cancel goal_1f0c9a7e42 --reason "no longer needed"
    """
    project = project_of(ctx)
    title = goal_views.goal(project, goal_id).goal.title
    confirm(f"Cancel {goal_id} ({title}) and its unfinished work?", None, yes)
    _say(goal_orders.cancel(project, goal_id, reason), as_json)
    note_settled(project, "goal cancel")


_mover(
    "archive",
    goal_orders.archive,
    "Archive a completed or cancelled goal\n\n`llmc goal list --all` still lists the goal.",
    "released",
)


goal_show.add_to(goal)
for _verb in goal_verbs.VERBS:
    goal.add_command(_verb)


def _say(goal: Goal, as_json: bool) -> None:
    row = {"goalId": goal.goal_id, "status": goal.status, "title": goal.title}
    print_json(row) if as_json else say(f"{goal.goal_id}: {goal.status}")
