"""What lands is a merge of trees: nothing of a merge commit is dropped, and review shows what lands."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet, in_soak
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com"
COMMIT = f"{WHO} commit -q -m"
KILLED = -9


@pytest.fixture(scope="module")
def with_daemon() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam", "baker")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(with_daemon: Fleet) -> Iterator[Fleet]:
    """Shared by the tests here; each starts with idle workers, and with one user in the source."""
    with_daemon.plant({"user.txt": "calls old()\n"}, "Add a user")
    yield with_daemon.new_case()
    with_daemon.rest("adam", "baker")


@pytest.fixture(scope="module")
def without_daemon() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam")
    fleet.up("--no-patrol")
    fleet.kill_daemon()
    yield fleet
    fleet.close()


@pytest.fixture
def alone(without_daemon: Fleet) -> Iterator[Fleet]:
    """Like `fleet`, but nothing resumes what a killed command left."""
    without_daemon.plant({"user.txt": "calls old()\n"}, "Add a user")
    yield without_daemon.new_case()
    without_daemon.rest("adam")


def work(fleet: Fleet, script: str, worker: str = "adam") -> str:
    """A task whose work waits for review; returns its commit."""
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh {script}")
    return str(fleet.wait(worker, "needs_review")["commit_sha"])


def merge_by_hand(fleet: Fleet) -> str:
    """Work whose merge commit fixes a file that neither side touched; then the branch moves once more."""
    work(fleet, f"echo new > lib.txt; git add lib.txt; {COMMIT} 'Add lib'")
    fleet.commit("main.txt", "main\n", "Main moves")
    run_in_worktree(
        fleet,
        f"git fetch -q origin && {WHO} merge -q --no-ff --no-commit origin/main"
        f" && echo 'calls new()' > user.txt && git add user.txt && {WHO} commit -q --no-edit",
    )
    fleet.commit("more.txt", "more\n", "Main moves again")
    return fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam"))


def run_in_worktree(fleet: Fleet, script: str) -> None:
    """What the user does in the worktree while the agent is idle."""
    done = subprocess.run(
        ["sh", "-c", script], cwd=fleet.worktree("adam"), env=fleet.env, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def record(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"]["adam"])


def in_worktree(fleet: Fleet, name: str) -> str:
    return (fleet.worktree("adam") / name).read_text()


def is_kept(fleet: Fleet, commit: str) -> bool:
    return bool(fleet.git("for-each-ref", "--contains", commit, "refs/llmc/trash", cwd=fleet.root))


@pytest.mark.soak
def test_pick_and_accept_take_what_a_merge_commit_changed(fleet: Fleet) -> None:
    """Breaks when they rebase: the merge commit and its fix are silently dropped."""
    tip = merge_by_hand(fleet)
    picked = fleet.llmc("pick", "adam", "--branch", "one", "--json").json
    assert fleet.git("show", "one:user.txt") == "calls new()"
    assert fleet.git("show", "one:more.txt") == "more"
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == tip
    fleet.llmc("pick", "adam", "--branch", "two", "--json")
    assert fleet.git("rev-parse", "two") == picked["commit"]
    fleet.llmc("accept", "adam")
    assert (fleet.source / "user.txt").read_text() == "calls new()\n"
    assert fleet.log()[0] == "Add lib"
    assert "Merge" not in fleet.git("show", "-s", "--format=%B", "main")
    assert is_kept(fleet, tip)


def rebase_it(fleet: Fleet) -> None:
    fleet.llmc("rebase", "adam")


def review_it(fleet: Fleet) -> None:
    assert "calls new()" in fleet.llmc("review", "adam", "--json").json["diff"]


def patrol_it(fleet: Fleet) -> None:
    """Another worker's work lands: the lane rebases this worker's."""
    work(fleet, f"echo y > y; git add y; {COMMIT} 'Y'", "baker")
    fleet.llmc("accept", "baker")
    wait_until(lambda: fleet.events("rebased"), story=fleet.story)


@pytest.mark.parametrize("rebase", [rebase_it, patrol_it, *in_soak(review_it)])
def test_no_rebase_drops_what_a_merge_commit_changed(fleet: Fleet, rebase: Callable[[Fleet], None]) -> None:
    """Breaks when a range with a merge is rebased commit by commit."""
    tip = merge_by_hand(fleet)
    rebase(fleet)
    assert in_worktree(fleet, "user.txt") == "calls new()\n"
    assert in_worktree(fleet, "more.txt") == "more\n"
    assert is_kept(fleet, tip)
    fleet.llmc("accept", "adam")
    assert (fleet.source / "user.txt").read_text() == "calls new()\n"


def test_killed_while_it_collapses(alone: Fleet) -> None:
    """The commits are pinned first, and the next try gives the same result."""
    tip = merge_by_hand(alone)
    for when in ("before", "after"):
        alone.llmc("rebase", "adam", code=KILLED, LLMC_FAULT=f"rebase.collapse:{when}:kill")
    alone.llmc("rebase", "adam")
    assert in_worktree(alone, "user.txt") == "calls new()\n"
    assert is_kept(alone, tip)
    alone.llmc("accept", "adam")
    assert (alone.source / "user.txt").read_text() == "calls new()\n"


def test_commits_that_conflict_one_by_one_still_land(fleet: Fleet) -> None:
    """The first changes a line of main's, the second reverts that: together they do not conflict."""
    first = f"echo 'calls mine()' > user.txt; {COMMIT} 'One' -a"
    second = f"echo 'calls old()' > user.txt; echo x > x; git add -A; {COMMIT} 'Two'"
    work(fleet, f"{first}; {second}")
    fleet.commit("user.txt", "calls main()\n", "Main moves")
    fleet.llmc("rebase", "adam")
    assert in_worktree(fleet, "user.txt") == "calls main()\n"
    fleet.commit("more.txt", "more\n", "Main moves again")
    fleet.llmc("accept", "adam")
    assert (fleet.source / "user.txt").read_text() == "calls main()\n"
    assert fleet.log()[0] == "One"


def test_the_worktree_is_not_touched_before_it_has_landed(alone: Fleet) -> None:
    """Breaks when accept rebases first where nothing has to be validated there."""
    tip = work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    alone.commit("main.txt", "main\n", "Main moves")
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:after:kill")
    assert alone.log()[0] == "X"
    assert alone.git("rev-parse", "HEAD", cwd=alone.worktree("adam")) == tip
    assert not (alone.worktree("adam") / "main.txt").exists()
    alone.llmc("accept", "adam")
    assert in_worktree(alone, "main.txt") == "main\n"


@pytest.mark.parametrize("kill", ["provision.reset:after", ""], ids=["killed", "quiet"])
def test_what_is_committed_while_it_lands_is_kept_and_listed(alone: Fleet, kill: str) -> None:
    """Breaks when it is listed once and forgotten, listed only after the reset, or pinned as landed work."""

    def pinned_late() -> set[str]:
        return {one["name"] for one in alone.llmc("trash", "list", "--json").json if one["why"] == "late"}

    before = pinned_late()
    work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:after:kill")
    run_in_worktree(alone, f"echo more > more; git add more; {COMMIT} 'Too late'")
    if kill:
        alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT=f"{kill}:kill")
        alone.llmc("accept", "adam")
    else:
        assert "adam made new commits while its work was landing" in alone.llmc("accept", "adam").err
    assert (alone.log()[0], alone.status("adam")["status"]) == ("X", "idle")
    (late,) = pinned_late() - before
    work_left = [row["what"] for row in alone.llmc("uninstall", "--dry-run", "--json").json["work"]]
    assert f"trash: {late}: unlanded commits" in work_left

    def listed() -> list[dict[str, Any]]:
        found = alone.llmc("status", "--json").json["attention"]
        return [one for one in found if one["kind"] != "daemon"]

    (item,) = listed()
    assert (item["kind"], item["severity"], item["who"]) == ("late_work", "waiting", "adam")
    command = item["next"].split()[1:]
    if kill:
        assert command == ["trash", "list", "--worker", "adam"]
        (entry,) = [one for one in alone.llmc(*command, "--json").json if one["subject"] == "Too late"]
        command = ["trash", "restore", entry["name"]]
    assert item["next"] in alone.llmc("digest").out
    assert "Too late" in alone.llmc(*command).out or kill
    assert listed() == [], "once it was shown or restored, it is no longer listed"


@pytest.mark.soak
def test_git_gc_between_two_steps_costs_nothing(alone: Fleet) -> None:
    """Breaks when the commit has no ref before it lands: accept would fail forever."""
    before = alone.log()
    work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    alone.commit("main.txt", "main\n", "Main moves")
    for at in ("accept.merge:after", "accept.validate:before", "accept.land:before"):
        alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT=f"{at}:kill")
        alone.git("reflog", "expire", "--expire=now", "--all", cwd=alone.root)
        alone.git("gc", "-q", "--prune=now", cwd=alone.root)
    alone.llmc("accept", "adam")
    assert alone.log() == ["X", "Main moves", *before]


def test_a_commit_that_the_worker_amended_away_does_not_block_it(alone: Fleet) -> None:
    """Breaks when accepted commits must stay forever: accept would fail each time, and reset would refuse."""
    work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:before:kill")
    run_in_worktree(alone, f"echo y > x; {COMMIT} 'Y' -a --amend")
    alone.git("update-ref", "-d", "refs/llmc/land/adam", cwd=alone.root)
    alone.git("reflog", "expire", "--expire=now", "--all", cwd=alone.root)
    alone.git("gc", "-q", "--prune=now", cwd=alone.root)
    alone.llmc("accept", "adam", code=None)
    alone.llmc("accept", "adam")
    assert alone.log()[0] == "Y"


@pytest.mark.parametrize("step", ["rebase", "land", *in_soak("squash")])
def test_the_journal_of_an_older_llmc_goes_on(alone: Fleet, step: str) -> None:
    """It names steps that no longer exist, and another commit as the worker's."""
    before = alone.log()
    tip = work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:before:kill")
    path = alone.root / "state.json"
    state = json.loads(path.read_text())
    journal = state["workers"]["adam"]["accept"]
    old = {"step": step, "tip": alone.git("rev-parse", "HEAD~1", cwd=alone.worktree("adam")), "rebased": tip}
    new = {key: journal[key] for key in ("started_unix", "base", "squash", "attempt") if key in journal}
    state["workers"]["adam"]["accept"] = {**new, **old}
    path.write_text(json.dumps(state))
    for args in (["status"], ["doctor"]):
        alone.llmc(*args, code=None)
    alone.llmc("accept", "adam")
    assert alone.log() == ["X", *before]
    assert alone.status("adam")["status"] == "idle"


def test_the_workers_attributes_do_not_merge_what_conflicts(fleet: Fleet) -> None:
    """Breaks when the fallback rebases one by one: after the first commit, its `merge=union` would decide."""
    first = f"echo '* merge=union' > .gitattributes; git add .gitattributes; {COMMIT} 'Attributes'"
    work(fleet, f"{first}; echo 'calls mine()' > user.txt; {COMMIT} 'Mine' -a")
    fleet.commit("user.txt", "calls main()\n", "Main moves")
    refused = fleet.llmc("accept", "adam", code=1)
    assert "conflict with main in user.txt" in refused.err
    assert fleet.log()[0] == "Main moves"


def test_review_shows_what_lands(fleet: Fleet) -> None:
    """Offline, so it is not rebased: the diff is still against the latest base, and accept recognizes it."""
    work(fleet, f"echo both > both.txt; echo x > x; git add -A; {COMMIT} 'X'")
    fleet.commit("both.txt", "both\n", "Main has one of them")
    fleet.llmc("hold", "adam")
    shown = fleet.llmc("review", "adam", "--json").json
    assert [file["path"] for file in shown["files"]] == ["x"]
    assert (shown["behind"], shown["base"]) == (1, fleet.git("rev-parse", "main"))
    fleet.llmc("release", "adam")
    assert fleet.llmc("accept", "adam", "--json").json["reviewed"] == "same"
    assert fleet.git("diff", "--name-only", "HEAD~1", "HEAD") == "x"


def test_a_merge_that_takes_nothing_of_main_is_shown(fleet: Fleet) -> None:
    """`merge -s ours` lands the loss of main's change, as it says; the reviewer is warned."""
    work(fleet, f"echo x > x; git add x; {COMMIT} 'X'")
    fleet.commit("user.txt", "calls new()\n", "Main mends the user")
    run_in_worktree(fleet, f"git fetch -q origin && {WHO} merge -q -s ours -m 'Merge' origin/main")
    shown = fleet.llmc("review", "adam")
    assert "warning: a merge by the worker dropped changes from main in user.txt" in shown.out
    assert "-calls new()" in shown.out
    assert fleet.llmc("review", "adam", "--json").json["warnings"]


def undo_by_hand(fleet: Fleet) -> None:
    fleet.git("revert", "--no-edit", "HEAD")


def move_back(fleet: Fleet) -> None:
    fleet.git("reset", "-q", "--hard", "HEAD~1")


@pytest.mark.parametrize("undo", [undo_by_hand, move_back])
def test_what_was_taken_back_does_not_come_again_unseen(fleet: Fleet, undo: Callable[[Fleet], None]) -> None:
    """A worker carries a commit of main's that was reverted there. Breaks when no check looks for it."""
    fleet.commit("bad.txt", "bad\n", "Bad idea")
    work(fleet, f"git fetch -q origin; echo x > x; git add x; {COMMIT} 'X'")
    if undo is undo_by_hand:
        carry_a_copy(fleet)
    undo(fleet)
    refused = fleet.llmc("accept", "adam", code=3)
    assert "were reverted on main" in refused.err
    assert "Bad idea" in refused.err
    shown = fleet.llmc("review", "adam")
    assert "warning: changes that were reverted on main would land again" in shown.out
    assert not (fleet.source / "bad.txt").exists()
    fleet.llmc("accept", "adam")
    assert (fleet.source / "bad.txt").exists()


def carry_a_copy(fleet: Fleet) -> None:
    """The worker's branch from before main's commit, with the same change in its own commit."""
    base = fleet.git("rev-parse", "main~1")
    run_in_worktree(
        fleet, f"git reset -q --hard {base} && echo bad > bad.txt && echo x > x && git add -A && {COMMIT} 'X'"
    )


def test_a_branch_that_moves_back_after_landing_is_noticed(alone: Fleet) -> None:
    """Breaks when `verify` ignores what is_landed says: "accepted", but nothing is on the branch."""
    work(alone, f"echo x > x; git add x; {COMMIT} 'X'")
    hook = Path(alone.source / ".git/hooks/post-merge")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ngit reset -q --hard HEAD~1\n")
    hook.chmod(0o755)
    refused = alone.llmc("accept", "adam", code=1)
    assert "landed but is no longer on the default branch" in refused.err
    assert not alone.events("accepted")
    assert (alone.worktree("adam") / "x").exists()
    hook.unlink()
    alone.llmc("accept", "adam")
    assert alone.log()[0] == "X"
