"""`--max-tasks` counts tasks, not attempts."""

from tests.support.auto import Daemon, add, commit, landed, set_up, statuses
from tests.support.fleet import Fleet


def test_a_retry_is_not_another_task(scripted: Fleet) -> None:
    """Break: count claims; the run ends after the first crash, and nothing was done."""
    fleet = set_up(scripted, **{"auto.crash_backoff_secs": "0.5"})
    once = fleet.marks / "once"
    add(fleet, 1, f"@sh test -e {once} || {{ touch {once}; kill -9 $PPID; sleep 9; }}", commit(1))
    add(fleet, 2)
    daemon = Daemon(fleet, "--max-tasks", "1")
    assert daemon.ends() == 0
    assert landed(fleet) == [1]
    assert len(fleet.events("task_failed")) == 1
    assert statuses(fleet) == {"1": "completed", "2": "pending"}
    assert "auto mode finished: --max-tasks 1 reached" in daemon.said
