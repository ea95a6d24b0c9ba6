"""llmc accept"""

import sys

import click

from llmc.base.errors import Refused, UsageError
from llmc.cli.output import ask, json_option, note, paint, print_json, say
from llmc.cli.workers import complete_worker, project_of
from llmc.landing.accept import CHANGED, Accepted, Progress, Unseen, Waiting, accept
from llmc.landing.rebase import wake_queued
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.repo.trash import short

_NOT_SEEN = "this is not the change you reviewed"
_DOING = {
    "check": "checking the source",
    "merge": "making one commit of it on the newest base",
    "validate": "validating that commit",
    "land": "landing it",
    "wait": "asking what became of it",
    "verify": "verifying that it landed",
    "reset": "giving the worker a fresh start",
}


@click.command("accept")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--yes", "-y", is_flag=True, help="Land also a change that is not the one you reviewed.")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str | None, yes: bool, as_json: bool) -> None:
    """Land a worker's work: as one commit on the newest base, validated, fast-forwarded into the source.

    \b
    Example:
      llmc accept adam

    Without a name: the worker reviewed last, else the only one that waits. A change that is not the one you reviewed is said before it
    lands; on a terminal you are asked. An accept that was interrupted goes on where it stopped: run it again.
    """
    project = project_of(ctx)
    name = worker or _candidate(project)
    project.store.worker(name)

    told: set[str] = set()

    def progress(step: str) -> None:
        if step == CHANGED and step not in told:
            note(paint(f"  {name}: {_NOT_SEEN}", "yellow", err=True))
        told.add(step)
        if not as_json and step == "validate" and not project.config.repo.validate:
            note("  no repo.validate is set: nothing is checked")
        elif not as_json and step in _DOING:
            note(f"  {_DOING[step]} ...")

    asks = not yes and not as_json and sys.stdin.isatty()
    try:
        done = _land(project, name, progress, told, asks)
    except Waiting as waits:
        if as_json:
            print_json({"worker": name, "commit": None, "waits": waits.message})
        else:
            say(f"{waits.message}; the daemon asks for it, and so does `llmc accept {name}`")
        return
    wake_queued(project)
    if as_json:
        print_json(
            {
                "worker": name,
                "commit": done.commit or None,
                "subject": done.subject,
                "reviewed": done.reviewed,
            }
        )
    if done.late:
        note(
            paint(
                f"{name} committed more while its work landed; that is kept: llmc trash restore {short(done.late)}",
                "yellow",
                err=True,
            )
        )
    if as_json:
        return
    branch = project.config.repo.default_branch
    if not done.commit:
        say(f"nothing to land: all that {name} changed is on {branch} already; {name} is idle")
        return
    say(paint(f"accepted {name}: {done.commit[:12]} on {branch}: {done.subject}", "green"))


def _land(project: Project, name: str, progress: Progress, told: set[str], asks: bool) -> Accepted:
    try:
        with project.accept_lock(name), project.worker_lock(name):
            return accept(project, name, progress, only_seen=asks)
    except Unseen:
        # Nobody waits for a lock while a person thinks.
        ask(f"{name}: {_NOT_SEEN} (llmc review {name} shows it). Land it?", abort=True)
        told.add(CHANGED)
        with project.accept_lock(name), project.worker_lock(name):
            return accept(project, name, progress)


def _candidate(project: Project) -> str:
    """The worker reviewed last, if it still waits; else the only one that does."""
    # Most often the worker is named, and the modules of all that is done with one are not needed.
    from llmc.workers.catch_up import catch_up
    from llmc.workers.start import reviewed_last

    if not project.daemon_runs():
        catch_up(str(project.root.path))
    state = project.store.read()
    last = reviewed_last(state)
    if last is not None and last.status is Status.NEEDS_REVIEW:
        return last.name
    waiting = [r.name for r in state.workers.values() if r.status is Status.NEEDS_REVIEW]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise Refused("no worker waits for review", hint="`llmc status` shows them.")
    raise UsageError(
        f"several workers wait for review: {', '.join(waiting)}",
        hint=f"Name one: llmc accept {waiting[0]}; or look first: llmc review",
    )
