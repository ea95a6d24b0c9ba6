"""`llmc overseer`: the supervisor, and the older names of the goal commands."""

import contextlib

import click

from llmc.cli import goal as goals
from llmc.cli import goal_verbs, plan_items
from llmc.cli.arguments import Group, project_of
from llmc.cli.output import paint, say


@click.group("overseer", cls=Group, invoke_without_command=True)
@click.pass_context
def overseer(ctx: click.Context) -> int | None:
    """Keep auto mode running and manage goals

    Without a command, runs the supervisor in the foreground. The supervisor starts the daemon in auto mode and watches
    it. If the daemon fails, the supervisor has an agent fix the cause and then restarts the daemon. Ctrl-C stops the
    daemon, then the supervisor; a second Ctrl-C kills the daemon.

    \b
    Example:
      llmc config set overseer.remediation_prompt "Find the cause and fix it."
      llmc overseer

    Exit codes: 10 if the daemon fails again too soon after a fix, 11 if the agent asks for your help, 12 if you must fix
    the cause yourself. `llmc status` shows the supervisor while it runs.

    The commands below manage goals and do not start the supervisor. Some have a
    short form: `llmc goal` is the same as `llmc overseer goal`.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from llmc.api import running  # slow to import

    return running.supervise(project_of(ctx), show)


def show(text: str, style: str = "") -> None:
    """Print a line; the terminal may be gone."""
    with contextlib.suppress(OSError, ValueError):
        say(paint(text, style))


for _one in (
    *(goals.goal, plan_items.work),
    *(goal_verbs.status, goal_verbs.inbox, goal_verbs.answer, *goal_verbs.VERBS),
):
    overseer.add_command(_one)
