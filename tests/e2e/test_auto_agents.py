"""Auto mode end to end, on both agents: dependencies, a usage limit, a crash; everything lands."""

import pytest

from tests.support import auto
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.loopback_api import CRASH
from tests.support.plans import COMMIT, auto_config, tasks_of


def work(number: int) -> str:
    return f"echo {number} > done-{number}; git add done-{number}; {COMMIT} 'Task {number}'"


@pytest.mark.parametrize(
    ("count", "workers"), [(4, 1), pytest.param(6, 2, marks=pytest.mark.soak)], ids=["one worker", "two"]
)
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
@pytest.mark.soak
def test_tasks_with_a_limit_and_a_crash(fleet: Fleet, count: int, workers: int) -> None:
    """Break: count a limit as an attempt, give a parked fleet work, or keep a crashed worker's claim."""
    fleet.set_up(
        config=auto_config(fleet, **{"auto.limit_backoff_secs": "2", "defaults.ready_timeout_s": "40"})
    )
    crashed = fleet.marks / "crashed"
    crash_once = f"test -e {crashed} || {{ touch {crashed}; {CRASH}; }}"
    tasks = {
        1: ([], f"@sh {work(1)}"),
        2: ([], f"@limit 2\n@on-resume {work(2)}"),
        3: ([1], f"@sh {crash_once}\n@sh {work(3)}"),
        4: ([2, 3], f"@sh test -e done-2 && test -e done-3 && {work(4)}"),
        5: ([1], f"@sh {work(5)}"),
        6: ([5], f"@sh {work(6)}"),
    }
    tasks = {number: tasks[number] for number in range(1, count + 1)}
    for number, (after, text) in tasks.items():
        waits = [arg for other in after for arg in ("--after", str(other))]
        fleet.llmc("tasks", "add", f"Do {number}", "--description", text, *waits)
    fleet.up("--auto", "--concurrency", str(workers))
    auto.wait_completed(fleet, count, 120)
    told = fleet.llmc("status", "--json").json["auto"]
    assert (told["tasks_completed"], told["errors"]) == (count, 1)
    assert sorted(fleet.log()) == sorted([*(f"Task {number}" for number in tasks), "First commit"])
    assert all(task["status"] == "completed" and not task.get("owner") for task in tasks_of(fleet).values())
    parks = fleet.events("fleet_parked")
    assert [event["cause"] for event in parks] == ["limit"]
    failed = fleet.events("task_failed")
    assert [(event["task_id"], event["cause"], event["attempt"]) for event in failed] == [("3", "crash", 1)]
