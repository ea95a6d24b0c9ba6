"""A parked fleet continues, also after a kill."""

import pytest

from tests.support.auto import Daemon, add, auto, commit, set_up, wait_completed
from tests.support.fleet import Fleet


@pytest.mark.parametrize("how", ["kill", "fail"])
def test_a_probe_that_was_recorded_but_not_sent_is_sent(scripted: Fleet, how: str) -> None:
    """Break: wait for a probe that is recorded but still stopped; nothing would ever continue."""
    fleet = set_up(scripted)
    add(fleet, 1, "@limit 1", f"@on-resume {commit(1).removeprefix('@sh ')}")
    add(fleet, 2)
    daemon = Daemon(fleet, "--concurrency", "1", LLMC_FAULT=f"submit.persist:before:{how}:2")
    if how == "kill":
        daemon.ends()
        assert auto(fleet)["probe"] == "auto-1"
        daemon = Daemon(fleet, "--concurrency", "1")
    wait_completed(fleet, 2)
    assert auto(fleet)["parked_until_unix"] == 0.0
    assert daemon.stop() == 0
