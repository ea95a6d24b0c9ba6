"""What has been in the trash for long enough goes for good: by itself when clocks agree, by hand after a yes."""

import os
import shutil
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from llmc.base.clock import age_s, now_unix
from llmc.base.files import explain, json_row, write_atomic
from llmc.config.durations import format_duration
from llmc.config.paths import Root
from llmc.records.events import read_lines
from llmc.repo import git
from llmc.repo.project import Project
from llmc.repo.rules.trash_age import DAY_S, Book, accounted_for, expired, look
from llmc.repo.trash import late_key
from llmc.workers.restore import Entry, entries


class Plan(Struct, frozen=True):
    """What `llmc trash prune` would remove."""

    old: tuple[Entry, ...]
    #: by name: why an entry may be younger than its name says
    doubts: dict[str, str]


def prune_by_itself(project: Project, ran_s: float | None) -> list[Entry]:
    """A look at the trash by the daemon, and what went; nothing goes at its first look (`ran_s` is None)."""
    root, now = project.root, now_unix()
    here = {entry.name: entry for entry in entries(root, sizes=False) if entry.at_unix is not None}
    ages = {name: _age_by_clock(root, entry, now) for name, entry in here.items()}
    keep_s = project.config.trash.keep_days * DAY_S
    book = look(_read(root), ages, now=now, ran_s=ran_s, keep_s=keep_s)
    gone = [here[name] for name in expired(book)] if ran_s is not None else []
    write_atomic(root.trash_ages, msgspec.json.encode(book))
    return remove(project, gone)


def plan(project: Project, days: int) -> Plan:
    """What is older than so many days by its name; with 0 days no clock matters."""
    root, now = project.root, now_unix()
    limit_s = days * DAY_S
    old = [e for e in entries(root) if e.at_unix is not None and age_s(e.at_unix, now) >= limit_s]
    doubts: dict[str, str] = {}
    if days and old:
        seen_s = accounted_for(_events(root), now)
        for entry in old:
            files_s, log_s = _age_by_clock(root, entry, now), seen_s.get(entry.ref or "")
            if files_s < limit_s:
                doubts[entry.name] = f"its files are {format_duration(files_s)} old"
            elif log_s is None:
                doubts[entry.name] = "the event log does not know it"
            elif log_s < limit_s:
                doubts[entry.name] = f"the event log accounts for {format_duration(log_s)} since then"
    return Plan(tuple(old), doubts)


def remove(project: Project, gone: Iterable[Entry]) -> list[Entry]:
    """Let go of these for good; those that are gone now."""
    removed = []
    for entry in gone:
        try:
            _remove(project.root, entry)
        except OSError as error:
            raise explain(error, f"cannot remove {entry.name}") from error
        removed.append(entry)
    if removed:
        with project.store.transaction() as tx:
            for entry in removed:
                tx.clear_item(late_key(entry.ref or entry.name))
            tx.emit("trash_pruned", refs=[e.ref for e in removed if e.ref], names=[e.name for e in removed])
    return removed


def _remove(root: Root, entry: Entry) -> None:
    if entry.ref and entry.commit:
        git.git(root.path, "update-ref", "-d", entry.ref, entry.commit)  # not what was added to it meanwhile
    if entry.directory:
        for place, _, _ in os.walk(entry.directory):
            os.chmod(place, 0o700)  # tools' caches have read-only directories
        shutil.rmtree(entry.directory)


def _age_by_clock(root: Root, entry: Entry, now: float) -> float:
    """The youngest of what the clock says: of its name, of the file of its ref, of its directory."""
    times = [entry.at_unix or now]
    for path in (root.path / ".git" / entry.ref if entry.ref else None, entry.directory):
        try:
            times += [path.lstat().st_mtime, path.lstat().st_ctime] if path else []
        except OSError:
            continue  # git has packed the ref
    return age_s(max(times), now)


def _events(root: Root) -> Iterator[tuple[float, str]]:
    """The time of each event, and the ref where one tells of a pin."""
    for line in read_lines(root.events):
        row = json_row(line) or {}
        if isinstance(at := row.get("ts"), int | float):
            yield float(at), str(row.get("ref")) if row.get("action") == "pinning" else ""


def _read(root: Root) -> Book:
    """A book that is gone or damaged is a new one: then everything is young."""
    try:
        return msgspec.json.decode(root.trash_ages.read_bytes(), type=Book)
    except (OSError, msgspec.DecodeError):
        return Book()
