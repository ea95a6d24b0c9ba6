"""The supervisor with its own agent: something breaks, the agent fixes it, and the fleet continues."""

import signal

import pytest

from tests.support import auto
from tests.support.auto import add, commit, set_up
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.supervise import QUICK, Overseer


@pytest.mark.req("0-103", "0-140", "0-146", "0-149", "0-151", "5-011")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_breaks_is_fixed_by_the_agent_and_the_fleet_goes_on(fleet: Fleet) -> None:
    """Break: restart the daemon without a remediation, or exit after one."""
    fixed = fleet.dir / "fixed"
    prompt = f"Fix what the records say.\n@sh touch {fixed}\n@say fixed"
    check = f"test -e {fixed} || {{ echo the build is red; false; }}"
    set_up(fleet, **{**QUICK, "overseer.remediation_prompt": prompt, "auto.post_accept_command": check})
    if fleet.agent == "claude":
        fleet.llmc("init", "--trust")  # the remediation agent works in the checkout
        # Only the remediation agent is the real one; the daemon's agents do not matter here.
        (fleet.dir / "variables").write_text("export LLMC_AGENT=scripted\n")
    add(fleet, 1, commit(1))
    add(fleet, 2, commit(2), after=(1,))
    overseer = Overseer(fleet)
    try:
        auto.wait_for(fleet, lambda: auto.landed(fleet) == [1, 2], 150)
        auto.wait_completed(fleet, 2)
        assert overseer.stop(signal.SIGHUP) == 0, overseer.said  # a terminal that was closed
    finally:
        overseer.close()
    rows = fleet.llmc("usage", "--by", "worker", "--json").json["lines"]
    assert {row["worker"]: row["tokens"] > 0 for row in rows} == {"auto-1": True, "overseer": True}
    (failure,) = fleet.events("overseer_failure")
    assert failure["cause"] == "command"
    (log,) = (fleet.root / "logs").glob("remediation_*.txt")
    text = log.read_text()
    assert text.index("Fix what the records say.") < text.index("the build is red")
    assert f"touch {fixed}" in text
    for line in ("Entering remediation mode...", "Remediation completed in", "Restarting daemon..."):
        assert overseer.said.count(line) == 1, overseer.said
