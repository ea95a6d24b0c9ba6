"""`llmc reset`, `nuke` and `trash`."""

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from llmc.api import removals, roots
from llmc.api.removals import Entry, RestoredToWorker
from llmc.api.roots import Project
from llmc.base.errors import Exit, UsageError
from llmc.base.text import cells, counted, padded
from llmc.cli.arguments import (
    OPTIONAL,
    REQUIRED,
    WORKER,
    Group,
    Row,
    complete_with,
    confirm,
    on_each,
    optional_worker,
    pass_project,
    project_of,
    yes_option,
)
from llmc.cli.output import json_option, note, paint, plain, print_json, say, say_lines, say_or_json
from llmc.config.durations import format_duration


@click.command("reset")
@optional_worker
@click.option("--all", "every", is_flag=True, help="Reset every worker")
@click.option("--yes", "-y", is_flag=True, help=f"With --all, do not ask for confirmation {OPTIONAL}")
@json_option
@pass_project
def reset(project: Project, worker: str | None, every: bool, yes: bool, as_json: bool) -> int:
    """Reset a worker to idle; its work goes to the trash

    Interrupts the worker and resets its worktree to the latest default branch. Commits, uncommitted changes
    and untracked files go to the trash; the output shows how to restore them.

    \b
    Example:
      llmc reset adam
    """
    names = roots.chosen_workers(project, worker, every)
    if every and names:
        confirm(f"Reset {', '.join(names)}?", None, yes)  # the trash keeps everything

    def reset_one(name: str) -> Row:
        done = removals.reset_to_idle(project, name)
        row = plain(done, "worker", "status", "base")
        return {**row, "ref": done.pinned, "restarted": done.restarted, "error": done.problem}

    return _for_workers(names, every, reset_one, _say_reset, as_json)


def _say_reset(row: Row) -> None:
    if "status" in row:
        say(f"reset {row['worker']}: {row['status']} at {row['base'][:12]}")
    if row.get("ref"):
        say(f"  its work is in the trash; to restore it: llmc trash restore {removals.short(row['ref'])}")


@click.command("nuke")
@optional_worker
@click.option("--all", "every", is_flag=True, help="Remove every worker")
@yes_option
@json_option
@pass_project
def nuke(project: Project, worker: str | None, every: bool, yes: bool, as_json: bool) -> int:
    """Remove a worker and move its work to the trash

    Removes the worker's agent, worktree, branch and configuration.

    \b
    Example:
      llmc nuke adam --yes
    """
    names = roots.chosen_workers(project, worker, every)
    if names:
        confirm(f"Remove {', '.join(names)}?", f"this would remove {', '.join(names)}", yes)

    def remove_one(name: str) -> Row:
        return {**plain(removals.remove(project, name)), "error": ""}

    def say_removed(row: Row) -> None:
        _say_removed(row, has_commits=bool(row["ref"]) and removals.has_commits(project, row["ref"]))

    return _for_workers(
        names, every, remove_one, say_removed, as_json, ref=None, directory=None, problem=None
    )


def _say_removed(row: Row, *, has_commits: bool) -> None:
    if not row["error"]:
        say(f"removed {row['worker']}")
    if row["directory"]:
        say(f"  its files are in {row['directory']}")
    if row["problem"] and row["directory"]:
        say(
            "  its uncommitted changes are only there, with git's own files in .llmc-git, because git cannot read them:"
        )
        say(f"    {row['problem'].splitlines()[0]}")
    if has_commits:
        what = "commits" if row["problem"] else "commits and changes"
        say(f"  to restore its {what}: llmc trash restore {removals.short(row['ref'])}")


def _for_workers(
    names: list[str],
    every: bool,
    act: Callable[[str], Row],
    say_row: Callable[[Row], None],
    as_json: bool,
    **failed: None,
) -> int:
    """Act on each worker, and print what was done. With --all, a failure does not stop the others."""
    rows = list(on_each(names, act, lambda name: {"worker": name, **failed}, alone=not every))
    if as_json:
        print_json({"workers": rows} if every else rows[0])
    for row in [] if as_json else rows:
        say_row(row)
        if row["error"]:
            note(paint(f"{row['worker']}: {row['error']}. {row.get('hint', '')}".rstrip(), "red", err=True))
    return Exit.FAILED if any(row["error"] for row in rows) else Exit.DONE


@click.group("trash", cls=Group)
def trash() -> None:
    """List and restore discarded work

    \b
    Examples:
      llmc trash list
      llmc trash restore adam/20261115T101612-1a2a-reset
      llmc trash restore adam/20261115T101612-1a2a-reset --to adam
      llmc trash restore adam-20261115T101612-1a2a --to ~/adams-files
    """


_entry = click.argument(
    "ref",
    shell_complete=complete_with(
        lambda project: {entry.name: entry.work for entry in removals.entries(project, sizes=False)}
    ),
)


@trash.command("list")
@click.option("--worker", "-w", shell_complete=WORKER.shell_complete, help="Show only this worker's entries")
@json_option
@pass_project
def list_(project: Project, worker: str | None, as_json: bool) -> None:
    """List trash entries, newest first"""
    found = removals.entries(project, worker)
    if as_json:
        print_json([_view(entry) for entry in found])
        return
    for line in _lines(found, time.time()):
        say(line)
    if not found:
        say("the trash is empty")


@trash.command("show")
@_entry
@json_option
@pass_project
def show(project: Project, ref: str, as_json: bool) -> None:
    """Show a trash entry"""
    entry, text = removals.show(project, ref)
    print_json({**_view(entry), "text": text}) if as_json else say_lines(text)


@trash.command("restore")
@_entry
@click.option("--branch", "-b", help="Name of the new branch [default: llmc/restored/...]")
@click.option(
    "--to",
    "to",
    metavar="WORKER|PATH",
    shell_complete=WORKER.shell_complete,
    help="Restore the work to this idle worker, or copy the trashed directory to this new path",
)
@json_option
@click.pass_context
def restore(ctx: click.Context, ref: str, branch: str | None, to: str | None, as_json: bool) -> None:
    """Restore a trash entry as a branch or a directory

    Creates the branch in the root and in the source repository without changing any checkout. The entry stays in the
    trash. A --to value with a slash, such as ./adam, is a path. With --to WORKER, the worker gets the task too, and staged
    changes are restored unstaged.
    """
    if branch and to:
        raise UsageError("--branch and --to cannot be used together")
    project = project_of(ctx)
    entry = removals.find(project, ref)
    if to:
        _show_restored(entry, to, removals.restore_to(project, entry, to), as_json)
        return
    done = removals.restore_branch(project, entry, branch)
    if as_json:
        print_json({"name": entry.name, **plain(done)})
        return
    where = done.repositories[-1]
    say(f"{done.branch} is at {done.commit[:12]} in {' and '.join(done.repositories)}")
    commits = f"{project.config.repo.default_branch}..{done.branch}"
    # -m: uncommitted files are in a merge commit, which `log -p` alone skips
    say(f"  to see the work: git -C {shlex.quote(where)} log -p -m {shlex.quote(commits)}")
    if entry.directory:
        say(f"  to copy the trashed directory: llmc trash restore {entry.name} --to PATH")


def _show_restored(entry: Entry, name: str, done: RestoredToWorker | Path, as_json: bool) -> None:
    if isinstance(done, Path):
        say_or_json(f"copied to {done}", {"name": entry.name, "directory": str(done)}, as_json)
        return
    if as_json:
        print_json({"name": entry.name, **plain(done)})
        return
    files = f", with {counted(len(done.dirty), 'uncommitted file')}" if done.dirty else ""
    say(f"restored {entry.name} to {name}: {done.commit[:12]}{files}; {name} is {done.status}")
    if entry.directory:
        say(f"  to copy the trashed directory: llmc trash restore {entry.name} --to PATH")
    match done.status:
        case "offline":
            say("  next: llmc up --detach")
        case "needs_review":
            say(f"  next: llmc review {name}")
        case _:
            say(f"  next: llmc review {name}, then llmc message {name} 'Continue this work and commit it.'")


@trash.command("prune")
@click.option(
    "--older-than",
    metavar="DAYS",
    type=click.IntRange(0),
    help="Delete only entries older than this many days [default: trash.keep_days]",
)
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help=f"Do not ask for confirmation {REQUIRED}; keep entries whose age is uncertain",
)
@json_option
@pass_project
def prune(project: Project, older_than: int | None, yes: bool, as_json: bool) -> None:
    """Permanently delete old trash entries

    Lists the entries and asks for confirmation. Marks an entry with ! if the clock, the event log and the files
    disagree about its age; --yes keeps such entries.
    """
    days = project.config.trash.keep_days if older_than is None else older_than
    plan = removals.plan(project, days)
    wanted = [entry for entry in plan.old if not yes or entry.name not in plan.doubts]
    kept = [entry for entry in plan.old if entry not in wanted]
    now = time.time()
    if not as_json:
        for entry, line in zip(plan.old, _lines(plan.old, now), strict=True):
            doubt = f"  (! {plan.doubts[entry.name]})" if entry.name in plan.doubts else ""
            say(line + doubt)
    if plan.doubts:
        note("entries marked with ! may be newer than their names suggest")
    if wanted:
        many = f"{len(wanted)} trash {'entry' if len(wanted) == 1 else 'entries'}"
        confirm(f"Permanently delete {many}?", f"this would permanently delete {many}", yes)
    gone = removals.prune(project, wanted)
    if as_json:
        left = {entry.name: plan.doubts[entry.name] for entry in kept}
        print_json({"removed": gone, "kept": left, "older_than_days": days})
        return
    for name in gone:
        say(f"deleted {name}")
    for entry in kept:
        say(
            f"kept {entry.name}: {plan.doubts[entry.name]}; to delete it, run `llmc trash prune` without --yes"
        )
    if not plan.old:
        say(f"nothing in the trash is older than {counted(days, 'day')}")


def _lines(entries: Sequence[Entry], now: float) -> list[str]:
    """A row for each entry, in columns."""
    names, ages = [entry.name for entry in entries], [_age(entry, now) for entry in entries]
    room = [max(map(cells, column), default=0) for column in (names, ages)]
    return [
        f"{padded(name, room[0])}  {padded(age, room[1])}  {_about(entry)}{_files(entry)}".rstrip()
        for name, age, entry in zip(names, ages, entries, strict=True)
    ]


def _age(entry: Entry, now: float) -> str:
    return "age unknown" if entry.at_unix is None else f"{format_duration(max(0.0, now - entry.at_unix))} ago"


def _about(entry: Entry) -> str:
    """What is in a pinned commit; "" for a directory alone."""
    if entry.without_commits:
        return "no commits of its own"
    if not entry.has_uncommitted:
        return entry.work
    return f"{entry.work} (with uncommitted changes)" if entry.work else "uncommitted changes"


def _files(entry: Entry) -> str:
    return "" if entry.size_bytes is None else f"  [{_size(entry.size_bytes)} in {entry.directory}]"


def _view(entry: Entry) -> Row:
    about = ("name", "worker", "at_unix", "why", "ref", "commit", "subject", "directory", "size_bytes")
    return plain(entry, *about)


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
