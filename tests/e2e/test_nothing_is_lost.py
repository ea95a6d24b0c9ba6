"""On the command line and in auto mode: a reset saves to the trash first; a killed git blocks nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import auto
from tests.support.fleet import Fleet
from tests.support.mess import lost, trash_refs

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    """A shared fleet: adam is idle, and the source as at the start."""
    shared.plant({})
    yield shared.new_case()
    shared.rest("adam")
    if not shared.has_daemon():
        shared.up("--no-patrol")


def ignore_more(fleet: Fleet, worker: str, mark: str) -> str:
    """A commit of the worker's ignores what the base does not, and such a file exists; returns its blob."""
    tree = fleet.worktree(worker)
    (tree / ".gitignore").write_text("results/\n")
    fleet.git("add", ".gitignore", cwd=tree)
    fleet.git("commit", "-q", "-m", "Ignore results", cwd=tree)
    (tree / "results").mkdir()
    (tree / "results/day.txt").write_text(f"of a whole day {mark}\n")
    return fleet.git("hash-object", "results/day.txt", cwd=tree)


FAULTS = ["", *(f"provision.{s}:{w}" for s in ("reset", "clean") for w in ("before", "after"))]


def test_reset_pins_what_is_ignored_no_more(scripted: Fleet) -> None:
    """Break: pin only under the worker's ignore rules, then clean under the base's."""
    scripted.set_up("adam")
    for fault in FAULTS:
        before = set(trash_refs(scripted))
        wanted = {"results": ignore_more(scripted, "adam", fault)}
        if fault:
            scripted.llmc("reset", "adam", code=KILLED, LLMC_FAULT=f"{fault}:kill")
            there = (scripted.worktree("adam") / "results/day.txt").exists()
            assert there or lost(scripted, wanted) == [], fault
        scripted.llmc("reset", "adam")
        assert lost(scripted, wanted) == [], fault
        assert not (scripted.worktree("adam") / "results").exists(), fault
        kept = [ref for ref in trash_refs(scripted) if ref.endswith("-reset") and ref not in before]
        assert len(kept) <= (2 if fault else 1), f"one name for all of it: {fault}"


def test_start_pins_the_cache_of_an_idle_worker(running: Fleet) -> None:
    """Break: as above; there is no work to pin, so nothing at all would be kept."""
    running.commit(".gitignore", "cache/\n", "Ignore the cache")
    running.llmc("reset", "adam")
    cache = running.worktree("adam") / "cache"
    cache.mkdir()
    (cache / "index").write_text("expensive\n")
    wanted = {"cache": running.git("hash-object", "cache/index", cwd=running.worktree("adam"))}
    running.commit(".gitignore", "other/\n", "Ignore something else")
    running.llmc("start", "--worker", "adam", "--prompt", "@say hello")
    running.wait("adam", "needs_input")
    assert not cache.exists()
    assert lost(running, wanted) == []
    assert any(row["ref"].endswith("-start") for row in running.events("work_pinned"))


def test_a_task_that_is_given_up_keeps_what_it_ignored(scripted: Fleet) -> None:
    """In auto mode. Break: as above, at the reset after the last attempt."""
    auto.set_up(scripted)
    (scripted.dir / "found").write_text("found\n")
    wanted = {"found": scripted.git("hash-object", str(scripted.dir / "found"))}
    made = "mkdir -p results; echo found > results/day.txt; echo results > .gitignore"
    work = f"@sh {made}; git add .gitignore; {COMMIT} 'Ignore results'"
    auto.add(scripted, 1, work, llmc={"verify": "false"})
    daemon = auto.Daemon(scripted)
    auto.wait_for(scripted, lambda: scripted.events("task_failed"), 90)
    auto.wait_for(scripted, lambda: len(scripted.events("task_assigned")) > 1, 90)
    assert lost(scripted, wanted) == []
    daemon.stop()


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("index.lock", True),
        ("HEAD.lock", False),
        pytest.param("index.lock", False, marks=pytest.mark.soak),
        pytest.param("HEAD.lock", True, marks=pytest.mark.soak),
    ],
)
def test_an_accept_ends_though_a_killed_git_left_its_lock(running: Fleet, name: str, moved: bool) -> None:
    """Break: do not check the lock in the last step; the work has landed, and the worker is stuck forever."""
    lock = running.root / ".git/worktrees/adam" / name
    work = f"@sh echo 1 > one.txt; git add one.txt; {COMMIT} 'Add one'; : > {lock}"
    running.llmc("start", "--worker", "adam", "--prompt", work)
    running.wait("adam", "needs_review")
    if moved:
        running.commit("other.txt", "other\n", "Somebody else's")
    running.llmc("accept", "adam")
    assert running.log()[0] == "Add one"
    assert running.status("adam")["status"] == "idle"
    assert not lock.exists()
    assert [row["paths"] for row in running.events("lock_removed")] == [[str(lock)]]


def test_doctor_names_a_dead_lock_while_an_accept_waits_for_it(running: Fleet) -> None:
    """Break: let every repair of a worker wait for its accept; here the accept waits for the repair."""
    work = f"@sh echo 1 > one.txt; git add one.txt; {COMMIT} 'Add one'"
    running.llmc("start", "--worker", "adam", "--prompt", work)
    running.wait("adam", "needs_review")
    running.kill_daemon()
    running.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.reset:before:kill")
    lock = running.root / ".git/worktrees/adam/index.lock"
    lock.touch()
    hour_ago = lock.stat().st_mtime - 3600
    os.utime(lock, (hour_ago, hour_ago))
    assert "index.lock" in running.llmc("doctor", code=1).out
    running.llmc("doctor", "--repair", "--yes", code=None)
    assert not lock.exists()
    running.llmc("accept", "adam")
    assert running.status("adam")["status"] == "idle"


def test_a_worktree_without_its_pointer(scripted: Fleet) -> None:
    """By a reset, by doctor, and by `up`.

    Break: `worktree add` over existing files; the worker could be neither reset nor started.
    """
    scripted.set_up("adam")
    tree = scripted.worktree("adam")

    def lose_it(text: str) -> str:
        (tree / "new.txt").write_text(text)
        blob = scripted.git("hash-object", "new.txt", cwd=tree)
        (tree / ".git").unlink()
        return blob

    def assert_linked() -> None:
        assert Path(scripted.git("rev-parse", "--show-toplevel", cwd=tree)) == tree

    blob = lose_it("precious\n")
    scripted.llmc("reset", "adam")
    assert lost(scripted, {"new.txt": blob}) == []
    assert_linked()
    lose_it("as precious\n")
    assert ".git is missing" in scripted.llmc("doctor", code=1).out
    left = scripted.llmc("doctor", "--repair", "--yes", code=1).out
    assert "uncommitted changes: new.txt" in left, "visible only now, and asked about next time"
    assert (tree / "new.txt").read_text() == "as precious\n"
    assert_linked()
    lose_it("more precious\n")
    scripted.up("--no-patrol")
    assert (tree / "new.txt").read_text() == "more precious\n"
    assert_linked()


def test_a_turn_that_ends_in_a_rebase_of_its_own_is_called_that(running: Fleet) -> None:
    """Break: keep the status; later, an agent that finished its turn would be called interrupted."""
    prepare = f"git checkout -q -b side; echo 1 > README.md; {COMMIT} side -a; git checkout -q llmc/adam"
    work = f"@sh {prepare}; echo 2 > README.md; {COMMIT} mine -a; git rebase side; true"
    running.llmc("start", "--worker", "adam", "--prompt", work)
    row = running.wait("adam", "needs_input")
    assert row["reason"] == "stopped_rebasing"
    assert "in the middle of its own rebase" in running.llmc("status").out
