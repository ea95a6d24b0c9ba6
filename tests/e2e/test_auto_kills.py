"""kill -9 of the daemon in auto mode, at random moments: every task lands once, in order, and no claim is left."""

import json
import random
import time

import pytest

from tests.support.fleet import Fleet
from tests.support.plans import add_plan, assert_done_once_in_order, auto_config, random_plan
from tests.support.waiting import wait_until

SEEDS = range(20)


def completed(fleet: Fleet) -> int:
    return int(json.loads((fleet.root / "state.json").read_text())["auto"]["tasks_completed"])


def run(fleet: Fleet, seed: int, tasks: int, kills: int, workers: int) -> None:
    dice = random.Random(seed)
    plan = random_plan(tasks, dice)
    fleet.set_up(config=auto_config(fleet))
    add_plan(fleet, plan)
    # Kills are spread over the tasks, each a random moment after one was completed.
    moments = sorted(dice.sample(range(tasks), kills))
    fleet.up("--auto", "--concurrency", str(workers))
    for done in moments:
        wait_until(lambda done=done: completed(fleet) >= done, 90)
        time.sleep(dice.uniform(0, 0.4))
        fleet.kill_daemon()
        fleet.up("--auto", "--concurrency", str(workers))
    try:
        wait_until(lambda: completed(fleet) == tasks, 120)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{fleet.llmc('tasks', 'list').out}\n{fleet.story()}") from error
    fleet.llmc("down")
    assert_done_once_in_order(fleet, plan)


def test_random_kills_of_the_daemon(scripted: Fleet) -> None:
    """Break: write the ledger after the file in claims.take, or complete the task after the worker's reset."""
    run(scripted, seed=1, tasks=14, kills=4, workers=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_sixty_tasks_and_ten_kills(scripted: Fleet, seed: int) -> None:
    """Break: as above; more of them."""
    run(scripted, seed=seed, tasks=60, kills=10, workers=4)
