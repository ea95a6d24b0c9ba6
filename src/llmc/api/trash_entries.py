"""The trash: list, show, restore and delete entries."""

from pathlib import Path

from llmc.records.worker import Status as Status
from llmc.repo.project import Project
from llmc.workers import restore
from llmc.workers.restore import Entry as Entry
from llmc.workers.restore import Plan as Plan
from llmc.workers.restore import Restored as Restored
from llmc.workers.restore import RestoredToWorker as RestoredToWorker
from llmc.workers.restore import plan as plan
from llmc.workers.restore import restore_branch as restore_branch


def entries(project: Project, worker: str | None = None) -> list[Entry]:
    """The entries, newest first; of one worker, if given."""
    return [entry for entry in restore.entries(project.root) if worker in (None, entry.worker)]


def find(project: Project, ref: str) -> Entry:
    return restore.find(project.root, ref)


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
    return restore.restore_directory(entry, Path(to))


def prune(project: Project, gone: list[Entry]) -> list[str]:
    """Permanently delete entries; returns their names."""
    return [entry.name for entry in restore.remove(project, gone)]
