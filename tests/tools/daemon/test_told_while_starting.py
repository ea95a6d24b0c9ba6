"""The daemon is told to stop while it still sets up worktrees and starts agents."""

import pytest

from llmc.daemon.main import DRAIN_S
from tests.support.auto import Daemon, set_up
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until


@pytest.mark.req("0-040")
@pytest.mark.parametrize("by", ["a signal", "llmc down"])
def test_a_setup_command_does_not_delay_the_end(scripted: Fleet, by: str) -> None:
    """Break: wait for every worker before looking whether to stop; or start auto mode all the same."""
    begun = scripted.marks / "begun"
    fleet = set_up(scripted, **{"repo.setup": f"touch {begun}; sleep 600"})
    daemon = Daemon(fleet, "--concurrency", "2")
    wait_until(begun.exists, 30)
    if by == "llmc down":
        fleet.llmc("down")
        assert daemon.ends() == 0
    else:
        assert daemon.stop() == 0
    assert "ready; press" not in daemon.said
    assert not fleet.events("auto_started")
    assert fleet.events("daemon_stopped")


def test_a_start_that_hangs_does_not_hold_up_the_end(scripted: Fleet) -> None:
    """Break: count only lanes among the work that did not finish; the process would wait for the start forever."""
    fleet = set_up(scripted)
    daemon = Daemon(fleet, "--concurrency", "1", LLMC_FAULT="session.launch:before:hang")
    wait_until(
        (fleet.root / ".llmc/agents/auto-1.settings.json").exists, 30
    )  # written just before the launch
    assert daemon.stop() == 0
    assert f"the daemon's work on auto-1 did not finish within {DRAIN_S:g} s" in daemon.said
