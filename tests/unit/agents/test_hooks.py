"""Hooks become events: the client's own names are known only in agents/."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmc
from llmc.agents.agent_events import AgentEvent, What
from llmc.agents.claude.hooks import NAMES
from llmc.agents.claude.layout import HOOKS, NEED_A_PERSON, TOOL_HOOKS
from llmc.agents.kinds import event_of
from llmc.records.hook_events import HookEvent, Malformed
from llmc.records.worker import Cause

#: hooks that llmc only notes
NOTED = {"Notification", "SubagentStop", "PostCompact"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "agent_id",
        "background_tasks",
        "error",
        "last_assistant_message",
        "prompt",
        "reason",
        "session_id",
        "source",
        "task_id",
        "tool_input",
        "tool_name",
        "transcript_path",
    ]
)


def event(name: str, agent: str = "claude", **payload: Any) -> AgentEvent:
    payload = {"hook_event_name": name, **payload}
    return event_of(
        HookEvent(id="1700000000000000001-1.json", worker="w", instance="i", payload=payload), agent
    )


def test_every_hook_that_llmc_listens_to_means_something_or_is_only_noted() -> None:
    """Break: take a row out of NAMES."""
    assert {*HOOKS, *TOOL_HOOKS} == {*NAMES.values(), *NOTED}
    for name in NOTED:
        assert event(name).what is What.OTHER
    for what, name in NAMES.items():
        assert event(name, tool_name="TaskCreate").what is what


def test_only_the_tool_that_makes_tasks_announces_one() -> None:
    """Break: leave the comparison of tool_name out."""
    assert event("PreToolUse", tool_name="Bash").what is What.OTHER


@pytest.mark.parametrize("agent", ["claude", "scripted", "", "of-a-later-llmc"])
def test_what_llmc_tells_itself_is_the_same_for_every_agent(agent: str) -> None:
    """Break: leave it to the client's translator."""
    said = event("Report", agent, kind="blocked", text="no key")
    assert (said.what, said.told["text"]) == (What.REPORTED, "no key")
    assert event("PaneDied", agent, pane="%1").what is What.EXITED
    assert event("Stop", agent).what is What.TURN_ENDED


def test_a_turn_that_failed_says_why() -> None:
    failed = event("StopFailure", error="rate_limit", last_assistant_message="You've hit your limit")
    assert (failed.error, failed.cause, failed.last_words) == (
        "rate_limit",
        Cause.LIMIT,
        "You've hit your limit",
    )
    assert event("StopFailure", error="a new one").cause is Cause.AGENT


@pytest.mark.parametrize("value", [5, "x", None, [1, "a", None], [{"status": 5}], {"status": "running"}])
def test_a_stop_with_odd_background_tasks_is_still_a_stop(value: object) -> None:
    """Break: iterate over whatever `background_tasks` is."""
    stop = event("Stop", background_tasks=value)
    assert (stop.what, stop.background_running, stop.only_shells_running) == (What.TURN_ENDED, False, False)


def test_shells_are_told_from_agents() -> None:
    shell, agent = ({"status": "running", "type": kind} for kind in ("shell", "agent"))
    assert event("Stop", background_tasks=[shell]).only_shells_running
    both = event("Stop", background_tasks=[shell, agent])
    assert (both.background_running, both.only_shells_running) == (True, False)


@given(st.sampled_from([*HOOKS, *TOOL_HOOKS, "Report", "PaneDied", "New"]), st.dictionaries(KEYS, JSON))
def test_no_payload_stops_an_inbox(name: str, payload: dict[str, Any]) -> None:
    """Break: read a key of the payload without checking its type."""
    assert event(name, **payload).name == name


def test_what_is_no_event_stays_none() -> None:
    broken = Malformed(id="1-1.json", problem="cut short")
    assert event_of(broken, "claude") is broken


def test_no_name_of_a_client_is_known_outside_of_agents() -> None:
    """Another client is a folder in agents/. Break: compare an event's name with "Stop" in a rule."""
    source = Path(llmc.__file__).parent
    names = "|".join([*HOOKS, *TOOL_HOOKS, *TOOL_HOOKS.values(), *NEED_A_PERSON])
    known = re.compile(rf"""["'](?:(?:{names})["']|CLAUDE_|CLAUDECODE)""")
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if path.relative_to(source).parts[0] != "agents"
        for line in path.read_text().splitlines()
        if known.search(line)
    ]
    assert not found


@pytest.mark.parametrize("session", ["--mcp-config=x", "-p", "../x", "a b", "a\n", "x" * 101, ""])
def test_a_conversation_that_could_be_an_option_has_no_name(session: str) -> None:
    """It becomes an argument of the client, even of one that is not contained. Break: trust any text."""
    assert event("SessionStart", session_id=session).session is None
    assert event("SessionStart", session_id="8a3a4089-2348-46da-87ab-c4e06ebe6e5d").session


@pytest.mark.parametrize("path", ["a\0b", "/a\0b", "relative.jsonl", "/" + "x" * 5000])
def test_a_path_that_no_system_takes_is_none(path: str) -> None:
    """Break: keep a NUL byte: each check of the file raises ValueError."""
    assert event("SessionStart", transcript_path=path).transcript == ""
    assert event("SessionStart", transcript_path="/t/1.jsonl").transcript == "/t/1.jsonl"


def test_words_that_are_stored_have_a_length() -> None:
    """Break: keep a hook's text as it is: state.json and the event log contain it."""
    long = "x" * 100_000
    found = event("StopFailure", error=long, last_assistant_message=long, reason=long, task_subject=long)
    kept = (found.error, found.last_words, found.end, found.task_subject, event(long).name)
    assert {len(text) for text in kept} == {1000}
    many = [{"question": "Which?", "options": [{"label": str(n)} for n in range(51)]}]
    asked = event("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": many}).asked
    assert asked is not None
    assert (asked.answerable, asked.options) == (False, ())
