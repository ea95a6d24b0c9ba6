"""llmc trash"""

import time
from pathlib import Path
from typing import Any

import click

from llmc.base.errors import UsageError
from llmc.cli import help
from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, print_json, say, say_lines
from llmc.cli.workers import project_of
from llmc.config.durations import format_duration
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.workers import restore as service
from llmc.workers.restore import Entry


@click.group("trash", cls=help.Group)
def command() -> None:
    """Look at what llmc put away before it removed something, and get it back.

    \b
    Examples:
      llmc trash list
      llmc trash restore adam/20261115T101612-1a2a-reset
      llmc trash restore adam/20261115T101612-1a2a-reset --to adam
      llmc trash restore adam-20261115T101612-1a2a --to ~/adams-files
    """


@command.command("list")
@click.option("--worker", "-w", help="Of this worker only.")
@json_option
@click.pass_context
def list_(ctx: click.Context, worker: str | None, as_json: bool) -> None:
    """List pinned work and trashed directories, newest first."""
    found = [e for e in service.entries(project_of(ctx).root) if worker in (None, e.worker)]
    if as_json:
        print_json([_view(entry) for entry in found])
        return
    now = time.time()
    for entry in found:
        say(_line(entry, now))
    if not found:
        say("the trash is empty")


@command.command("show")
@click.argument("ref")
@json_option
@click.pass_context
def show(ctx: click.Context, ref: str, as_json: bool) -> None:
    """Show a trash entry."""
    project = project_of(ctx)
    entry = service.find(project.root, ref)
    text = service.describe(project, entry)
    service.seen(project, entry)
    print_json({**_view(entry), "text": text}) if as_json else say_lines(text)


@command.command("restore")
@click.argument("ref")
@click.option("--branch", "-b", help="The name of the new branch (default: llmc/restored/...).")
@click.option(
    "--to",
    "to",
    metavar="WORKER|PATH",
    help="Give pinned work to this worker, which must be idle; or copy a trashed directory to this new place.",
)
@json_option
@click.pass_context
def restore(ctx: click.Context, ref: str, branch: str | None, to: str | None, as_json: bool) -> None:
    """Make a branch of pinned work, here and in your repository; or give it to a worker; or copy a trashed directory.

    No checkout of yours is touched, and the trash keeps what it has. A name with a slash (./adam) is a path.
    """
    if branch and to:
        raise UsageError("--branch and --to were given", hint="Give one of them.")
    project = project_of(ctx)
    entry = service.find(project.root, ref)
    if to in project.store.read().workers:
        _to_worker(project, entry, str(to), as_json)
        return
    if to:
        place = service.restore_directory(entry, Path(to))
        print_json({"name": entry.name, "directory": str(place)}) if as_json else say(f"copied to {place}")
        return
    done = service.restore_branch(project, entry, branch)
    if as_json:
        body = {"branch": done.branch, "commit": done.commit, "repositories": done.repositories}
        print_json({"name": entry.name, **body})
        return
    where = done.repositories[-1]
    say(f"{done.branch} is at {done.commit[:12]} in {' and '.join(done.repositories)}")
    say(f"  look at it: git -C {where} log -p {project.config.repo.default_branch}..{done.branch}")
    if entry.directory:
        say(f"  more files: llmc trash restore {entry.name} --to PATH")


def _to_worker(project: Project, entry: Entry, name: str, as_json: bool) -> None:
    done = service.restore_to_worker(project, entry, name)
    if as_json:
        body = {"worker": name, "commit": done.commit, "status": done.status, "dirty": list(done.dirty)}
        print_json({"name": entry.name, **body})
        return
    files = f", with {len(done.dirty)} files that are not committed" if done.dirty else ""
    say(f"{name} has {entry.name} again: {done.commit[:12]}{files}; it is {done.status}")
    if entry.directory:
        say(f"  more files: llmc trash restore {entry.name} --to PATH")
    match done.status:
        case Status.OFFLINE:
            say("  next: llmc up --detach")
        case Status.NEEDS_REVIEW:
            say(f"  next: llmc review {name}")
        case _:
            say(f"  next: llmc review {name}, then llmc message {name} 'Go on with it, and commit it.'")


@command.command("prune")
@click.option(
    "--older-than", metavar="DAYS", type=click.IntRange(0), help="Days (default: [trash].keep_days)."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask; keep what may be younger than it looks.")
@json_option
@click.pass_context
def prune(ctx: click.Context, older_than: int | None, yes: bool, as_json: bool) -> None:
    """Permanently delete old trash, after asking.

    What goes is listed first. Where the clock, the event log and the files disagree about an entry's age, that is
    said; --yes keeps such an entry.
    """
    from llmc.workers import restore

    project = project_of(ctx)
    days = project.config.trash.keep_days if older_than is None else older_than
    plan = restore.plan(project, days)
    wanted = [entry for entry in plan.old if not yes or entry.name not in plan.doubts]
    kept = [entry for entry in plan.old if entry not in wanted]
    now = time.time()
    if not as_json:
        for entry in plan.old:
            say(_line(entry, now) + _doubt(plan.doubts.get(entry.name, "")))
    if plan.doubts:
        note("clocks disagree: an entry marked with ! may be younger than its name says")
    if wanted:
        many = f"{len(wanted)} {'entry' if len(wanted) == 1 else 'entries'} of the trash"
        confirm(f"Permanently delete {many}?", f"this deletes {many} for good", yes)
    gone = [entry.name for entry in restore.remove(project, wanted)]
    if as_json:
        left = {entry.name: plan.doubts[entry.name] for entry in kept}
        print_json({"removed": gone, "kept": left, "older_than_days": days})
        return
    for name in gone:
        say(f"removed {name}")
    for entry in kept:
        say(f"kept {entry.name}: {plan.doubts[entry.name]}; without --yes you are asked")
    if not plan.old:
        say(f"nothing in the trash is older than {days} days")


def _doubt(text: str) -> str:
    return f"  (! {text})" if text else ""


def _line(entry: Entry, now: float) -> str:
    age = "?" if entry.at_unix is None else format_duration(max(0.0, now - entry.at_unix))
    size = "" if entry.size_bytes is None else f"  [{_size(entry.size_bytes)} in {entry.directory}]"
    return f"{entry.name}  {age} ago  {entry.subject}{size}".rstrip()


def _view(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "worker": entry.worker,
        "at_unix": entry.at_unix,
        "why": entry.why,
        "ref": entry.ref,
        "commit": entry.commit,
        "subject": entry.subject,
        "directory": str(entry.directory) if entry.directory else None,
        "size_bytes": entry.size_bytes,
    }


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
