"""Goals with a real daemon: planned, given out, watched, driven to their end."""


from tests.support import goals
from tests.support.auto import Daemon
from tests.support.fleet import Fleet
from tests.support.goals import leaf, plan


def test_a_goal_is_driven_to_its_end(scripted: Fleet) -> None:
    """Break: leave GoalsLane out of the daemon."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "2"})
    fleet.llmc(
        "config",
        "set",
        "overseer.goals.planner.command",
        goals.planner(fleet, plan([[leaf(1), leaf(2)]], [[leaf(3)]])),
    )
    goal = goals.create(fleet)
    daemon = Daemon(fleet)
    goals.wait_for(fleet, lambda: goals.status(fleet, goal) == "completed")
    assert sorted(goals.parts(fleet)) == [1, 2, 3]
    assert daemon.stop() == 0
