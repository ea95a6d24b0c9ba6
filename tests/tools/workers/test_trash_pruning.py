"""Old trash is removed, but nothing that only a wrong clock calls old."""

import json
import os
import time
from pathlib import Path

import msgspec
import pytest

from llmc.repo import trash
from llmc.repo.project import Project
from llmc.repo.rules.trash_age import DAY_S, Age, Book
from llmc.workers import restore
from tests.support.repos import Repo, Worktree, add_worker, make_project, run_git

#: how often the daemon of these tests checks
LOOK_S = DAY_S / 4


@pytest.fixture
def project(tmp_path: Path) -> Project:
    source = Repo(tmp_path / "src")
    source.commit("a.txt")
    return make_project(str(source.path), tmp_path / "root")


@pytest.fixture
def worktree(project: Project) -> Worktree:
    return add_worker(project)[1]


class Clock:
    """The machine's clock, which a test sets; files still get the kernel's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift_s = 0.0
        monkeypatch.setattr(restore, "now_unix", lambda: time.time() + self.shift_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def refs(project: Project) -> list[str]:
    return run_git(project.root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").split()


def put(project: Project, worktree: Worktree, *, days_ago: float, known: bool = True) -> str:
    """Something pinned long ago, with a directory; returns its ref. `known`:
    the event log goes back that far.
    """
    at = time.time() - days_ago * DAY_S
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at))
    ref = f"refs/llmc/trash/w1/{stamp}-abcd-old"
    run_git(project.root.path, "update-ref", ref, worktree.head())
    folder = trash.folder_of(project.root, ref)
    (folder / "cache").mkdir(parents=True)
    (folder / "cache/file").write_text("old\n")
    (folder / "cache").chmod(0o500)
    os.utime(project.root.path / ".git" / ref, (at, at))
    os.utime(folder, (at, at))
    if known:
        rows = [{"seq": 0, "ts": at, "action": "pinning", "ref": ref}]
        rows += [{"seq": 0, "ts": at + day * DAY_S, "action": "x"} for day in range(int(days_ago) + 1)]
        log = project.root.events
        log.write_text("".join(json.dumps(row) + "\n" for row in rows) + log.read_text())
    return ref


def look(project: Project, count: int, *, first: bool = False) -> list[str]:
    """What a daemon removes in that many checks."""
    gone = [] if not first else restore.prune_by_itself(project, None)
    for _ in range(count):
        gone += restore.prune_by_itself(project, LOOK_S)
    return [entry.name for entry in gone]


@pytest.mark.parametrize("pinned", ["before", "after"])
def test_a_wrong_clock_removes_nothing(
    project: Project, worktree: Worktree, clock: Clock, pinned: str
) -> None:
    """Forty days ahead, at a daemon's start and while it runs, for a whole day.

    Break: measure the age by the time in the name.
    """
    if pinned == "before":
        trash.pin(project.root, worktree.path, "w1", "test")
        look(project, 2, first=True)
    clock.shift_s = 40 * DAY_S
    if pinned == "after":  # its name says 1970: the machine had no clock when it started
        put(project, worktree, days_ago=10_000)
    before = refs(project)
    assert look(project, 5, first=True) == []
    assert look(project, 5, first=True) == []
    assert refs(project) == before
    assert len(before) == 1


def test_a_restart_loop_with_a_clock_that_jumps(project: Project, worktree: Worktree, clock: Clock) -> None:
    """Break: measure the time between two daemons by the clock alone."""
    trash.pin(project.root, worktree.path, "w1", "test")
    for turn in range(40):
        clock.shift_s = turn % 2 * 400 * DAY_S
        assert look(project, 1, first=True) == []
    assert len(refs(project)) == 1


def test_what_is_really_old_goes_by_itself(
    project: Project, worktree: Worktree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: never remove it. It is old by its name, by its files, and by a month of checks, plus a day."""
    old = put(project, worktree, days_ago=40)
    young = trash.pin(project.root, worktree.path, "w1", "test")
    _age_directories(monkeypatch)
    assert look(project, 4 * 31 - 1, first=True) == []
    assert look(project, 1) == [trash.short(old)]
    assert refs(project) == [young]
    assert not trash.folder_of(project.root, old).exists()
    rows = [json.loads(line) for line in project.root.events.read_text().splitlines()]
    assert [row["names"] for row in rows if row["action"] == "trash_pruned"] == [[trash.short(old)]]


def _age_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ctime of a file cannot be set; here files are as old as their mtime says."""
    real = restore._age_by_clock

    def by_mtime(root: object, entry: object, now: float) -> float:
        return 40 * DAY_S if "-abcd-" in entry.name else real(root, entry, now)  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr(restore, "_age_by_clock", by_mtime)


def test_a_book_that_is_damaged_makes_everything_young(
    project: Project, worktree: Worktree, clock: Clock
) -> None:
    put(project, worktree, days_ago=40)
    look(project, 4 * 30, first=True)
    project.root.trash_ages.write_text('{"newest_unix": "x"')
    assert look(project, 4 * 30, first=True) == []
    assert len(refs(project)) == 1


def test_files_of_another_time_are_a_doubt(project: Project, worktree: Worktree, clock: Clock) -> None:
    """An old name on a new file. Break: check only names."""
    ref = put(project, worktree, days_ago=40)
    plan = restore.plan(project, 30)
    assert [entry.ref for entry in plan.old] == [ref]
    assert "the files are" in plan.doubts[trash.short(ref)], "its ctime is now"


def test_the_log_is_asked_too(
    project: Project, worktree: Worktree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the event log out; nothing else reveals a clock that has been wrong since boot."""
    _age_directories(monkeypatch)
    known = put(project, worktree, days_ago=40)
    assert restore.plan(project, 30).doubts == {}
    unknown = put(project, worktree, days_ago=39, known=False)
    assert restore.plan(project, 30).doubts == {trash.short(unknown): "the entry is not in the event log"}
    project.root.events.write_text(json.dumps({"ts": time.time(), "action": "pinning", "ref": known}) + "\n")
    clock.shift_s = 40 * DAY_S
    assert "covers only 2d" in restore.plan(project, 30).doubts[trash.short(known)]
    assert restore.plan(project, 0).doubts == {}, "regardless of age: no clock is read"


def test_what_llmc_did_not_put_there_stays(project: Project, worktree: Worktree, clock: Clock) -> None:
    run_git(project.root.path, "update-ref", "refs/llmc/trash/w1/mine", worktree.head())
    (project.root.trash / "00-notes").mkdir(parents=True)
    assert restore.plan(project, 0).old == ()
    assert look(project, 4 * 40, first=True) == []
    assert refs(project) == ["refs/llmc/trash/w1/mine"]


def test_what_was_added_to_a_pin_meanwhile_stays(project: Project, worktree: Worktree, clock: Clock) -> None:
    """Break: delete a ref whatever it names by then."""
    ref = put(project, worktree, days_ago=40)
    plan = restore.plan(project, 0)
    tip = worktree.commit("more.txt")
    run_git(project.root.path, "update-ref", ref, tip)
    with pytest.raises(Exception, match="update-ref"):
        restore.remove(project, plan.old)
    assert refs(project) == [ref]
    assert trash.folder_of(project.root, ref).exists()


def test_the_first_look_of_a_daemon_removes_nothing(
    project: Project, worktree: Worktree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remove immediately what an earlier daemon found old; this one has seen nothing yet."""
    ref = put(project, worktree, days_ago=40)
    _age_directories(monkeypatch)
    book = Book(time.time(), {trash.short(ref): Age(40 * DAY_S, 2 * DAY_S)})
    project.root.trash_ages.write_bytes(msgspec.json.encode(book))
    assert look(project, 0, first=True) == []
    assert look(project, 1) == [trash.short(ref)]
