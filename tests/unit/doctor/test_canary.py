"""The rules of the canary: what a scratch session showed, and what follows."""

from typing import Any

import pytest
from msgspec.structs import replace

from llmc.agents.claude.hooks import NAMES
from llmc.doctor.rules.canary_verdict import PROBES, Observed, Result, Verdict, hooks_in, judge, why_probe
from llmc.records.worker import Cause

GOOD = Observed(
    launched=True,
    ready=True,
    status_file=True,
    arrived=True,
    prompt_hook=True,
    transcript_row=True,
    queue_row=True,
    turn_ended=True,
    cleared=True,
    exited=True,
    exit_code=0,
)


def verdict(**about: Any) -> Verdict:
    return judge(replace(GOOD, **about), "claude", "2.2.0 (Claude Code)", "tmux 3.3a", 1.0)


@pytest.mark.parametrize("code", [0, 130])
def test_a_client_that_does_everything_passes(code: int) -> None:
    found = verdict(exit_code=code)
    assert (found.passed, found.reason, found.fix, found.cannot_see) == (True, "", "", ())
    assert set(found.probes.values()) == {Result.PASSED}
    assert found.summary == "2.2.0 (Claude Code) with tmux 3.3a: passed"


@pytest.mark.parametrize(
    ("about", "probe", "words"),
    [
        ({"launched": False, "launch_problem": "tmux is gone"}, "launch", "tmux is gone"),
        ({"ready": False}, "ready", "did not run the SessionStart hook"),
        ({"arrived": False, "why_not": "it did not take it"}, "submit", "it did not take it"),
        ({"turn_ended": False, "rests": True}, "stop", "did not run the Stop hook at the end"),
        ({"turn_ended": False}, "stop", "in time"),
        ({"api_error": "authentication_failed", "api_cause": Cause.AUTH}, "account", "authentication_failed"),
        ({"api_error": "model_not_found", "api_cause": Cause.CONFIG}, "account", "model_not_found"),
        ({"cleared": False}, "clear", "/clear"),
        ({"exited": False, "exit_code": None}, "exit", "did not exit after /exit"),
        ({"exit_code": 3}, "exit", "code 3"),
        ({"exit_code": None}, "exit", "did not report its exit code"),
    ],
)
def test_auto_mode_needs_every_essential_probe(about: dict[str, Any], probe: str, words: str) -> None:
    """Break: make a probe non-essential, or treat its missing answer as a pass."""
    found = verdict(**about)
    assert not found.passed
    assert found.probes[probe] is Result.FAILED
    assert words in found.reason
    assert found.fix, "a refusal says what to do"
    assert found.reason in found.summary


@pytest.mark.parametrize("field", ["status_file", "prompt_hook", "transcript_row", "queue_row"])
def test_what_llmc_can_do_without_is_only_said(field: str) -> None:
    """Break: refuse because of it, or do not report it."""
    found = verdict(**{field: False})
    assert (found.passed, len(found.cannot_see)) == (True, 1)
    assert found.cannot_see[0] in found.summary
    assert verdict(queue_row=None).cannot_see == (), "untested is not blind"


@pytest.mark.parametrize(
    ("error", "cause"), [("rate_limit", Cause.LIMIT), ("overloaded", Cause.API), ("server_error", Cause.API)]
)
def test_a_limit_is_not_the_clients_fault(error: str, cause: Cause) -> None:
    """Break: refuse auto mode because of a limit, which it can wait for."""
    assert verdict(api_error=error, api_cause=cause).passed


def test_a_client_that_is_still_busy_has_neither_passed_nor_failed() -> None:
    """An API that does not answer is not the client's fault. Break: treat a turn without an end as a failure."""
    found = verdict(turn_ended=False, busy=True, cleared=None, exited=None, exit_code=None)
    assert (found.passed, found.is_undecided) == (False, True)
    assert found.probes["stop"] is Result.NOT_TRIED
    assert "did not finish" in found.reason
    assert "run the command again" in found.fix
    assert not verdict(turn_ended=False).is_undecided
    assert not verdict(ready=False, busy=True).is_undecided, "an earlier failure decides"
    assert verdict(busy=True).passed, "its hook reported the end"
    assert not verdict().is_undecided


@pytest.mark.parametrize("field", ["launched", "ready", "arrived", "turn_ended", "cleared", "exited"])
def test_nothing_passes_that_was_not_tried(field: str) -> None:
    """Break: treat a probe that was not reached as a pass."""
    found = verdict(**{field: None})
    assert not found.passed
    assert found.reason


def test_it_is_tried_when_something_is_new() -> None:
    """Break: check only the client's version; trust a version that failed."""
    good = verdict()
    same = (good.client, good.tmux)
    assert why_probe(good, *same) == ""
    assert "has not been tested" in why_probe(None, *same)
    assert "from 2.2.0 (Claude Code) to 2.3.0" in why_probe(good, "2.3.0", good.tmux)
    assert "from tmux 3.3a to tmux 3.5" in why_probe(good, good.client, "tmux 3.5")
    assert "code 3" in why_probe(verdict(exit_code=3), *same)


def test_the_hooks_of_a_log() -> None:
    rows = [
        {"action": "session_launched"},
        {"action": "session_started", "event": "1-1.json", "source": "startup"},
        {"action": "hook_received", "event": "1-2.json", "hook": "UserPromptSubmit"},
        {"action": "prompt_delivered"},
        {"action": "agent_failed", "event": "1-3.json", "error": "rate_limit"},
        {"action": "hook_received", "event": "1-4.json", "hook": "Stop"},
    ]
    assert hooks_in(rows, NAMES) == (
        "SessionStart (startup)",
        "UserPromptSubmit",
        "StopFailure (rate_limit)",
        "Stop",
    )


def test_the_names_of_probes_are_distinct() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
