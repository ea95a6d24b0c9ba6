"""The source or its default branch is gone: each command says so with a fix; status shows it until fixed."""

import os
from typing import Any

import pytest

from tests.support.fleet import Fleet

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -qm"
SET_BRANCH = "llmc config set repo.default_branch trunk"


@pytest.fixture
def fleet(scripted: Fleet) -> Fleet:
    """adam's work waits to land, and baker is idle."""
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    scripted.llmc("start", "--worker", "adam", "--prompt", f"@sh echo x > x; git add x; {COMMIT} X")
    scripted.wait("adam", "needs_review")
    scripted.llmc("review", "adam")
    return scripted


def ours(fleet: Fleet, *args: str, code: int | None = 0) -> Any:
    """Run outside the source, which may be gone."""
    return fleet.llmc("--root", str(fleet.root), *args, code=code, cwd=fleet.dir)


def items(fleet: Fleet) -> list[dict[str, Any]]:
    found = ours(fleet, "status", "--json").json["attention"]
    return [item for item in found if item["kind"] == "no_source"]


COMMANDS = (
    ("accept", "adam"),
    ("rebase", "adam"),
    ("start", "--worker", "baker", "--prompt", "x"),
    ("add", "carol"),
)


def test_a_default_branch_that_was_renamed(fleet: Fleet) -> None:
    """Break: print git's error; raise no item; let `status` offer `llmc accept`;
    do not fetch after `config set`.
    """
    fleet.git("branch", "-m", "main", "trunk")
    for command in COMMANDS:
        done = ours(fleet, *command, code=1)
        assert "the source repository has no branch 'main'; it has 'trunk'" in done.err, command
        assert f"`{SET_BRANCH}`" in done.err, command
        assert "git -C" not in done.err, command
        assert "squashing" not in done.err, "an accept ends with the check of the source"
    (item,) = items(fleet)
    assert (item["severity"], item["who"], item["next"]) == ("blocked", str(fleet.source), SET_BRANCH)
    shown = ours(fleet, "status").out
    assert "llmc accept" not in shown
    assert "git -C" not in shown
    assert SET_BRANCH in ours(fleet, "digest").out
    assert "has no branch 'main'" in ours(fleet, "review", "adam").err + ours(fleet, "review", "adam").out
    assert SET_BRANCH in ours(fleet, "up", "--detach").err
    assert "has no branch 'main'; it has 'trunk'" in ours(fleet, "doctor", code=1).out
    assert ours(fleet, "config", "set", "repo.default_branch", "trunk").err == ""
    assert items(fleet) == []
    ours(fleet, "accept", "adam")
    assert fleet.git("log", "-1", "--format=%s", "trunk") == "X"
    assert SET_BRANCH not in ours(fleet, "status").out
    ours(fleet, "start", "--worker", "baker", "--prompt", f"@sh echo y > y; git add y; {COMMIT} Y")
    fleet.wait("baker", "needs_review")


def test_a_source_that_was_moved_away(fleet: Fleet) -> None:
    """Break: as above; or keep the old path in the clone."""
    moved = fleet.dir / "moved"
    os.rename(fleet.source, moved)
    for command in COMMANDS:
        done = ours(fleet, *command, code=1)
        assert f"the source repository {fleet.source} does not exist" in done.err, command
        assert "`llmc config set repo.source PATH-OR-URL`" in done.err, command
        assert "git -C" not in done.err, command
    (item,) = items(fleet)
    assert (item["severity"], item["next"]) == ("blocked", "llmc config set repo.source PATH-OR-URL")
    wrong = ours(fleet, "config", "set", "repo.source", str(fleet.home))
    assert f"{fleet.home} is not a git repository" in wrong.err
    assert [item["who"] for item in items(fleet)] == [str(fleet.home)]
    assert ours(fleet, "config", "set", "repo.source", str(moved)).err == ""
    assert items(fleet) == []
    ours(fleet, "accept", "adam")
    assert fleet.git("log", "-1", "--format=%s", cwd=moved) == "X"
    assert fleet.git("config", "remote.origin.url", cwd=fleet.root) == str(moved)


def test_what_is_mended_in_git_is_over(fleet: Fleet) -> None:
    """Without any llmc command. Break: keep the item until the next fetch."""
    fleet.git("branch", "-m", "main", "trunk")
    ours(fleet, "undo", "--yes", code=None)
    ours(fleet, "accept", "adam", code=1)
    assert len(items(fleet)) == 1
    fleet.git("branch", "-m", "trunk", "main")
    assert items(fleet) == []
    assert "llmc accept adam" in ours(fleet, "status").out
    ours(fleet, "accept", "adam")
    assert "no_source" not in (fleet.root / "state.json").read_text()
    fleet.git("branch", "-m", "main", "trunk")
    done = ours(fleet, "undo", "--yes", code=1)
    assert f"`{SET_BRANCH}`" in done.err
    assert len(items(fleet)) == 1
