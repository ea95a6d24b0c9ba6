"""llmc nuke: the worker is gone, everything it had is in the trash, and a running daemon copes."""

import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, in_soak
from tests.support.mess import lost, make_mess
from tests.support.repos import snapshot
from tests.support.waiting import wait_until

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.set_up("adam", "zoe")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[Fleet]:
    """No daemon and no agent."""
    fleet = Fleet("scripted")
    fleet.commit(".gitignore", "*.cache\n", "Ignore caches")
    fleet.set_up()
    yield fleet
    fleet.close()


def names(fleet: Fleet) -> list[str]:
    return [row["name"] for row in fleet.llmc("status", "--json").json["workers"]]


def make_everything(fleet: Fleet, worker: str, mark: str) -> dict[str, str]:
    """Every kind of work: ignored files, a nested repository, a commit that only the reflog names."""
    tree = fleet.worktree(worker)
    (tree / "amended.txt").write_text(f"amended away {mark}\n")
    fleet.git("add", "amended.txt", cwd=tree)
    fleet.git("commit", "-q", "-m", f"Amended away {mark}", cwd=tree)
    amended = fleet.git("rev-parse", "HEAD", cwd=tree)
    fleet.git("reset", "-q", "--hard", "HEAD^", cwd=tree)
    fleet.git("worktree", "add", "-q", "--detach", "inner-worktree", cwd=tree)
    (tree / "inner-worktree/inner.txt").write_text(f"inner {mark}\n")
    fleet.git("add", "inner.txt", cwd=tree / "inner-worktree")
    fleet.git("commit", "-q", "-m", f"Inner {mark}", cwd=tree / "inner-worktree")
    inner = fleet.git("rev-parse", "HEAD", cwd=tree / "inner-worktree")
    wanted = make_mess(fleet, worker, mark)
    (tree / "build.cache").write_text(f"ignored {mark}\n")
    (tree / "nested").mkdir()
    fleet.git("init", "-q", cwd=tree / "nested")
    (tree / "nested/own.txt").write_text(f"nested {mark}\n")
    return {**wanted, "amended": amended, "inner": inner}


def is_gone(fleet: Fleet, worker: str) -> None:
    assert worker not in names(fleet)
    assert not fleet.worktree(worker).exists()
    assert worker not in tomllib.loads((fleet.root / "config.toml").read_text()).get("workers", {})
    assert fleet.git("for-each-ref", f"refs/heads/llmc/{worker}", cwd=fleet.root) == ""
    assert not (fleet.root / ".git/worktrees" / worker).exists()
    assert not (fleet.root / ".llmc/inbox" / worker).exists()
    assert not list((fleet.root / ".llmc/agents").glob(f"{worker}.*"))
    assert fleet.session(worker)[1:-1] not in fleet.tmux("list-sessions", "-F", "#{session_name}")


def without_git(files: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in files.items() if name != "inner-worktree/.git"}


@pytest.mark.req("1-096", "2-008")
def test_a_running_worker_is_removed_and_the_daemon_goes_on(running: Fleet) -> None:
    """Break: keep the lane of the removed worker; another one of the same name is never started."""
    running.llmc("start", "--worker", "adam", "--prompt", "@sleep 60")
    done = running.llmc("nuke", "adam", "--yes", "--json").json
    is_gone(running, "adam")
    assert "zoe" in names(running)
    event = running.events("worker_removed")[-1]
    assert (event["ref"], event["directory"]) == (done["ref"], done["directory"])
    assert (Path(done["directory"]) / "README.md").exists()
    assert running.llmc("message", "zoe", "hello", "--json").json["outcome"] == "acknowledged"
    running.llmc("add", "adam")
    wait_until(lambda: running.record("adam")["status"] == "idle")
    assert running.llmc("message", "adam", "hello", "--json").json["outcome"] == "acknowledged"
    problems = (running.root / "logs/daemon.jsonl").read_text()
    assert "lane_failed" not in problems
    assert "lane_problem" not in problems
    assert "Traceback" not in (running.root / "logs/daemon.out").read_text()


def test_removed_and_added_again_at_once(running: Fleet) -> None:
    """Break: tell workers apart only by name."""
    with running.frozen_daemon():  # it sees both changes at the same moment
        running.llmc("nuke", "adam", "--yes")
        running.llmc("add", "adam")
    wait_until(lambda: running.record("adam")["status"] == "idle")
    assert (
        running.llmc("start", "--worker", "adam", "--prompt", "@say hello", "--json").json["worker"] == "adam"
    )
    running.wait("adam", "needs_input")


def test_held_is_refused(running: Fleet) -> None:
    running.llmc("hold", "zoe")
    assert "llmc release zoe" in running.llmc("nuke", "zoe", "--yes", code=3).err
    rows = running.llmc("nuke", "--all", "--yes", "--json", code=1).json["workers"]
    assert {row["worker"]: bool(row["error"]) for row in rows} == {"adam": False, "zoe": True}
    assert "zoe" in names(running)
    running.llmc("release", "zoe")


def test_it_asks_first(running: Fleet) -> None:
    """Break: remove without --yes where it cannot ask."""
    assert "--yes" in running.llmc("nuke", "zoe", code=2).err
    running.llmc("nuke", code=2)
    assert "zoe" in running.llmc("nuke", "zo", "--yes", code=4).err
    assert running.answered(b"n\n", "nuke", "zoe") == 130
    assert "zoe" in names(running)
    assert running.answered(b"y\n", "nuke", "zoe") == 0
    is_gone(running, "zoe")


def test_everything_is_in_the_trash(alone: Fleet) -> None:
    """Break: use `git worktree remove --force`; or pin only HEAD."""
    alone.llmc("add", "adam")
    wanted = make_everything(alone, "adam", "all")
    before = without_git(dict(snapshot(alone.worktree("adam"))))
    done = alone.llmc("nuke", "adam", "--yes", "--json").json
    is_gone(alone, "adam")
    assert without_git(dict(snapshot(Path(done["directory"])))) == before
    assert lost(alone, wanted) == []
    place = alone.dir / "back"
    name = done["ref"].removeprefix("refs/llmc/trash/")
    alone.llmc("trash", "restore", name, "--to", str(place))
    assert (place / "build.cache").read_text() == "ignored all\n"
    assert not (place / ".git").exists()
    branch = alone.llmc("trash", "restore", name, "--json").json["branch"]
    assert alone.git("show", f"{branch}:new.txt") == "untracked all"


def test_a_worker_without_work_leaves_no_work_of_others(alone: Fleet) -> None:
    """Break: show the subject of the pinned commit, which is another's; or drop the entry with its ignored files."""
    alone.llmc("add", "adam")
    (alone.worktree("adam") / "build.cache").write_text("ignored\n")
    told = alone.llmc("nuke", "adam", "--yes").out
    assert "its files are in " in told
    assert "commits" not in told
    listed = alone.llmc("trash", "list", "--worker", "adam", "--json").json
    (entry,) = [one for one in listed if f"its files are in {one['directory']}" in told]
    assert entry["subject"] == ""
    assert entry["commit"] == alone.git("rev-parse", "main")
    assert (Path(entry["directory"]) / "build.cache").read_text() == "ignored\n"
    (line,) = [line for line in alone.llmc("trash", "list").out.splitlines() if entry["name"] in line]
    assert " ago  no commits of its own  [" in line
    shown = alone.llmc("trash", "show", entry["name"]).out
    assert shown.startswith(f"no commits ahead of main (at {entry['commit'][:7]}")
    assert " Ignore caches)" in shown
    assert ".gitignore |" not in shown


def test_a_worker_with_files_only_is_told_how_to_restore_them(alone: Fleet) -> None:
    """Break: look for commits only; the pin of uncommitted files is one."""
    alone.llmc("add", "adam")
    (alone.worktree("adam") / "new.txt").write_text("new\n")
    told = alone.llmc("nuke", "adam", "--yes").out
    name = told.partition("to restore its commits and changes: llmc trash restore ")[2].strip()
    (entry,) = [one for one in alone.llmc("trash", "list", "--json").json if one["name"] == name]
    assert entry["subject"] == "llmc: pinned before nuke"


@pytest.mark.parametrize("damage", ["gone", "own .git", *in_soak("no .git", "broken .git")])
def test_a_damaged_worktree(alone: Fleet, damage: str) -> None:
    """Break: run git in a directory without a `.git`; it finds the root's."""
    alone.llmc("add", "adam")
    wanted = make_mess(alone, "adam", damage)
    tree = alone.worktree("adam")
    if damage == "gone":
        tree.rename(alone.dir / "moved away")
    else:
        (tree / ".git").unlink()
    if damage == "own .git":
        alone.git("init", "-q", cwd=tree)
    if damage == "broken .git":
        (tree / ".git").write_text("gitdir: /nowhere\n")
    done = alone.llmc("nuke", "adam", "--yes", "--json").json
    is_gone(alone, "adam")
    assert lost(alone, {"commit": wanted["commit"]}) == []
    if damage == "gone":
        (alone.dir / "moved away" / ".git").unlink()
        (alone.dir / "moved away").rename(alone.dir / f"away {len(list(alone.dir.iterdir()))}")
    else:
        assert (Path(done["directory"]) / "new.txt").read_text() == f"untracked {damage}\n"


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.soak)])
@pytest.mark.parametrize("step", ["pin", "move", "forget", "finish", *in_soak("end", "prune")])
def test_killed_at_every_step_it_can_be_repeated(alone: Fleet, step: str, when: str) -> None:
    """Break: remove the record first; the next nuke finds no worker, and the rest stays forever."""
    alone.llmc("add", "adam")
    wanted = make_everything(alone, "adam", f"{when} {step}")
    before = without_git(dict(snapshot(alone.worktree("adam"))))
    alone.llmc("nuke", "adam", "--yes", code=KILLED, LLMC_FAULT=f"nuke.{step}:{when}:kill")
    finished = (step, when) == ("finish", "after")
    alone.llmc("nuke", "adam", "--yes", code=4 if finished else 0)
    is_gone(alone, "adam")
    assert lost(alone, wanted) == []
    event = alone.events("worker_removed")[-1]
    assert without_git(dict(snapshot(Path(event["directory"])))) == before
    assert event["ref"] in [row["ref"] for row in alone.llmc("trash", "list", "--json").json]
    assert json.loads((alone.root / "state.json").read_text())["workers"] == {}


@pytest.mark.req("1-096")
def test_all(alone: Fleet) -> None:
    for name in ("adam", "baker"):
        alone.llmc("add", name)
    alone.llmc("nuke", "--all", "--yes")
    for name in ("adam", "baker"):
        is_gone(alone, name)
    assert alone.llmc("nuke", "--all", "--yes", "--json").json == {"workers": []}
