"""Whether this machine can contain an agent, asked by a process that runs for days."""

import pytest

from llmc.sandbox import probe
from tests.support.contained import needs_bubblewrap

pytestmark = needs_bubblewrap


def test_a_machine_that_was_fixed_contains_the_next_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: remember a failure for as long as the process runs, or try each time."""
    now = 1000.0
    monkeypatch.setattr(probe, "monotonic", lambda: now)
    monkeypatch.setattr(probe, "_tried", [])
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        found = probe.problem()
        assert found is not None
        assert not probe.is_contained("auto")
    assert probe.bubblewrap() is not None, "the user installs it"
    now += probe.RETRY_S - 1
    assert probe.problem() == found, "a try runs a program"
    now += 1
    assert probe.problem() is None
    assert probe.is_contained("on")
    monkeypatch.setenv("PATH", "/nowhere")
    now += probe.RETRY_S
    assert probe.problem() is None, "a success is not tried again"
