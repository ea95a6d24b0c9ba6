"""How a remediation ended, from the record of its session; its conversation as text; separate files."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.agents.claude.transcripts import readable
from llmc.agents.kinds import event_of
from llmc.base.given import written_out
from llmc.config.paths import OverseerRoot, Root
from llmc.records.hook_events import HookEvent
from llmc.records.transitions import apply
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.sessions.rules import decide, prompt_text
from llmc.sessions.rules.decide import Facts, judge
from llmc.supervisor.rules.remedy import End, Outcome, ended
from llmc.supervisor.rules.remedy import judge as judge_turn
from llmc.workers import rules
from tests.support.records import worker


def overseer(status: Status, **fields: Any) -> WorkerRecord:
    return worker(status, branch="", auto=True, current_prompt="Fix it.", **fields)


def verdict(record: WorkerRecord, **given: Any) -> End | None:
    facts: dict[str, Any] = {"attached": False, "stopping": False, "spent_s": 0.0, "limit_s": 10.0}
    return judge_turn(record, **{**facts, **given})


@pytest.mark.parametrize(
    ("record", "outcome", "crashed"),
    [
        (overseer(Status.WORKING), None, False),
        (overseer(Status.NEEDS_INPUT, reason="stopped_clean"), Outcome.COMPLETED, False),
        (overseer(Status.NEEDS_INPUT, reason="question"), None, False),
        (overseer(Status.NEEDS_INPUT, reason="permission"), None, False),
        (overseer(Status.NEEDS_INPUT, reason="interrupted"), Outcome.FAILED, False),
        (overseer(Status.NEEDS_INPUT, reason="limit", cause=Cause.LIMIT), Outcome.FAILED, False),
        (overseer(Status.ERROR, cause=Cause.AUTH, error_reason="Please run /login"), Outcome.FAILED, False),
        (overseer(Status.OFFLINE, reason="exited"), Outcome.COMPLETED, False),
        (overseer(Status.OFFLINE, reason="crashed", cause=Cause.CRASH), Outcome.FAILED, True),
        (overseer(Status.OFFLINE, reason="session gone", cause=Cause.TMUX), Outcome.FAILED, True),
        (overseer(Status.NO_CHANGES, reason="nothing to do"), Outcome.COMPLETED, False),
    ],
)
def test_the_record_says_how_the_turn_ended(
    record: WorkerRecord, outcome: Outcome | None, crashed: bool
) -> None:
    """Break: treat any idle state as an end (a question would count as completed)."""
    end = ended(record)
    assert (end and end.outcome, end is not None and end.crashed) == (outcome, crashed)


def test_the_cause_of_a_failure_is_in_the_problem() -> None:
    """Break: leave the cause out of _why."""
    end = ended(overseer(Status.ERROR, cause=Cause.AUTH, error_reason="Please run\n/login"))
    assert end == End(Outcome.FAILED, "auth: Please run /login", Cause.AUTH)


@pytest.mark.req("0-143", "0-228")
def test_the_limit_and_a_stop_end_what_does_not_end_itself() -> None:
    """Break: check the limit before the end of the turn."""
    busy, done = overseer(Status.WORKING), overseer(Status.NEEDS_INPUT, reason="stopped_clean")
    assert verdict(busy) is None
    assert verdict(busy, spent_s=10.0) == End(Outcome.TIMEOUT, "the agent did not finish within 10 s")
    assert verdict(busy, stopping=True) == End(Outcome.INTERRUPTED)
    assert verdict(done, spent_s=11.0, stopping=True) == End(Outcome.COMPLETED)
    asks = verdict(overseer(Status.NEEDS_INPUT, reason="permission"), spent_s=10.0)
    assert asks == End(
        Outcome.TIMEOUT, "the agent did not finish within 10 s; it is waiting for an answer (permission)"
    )


def test_nothing_is_concluded_from_what_a_person_does_in_the_session() -> None:
    """Break: judge an interruption while a terminal is attached."""
    stopped_by_hand = overseer(Status.NEEDS_INPUT, reason="interrupted")
    assert verdict(stopped_by_hand, attached=True) is None
    assert verdict(stopped_by_hand) is not None
    assert verdict(overseer(Status.OFFLINE, reason="crashed"), attached=True) is not None


@given(st.text())
def test_every_log_can_be_part_of_a_prompt(text: str) -> None:
    """Break: send the prompt as it is; control characters are refused."""
    prompt_text.normalise(f"The log:\n{written_out(text)}")


def test_without_a_branch_a_stop_is_an_end_whatever_the_directory_holds() -> None:
    """Break: ask git, which knows no base in the source, so that a Stop would mean nothing."""
    record = overseer(Status.WORKING)
    stop = HookEvent(
        id="1-1.json", worker="w1", instance="i1", payload={"hook_event_name": "Stop", "background_tasks": []}
    )
    change = judge(record, event_of(stop, "claude"), Facts(git=decide.NO_BRANCH)).change
    assert change is not None
    assert ended(apply(record, change, 1.0)) == End(Outcome.COMPLETED)


def test_without_a_branch_shells_left_running_end_too() -> None:
    """Break: require commits in background_left; such a remediation would only end by its limit."""
    record = overseer(Status.WORKING, background_since_unix=100.0)
    seen, limits = rules.Seen(git=decide.NO_BRANCH), rules.Limits(60.0, 30.0)
    assert rules.decide(record, seen, limits, rules.Clock(159.0)) is None
    assert rules.decide(record, seen, limits, rules.Clock(160.0)) == rules.EndBackground()
    assert (
        rules.decide(worker(Status.WORKING, background_since_unix=100.0), seen, limits, rules.Clock(900.0))
        is None
    )


@pytest.mark.req("0-149")
def test_a_conversation_as_text_has_every_call_and_output_in_full() -> None:
    """Break: leave out is_error, or cut long outputs."""
    long = "x" * 100_000
    call = {"type": "tool_use", "name": "Edit", "input": {"path": "a.py", "lines": [1, 2], "old": "a\nb"}}
    result = {"type": "tool_result", "is_error": True, "content": [{"type": "text", "text": f"bad\n{long}"}]}
    stamp = {"timestamp": "2026-01-02T03:04:05.678Z"}
    said = [{"type": "text", "text": "I fix it."}, {"type": "thinking", "thinking": ""}, call]
    assert readable({"type": "assistant", "message": {"content": said}, **stamp}) == (
        "[2026-01-02T03:04:05] agent\n    I fix it.\n"
        "[2026-01-02T03:04:05] agent calls Edit\n    path: a.py\n    lines: [1, 2]\n    old: a\n    b\n"
    )
    assert readable({"type": "user", "message": {"content": [result]}, **stamp}) == (
        f"[2026-01-02T03:04:05] tool error\n    bad\n    {long}\n"
    )
    assert "prompt\n    Fix it.\n" in readable({"type": "user", "message": {"content": "Fix it."}})
    assert readable({"type": "api-request-blob", "message": {"content": "Fix it."}}) == ""


@given(
    st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_no_row_is_too_odd_to_be_written_down(content: Any) -> None:
    """Break: expect a text where the client may put blocks."""
    for kind in ("user", "assistant", "system"):
        readable({"type": kind, "content": content, "message": {"content": content}})
        readable({"type": kind, "message": content})


@pytest.mark.req("0-141")
def test_what_the_supervisors_session_writes_is_its_own() -> None:
    """Break: leave out one of the paths of OverseerRoot."""
    fleet, own = Root(Path("/r")), OverseerRoot(Path("/r"))
    for name in ("state", "state_backup", "events", "inbox", "locks"):
        assert getattr(own, name).is_relative_to("/r/.llmc/overseer")
        assert not getattr(fleet, name).is_relative_to("/r/.llmc/overseer")
    assert own.wake_socket() != fleet.wake_socket()
    assert own.lock("state") != fleet.lock("state")
    assert own.tmux_server == fleet.tmux_server
