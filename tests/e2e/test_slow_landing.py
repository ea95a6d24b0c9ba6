"""A landing that takes its time: accept waits in its journal, without a lock and without a process."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmc.base import locks
from llmc.base.processes import Process
from llmc.config.model import Overseer
from llmc.repo.project import open_project
from llmc.supervisor.daemon_process import Running
from llmc.supervisor.model import Identity
from llmc.supervisor.watch import LogTail, Watch, stalled_workers
from tests.support import auto, goals
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT
from tests.support.slow_landing import HANG, MERGE, SQUASH
from tests.support.waiting import wait_until

HERE = Path(__file__).parents[2]


class OtherSide:
    """Where work is handed over, and how `llmc` runs with it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.folder = fleet.dir / "forge"
        self.folder.mkdir()

    def answers(self, text: str) -> None:
        (self.folder / "answer").write_text(text)

    def times(self, what: str) -> int:
        path = self.folder / what
        return len(path.read_text().splitlines()) if path.exists() else 0

    def start(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.slow_landing", str(self.folder), *args],
            cwd=self.fleet.source,
            env={**self.fleet.env, "PYTHONPATH": str(HERE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *args: str) -> tuple[int, str]:
        process = self.start(*args)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said


def work(fleet: Fleet, text: str, worker: str = "adam") -> None:
    prompt = f"@sh echo {text} > {worker}; git add {worker}; {COMMIT} '{text}'"
    fleet.llmc("start", "--worker", worker, "--prompt", prompt)
    fleet.wait(worker, "needs_review")


def is_free(fleet: Fleet) -> bool:
    """Whether no lock is held on the worker, or for a landing."""
    root = open_project(str(fleet.root)).root
    names = ("worker-adam", "ticket", "merge")
    return not any(locks.is_locked(root.lock(name)) for name in names)


def test_an_accept_waits_without_a_lock_and_outlives_kill_9(scripted: Fleet) -> None:
    """Break: hold the worker's lock while polling; start over after a crash; land it as a fast-forward."""
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.kill_daemon()  # it lands by fast-forward, and would poll that way after a while
    side = OtherSide(fleet)
    work(fleet, "One")
    code, said = side.run("accept", "adam")
    assert (code, "waiting for a reviewer" in said) == (0, True), said
    assert fleet.status("adam")["accept_step"] == "wait"
    assert is_free(fleet)

    side.answers(HANG)
    asking = side.start("accept", "adam")
    wait_until(lambda: side.times("asked") == 1)
    wait_until(lambda: is_free(fleet))  # a poll that hangs would hold it forever
    asking.send_signal(signal.SIGKILL)
    asking.communicate(timeout=30)
    assert fleet.status("adam")["accept_step"] == "wait"
    assert fleet.log() == ["First commit"]

    fleet.commit("other.txt", "a person's", "Theirs")  # the branch moves in the meantime
    side.answers(MERGE)
    code, said = side.run("accept", "adam")
    assert (code, "accepted adam" in said) == (0, True), said
    assert side.times("begun") == 1
    assert {"One", "Theirs"} < set(fleet.log())
    assert fleet.status("adam")["status"] == "idle"
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == fleet.git("rev-parse", "main")
    steps = [event["step"] for event in fleet.events("accept_step")]
    assert steps.count("wait") == 1, "a poll is not an event"

    work(fleet, "Two")
    side.answers("use the other name")
    assert side.run("accept", "adam")[0] == 0  # handed over, and not polled yet
    code, said = side.run("accept", "adam")
    assert (code, "use the other name" in said) == (3, True), said
    row = fleet.status("adam")
    assert (row["status"], row["accept_step"]) == ("needs_review", None)
    assert "Two" not in fleet.log()
    assert any(
        "use the other name" in item["text"] for item in fleet.llmc("status", "--json").json["attention"]
    )


def test_a_commit_that_the_other_side_made_of_it_is_the_one_that_counts(scripted: Fleet) -> None:
    """Break: keep the offered commit in the journal; undo then says that it is not on the branch."""
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.kill_daemon()
    side = OtherSide(fleet)
    work(fleet, "One")
    assert side.run("accept", "adam")[0] == 0
    fleet.commit("other.txt", "a person's", "Theirs")
    side.answers(SQUASH)
    code, said = side.run("accept", "adam")
    landed = fleet.git("rev-parse", "main")
    assert (code, f"accepted adam: {landed[:12]} on main: Squashed" in said) == (0, True), said
    assert fleet.events("accepted")[0]["commit"] == landed
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == landed

    assert side.run("undo", "--yes")[0] == 1
    code, said = side.run("undo", "--yes")
    assert code == 0, said
    undone = fleet.events("undone")[0]
    assert (undone["commit"], undone["revert"]) == (landed, fleet.git("rev-parse", "main"))
    assert "adam" not in fleet.git("ls-tree", "--name-only", "main").split()


@pytest.mark.soak
def test_auto_mode_waits_for_a_slow_landing_and_tells_the_worker_what_is_wanted(scripted: Fleet) -> None:
    """Break: release the task while its work may still land; or keep polling after it was sent back."""
    fleet = auto.set_up(scripted)
    side = OtherSide(fleet)
    auto.add(fleet, 1)
    daemon = side.start("up", "--auto")
    try:
        auto.wait_for(fleet, lambda: side.times("asked") >= 2)
        assert auto.statuses(fleet) == {"1": "in_progress"}
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=40)
        assert auto.statuses(fleet) == {"1": "in_progress"}, "it may land, and must not be done twice"

        side.answers("not like this")
        daemon = side.start("up", "--auto")
        auto.wait_for(fleet, lambda: fleet.events("task_sent_back"))
        side.answers(MERGE)
        auto.wait_completed(fleet, 1)
    finally:
        daemon.kill()
        daemon.communicate(timeout=40)
    assert "not like this" in fleet.events("task_sent_back")[0]["reason"]
    assert auto.statuses(fleet) == {"1": "completed"}
    assert "Task 1" in fleet.log()


@pytest.mark.soak
def test_undo_does_not_mean_an_older_accept_while_a_newer_one_waits(scripted: Fleet) -> None:
    """Break: look only for landed work; undo would revert the accept before the pending one."""
    fleet = scripted.set_up("adam", "eve")
    fleet.up()
    fleet.kill_daemon()
    side = OtherSide(fleet)
    work(fleet, "One")
    fleet.llmc("accept", "adam")
    work(fleet, "Two")
    assert side.run("accept", "adam")[0] == 0
    refused = fleet.llmc("undo", "--yes", code=3).err
    assert "from adam has been waiting for a reviewer since 20" in refused
    assert "llmc accept adam" in refused
    assert fleet.log()[0] == "One"

    work(fleet, "Three", worker="eve")
    fleet.llmc("accept", "eve")  # landed after the other was handed over: it is the latest
    fleet.llmc("undo", "--yes")
    assert fleet.log()[0] == 'Revert "Three"'
    fleet.llmc("undo", "--yes", code=3)

    side.answers(MERGE)
    assert side.run("accept", "adam")[0] == 0
    fleet.llmc("undo", "--yes")
    assert fleet.log()[0] == 'Revert "Two"'


@pytest.mark.soak
def test_an_undo_waits_for_its_landing_as_an_accept_does(scripted: Fleet) -> None:
    """Break: start over instead of polling; poll while holding the landing ticket;
    keep the journal of a rejected revert.
    """
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.kill_daemon()
    side = OtherSide(fleet)
    work(fleet, "One")
    fleet.llmc("accept", "adam")
    for _ in range(2):
        code, said = side.run("undo", "--yes")
        assert (code, "it is waiting for a reviewer" in said) == (1, True), said
    assert (side.times("begun"), side.times("asked")) == (1, 1)

    side.answers(HANG)
    asking = side.start("undo", "--yes")
    wait_until(lambda: side.times("asked") == 2)
    assert is_free(fleet)
    asking.send_signal(signal.SIGKILL)
    asking.communicate(timeout=30)

    side.answers("we need it")
    code, said = side.run("undo", "--yes")
    assert (code, "was not accepted: we need it" in said) == (3, True), said
    assert fleet.log()[0] == "One"
    assert fleet.events("undo_failed")[0]["reason"].endswith("we need it")

    assert side.run("undo", "--yes")[0] == 1  # another one, handed over again
    side.answers(MERGE)
    code, said = side.run("undo", "--yes")
    assert code == 0, said
    assert 'Revert "One"' in fleet.log()
    assert side.times("begun") == 2


@pytest.mark.parametrize("answer", [MERGE, "not like this"])
@pytest.mark.soak
def test_a_goal_that_is_cancelled_waits_for_the_landing_of_its_task(scripted: Fleet, answer: str) -> None:
    """What landed is completed; what is sent back is not changed again, but kept in the trash.

    Break: reset the worker while its work is pending; or tell it to change work that its goal has withdrawn.
    """
    fleet = goals.set_up(scripted)
    side = OtherSide(fleet)
    made = goals.plan([[goals.leaf(1)]])
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
    daemon = side.start("up", "--auto")
    try:
        goal = goals.create(fleet)
        auto.wait_for(fleet, lambda: side.times("asked") >= 1)
        fleet.llmc("goal", "cancel", goal)
        log = fleet.root / "logs/goals.log"
        waits = "withdraw S1.1.1: postponed (task 1 is waiting for a reviewer and may still land)"
        goals.wait_for(fleet, lambda: waits in log.read_text())
        assert auto.at_work(fleet) == {"auto-1": "1"}
        for words in (["tasks", "done", "1"], ["tasks", "release", "1"], ["reset", "auto-1"]):
            refused = fleet.llmc(*words, code=3).err
            assert "is waiting for a reviewer and may still land" in refused
            assert "llmc accept auto-1" in refused, "a command that is not refused"

        side.answers(answer)
        goals.wait_for(fleet, lambda: goals.events(fleet, "dispatch.ok"))
        auto.wait_for(fleet, lambda: fleet.status("auto-1")["status"] == "idle")
    finally:
        daemon.kill()
        daemon.communicate(timeout=40)
    landed = answer == MERGE
    assert auto.statuses(fleet) == ({"1": "completed"} if landed else {})
    assert ("Part 1" in fleet.log()) is landed
    assert fleet.events("task_sent_back") == []
    trash = fleet.llmc("trash", "list", "--worker", "auto-1", "--json").json
    assert ("reset" in [entry["why"] for entry in trash]) is not landed, trash


def test_a_fleet_that_only_waits_to_land_is_not_stalled(scripted: Fleet) -> None:
    """Break: count a worker whose landing is pending as busy, or as free for the next task."""
    fleet = auto.set_up(scripted)
    side = OtherSide(fleet)
    auto.add(fleet, 1)
    daemon = side.start("up", "--auto")
    project = open_project(str(fleet.root))
    watched = Running(Identity(daemon.pid, 1.0, "i-1"), Process(daemon.pid, ""), None, time.monotonic())
    at_once = Overseer(heartbeat_timeout_secs=1e9, stall_timeout_secs=-1.0)
    tail = LogTail(fleet.root / "logs/daemon.jsonl")

    def has_work() -> bool:
        return Watch(project, watched, tail, at_once).look().has_work

    try:
        auto.wait_for(fleet, lambda: side.times("asked") >= 1)
        auto.add(fleet, 2)
        assert not has_work(), "the only worker is waiting"
        assert stalled_workers(project) == []
    finally:
        daemon.kill()
        daemon.communicate(timeout=40)
    with project.store.transaction() as tx:
        tx.update("auto-1", accept=None)
    assert has_work()
    tail.close()
