"""A landing that takes its time: accept waits in its journal, without a lock and without a process."""

import signal
import subprocess
import sys
from pathlib import Path

from llmc.base import locks
from llmc.repo.project import open_project
from tests.support import auto
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT
from tests.support.slow_landing import HANG, MERGE
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


def work(fleet: Fleet, text: str) -> None:
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh echo {text} > x; git add x; {COMMIT} '{text}'")
    fleet.wait("adam", "needs_review")


def is_free(fleet: Fleet) -> bool:
    """Whether nobody holds the worker, or lands."""
    root = open_project(str(fleet.root)).root
    names = ("worker-adam", "ticket", "merge")
    return not any(locks.is_locked(root.lock(name)) for name in names)


def test_an_accept_waits_without_a_lock_and_outlives_kill_9(scripted: Fleet) -> None:
    """Break: hold the worker's lock while it is asked; begin again after a crash; land it as a fast-forward."""
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.kill_daemon()  # it lands by fast-forward, and would ask that way after a while
    side = OtherSide(fleet)
    work(fleet, "One")
    code, said = side.run("accept", "adam")
    assert (code, "waiting for a reviewer" in said) == (0, True), said
    assert fleet.status("adam")["accept_step"] == "wait"
    assert is_free(fleet)

    side.answers(HANG)
    asking = side.start("accept", "adam")
    wait_until(lambda: side.times("asked") == 1)
    wait_until(lambda: is_free(fleet))  # who hangs while it asks would hold it for ever
    asking.send_signal(signal.SIGKILL)
    asking.communicate(timeout=30)
    assert fleet.status("adam")["accept_step"] == "wait"
    assert fleet.log() == ["First commit"]

    fleet.commit("other.txt", "a person's", "Theirs")  # the branch moves meanwhile
    side.answers(MERGE)
    code, said = side.run("accept", "adam")
    assert (code, "accepted adam" in said) == (0, True), said
    assert side.times("begun") == 1
    assert {"One", "Theirs"} < set(fleet.log())
    assert fleet.status("adam")["status"] == "idle"
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == fleet.git("rev-parse", "main")
    steps = [event["step"] for event in fleet.events("accept_step")]
    assert steps.count("wait") == 1, "each question is no news"

    work(fleet, "Two")
    side.answers("use the other name")
    assert side.run("accept", "adam")[0] == 0  # handed over, and not asked yet
    code, said = side.run("accept", "adam")
    assert (code, "use the other name" in said) == (3, True), said
    row = fleet.status("adam")
    assert (row["status"], row["accept_step"]) == ("needs_review", None)
    assert "Two" not in fleet.log()
    assert any(
        "use the other name" in item["text"] for item in fleet.llmc("status", "--json").json["attention"]
    )


def test_auto_mode_waits_for_a_slow_landing_and_tells_the_worker_what_is_wanted(scripted: Fleet) -> None:
    """Break: give the task back while its work may still land; or ask on and on after it was sent back."""
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
