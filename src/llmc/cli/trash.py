"""llmc trash"""

import time
from pathlib import Path
from typing import Any

import click

from llmc.cli.output import json_option, print_json, say, say_lines
from llmc.cli.workers import project_of
from llmc.config.durations import format_duration
from llmc.errors import UsageError
from llmc.services import restore as service
from llmc.services.restore import Entry


@click.group("trash")
def command() -> None:
    """Look at what llmc put away before it removed something, and get it back.

    \b
    Examples:
      llmc trash list
      llmc trash restore adam/20261115T101612-1a2a-reset
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
        age = "?" if entry.at_unix is None else format_duration(max(0.0, now - entry.at_unix))
        size = "" if entry.size_bytes is None else f"  [{_size(entry.size_bytes)} in {entry.directory}]"
        say(f"{entry.name}  {age} ago  {entry.subject}{size}".rstrip())
    if not found:
        say("the trash is empty")


@command.command("show")
@click.argument("ref")
@json_option
@click.pass_context
def show(ctx: click.Context, ref: str, as_json: bool) -> None:
    """Show what is in one of them."""
    project = project_of(ctx)
    entry = service.find(project.root, ref)
    text = service.describe(project, entry)
    print_json({**_view(entry), "text": text}) if as_json else say_lines(text)


@command.command("restore")
@click.argument("ref")
@click.option("--branch", "-b", help="The name of the new branch (default: llmc/restored/...).")
@click.option(
    "--to", "to", type=click.Path(path_type=Path), help="Copy a trashed directory to this new place."
)
@json_option
@click.pass_context
def restore(ctx: click.Context, ref: str, branch: str | None, to: Path | None, as_json: bool) -> None:
    """Make a branch of pinned work, here and in your repository; or copy a trashed directory.

    No checkout is touched, and the trash keeps what it has.
    """
    if branch and to:
        raise UsageError("--branch and --to were given", hint="Give one of them.")
    project = project_of(ctx)
    entry = service.find(project.root, ref)
    if to:
        place = service.restore_directory(entry, to)
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


@command.command("prune")
@click.option(
    "--older-than", metavar="DAYS", type=click.IntRange(0), help="Days (default: [trash].keep_days)."
)
@json_option
@click.pass_context
def prune(ctx: click.Context, older_than: int | None, as_json: bool) -> None:
    """Let go for good of what has been in the trash for long enough."""
    from llmc.services.trash import prune as remove_old

    project = project_of(ctx)
    days = project.config.trash.keep_days if older_than is None else older_than
    before = service.entries(project.root)
    refs = remove_old(project.root, days, time.time())
    left = {entry.name for entry in service.entries(project.root)}
    gone = [entry.name for entry in before if entry.name not in left]
    if gone:
        with project.store.transaction() as tx:
            tx.emit("trash_pruned", refs=refs)
    if as_json:
        print_json({"removed": gone, "older_than_days": days})
        return
    for name in gone:
        say(f"removed {name}")
    if not gone:
        say(f"nothing in the trash is older than {days} days")


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
