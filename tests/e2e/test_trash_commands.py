"""llmc trash: discarded work is listed, shown and restored without touching a checkout."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import zygote
from tests.support.fleet import Fleet
from tests.support.mess import lost, make_mess, trash_refs
from tests.support.repos import snapshot
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def fleet_with_trash() -> Iterator[Fleet]:
    """No agent runs; one reset with every kind of work, a huge file and a nested repository."""
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    make_mess(fleet, "adam", "1")
    tree = fleet.worktree("adam")
    (tree / "nested").mkdir()
    fleet.git("init", "-q", cwd=tree / "nested")
    (tree / "nested/inner.txt").write_text("inner\n")
    fleet.llmc("reset", "adam")
    yield fleet
    fleet.close()


def only(fleet: Fleet) -> dict[str, object]:
    [entry] = [e for e in fleet.llmc("trash", "list", "--json").json if e["why"] == "reset"]
    return dict(entry)


def test_list_and_show(fleet_with_trash: Fleet) -> None:
    """Break: show a ref and the directory of the same moment as two entries."""
    fleet = fleet_with_trash
    entry = only(fleet)
    assert (entry["worker"], entry["why"], entry["ref"]) == ("adam", "reset", trash_refs(fleet)[0])
    assert entry["subject"] == "llmc: pinned before reset"
    assert isinstance(entry["size_bytes"], int)
    assert entry["size_bytes"] > 0
    (row,) = (
        line for line in fleet.llmc("trash", "list").out.splitlines() if line.startswith(str(entry["name"]))
    )
    assert "Work 1 (with uncommitted changes)" in row, (
        "what the user would restore, not what llmc calls the commit"
    )
    shown = fleet.llmc("trash", "show", str(entry["name"])).out
    for text in ("Work 1", "new.txt", "README.md", "nested/"):
        assert text in shown
    assert fleet.llmc("trash", "list", "--worker", "baker").out.strip() == "the trash is empty"


def test_restore_makes_a_branch_and_touches_no_checkout(fleet_with_trash: Fleet) -> None:
    """Break: restore with a checkout, or only in the root's clone; `log -p` without -m (skips merges)."""
    fleet = fleet_with_trash
    (fleet.source / "README.md").write_text("a person is at work here\n")
    before = (snapshot(fleet.source), fleet.git("rev-parse", "HEAD"), fleet.git("status", "--porcelain"))
    entry = only(fleet)
    out = fleet.llmc("trash", "restore", str(entry["name"])).out
    branch = f"llmc/restored/{str(entry['name']).replace('/', '-')}"
    assert branch in out
    (command,) = [
        line.partition("to see the work: git ")[2] for line in out.splitlines() if "to see the work" in line
    ]
    shown = fleet.git(*shlex.split(command), cwd=fleet.dir)
    for name in fleet.git("diff", "--name-only", f"main...{branch}").splitlines():
        assert f"b/{name}" in shown, "committed and uncommitted work"
    for repo in (fleet.root, fleet.source):
        assert fleet.git("rev-parse", f"refs/heads/{branch}", cwd=repo) == entry["commit"]
    assert (
        snapshot(fleet.source),
        fleet.git("rev-parse", "HEAD"),
        fleet.git("status", "--porcelain"),
    ) == before
    assert fleet.git("show", f"{branch}:new.txt") == "untracked 1"
    assert not (fleet.source / ".git/FETCH_HEAD").exists()
    fleet.llmc("trash", "restore", str(entry["ref"]))  # safe to repeat
    fleet.git("checkout", "-q", "--", "README.md")


def test_restore_never_moves_a_branch_that_is_there(fleet_with_trash: Fleet) -> None:
    """Break: use a `+` in the refspec, or do not check the branch first."""
    fleet = fleet_with_trash
    fleet.git("branch", "mine")
    entry = only(fleet)
    tip = fleet.git("rev-parse", "mine")
    assert "--branch" in fleet.llmc("trash", "restore", str(entry["name"]), "--branch", "mine", code=3).err
    assert fleet.llmc("trash", "restore", str(entry["name"]), "--branch", "main", code=3).err
    assert fleet.git("rev-parse", "mine") == tip
    fleet.llmc("trash", "restore", str(entry["name"]), "--branch", "a..b", code=2)
    body = fleet.llmc("trash", "restore", str(entry["name"]), "--branch", "fresh", "--json").json
    assert body["branch"] == "fresh"
    assert fleet.git("rev-parse", "fresh") == entry["commit"]


def test_a_directory_is_copied_to_a_new_place(fleet_with_trash: Fleet) -> None:
    fleet = fleet_with_trash
    entry = only(fleet)
    place = fleet.dir / "deep/copy"
    fleet.llmc("trash", "restore", str(entry["name"]), "--to", str(place))
    assert (place / "nested/inner.txt").read_text() == "inner\n"
    assert (place / "nested/.git").is_dir()
    assert "already" in fleet.llmc("trash", "restore", str(entry["name"]), "--to", str(place), code=3).err
    assert [path.name for path in place.parent.iterdir()] == ["copy"]


def test_a_copy_does_not_lead_git_to_a_worktree(fleet_with_trash: Fleet) -> None:
    """Break: copy its pointer, too; git in the copy would change the worktree that has the name now."""
    fleet = fleet_with_trash
    entry = only(fleet)
    pointer = Path(str(entry["directory"])) / ".git"
    pointer.write_text(f"gitdir: {fleet.root}/.git/worktrees/adam\n")
    place = fleet.dir / "led"
    fleet.llmc("trash", "restore", str(entry["name"]), "--to", str(place))
    assert (place / "nested/inner.txt").exists()
    assert not (place / ".git").exists()
    pointer.unlink()


def test_a_worker_with_files_of_its_own_gets_nothing_back(fleet_with_trash: Fleet) -> None:
    """Break: check only for commits; its files would be moved to the trash to make room."""
    fleet = fleet_with_trash
    entry = only(fleet)
    own = fleet.worktree("adam") / "own.txt"
    own.write_text("own\n")
    refused = fleet.llmc("trash", "restore", str(entry["name"]), "--to", "adam", code=3).err
    assert "cannot restore to adam: it has other work in its worktree" in refused
    assert own.read_text() == "own\n"
    own.unlink()


def test_a_wrong_name_names_the_nearest(fleet_with_trash: Fleet) -> None:
    fleet = fleet_with_trash
    name = str(only(fleet)["name"])
    for command in ("show", "restore"):
        wrong = fleet.llmc("trash", command, name.replace("reset", "rest"), "--json", code=4)
        assert name in wrong.json["hint"]
    assert fleet.llmc("trash", "show", name[:-3]).out == fleet.llmc("trash", "show", name).out


def test_prune_asks_and_says_when_clocks_disagree(fleet_with_trash: Fleet) -> None:
    """Break: delete without a yes; or let --yes delete an entry with an old name and new files."""
    fleet = fleet_with_trash
    name = str(only(fleet)["name"])
    old = "refs/llmc/trash/adam/20200101T000000-abcd-old"
    fleet.git("update-ref", old, "refs/remotes/origin/main", cwd=fleet.root)
    folder = fleet.root / ".llmc/trash/adam-20200101T000000-abcd"
    (folder / "cache").mkdir(parents=True)
    (folder / "cache/file").touch()
    (folder / "cache").chmod(0o500)
    assert "--yes" in fleet.llmc("trash", "prune", code=2).err
    shown = fleet.llmc("trash", "prune", "--yes")
    assert "kept adam/20200101T000000-abcd-old: the files are" in shown.out
    assert "entries marked with ! may be newer" in shown.err
    assert fleet.llmc("trash", "prune", "--yes", "--json").json["removed"] == []
    assert fleet.answered(b"n\n", "trash", "prune") == 130
    assert folder.exists()
    assert fleet.answered(b"y\n", "trash", "prune") == 0
    assert fleet.events("trash_pruned")[-1]["refs"] == [old]
    assert not folder.exists()
    assert lost(fleet, {"kept": str(only(fleet)["commit"])}) == []
    assert "nothing" in fleet.llmc("trash", "prune").out
    assert name in fleet.llmc("trash", "list").out


def test_prune_of_everything(scripted: Fleet) -> None:
    """No clock is read where age does not matter."""
    scripted.set_up("adam")
    make_mess(scripted, "adam", "1")
    scripted.llmc("reset", "adam")
    names = [row["name"] for row in scripted.llmc("trash", "list", "--json").json]
    done = scripted.llmc("trash", "prune", "--older-than", "0", "--yes", "--json").json
    assert (done["removed"], done["kept"]) == (names, {})
    assert trash_refs(scripted) == []


AHEAD = """
import os, time
real, gmtime, localtime = time.time, time.gmtime, time.localtime
time.time = lambda: real() + float(os.environ["TEST_CLOCK_AHEAD_S"])
time.gmtime = lambda at=None: gmtime(time.time() if at is None else at)
time.localtime = lambda at=None: localtime(time.time() if at is None else at)
"""


def test_a_daemon_whose_clock_is_wrong_keeps_the_trash(scripted: Fleet) -> None:
    """A real daemon, forty days ahead. Break: prune by the clock at the first patrol."""
    fleet = scripted
    fleet.set_up("adam", "baker", config={"defaults.patrol_interval_secs": "1"})
    wanted = make_mess(fleet, "adam", "1")
    fleet.llmc("reset", "adam")
    wanted |= {f"baker {what}": thing for what, thing in make_mess(fleet, "baker", "2").items()}
    directory = Path(fleet.llmc("nuke", "baker", "--yes", "--json").json["directory"])
    place = fleet.dir / "clock"
    place.mkdir()
    (place / "sitecustomize.py").write_text(AHEAD)
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    clock = {"PYTHONPATH": path, "TEST_CLOCK_AHEAD_S": str(40 * 86400)}
    fleet.llmc("up", "--detach", **{zygote.COLD: "1"}, **clock)
    wait_until(lambda: json.loads((fleet.root / "state.json").read_text())["patrol_last_run_unix"] > 0)
    ahead = json.loads((fleet.root / "state.json").read_text())["patrol_last_run_unix"] - time.time()
    assert ahead > 39 * 86400, "this daemon's clock is wrong"
    looked = fleet.root / ".llmc/trash_ages.json"
    wait_until(lambda: looked.exists() or fleet.events("trash_pruned"))
    assert lost(fleet, wanted) == []
    assert directory.exists()
    assert fleet.events("trash_pruned") == []
    argv = [sys.executable, "-m", "llmc", "trash", "prune", "--yes", "--json"]
    by_hand = subprocess.run(
        argv, cwd=fleet.source, env={**fleet.env, **clock}, capture_output=True, check=True
    )
    kept = json.loads(by_hand.stdout)
    assert (kept["removed"], len(kept["kept"])) == ([], 2)
    assert lost(fleet, wanted) == []
