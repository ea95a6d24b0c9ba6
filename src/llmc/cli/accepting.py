"""Landing work: `llmc accept`, `rebase`, `pick` and `undo`."""

import click

from llmc.api import acceptance, roots
from llmc.api.roots import Project
from llmc.base.text import counted, some_files
from llmc.cli.accept_work import land
from llmc.cli.arguments import (
    OPTIONAL,
    confirm,
    optional_worker,
    pass_project,
    worker_argument,
    yes_option,
)
from llmc.cli.elapsed import Elapsed
from llmc.cli.output import (
    json_option,
    note,
    paint,
    plain,
    print_json,
    say,
    say_lines,
    say_or_json,
    warn,
)


@click.command("accept")
@optional_worker
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help=f"Do not ask for confirmation if the change differs from the one you reviewed {OPTIONAL}",
)
@json_option
@pass_project
def accept(project: Project, worker: str | None, yes: bool, as_json: bool) -> None:
    """Land a worker's changes on the default branch

    Squashes the worker's commits into one commit on the latest default branch, runs repo.validate on it, and
    fast-forwards the source repository. The worker is then reset to idle.

    Without WORKER, lands the changes from the worker you reviewed last, or from the only worker waiting for review. If the
    change differs from the one you reviewed, accept prints a warning and, on a terminal and without --json, asks for
    confirmation.

    Nothing lands if validation fails or the source repository has uncommitted changes. On conflicts, llmc asks the worker
    to resolve them; run accept again when the worker's status is needs_review.

    If accept is interrupted, run it again to resume.

    \b
    Examples:
      llmc accept adam
      llmc review adam && llmc accept adam
    """
    name = worker or acceptance.next_to_accept(project)
    land(project, name, yes=yes, as_json=as_json)


@click.command("rebase")
@worker_argument
@json_option
@pass_project
def rebase(project: Project, worker: str, as_json: bool) -> None:
    """Rebase a worker onto the latest default branch

    Also validates the result. On conflicts, llmc asks the worker to resolve them; when it is done, its
    status returns to needs_review.

    \b
    Example:
      llmc rebase adam
    """
    with Elapsed(f"rebasing {worker}"):
        done = acceptance.rebase(project, worker)
    branch = project.config.repo.default_branch
    result, text = "up_to_date", f"{worker} is up to date with {branch}"
    if done.moved:
        text = paint(f"rebased {worker} onto {branch} {done.base[:12]}: {done.head[:12]}", "green")
        result = "clean"
    say_or_json(text, {"worker": worker, "result": result, "commit": done.head, "base": done.base}, as_json)


@click.command("pick")
@worker_argument
@click.option("--branch", metavar="NAME", help="Name of the new branch [default: llmc-pick/WORKER]")
@json_option
@pass_project
def pick(project: Project, worker: str, branch: str | None, as_json: bool) -> None:
    """Copy a worker's commits to a branch in the source repository

    Creates a new branch with the commits rebased onto the default branch. Does not change the default branch, any
    checkout or the worker. To land the work, use `llmc accept`.

    \b
    Examples:
      llmc pick adam
      llmc pick adam --branch try-this
    """
    done = acceptance.pick(project, worker, branch or f"llmc-pick/{worker}")
    if as_json:
        print_json(plain(done))
        return
    many = counted(done.commits, "commit")
    say(paint(f"picked {many} from {worker}: {done.branch} is at {done.commit[:12]}", "green"))
    if done.dirty:
        warn(f"uncommitted files were not included: {some_files(done.dirty)}")


@click.command("undo")
@yes_option
@json_option
@pass_project
def undo(project: Project, yes: bool, as_json: bool) -> None:
    """Revert the most recently landed change

    Validates and lands a revert commit, and reopens the task or plan item. If undo is interrupted, run it again to
    resume.

    \b
    Example:
      llmc undo
    """
    what = acceptance.undo_target(project)
    which = f"{what.commit[:12]} from {what.worker}"
    if what.begun:
        note(f"resuming the undo of {which}")
    else:
        if roots.auto_runs(project):
            note("auto mode is running and will do the task again; to prevent that, run `llmc down` first")
        confirm(f"Revert {which}?", f"this would revert {which}", yes)
    with Elapsed(f"reverting {what.commit[:12]}"):
        done = acceptance.undo(project, what)
    if as_json:
        print_json(plain(done, "worker", "commit", "revert", "prompt", "returned"))
        return
    said = f"reverted {done.commit[:12]} ({done.subject}) with {done.revert[:12]}"
    say(paint("; ".join(filter(None, (said, done.returned))), "green"))
    if done.prompt and not done.returned:
        note("to start the task again, use this prompt:")
        say_lines(done.prompt, err=True)
