"""llmc undo"""

import click

from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, paint, print_json, say, say_lines
from llmc.cli.workers import project_of
from llmc.goals.work import open_again
from llmc.landing.rebase import wake_queued
from llmc.landing.undo import Undone, target, undo


@click.command("undo")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """Take the newest accept back: one revert commit, validated and landed like an accept.

    The task it was for is pending again, or the part of the goal open. An undo that was interrupted goes on.

    \b
    Example:
      llmc undo
    """
    project = project_of(ctx)
    what = target(project)
    which = f"{what.commit[:12]} of {what.worker}"
    if what.begun:
        note(f"an undo of {which} was interrupted, and goes on")
    else:
        confirm(f"Revert {which}?", f"this reverts {which}", yes)
    done = undo(project, what.commit, open_again)
    wake_queued(project)
    if as_json:
        print_json(_as_json(done))
        return
    said = f"undone: {done.commit[:12]} ({done.subject}) is reverted by {done.revert[:12]}"
    say(paint("; ".join(filter(None, (said, done.returned))), "green"))
    if done.prompt and not done.returned:
        note("its task, to start it again:")
        say_lines(done.prompt, err=True)


def _as_json(done: Undone) -> dict[str, str]:
    return {
        "worker": done.worker,
        "commit": done.commit,
        "revert": done.revert,
        "prompt": done.prompt,
        "returned": done.returned,
    }
