"""kill -9 of the daemon in auto mode, at random moments: tasks land once, in order, and no claim is left."""

import fcntl
import os
import random
import signal
import threading
import time

import pytest

from tests.support.auto import Daemon, add, auto, commit, landed, statuses, wait_completed, wait_for
from tests.support.fleet import Fleet
from tests.support.plans import add_plan, assert_done_once_in_order, auto_config, random_plan

SEEDS = range(20)


def run(fleet: Fleet, seed: int, tasks: int, kills: int, workers: int) -> None:
    dice = random.Random(seed)
    plan = random_plan(tasks, dice)
    fleet.set_up(config=auto_config(fleet))
    add_plan(fleet, plan)
    # Kills are spread over the tasks, each at a random moment after one was completed.
    moments = sorted(dice.sample(range(tasks), kills))
    fleet.up("--auto", "--concurrency", str(workers))
    for done in moments:
        wait_completed(fleet, done, 90)
        time.sleep(dice.uniform(0, 0.4))
        fleet.kill_daemon()
        fleet.up("--auto", "--concurrency", str(workers))
    wait_completed(fleet, tasks, 120)
    fleet.llmc("down")
    assert_done_once_in_order(fleet, plan)


@pytest.mark.soak
def test_random_kills_of_the_daemon(scripted: Fleet) -> None:
    """Break: write the ledger after the file in ClaudeTasks.claim, or complete the task after the worker's reset."""
    run(scripted, seed=1, tasks=6, kills=2, workers=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_sixty_tasks_and_ten_kills(scripted: Fleet, seed: int) -> None:
    """Break: as above, with more of both."""
    run(scripted, seed=seed, tasks=60, kills=10, workers=4)


#: what a crash can hit between the task list and the default branch
POINTS = [
    "claim.ledger",
    "claim.file",
    "claim.record",
    "accept.complete",
    "claim.complete",
    "auto.post_accept",
]
FAULTS = [f"{point}:{side}" for point in POINTS for side in ("before", "after")]
#: each point once, alternating before and after
SOME = [f"{point}:{('before', 'after')[index % 2]}" for index, point in enumerate(POINTS)]


@pytest.mark.req("0-004", "0-048", "4-042", "4-065")
@pytest.mark.parametrize("faults", [SOME, pytest.param(FAULTS, marks=pytest.mark.soak)], ids=["some", "all"])
def test_a_kill_at_each_step_of_a_task(scripted: Fleet, faults: list[str]) -> None:
    """Break: leave the files of ended claims out of ClaudeTasks.settle; count `no_changes` only before its
    claim ends; or release a lost claim without its event.
    """
    fleet = scripted
    ran = fleet.dir / "ran"
    fleet.set_up(config=auto_config(fleet, **{"auto.post_accept_command": f"echo $LLMC_TASK_ID >> {ran}"}))
    plan = random_plan(8, random.Random(7))
    add_plan(fleet, plan)
    for fault in faults:
        if fleet.rows is None or not fault.startswith("claim.file"):  # a row and its entry are one step
            die_at(fleet, fault)
    run_to_the_end(fleet, 8)
    # Without a commit, and with an agent that dies twice.
    add(fleet, 9, "@sh llmc report done --no-changes 'nothing'")
    die_at(fleet, "claim.complete:after")
    run_to_the_end(fleet, 9)
    lost = fleet.marks / "lost"
    add(fleet, 10, f"@sh test -e {lost} || {{ touch {lost}; kill -9 $PPID; sleep 9; }}", commit(10))
    die_at(fleet, "claim.release:before")
    die_at(fleet, "claim.release:after")
    run_to_the_end(fleet, 10)
    assert_done_once_in_order(fleet, {**plan, 10: []}, unchanged=[9])
    lost_claims = [row for row in fleet.events("task_released") if "after a restart" in row["reason"]]
    assert lost_claims, "an event says that the abandoned claim is free again"
    # At least once for each landed task, and recorded once its exit was seen.
    ended = [row["task_id"] for row in fleet.events("post_accept")]
    assert sorted(ended, key=int) == [str(number) for number in (*plan, 10)]
    assert set(ran.read_text().split()) == {str(n) for n in (*plan, 10)}


def die_at(fleet: Fleet, fault: str) -> None:
    daemon = Daemon(fleet, LLMC_FAULT=f"{fault}:kill")
    assert daemon.ends() == -signal.SIGKILL, f"{fault}: {daemon.said}"


def run_to_the_end(fleet: Fleet, tasks: int) -> None:
    daemon = Daemon(fleet)
    wait_completed(fleet, tasks)
    # A stopped daemon leaves the last task's command to the next one.
    wait_for(fleet, lambda: not auto(fleet).get("post_accept_due"))
    assert daemon.stop() == 0


def test_a_lock_that_outlives_its_daemon_for_a_moment(scripted: Fleet) -> None:
    """A child that has not yet run exec still holds it.

    Break: check only locks.is_locked; `up` reports a running daemon although there is none.
    """
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.kill_daemon()
    lock = os.open(fleet.root / ".llmc/locks/daemon.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    freed = threading.Timer(0.4, os.close, [lock])
    freed.start()
    assert "daemon" in fleet.llmc("up", "--detach").out.splitlines()[0]
    freed.join()
    assert fleet.llmc("status", "--json").json["daemon"]["running"]
    assert "daemon already running" in fleet.llmc("up", "--detach").out


@pytest.mark.req("0-004")
@pytest.mark.parametrize(
    "rebuilt",
    [pytest.param(True, id="rebuilt", marks=pytest.mark.soak), pytest.param(False, id="made again")],
)
def test_a_state_that_is_lost_while_a_task_lands(scripted: Fleet, rebuilt: bool) -> None:
    """Break: leave out `about_to_land`; the task is done a second time, with nothing left to commit.

    Or complete it in `settle` without counting it; its post-accept command never runs.
    """
    fleet = scripted
    ran = fleet.dir / "ran"
    fleet.set_up(config=auto_config(fleet, **{"auto.post_accept_command": f"echo $LLMC_TASK_ID >> {ran}"}))
    add_plan(fleet, {1: []})
    die_at(fleet, "accept.verify:after")
    assert landed(fleet) == [1]
    (fleet.root / "state.json").write_text('{"workers": {}}')
    if rebuilt:
        fleet.llmc("doctor", "--rebuild", "--yes")
    run_to_the_end(fleet, 1)
    assert landed(fleet) == [1]
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1"]
    assert [row["commit"] for row in fleet.events("task_completed")] == [fleet.git("rev-parse", "main")]
    assert ran.read_text() == "1\n"
    assert statuses(fleet) == {"1": "completed"}
