"""Work that lands: `llmc accept`, `rebase`, `pick` and `undo`."""

from typing import TYPE_CHECKING

import click

from llmc.api import acceptance
from llmc.base.text import some_files
from llmc.cli.output import json_option, note, paint, print_json, say, say_lines

if TYPE_CHECKING:
    from llmc.api.acceptance import Undone
from llmc.cli.arguments import complete_worker, confirm, project_of, worker_argument
from llmc.cli.landing import land


@click.command("accept")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--yes", "-y", is_flag=True, help="Land also a change that is not the one you reviewed.")
@json_option
@click.pass_context
def accept(ctx: click.Context, worker: str | None, yes: bool, as_json: bool) -> None:
    """Land a worker's work: as one commit on the newest base, validated, fast-forwarded into the source.

    \b
    Example:
      llmc accept adam

    Without a name: the worker reviewed last, else the only one that waits. A change that is not the one you reviewed is said before it
    lands; on a terminal you are asked. An accept that was interrupted goes on where it stopped: run it again.
    """
    project = project_of(ctx)
    name = worker or acceptance.next_to_accept(project)
    land(project, name, yes=yes, as_json=as_json)


@click.command("rebase")
@worker_argument
@json_option
@click.pass_context
def rebase(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Put a worker's commits onto the newest base, and validate them there.

    \b
    Example:
      llmc rebase adam

    Conflicts go to the worker: it is told about them, resolves them, and is needs_review again.
    """
    project = project_of(ctx)
    done = acceptance.rebase(project, worker)
    if as_json:
        result = "clean" if done.moved else "up_to_date"
        print_json({"worker": worker, "result": result, "commit": done.head, "base": done.base})
        return
    branch = project.config.repo.default_branch
    if done.moved:
        say(paint(f"rebased {worker} onto {branch} {done.base[:12]}: {done.head[:12]}", "green"))
    else:
        say(f"{worker} is up to date with {branch}")


@click.command("pick")
@worker_argument
@click.option("--branch", metavar="NAME", help="The branch to make (default: llmc-pick/WORKER).")
@json_option
@click.pass_context
def pick(ctx: click.Context, worker: str, branch: str | None, as_json: bool) -> None:
    """Put a worker's commits, rebased onto the default branch, into the source as a new branch.

    \b
    Examples:
      llmc pick adam
      llmc pick adam --branch try-this

    The default branch, every checkout and the worker stay as they are. To land the work, use accept.
    """
    project = project_of(ctx)
    done = acceptance.pick(project, worker, branch or f"llmc-pick/{worker}")
    if as_json:
        print_json(
            {
                "worker": worker,
                "branch": done.branch,
                "commit": done.commit,
                "base": done.base,
                "commits": done.commits,
                "dirty": list(done.dirty),
            }
        )
        return
    many = "1 commit" if done.commits == 1 else f"{done.commits} commits"
    say(paint(f"picked {many} of {worker}: {done.branch} is at {done.commit[:12]}", "green"))
    if done.dirty:
        note(f"not in it, since nobody committed it: {some_files(done.dirty)}")


@click.command("undo")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def undo(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """Take the newest accept back: one revert commit, validated and landed like an accept.

    The task it was for is pending again, or the part of the goal open. An undo that was interrupted goes on.

    \b
    Example:
      llmc undo
    """
    project = project_of(ctx)
    what = acceptance.undo_target(project)
    which = f"{what.commit[:12]} of {what.worker}"
    if what.begun:
        note(f"an undo of {which} was interrupted, and goes on")
    else:
        confirm(f"Revert {which}?", f"this reverts {which}", yes)
    done = acceptance.undo(project, what)
    if as_json:
        print_json(_undone_json(done))
        return
    said = f"undone: {done.commit[:12]} ({done.subject}) is reverted by {done.revert[:12]}"
    say(paint("; ".join(filter(None, (said, done.returned))), "green"))
    if done.prompt and not done.returned:
        note("its task, to start it again:")
        say_lines(done.prompt, err=True)


def _undone_json(done: "Undone") -> dict[str, str]:
    return {
        "worker": done.worker,
        "commit": done.commit,
        "revert": done.revert,
        "prompt": done.prompt,
        "returned": done.returned,
    }
