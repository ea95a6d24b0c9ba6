"""llmc overseer"""

import contextlib

import click

from llmc.cli import overseer_goals
from llmc.cli.arguments import Group, project_of
from llmc.cli.output import paint, say
from llmc.notifications.notify import notify
from llmc.supervisor import remediation
from llmc.supervisor.supervisor import Supervisor


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

    The commands below are about goals (`llmc goal`, `llmc work`), and start nothing.
    """
    if ctx.invoked_subcommand is not None:
        return None
    return Supervisor(project_of(ctx), _Agent(), notify, show).run()


overseer_goals.add_to(overseer)


class _Agent:
    """Who mends: the supervisor's own agent, in a session of its own."""

    remediate = staticmethod(remediation.remediate)
    open_session = staticmethod(remediation.open_session)
    close_session = staticmethod(remediation.close_session)


def show(text: str, style: str) -> None:
    """A line for whoever watches; nobody may be there any more."""
    with contextlib.suppress(OSError, ValueError):
        say(paint(text, style) if style else text)
