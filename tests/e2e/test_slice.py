"""The main job, on every agent: a task in, one clean commit out."""

import pytest

from tests.support.fleet import OLD_CLIENT_TOO, REAL_IN_SOAK, Fleet

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.mark.req("1-007", "1-013")
@pytest.mark.parametrize("fleet", OLD_CLIENT_TOO, indirect=True)
def test_a_task_becomes_one_commit_on_main(fleet: Fleet) -> None:
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


@pytest.mark.req("1-114")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_the_next_task_arrives_after_an_accept(fleet: Fleet) -> None:
    """The worktree is reset in place, so the agent that lives in it still takes the next prompt."""
    fleet.set_up("adam")
    fleet.up()
    for number in (1, 2):
        fleet.llmc(
            "start", "--prompt", f"@sh echo {number} > n.txt && git add n.txt && {COMMIT} 'Number {number}'"
        )
        fleet.wait("adam", "needs_review")
        fleet.llmc("accept", "adam")
    assert fleet.log() == ["Number 2", "Number 1", "First commit"]
