"""The main job, on every agent: a task in, one clean commit out."""

import pytest

from tests.support.fleet import NEW_CLIENT, Fleet

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.mark.req("1-007", "1-013", "1-114")
@pytest.mark.parametrize("fleet", NEW_CLIENT, indirect=True)
def test_a_task_becomes_one_commit_on_main_and_the_next_one_too(fleet: Fleet) -> None:
    fleet.set_up("adam", config={"repo.validate": "test -f new.txt"})
    fleet.up(cold=True)
    started = fleet.llmc(
        "start",
        "--json",
        "--prompt",
        f"Add new.txt\n@sh echo hello > new.txt && git add new.txt && {COMMIT} 'Add new.txt'\n@say done",
    ).json
    assert started["outcome"] == "acknowledged"
    assert started["worker"] == "adam"
    done = fleet.wait("adam", "needs_review")
    assert done["commit_sha"]
    accepted = fleet.llmc("accept", "adam", "--json").json
    assert fleet.git("rev-parse", "main") == accepted["commit"]
    assert fleet.log() == ["Add new.txt", "First commit"]
    assert (fleet.source / "new.txt").read_text() == "hello\n"
    assert fleet.git("status", "--porcelain") == ""
    assert fleet.status("adam")["status"] == "idle"
    # The worktree is reset in place, so its running agent takes the next prompt.
    fleet.llmc("start", "--prompt", f"@sh echo 2 > n.txt && git add n.txt && {COMMIT} 'Number 2'")
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["Number 2", "Add new.txt", "First commit"]
