"""Undo: the latest accept is reverted, validated and landed; a refused undo changes nothing."""

import json
import signal
from collections.abc import Iterator

import pytest

from llmc.base.locks import is_locked
from llmc.landing import undo
from tests.support import auto, goals
from tests.support.fleet import Fleet, in_soak
from tests.support.waiting import wait_until

KILLED = -signal.SIGKILL
COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.set_up("adam", config={"repo.validate": "test ! -e broken.txt"})
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


def land(fleet: Fleet, name: str, text: str) -> None:
    prompt = f"Write {name}\n@sh printf '{text}' > {name}; git add {name}; {COMMIT} 'Write {name}'"
    fleet.llmc("start", "--worker", "adam", "--prompt", prompt)
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")


def test_undo_reverts_the_newest_accept_and_then_the_one_before(running: Fleet) -> None:
    """Break: do not emit `undone`; the second undo would revert the same commit again."""
    land(running, "one.txt", "1\\n")
    land(running, "two.txt", "2\\n")
    running.llmc("undo", code=2)
    done = running.llmc("undo", "--yes", "--json").json
    assert done["prompt"].startswith("Write two.txt")
    assert not (running.source / "two.txt").exists()
    assert (running.source / "one.txt").exists()
    running.llmc("undo", "--yes")
    assert not (running.source / "one.txt").exists()
    assert running.log()[:4] == [
        'Revert "Write one.txt"',
        'Revert "Write two.txt"',
        "Write two.txt",
        "Write one.txt",
    ]
    assert running.git("status", "--porcelain") == ""
    assert "nothing to undo: no accepted work left" in running.llmc("undo", "--yes", code=4).err


def test_later_changes_of_the_same_lines_are_named_and_refused(running: Fleet) -> None:
    land(running, "same.txt", "1\\n")
    running.commit("same.txt", "by a person\n", "A person's change")
    refused = running.llmc("undo", "--yes", code=3)
    assert "same.txt" in refused.err
    assert running.log()[0] == "A person's change"


def test_a_dirty_source_is_refused(running: Fleet) -> None:
    land(running, "dirty.txt", "1\\n")
    (running.source / "README.md").write_text("half a thought\n")
    assert "uncommitted changes" in running.llmc("undo", "--yes", code=3).err
    running.git("checkout", "-q", "README.md")
    running.llmc("undo", "--yes")


def test_a_revert_that_fails_validation_does_not_land(running: Fleet) -> None:
    """Break: land the revert without validating it."""
    running.commit("broken.txt", "x\n", "Breaks the check")
    prompt = f"@sh git rm -q broken.txt; {COMMIT} 'Mend the check'"
    running.llmc("start", "--worker", "adam", "--prompt", prompt)
    running.wait("adam", "needs_review")
    running.llmc("accept", "adam")
    assert "validation failed" in running.llmc("undo", "--yes", code=1).err
    assert running.log()[0] == "Mend the check"
    assert running.events("undo_failed")[-1]["step"] == "validate"
    assert auto.state(running).get("undo") is None


# Killed at every step; a fleet whose tasks have landed, and no daemon.


def land_tasks(fleet: Fleet, count: int) -> None:
    auto.set_up(fleet, **{"repo.validate": "test ! -e broken.txt", "auto.concurrency": "2"})
    for number in range(1, count + 1):
        auto.add(fleet, number)
    fleet.up("--auto")
    auto.wait_completed(fleet, count, 120)
    fleet.llmc("down")


def newest(fleet: Fleet) -> tuple[str, str]:
    """Commit and task of the latest accept that was not undone."""
    gone = {row["commit"] for row in fleet.events("undone")}
    commits = [row["commit"] for row in fleet.events("accepted") if row["commit"] not in gone]
    done = {row["commit"]: row["task_id"] for row in fleet.events("task_completed")}
    return commits[-1], done[commits[-1]]


def assert_undone_once(fleet: Fleet, commit: str, task: str) -> None:
    story = fleet.story()
    reverts = [line for line in fleet.log() if line == f'Revert "Task {task}"']
    assert len(reverts) == 1, story
    assert not (fleet.source / f"file-{task}").exists()
    assert [row["commit"] for row in fleet.events("undone")].count(commit) == 1, story
    assert [row["task_id"] for row in fleet.events("task_requeued")].count(task) == 1, story
    assert auto.statuses(fleet)[task] == "pending"
    assert fleet.llmc("tasks", "show", task, "--json").json["state"] == "ready"
    assert auto.state(fleet).get("undo") is None
    assert fleet.git("status", "--porcelain") == ""


EVERY = [f"{step}:{side}" for step in undo.STEPS for side in ("before", "after")]
#: at the start, before and after the landing, and at the end
SOME = ["land:before", "return:before"]


@pytest.mark.parametrize("kills", [SOME, *in_soak(EVERY)], ids=["some", "all"])
def test_an_undo_goes_on_after_kill_9_at_every_step(scripted: Fleet, kills: list[str]) -> None:
    """Break: write the journal after the step; emit `undone` separately; or forget the revert's ref."""
    land_tasks(scripted, len(kills) + 1)
    for kill in kills:
        commit, task = newest(scripted)
        others = {other: status for other, status in auto.statuses(scripted).items() if other != task}
        scripted.llmc("undo", "--yes", code=KILLED, LLMC_FAULT=f"undo.{kill}:kill")
        scripted.git("gc", "-q", "--prune=now", cwd=scripted.root)
        done = scripted.llmc("undo", "--json").json
        assert (done["commit"], done["returned"]) == (commit, f"task {task} is pending again"), kill
        assert done["revert"] == scripted.git("rev-parse", "main"), kill
        assert_undone_once(scripted, commit, task)
        assert {other: auto.statuses(scripted)[other] for other in others} == others, kill
    assert_a_lost_journal_is_no_revert_of_a_persons(scripted)


def assert_a_lost_journal_is_no_revert_of_a_persons(fleet: Fleet) -> None:
    """state.json was rebuilt after the revert had landed.

    Break: leave out `_landed_before`; it is "reverted already".
    """
    commit, task = newest(fleet)
    fleet.llmc("undo", "--yes", code=KILLED, LLMC_FAULT="undo.land:after:kill")
    state = auto.state(fleet)
    (fleet.root / "state.json").write_text(json.dumps({**state, "undo": None}))
    assert fleet.llmc("undo", "--yes", "--json").json["commit"] == commit
    assert_undone_once(fleet, commit, task)


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_the_daemon_finishes_an_undo_that_was_killed_and_the_command_says_so(scripted: Fleet) -> None:
    """Break: do not resume; or let the repeated command revert the previous accept."""
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    land(scripted, "one.txt", "1\\n")
    land(scripted, "two.txt", "2\\n")
    scripted.llmc("down")
    scripted.llmc("undo", "--yes", code=KILLED, LLMC_FAULT="undo.land:before:kill")
    assert (scripted.source / "two.txt").exists()
    scripted.up("--no-patrol")
    wait_until(lambda: scripted.events("undone"), 30)
    assert not (scripted.source / "two.txt").exists()
    wait_until(lambda: not is_locked(scripted.root / ".llmc/locks/ticket.lock"))
    said = scripted.llmc("undo", "--yes")
    assert "Write two.txt" in said.out
    assert (scripted.source / "one.txt").exists()
    assert len(scripted.events("undone")) == 1
    scripted.llmc("undo", "--yes")
    assert not (scripted.source / "one.txt").exists()


@pytest.mark.soak
def test_an_undone_task_is_done_again_and_counted_once(scripted: Fleet) -> None:
    """Break: do not return the task, in the ledger or in the file."""
    auto.set_up(scripted)
    auto.add(scripted, 1, auto.commit(1))
    scripted.up("--auto")
    auto.wait_completed(scripted, 1)
    scripted.llmc("down")
    first = scripted.git("rev-parse", "main")
    said = scripted.llmc("undo", "--yes")
    assert said.out.rstrip().endswith("; task 1 is pending again")
    assert scripted.llmc("digest", "--json").json["accepted"] == []
    scripted.up("--auto")
    wait_until(lambda: len(scripted.events("accepted")) == 2, 40)
    scripted.llmc("down")
    assert scripted.log()[:3] == ["Task 1", 'Revert "Task 1"', "Task 1"]
    assert [row["commit"] for row in scripted.events("undone")] == [first]
    assert auto.statuses(scripted) == {"1": "completed"}


@pytest.mark.soak
def test_a_part_of_a_goal_is_open_again(scripted: Fleet) -> None:
    """Break: requeue the task instead: the plan item would stay done."""
    fleet = goals.set_up(scripted)
    made = goals.plan([[goals.leaf(1)]], [[goals.leaf(2)]])
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
    goal = goals.create(fleet)
    daemon = auto.Daemon(fleet)
    goals.wait_status(fleet, goal, timeout_s=100)
    assert daemon.stop() == 0
    fleet.llmc("undo", "--yes", code=KILLED, LLMC_FAULT="undo.return:after:kill")
    said = fleet.llmc("undo")
    assert said.out.rstrip().endswith(f"; S2.1.1 of goal {goal} was reopened")
    assert goals.status(fleet, goal) == "active"
    assert set(auto.statuses(fleet).values()) == {"completed"}, "the goal creates a new task for it"
    daemon = auto.Daemon(fleet)
    goals.wait_status(fleet, goal, timeout_s=100)
    assert daemon.stop() == 0
    assert fleet.log()[:4] == ["Part 2", 'Revert "Part 2"', "Part 2", "Part 1"]
    assert len(fleet.events("undone")) == 1


@pytest.mark.soak
def test_a_revert_is_checked_where_its_dependencies_are(scripted: Fleet) -> None:
    """Break: validate it in a checkout that was not set up.

    A user who moves the branch in the meantime is no reason to give up. Break: refuse when the branch moved.
    """
    scripted.commit(".gitignore", "venv/\n", "Ignore")
    scripted.set_up(
        "adam", config={"repo.setup": "mkdir -p venv; touch venv/tool", "repo.validate": "test -e venv/tool"}
    )
    scripted.up("--no-patrol")
    land(scripted, "one.txt", "1\\n")
    scripted.llmc("undo", "--yes")
    assert not (scripted.source / "one.txt").exists()
    moved = scripted.dir / "moved"
    commit = f"test -e {moved} || (touch {moved}; cd {scripted.source}; echo p > p.txt; git add p.txt; {COMMIT} Person)"
    land(scripted, "two.txt", "2\\n")
    scripted.configure({"repo.validate": commit})
    scripted.llmc("undo", "--yes")
    assert scripted.log()[:2] == ['Revert "Write two.txt"', "Person"]
    assert (scripted.source / "p.txt").exists()
