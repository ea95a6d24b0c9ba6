"""Plan items: `llmc work`."""

from collections.abc import Callable
from typing import Any

import click

from llmc.api import goal_orders
from llmc.api.goal_orders import Node, NodeStatus, Recovery
from llmc.base.errors import UsageError
from llmc.cli.arguments import (
    Group,
    project_of,
)
from llmc.cli.goal_show import complete_goal, complete_node, note_settled
from llmc.cli.output import json_option, print_json, say
from llmc.config.durations import format_duration, parse_duration

#: stands for the value from the configuration
DEFAULT = "default"
_STATUSES = click.Choice([status.value for status in NodeStatus])


@click.group("work", cls=Group)
def work() -> None:
    """Set the status of a plan item

    A plan item is a phase, task or subtask of a goal's plan.

    \b
    Examples:
      llmc work done S1.2.3 --goal goal_1f0c9a7e42 --commit 1a2b3c4
      llmc work block T2.1 --reason "needs the new server"
      llmc work unblock T2.1
    """


def node_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the plan item argument, --goal for an ID that several goals have, and --json."""
    goal = click.option(
        "--goal",
        "goal_id",
        default="",
        shell_complete=complete_goal,
        help="Goal that the plan item belongs to",
    )
    node = click.argument("node_id", metavar="ID", shell_complete=complete_node)
    return node(goal(json_option(click.pass_context(function))))


def reason_option(*, required: bool) -> Callable[..., Any]:
    about = "Reason to record in the goal's event log"
    if required:
        return click.option("--reason", required=True, help=about)
    return click.option("--reason", default="", help=about)


@work.command("done")
@click.option("--summary", default="", help="Summary of the result")
@click.option("--commit", "commits", multiple=True, help="Commit that contains the work (repeatable)")
@node_options
def done(ctx: click.Context, /, node_id: str, as_json: bool, **given: Any) -> None:
    """Mark a plan item as done

    Also updates the status of its parents.

    \b
    Example:
      llmc work done S1.2.3 --summary "did it by hand" --commit 1a2b3c4
    """
    _act(ctx, goal_orders.done, node_id, as_json, **given)


@work.command("block")
@reason_option(required=True)
@click.option("--kind", default="human", show_default=True, help="Kind of blocker, in one word")
@node_options
def block(ctx: click.Context, /, node_id: str, as_json: bool, **given: Any) -> None:
    """Mark a plan item as blocked

    llmc does not assign the plan item until you run `llmc work unblock`.

    \b
    Example:
      llmc work block T2.1 --reason "needs the new server"
    """
    _act(ctx, goal_orders.block, node_id, as_json, **given)


@work.command("unblock")
@reason_option(required=False)
@node_options
def unblock(ctx: click.Context, /, node_id: str, as_json: bool, **given: Any) -> None:
    """Unblock a plan item

    Sends the reason to the worker.

    \b
    Example:
      llmc work unblock T2.1 --reason "the server is up"
    """
    _act(ctx, goal_orders.unblock, node_id, as_json, **given)


@work.command("reopen")
@reason_option(required=True)
@node_options
def reopen(ctx: click.Context, /, node_id: str, as_json: bool, **given: Any) -> None:
    """Reopen a finished plan item

    Also reopens its parents.

    \b
    Example:
      llmc work reopen S1.2.3 --reason "the import fails on empty files"
    """
    _act(ctx, goal_orders.reopen, node_id, as_json, **given)


@work.command("recovery")
@click.option(
    "--first-step",
    type=click.Choice([*(step.value for step in Recovery), DEFAULT]),
    help="First step to take when the work stalls; later steps follow in order",
)
@click.option(
    "--idle-after",
    metavar="TIME",
    help=f"Time without activity before the work counts as stalled, such as 45m; `{DEFAULT}` for the configured value",
)
@node_options
def recovery(
    ctx: click.Context,
    /,
    node_id: str,
    as_json: bool,
    goal_id: str,
    first_step: str | None,
    idle_after: str | None,
) -> None:
    """Set the idle limit and first recovery step for a plan item

    \b
    Examples:
      llmc work recovery S1.2.3 --idle-after 2h
      llmc work recovery S1.2.3 --first-step escalate
      llmc work recovery S1.2.3 --first-step default --idle-after default
    """
    if first_step is None and idle_after is None:
        raise UsageError(
            "pass --first-step or --idle-after", hint="Run `llmc work recovery --help` for examples."
        )
    project = project_of(ctx)
    node = goal_orders.set_recovery(
        project,
        node_id,
        goal_id,
        recovery="" if first_step == DEFAULT else first_step,
        idle_after_s=_seconds(idle_after),
    )
    row = {"goalId": node.goal_id, "workNodeId": node.node_id}
    if as_json:
        print_json({**row, "recoveryPolicy": node.recovery_policy, "idleAfterMs": node.idle_after_ms})
        return
    limit = format_duration(node.idle_after_ms / 1000) if node.idle_after_ms else DEFAULT
    say(f"{node.node_id}: first recovery step {node.recovery_policy or 'nudge'}, idle limit {limit}")


def _seconds(text: str | None) -> float | None:
    if text is None or text == DEFAULT:
        return None if text is None else 0.0
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--idle-after: {error}", hint="Use a duration such as 45m or 2h.") from error
    if seconds < 1:
        raise UsageError("--idle-after must be at least 1 second", hint="Use a duration such as 45m or 2h.")
    return seconds


@work.command("override")
@click.option("--status", type=_STATUSES, default=None, help="Status to set")
@click.option(
    "--clear", is_flag=True, help="Remove the override; the status follows the item's children again"
)
@reason_option(required=True)
@node_options
def override(
    ctx: click.Context, /, node_id: str, as_json: bool, status: str | None, clear: bool, **given: Any
) -> None:
    """Override the status of a plan item

    The override stays in effect until you use --clear, regardless of the item's children.

    \b
    Examples:
      llmc work override T2.1 --status done --reason "the rest is not worth it"
      llmc work override T2.1 --clear --reason "the rest is needed after all"
    """
    if (status is None) == (not clear):
        raise UsageError(
            "pass exactly one of --status and --clear", hint="Run `llmc work override --help` for examples."
        )
    if status is None:
        _act(ctx, goal_orders.follow_again, node_id, as_json, **given)
    else:
        _act(ctx, goal_orders.override, node_id, as_json, status=status, **given)


def _act(ctx: click.Context, act: Callable[..., Node], node_id: str, as_json: bool, **given: Any) -> None:
    """Change a plan item, print its status, and update its worker."""
    project = project_of(ctx)
    node = act(project, node_id, **given)
    mark = " (overridden)" if node.overridden else ""
    row = {"goalId": node.goal_id, "workNodeId": node.node_id, "status": node.status}
    print_json({**row, "overridden": node.overridden}) if as_json else say(
        f"{node.node_id}: {node.status}{mark}"
    )
    note_settled(project, f"work {node.node_id} {node.status}")
