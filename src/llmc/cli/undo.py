"""llmc undo"""

import click

from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, paint, print_json, say, say_lines
from llmc.cli.workers import project_of
from llmc.services.rebase import wake_queued
from llmc.services.undo import last_accept, undo


@click.command("undo")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """Take the newest accept back: one revert commit, validated and landed like an accept.

    \b
    Example:
      llmc undo
    """
    project = project_of(ctx)
    worker, commit, _ = last_accept(project)
    confirm(f"Revert {commit[:12]} of {worker}?", f"this reverts {commit[:12]} of {worker}", yes)
    done = undo(project)
    wake_queued(project)
    if as_json:
        print_json(
            {"worker": done.worker, "commit": done.commit, "revert": done.revert, "prompt": done.prompt}
        )
        return
    say(paint(f"undone: {done.commit[:12]} ({done.subject}) is reverted by {done.revert[:12]}", "green"))
    if done.prompt:
        note("its task, to start it again:")
        say_lines(done.prompt, err=True)
