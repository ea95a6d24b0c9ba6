"""Daemons of several machines land on one remote: they share only a task list and a ledger."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import auto
from tests.support.fleet import Fleet, in_soak
from tests.support.plans import auto_config
from tests.support.remotes import BareRemote
from tests.support.waiting import wait_until

HERE = Path(__file__).parents[2]


class Machines:
    """Fleets of two machines; the second works on the tasks of the first."""

    def __init__(self, place: Path) -> None:
        self.bare = BareRemote(place / "remote.git")
        self.ledger = place / "ledger.json"
        self.fleets = [self._fleet(), self._fleet()]
        self.running: list[subprocess.Popen[bytes]] = []
        for fleet in self.fleets:
            tasks = {"auto.tasks_root": str(self.fleets[0].dir / "tasks")}
            fleet.set_up(config=auto_config(fleet, **auto.QUICK, **tasks))
        auto.task_dir(self.fleets[0]).mkdir(parents=True)

    def _fleet(self) -> Fleet:
        fleet = Fleet("scripted")
        fleet.git("remote", "add", "origin", str(self.bare.path))
        fleet.git("fetch", "-q", "origin")
        fleet.git("reset", "-q", "--hard", "origin/main")
        return fleet

    def start(self, fleet: Fleet, *args: str, **env: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.fleet_node"),
                *(str(self.ledger), str(self.bare.path), str(fleet.root), *args),
            ],
            cwd=fleet.source,
            env={**fleet.env, "PYTHONPATH": str(HERE), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(process)
        return process

    def landed(self) -> list[int]:
        return sorted(int(text.split()[1]) for text in self.bare.log() if text.startswith("Task "))

    def story(self) -> str:
        logs = [fleet.root / "logs/auto.log" for fleet in self.fleets]
        return "\n".join(log.read_text() for log in logs if log.exists()) + self.fleets[0].story()

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(30)
        for fleet in self.fleets:
            fleet.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


@pytest.mark.soak
def test_two_daemons_share_the_work_and_one_straight_history(machines: Machines) -> None:
    """Break: fetch the base from the machine's own source instead of the remote."""
    first, _ = machines.fleets
    for number in range(1, 9):
        auto.add(first, number)
    for fleet in machines.fleets:
        machines.start(fleet, "up", "--auto")
    wait_until(lambda: len(machines.landed()) == 8, 90, machines.story)
    assert machines.landed() == list(range(1, 9))
    assert machines.bare.is_linear()
    wait_until(lambda: set(auto.statuses(first).values()) == {"completed"}, 30, machines.story)

    def done() -> list[int]:
        return [len(fleet.events("task_completed")) for fleet in machines.fleets]

    wait_until(lambda: sum(done()) == 8, 30, machines.story)
    assert all(done()), "both took part"
    tip = machines.bare.head("main")
    for fleet in machines.fleets:  # the one that landed last has it, the other is behind
        assert fleet.git("status", "--porcelain") == ""
    assert tip in [fleet.git("rev-parse", "HEAD") for fleet in machines.fleets]


@pytest.mark.parametrize("kill", ["remote.push:after", *in_soak("remote.enter:after")])
def test_a_daemon_that_was_killed_while_it_landed_goes_on(machines: Machines, kill: str) -> None:
    """Break: complete the task by what the machine remembers, not by what the remote has."""
    first, _ = machines.fleets
    auto.add(first, 1)
    killed = machines.start(first, "up", "--auto", LLMC_FAULT=f"{kill}:kill")
    assert killed.wait(60) == -signal.SIGKILL, machines.story()
    machines.start(first, "up", "--auto")
    wait_until(lambda: first.events("task_completed"), 60, machines.story)
    assert auto.statuses(first) == {"1": "completed"}
    assert machines.landed() == [1]
    assert len(first.events("task_completed")) == 1
    assert first.git("rev-parse", "HEAD") == machines.bare.head("main")


@pytest.mark.parametrize("kill", ["remote.push:after", *in_soak("remote.enter:after")])
def test_the_task_of_a_machine_that_died_is_done_once(machines: Machines, kill: str) -> None:
    """Break: start what the next machine claims without checking what the previous one landed."""
    first, second = machines.fleets
    auto.add(first, 1)
    killed = machines.start(first, "up", "--auto", LLMC_FAULT=f"{kill}:kill")
    assert killed.wait(60) == -signal.SIGKILL, machines.story()
    auto.add(first, 1)  # as when a lease ends: any machine may claim it
    machines.start(second, "up", "--auto")
    wait_until(lambda: second.events("task_completed"), 60, machines.story)
    assert machines.landed() == [1]
    had_landed = kill == "remote.push:after"
    assert (second.user_turns() == []) is had_landed, "done again only if it had not landed"
    said = (second.root / "logs/auto.log").read_text()
    assert ("was completed by another node" in said) is had_landed


def test_a_stopped_machine_hands_its_unfinished_work_over(machines: Machines) -> None:
    """Break: release the task, but keep its commits on that machine."""
    first, second = machines.fleets
    go = first.dir / "go"
    auto.add(first, 1, f"@sh test -e {go} || echo half > half.txt", auto.commit(1, auto.until(go)))
    stopped = machines.start(first, "up", "--auto")
    worker = wait_until(lambda: next(iter(auto.at_work(first)), ""), 60)
    worktree = first.worktree(worker)
    wait_until(lambda: (worktree / "half.txt").exists(), 60, machines.story)
    identity = ["-c", "user.name=W", "-c", "user.email=w@example.com"]
    first.git("add", "half.txt", cwd=worktree)
    first.git(*identity, "commit", "-q", "-m", "Half", cwd=worktree)
    half = first.git("rev-parse", "HEAD", cwd=worktree)
    stopped.send_signal(signal.SIGTERM)
    stopped.wait(60)
    refs = [ref for ref in machines.bare.refs() if ref.startswith("refs/llmc/work/")]
    assert [machines.bare.head(ref) for ref in refs] == [half], machines.story()

    go.touch()
    machines.start(second, "up", "--auto")
    wait_until(lambda: auto.statuses(first) == {"1": "completed"}, 60, machines.story)
    told = "\n".join(second.user_turns())
    assert half in told
    assert "git merge --squash" in told
    assert machines.landed() == [1]
    wait_until(lambda: not [ref for ref in machines.bare.refs() if ref.startswith("refs/llmc/work/")])


@pytest.mark.soak
def test_the_remote_is_gone_for_a_while(machines: Machines) -> None:
    """Break: end auto mode, or charge it to the task."""
    first, _ = machines.fleets
    daemon = machines.start(first, "up", "--auto")
    go = first.dir / "go"
    auto.add(first, 1, auto.commit(1, auto.until(go)))
    wait_until(lambda: auto.at_work(first), 60, machines.story)
    away = machines.bare.path.with_name("away.git")
    os.rename(machines.bare.path, away)
    auto.add(first, 2)
    go.touch()
    log = first.root / "logs/auto.log"
    wait_until(lambda: "is not responding" in log.read_text(), 60, machines.story)
    os.rename(away, machines.bare.path)
    wait_until(lambda: machines.landed() == [1, 2], 60, machines.story)
    assert daemon.poll() is None
    assert first.events("task_failed") == []
