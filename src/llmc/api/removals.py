"""Discarding work: reset and remove workers; list, show, restore and delete trash entries."""

from pathlib import Path

from llmc.base.errors import ToolFailed
from llmc.repo import git
from llmc.repo.project import Project
from llmc.repo.trash import short as short
from llmc.workers import nuke, reset, restore
from llmc.workers.nuke import Removed
from llmc.workers.reset import Reset
from llmc.workers.restore import Entry as Entry
from llmc.workers.restore import RestoredToWorker as RestoredToWorker
from llmc.workers.restore import plan as plan
from llmc.workers.restore import restore_branch as restore_branch


def reset_to_idle(project: Project, name: str) -> Reset:
    """Reset a worker to idle; its work goes to the trash."""
    with project.worker_lock(name):
        return reset.reset_worker(project, name)


def remove(project: Project, name: str) -> Removed:
    """Remove a worker; everything goes to the trash."""
    with project.worker_lock(name):
        done = nuke.nuke_worker(project, name)
    project.wake()
    return done


def entries(project: Project, worker: str | None = None, *, sizes: bool = True) -> list[Entry]:
    """The entries, newest first; of one worker, if given."""
    found = restore.entries(project, sizes=sizes)
    return [entry for entry in found if worker in (None, entry.worker)]


def find(project: Project, ref: str) -> Entry:
    return restore.find(project, ref)


def has_commits(project: Project, ref: str) -> bool:
    """Whether a trash ref has commits, or uncommitted changes, that the default branch does not have."""
    try:
        return not git.is_ancestor(project.root.path, ref, project.base)
    except ToolFailed:
        return True  # the clone lost its default branch, so the commits may be nowhere else


def show(project: Project, ref: str) -> tuple[Entry, str]:
    """An entry and its contents; marks it as seen."""
    entry = find(project, ref)
    text = restore.describe(project, entry)
    restore.seen(project, entry)
    return entry, text


def restore_to(project: Project, entry: Entry, to: str) -> RestoredToWorker | Path:
    """Restore the work to the worker of that name, else copy a trashed directory to that path."""
    if to in project.store.read().workers:
        return restore.restore_to_worker(project, entry, to)
    if not entry.directory and "/" not in to:
        project.store.worker(to)  # there is nothing to copy, so it is a mistyped name
    return restore.restore_directory(entry, Path(to))


def prune(project: Project, gone: list[Entry]) -> list[str]:
    """Permanently delete entries; returns their names."""
    return [entry.name for entry in restore.remove(project, gone)]
