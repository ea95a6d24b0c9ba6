"""`llmc overseer`: the supervisor; and beside it what is to be seen and said of all goals."""

import contextlib

import click

from llmc.cli import goal as goals
from llmc.cli import goal_verbs, plan_items
from llmc.cli.arguments import Group, project_of
from llmc.cli.output import paint, say


@click.group("overseer", cls=Group, invoke_without_command=True)
@click.pass_context
def overseer(ctx: click.Context) -> int | None:
    """Keep `llmc up --auto` alive: start it, watch it, let an agent mend what ended it, start it again.

    It runs in the foreground. Ctrl-C ends the daemon in order, then the supervisor; Ctrl-C again ends it at once.

    \b
    Example:
      llmc config set overseer.remediation_prompt "Read the logs, fix the cause."
      llmc overseer

    Exit codes: 10 when the daemon fails again too soon after a remediation, 11 when a remediation asks for a person,
    12 when only a person can mend the cause. `llmc status` shows it while it runs.

    The commands below are about goals, and start nothing: `llmc goal`, `llmc inbox` and `llmc answer` are the shorter forms.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from llmc.api import running  # the commands below need nothing of it

    return running.supervise(project_of(ctx), show)


def show(text: str, style: str) -> None:
    """A line for whoever watches; nobody may be there any more."""
    with contextlib.suppress(OSError, ValueError):
        say(paint(text, style) if style else text)


for _one in (
    *(goals.goal, plan_items.work),
    *(goal_verbs.status, goal_verbs.inbox, goal_verbs.answer, *goal_verbs.VERBS),
):
    overseer.add_command(_one)
