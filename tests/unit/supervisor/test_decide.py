"""What follows a failure: the first is always remediated, a spiral ends it, a stall never counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.base.errors import Exit
from llmc.config.model import Config, Overseer, Repo
from llmc.supervisor.model import Failure, FailureKind
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.decide import (
    DAY_S,
    End,
    History,
    Remediate,
    Restart,
    after_failure,
    after_remediation,
    before_start,
)

CONFIG = Config(
    repo=Repo(source="/s"), overseer=Overseer(restart_cooldown_secs=60, max_remediations_per_day=6)
)
FIXABLE = [k for k in FailureKind if k not in (FailureKind.STALL, FailureKind.DRAINED)]
#: causes that a model may fix
CAUSES = ["", "agent", "crash", "config", "task", "git", "command", "budget", "tmux", "bug"]
failures = st.builds(Failure, kind=st.sampled_from(FIXABLE), text=st.just("x"), cause=st.sampled_from(CAUSES))
GONE = Failure(FailureKind.PROCESS, "gone")
STALL = Failure(FailureKind.STALL, "no progress")


@pytest.mark.req("0-124", "0-152")
@given(failure=failures, ran_s=st.floats(0, 1e6), now=st.floats(0, 1e9))
def test_the_first_failure_is_remediated(failure: Failure, ran_s: float, now: float) -> None:
    """Break: check ran_s before checking whether anything was tried."""
    verdict, history = after_failure(failure, History(), ran_s, now, CONFIG)
    assert verdict == Remediate(1)
    assert (history.remediated, history.remediations) == (True, (now,))


@pytest.mark.req("0-153", "0-154")
@given(failure=failures, ran_s=st.floats(0, 200))
def test_a_spiral(failure: Failure, ran_s: float) -> None:
    """Break: compare with > instead of >=, or never set `remediated`."""
    _, history = after_failure(failure, History(), 0.0, 1000.0, CONFIG)
    verdict, after = after_failure(failure, history, ran_s, 1100.0, CONFIG)
    if ran_s < CONFIG.overseer.restart_cooldown_secs:
        assert isinstance(verdict, End)
        assert verdict.code == Exit.SPIRAL == 10
        assert verdict.advice
        assert after.attempt == 1, "no second remediation"
    else:
        assert verdict == Remediate(2)


@pytest.mark.req("0-123", "0-155")
def test_a_stall_does_not_count() -> None:
    """Break: let a stall set or keep `remediated`, or remediate it."""
    verdict, history = after_failure(STALL, History(), 4000.0, 1.0, CONFIG)
    assert isinstance(verdict, Restart)
    assert (verdict.resets, verdict.after_s) == (True, 0.0)
    assert history == History()
    assert after_failure(GONE, history, 1.0, 2.0, CONFIG)[0] == Remediate(1), "a stall is not a remediation"
    again, _ = after_failure(STALL, History(remediated=True, remediations=(0.0,)), 10.0, 1.0, CONFIG)
    assert isinstance(again, Restart), "nor does it make a spiral"


@pytest.mark.req("0-152")
@pytest.mark.parametrize("cause", ["auth", "disk"])
@pytest.mark.parametrize("kind", FIXABLE)
def test_what_only_a_person_can_fix(cause: str, kind: FailureKind) -> None:
    """Break: remove a cause from the table."""
    verdict, history = after_failure(Failure(kind, "x", cause), History(), 0.0, 0.0, CONFIG)
    assert isinstance(verdict, End)
    assert verdict.code == Exit.HUMAN == 12
    assert (cause in verdict.why, bool(verdict.advice), history.attempt) == (True, True, 0)
    assert isinstance(after_remediation(cause, "login", History(), CONFIG)[0], End)


@pytest.mark.req("0-152")
@pytest.mark.parametrize("cause", ["limit", "api", "canary"])
def test_what_passes_by_itself_is_waited_for(cause: str) -> None:
    """Break: count a wait as a remediation, or wait equally long each time."""
    history, waits = History(remediated=True, remediations=(1.0,)), []
    key = "limit_backoff_secs" if cause == "limit" else "api_backoff_secs"
    config = replace(CONFIG, auto=replace(CONFIG.auto, **{key: 60.0}))
    for _ in range(8):
        verdict, history = after_failure(Failure(FailureKind.LOG, "x", cause), history, 1.0, 5.0, config)
        assert isinstance(verdict, Restart)
        waits.append(verdict.after_s)
    assert waits == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert history.attempt == 1
    history = History(remediated=True, remediations=(1.0,))
    verdict, after = after_remediation(cause, "limit reached", history, config)
    assert isinstance(verdict, Restart)
    assert not after.remediated, "an agent that could not start has not tried"


def test_a_remediation_that_failed_otherwise_goes_on() -> None:
    """Break: end the supervisor after a time limit."""
    history = History(remediated=True, remediations=(1.0,))
    assert after_remediation("", "it took too long", history, CONFIG) == (None, history)


@given(st.lists(st.tuples(st.floats(61, 40000), failures), min_size=7, max_size=30))
def test_remediations_of_a_day(runs: list[tuple[float, Failure]]) -> None:
    """Break: count all remediations ever, or none."""
    history, now, began = History(), 0.0, list[float]()
    for ran_s, failure in runs:
        now += ran_s
        verdict, history = after_failure(failure, history, ran_s, now, CONFIG)
        recent = [at for at in began if now - at < DAY_S]
        if len(recent) < CONFIG.overseer.max_remediations_per_day:
            assert isinstance(verdict, Remediate)
            began.append(now)
        else:
            assert isinstance(verdict, End)
            assert verdict.code == Exit.HUMAN
            return


def test_yesterdays_remediations_do_not_count() -> None:
    """Break: count all remediations ever."""
    history = History(remediations=tuple(float(at) for at in range(6)))
    assert after_failure(GONE, history, 0.0, DAY_S + 10, CONFIG)[0] == Remediate(7)
    ended, _ = after_failure(GONE, history, 0.0, DAY_S - 10, CONFIG)
    assert isinstance(ended, End)
    assert (ended.code, "(6 in 24 hours)" in ended.why) == (Exit.HUMAN, True)


def test_a_daemon_that_has_nothing_more_to_do() -> None:
    """Break: remediate it."""
    verdict, _ = after_failure(Failure(FailureKind.DRAINED, "spent"), History(), 5.0, 0.0, CONFIG)
    assert isinstance(verdict, End)
    assert verdict.code == Exit.DONE


@pytest.mark.req("0-150", "0-151")
def test_files_that_ask_for_a_person() -> None:
    """Break: start the daemon anyway, or leave out the file's text."""
    assert before_start({}) is None
    ended = before_start({"/r/.llmc/manual_intervention_needed_1.txt": "the key is gone\n", "/b": ""})
    assert ended is not None
    assert ended.code == Exit.MANUAL == 11
    assert all(text in ended.why for text in ("manual_intervention_needed_1.txt", "the key is gone", "/b"))
    assert "delete the file" in ended.advice


def test_words_and_colours() -> None:
    """Break: change any word or color."""
    assert decide.style_of(decide.ENTERING) == "red"
    done = decide.outcome("completed", 12.345, "")
    assert (done, decide.style_of(done)) == ("✓ Remediation completed in 12.3s", "green")
    assert decide.style_of(decide.RESTARTING) == "green"
    stopped, issue = (
        decide.outcome("interrupted", 1.0, "x"),
        decide.outcome("timeout", 1.0, "it took too long"),
    )
    assert (stopped, decide.style_of(stopped)) == ("⚠ Remediation interrupted", "yellow")
    assert (issue, decide.style_of(issue)) == ("⚠ Remediation issue: it took too long", "yellow")
    assert decide.outcome("failed", 1.0, "") == "⚠ Remediation issue: failed"
