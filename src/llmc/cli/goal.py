"""Goals: `llmc goal create`, `plan`, `list`, `update`, `pause`, `resume`, `cancel`, `archive`."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click
import msgspec

from llmc.api import goal_orders, goal_views
from llmc.api.goal_orders import Goal, Priority
from llmc.api.goal_views import GoalView
from llmc.api.roots import Project
from llmc.base.errors import Exit, UsageError
from llmc.cli import goal_show
from llmc.cli.arguments import (
    Group,
    complete_worker,
    project_of,
)
from llmc.cli.goal_show import drawn, goal_argument, goal_line, note_settled, note_undriven, warn
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.config.durations import format_duration

PRIORITIES = click.Choice([priority.value for priority in Priority])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Dollars(click.FloatRange):
    """`nan` and `inf` are numbers to Python, and no limit to anybody."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is no amount of dollars; 0 means no limit.", param, ctx)
        return number


_DOLLARS = _Dollars(0)

reason_option = click.option("--reason", default="", help="Why; it is kept in the goal's log.")


@click.group("goal", cls=Group)
def goal() -> None:
    """Goals: what is to be reached, planned in phases, tasks and subtasks, and driven to its end.

    \b
    Examples:
      llmc goal create --title "Import CSV files" --verify "make test"
      llmc goal list
      llmc goal show goal_1f0c9a7e42
      llmc goal pause goal_1f0c9a7e42
    """


def definition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What can be said of a goal besides its title."""
    several = {
        "--criterion": ("criteria", "What must be true in the end; can be given several times."),
        "--verify": (
            "verify",
            "A command that must pass in the end: llmc runs it before the goal is completed.",
        ),
        "--non-goal": ("non_goals", "What is not wanted."),
        "--constraint": ("constraints", "What must be kept to."),
        "--assumption": ("assumptions", "What is taken for granted."),
        "--risk": ("risks", 'What might go wrong: "risk | impact | mitigation".'),
        "--stakeholder": ("stakeholders", "Whom it concerns."),
        "--tag": ("tags", "A word to find it by."),
    }
    single = [
        click.option("--problem", default=None, help="What is to be solved."),
        click.option("--priority", type=PRIORITIES, default=None, help="How urgent it is (normal)."),
        click.option("--owner", default=None, help="Who answers questions: a name, not an address."),
        click.option(
            "--reply-to",
            default=None,
            metavar="CHANNEL[:TO]",
            help="Where its questions go besides the inbox: a channel of [notify], `notify` for all (the default), `inbox` for none.",
        ),
        click.option("--reply-thread", default="", help="With --reply-to: the thread there."),
        click.option("--reply-account", default="", help="With --reply-to: the account there."),
        click.option("--budget", type=_DOLLARS, default=None, help="Dollars it may cost; 0: no limit."),
    ]
    lists = [click.option(name, dest, multiple=True, help=about) for name, (dest, about) in several.items()]
    for option in reversed([*single, *lists]):
        function = option(function)
    return function


@goal.command("create")
@click.option("--title", required=True, help="What is to be reached, in a line.")
@definition_options
@click.option(
    "--from-session", default="", shell_complete=complete_worker, help="The worker where it came up."
)
@click.option("--plan/--no-plan", "planned", default=True, show_default=True, help="Plan it at once.")
@click.option("--from", "file", type=_FILE, help="Take the plan from this file instead of planning.")
@json_option
@click.pass_context
def create(ctx: click.Context, /, file: Path | None, planned: bool, as_json: bool, **given: Any) -> int:
    """Make a goal, and plan it. The goal is saved even if planning fails (exit 1); with a --from that is not a valid plan, nothing is.

    \b
    Examples:
      llmc goal create --title "Import CSV files" --problem "Typed by hand"
      llmc goal create --title "Release 2.0" --from plan.md
      llmc goal create --title "Think about search" --no-plan
    """
    if file and not planned:
        raise UsageError("--from and --no-plan were given", hint="Give one of them.")
    project = project_of(ctx)

    def kept(goal: Goal) -> None:
        """A planner may take minutes, and be interrupted: which goal it is about is known before."""
        if not as_json:
            say(f"created {goal.goal_id}: {goal.title}")
        if planned and file is None:
            limit = format_duration(project.config.overseer.goals.planner.timeout)
            note(f"planning it ... (at most {limit} for each attempt)")

    made = goal_orders.create(project, given, planned=planned, file=file, kept=kept)
    warn(goal_views.troubles(project))
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
        for line in drawn(made.view):
            say(line)
    if made.planned:
        note_undriven(project, [made.view.goal])
    if made.problem and not as_json:
        note(paint("the goal is kept, but not planned: ", "red", err=True) + f"{made.problem}. {made.hint}")
    return Exit.FAILED if made.problem else Exit.DONE


@goal.command("plan")
@goal_argument
@click.option("--from", "file", type=_FILE, help="Take the plan from this file.")
@click.option("--replan", "again", is_flag=True, help="Another plan in place of the one there is.")
@click.option("--why", default="", help="With --replan: what was wrong with the last one.")
@json_option
@click.pass_context
def plan(ctx: click.Context, goal_id: str, file: Path | None, again: bool, why: str, as_json: bool) -> None:
    """Plan a goal that has no plan yet, or with --replan anew: what is done stays, and who is at work goes on.

    \b
    Examples:
      llmc goal plan goal_1f0c9a7e42 --from plan.md
      llmc goal plan goal_1f0c9a7e42 --replan --why "no server after all"

    \b
    A plan file; what follows a name is what the worker is told:
      # Import CSV files
      success: the docs say how
      ## P1: Read files
      ### T1.1: Parser
      - [ ] Read rows
        accept: a file of two rows gives two rows
        verify: make test
      - [ ] Detect the dialect
        accept: tabs and semicolons are told apart
        deps: S1.1.1
      ## P2: Show them
      deps: P1
      ### T2.1: Preview in the browser
      accept: the first ten rows are shown
    """
    project = project_of(ctx)
    if why and not again:
        raise UsageError("--why goes with --replan", hint="A first plan needs no reason.")
    if not again:
        view = goal_orders.plan(project, goal_id, file)
        print_json(goal_views.goal_tree(view)) if as_json else _draw(view)
        note_undriven(project, [view.goal])
        return
    view, revision = goal_orders.replan(project, goal_id, why, file)
    if as_json:
        print_json({**goal_views.goal_tree(view), "revision": msgspec.to_builtins(revision)})
        return
    _draw(view)
    for word in ("added", "changed", "removed"):
        if ids := getattr(revision, word):
            say(f"{word}: {', '.join(ids)}")
    for old, new in revision.moved.items():
        say(f"moved: {old} is {new} now")
    if not (revision.added or revision.changed or revision.removed or revision.moved):
        say("nothing is different")
    note_settled(project, "replan")


def _draw(view: GoalView) -> None:
    for line in drawn(view):
        say(line)


@goal.command("list")
@click.option("--all", "every", is_flag=True, help="Those that were put away too.")
@json_option
@click.pass_context
def list_(ctx: click.Context, every: bool, as_json: bool) -> None:
    """List the goals: status, how much of each is done, title.

    \b
    Example:
      llmc goal list --all
    """
    project = project_of(ctx)
    found = goal_views.goals(project)
    warn(found.troubles)
    note_undriven(project, (view.goal for view in found.views))
    shown = [view for view in found.views if every or view.goal.status != "archived"]
    if as_json:
        rows = [goal_views.summary(view) for view in shown]
        print_json({"goals": rows, "unreadable": found.troubles.unreadable})
        return
    for view in shown:
        say(goal_line(view))
    if not shown:
        say("no goals" if not found.views else "no goals but archived ones (--all)")


@goal.command("update")
@goal_argument
@click.option("--title", default=None, help="What is to be reached, in a line.")
@definition_options
@json_option
@click.pass_context
def update(ctx: click.Context, /, goal_id: str, as_json: bool, **given: Any) -> None:
    """Say something of a goal anew; what is given several times replaces the whole list.

    \b
    Example:
      llmc goal update goal_1f0c9a7e42 --priority urgent --owner ada
    """
    fields = goal_orders.changes(given)
    if not fields:
        raise UsageError("nothing was given to change", hint="`llmc goal update --help` lists what can be.")
    if not fields.get("title", "x").strip():
        raise UsageError("the goal would have no title", hint="Say what is to be reached, in a line.")
    _say(goal_orders.change(project_of(ctx), goal_id, fields), as_json)


def _mover(name: str, act: Callable[[Project, str, str], Goal], about: str, why: str) -> None:
    """pause, resume, cancel and archive differ in a word."""

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
    "Send nothing for a goal until `llmc goal resume`. What is out may come back.",
    "not tonight",
)
_mover("resume", goal_orders.resume, "Let a paused goal go on.", "the server is back")
_mover(
    "cancel",
    goal_orders.cancel,
    "Give a goal up: what is not done of it is cancelled. What landed stays.",
    "nobody wants it any more",
)
_mover(
    "archive",
    goal_orders.archive,
    "Put a completed or cancelled goal away; `llmc goal list --all` shows it.",
    "released",
)


goal_show.add_to(goal)


def _say(goal: Goal, as_json: bool) -> None:
    row = {"goalId": goal.goal_id, "status": goal.status, "title": goal.title}
    print_json(row) if as_json else say(f"{goal.goal_id}: {goal.status}")
