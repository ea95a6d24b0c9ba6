"""How long the fleet waits, and which worker goes first."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.auto.rules import waiting
from llmc.records.state import NOT_DIRTY, AutoState
from llmc.records.worker import Cause

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=BERLIN).timestamp()


@pytest.mark.req("0-061", "0-062")
def test_a_source_in_use_is_tried_ten_times() -> None:
    """Break: double once more or once less, or forget the maximum."""
    state = AutoState()
    waits = []
    while not (next_ := waiting.dirty(state, 60.0)).over:
        waits.append(next_.wait_s)
        assert next_.attempt == len(waits)
        state = replace(state, source_repo_dirty_retry_count=next_.attempt)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.0, 2.0), (0.03, 2.0), (0.1, 5.0), (1.0, 50.0)])
def test_a_look_at_a_large_source_is_rare(took_s: float, pause_s: float) -> None:
    """Break: look at every tick: `git status` of a large repository takes a second."""
    assert waiting.source_pause_s(took_s) == pause_s


@pytest.mark.parametrize(
    ("now", "over"), [(99.0, True), (100.0, False), (159.0, False), (160.0, True), (760.0, True)]
)
def test_a_clock_that_was_set_back_makes_no_wait_longer(now: float, over: bool) -> None:
    """Break: compare only with the end of the wait. It started at 100."""
    state = AutoState(source_repo_dirty_retry_after_unix=160.0, source_repo_dirty_backoff_secs=60.0)
    assert waiting.source_is_due(state, now) is over
    assert waiting.source_is_due(AutoState(), now)


@pytest.mark.parametrize(
    ("cause", "first_s", "waits"),
    [
        (Cause.LIMIT, 300.0, [300, 600, 1200, 2400, 3600, 3600]),
        (Cause.API, 60.0, [60, 120, 240, 480, 960, 1800]),
    ],
)
def test_parks_grow(cause: Cause, first_s: float, waits: list[float]) -> None:
    """Break: start with twice the first wait, or use the limit's maximum for the API."""
    state = AutoState(probe="auto-2", probe_unix=5.0)
    seen = []
    for _ in waits:
        state = replace(state, **waiting.parked(state, cause, "busy", 1000.0, 1000.0, first_s))
        seen.append(state.parked_until_unix - 1000.0)
        assert (state.probe, state.parked_cause) == ("", cause)
    assert seen == waits
    assert not waiting.is_parked(replace(state, **waiting.NOT_PARKED))


@given(st.integers(0, 10_000), st.sampled_from([Cause.LIMIT, Cause.API]), st.floats(0.01, 1e6))
def test_no_park_is_longer_than_its_cap(parks: int, cause: Cause, first_s: float) -> None:
    cap = waiting.LIMIT_CAP_S if cause is Cause.LIMIT else waiting.API_CAP_S
    after = waiting.parked(AutoState(parks=parks), cause, "busy", 0.0, 0.0, first_s)
    assert 0 < after["parked_until_unix"] <= cap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You've hit your limit · resets 3pm (Europe/Berlin)", datetime(2026, 11, 15, 15, 0, tzinfo=BERLIN)),
        ("limit reached, resets at 12:30pm (Europe/Berlin)", datetime(2026, 11, 15, 12, 30, tzinfo=BERLIN)),
        ("resets 5am (Europe/Berlin)", datetime(2026, 11, 16, 5, 0, tzinfo=BERLIN)),
        ("resets 12am (Europe/Berlin)", datetime(2026, 11, 16, 0, 0, tzinfo=BERLIN)),
        ("resets Nov 17, 9:30am (Europe/Berlin)", datetime(2026, 11, 17, 9, 30, tzinfo=BERLIN)),
        ("resets Jan 2 at 9am (Europe/Berlin)", datetime(2027, 1, 2, 9, 0, tzinfo=BERLIN)),
        ("resets 8pm (America/New_York)", datetime(2026, 11, 15, 20, 0, tzinfo=ZoneInfo("America/New_York"))),
        ("resets 11:59am (Europe/Berlin)", None),
        ("resets 7am (Europe/Berlin)", None),
        ("resets Nov 14, 9am (Europe/Berlin)", None),
        ("resets 25pm (Europe/Berlin)", None),
        ("resets 3:75pm (Europe/Berlin)", None),
        ("resets Foo 17, 9am (Europe/Berlin)", None),
        ("resets Feb 30, 9am (Europe/Berlin)", None),
        ("resets 3pm (Middle/Earth)", None),
        ("You've hit your usage limit", None),
        ("resets 2026-11-15T15:00:00Z (1794751200)", None),
    ],
)
def test_the_reset_time_in_the_clients_words(text: str, expected: datetime | None) -> None:
    """Break: read 12am as noon, or wait a day for a reset that was a minute ago."""
    state = waiting.parked(AutoState(), Cause.LIMIT, text, NOON, NOON, 300.0)
    until = expected.timestamp() + waiting.AFTER_RESET_S if expected else NOON + 300.0
    assert state["parked_until_unix"] == until
    assert state["parked_for_s"] == until - NOON
    away = waiting.parked(AutoState(), Cause.API, text, NOON, NOON, 60.0)
    assert away["parked_until_unix"] == NOON + 60.0


@pytest.mark.parametrize(
    ("text", "said", "now"),
    [
        # The server is a little behind when the first worker probes.
        ("resets 12pm", (2026, 11, 15, 12, 0, 1), (2026, 11, 15, 12, 0, 1)),
        # The agent was stopped at 9:00, while no daemon was running.
        ("resets 11am", (2026, 11, 15, 9, 0, 0), (2026, 11, 15, 12, 0, 0)),
        ("resets 11am", (2026, 11, 13, 9, 0, 0), (2026, 11, 15, 12, 0, 0)),
        ("resets Dec 31, 9pm", (2026, 12, 31, 20, 0, 0), (2027, 1, 1, 0, 30, 0)),
        ("resets Dec 31, 9pm", (2027, 1, 1, 0, 30, 0), (2027, 1, 1, 0, 30, 0)),
        # The clock was set back after the message.
        ("resets 11am", (2026, 11, 16, 11, 30, 0), (2026, 11, 15, 11, 30, 0)),
    ],
)
def test_a_reset_that_has_passed_is_no_reason_to_wait(
    text: str, said: tuple[int, ...], now: tuple[int, ...]
) -> None:
    """Break: read the time as the next one after now; the fleet would wait a day, or a year."""
    at, told = (datetime(*one, tzinfo=BERLIN).timestamp() for one in (now, said))  # type: ignore[arg-type, misc]
    after = waiting.parked(AutoState(), Cause.LIMIT, f"{text} (Europe/Berlin)", told, at, 300.0)
    assert after["parked_until_unix"] == at + 300.0


@pytest.mark.parametrize("ahead_s", [-7200.0, 0.0, 7200.0])
def test_a_wrong_clock_does_not_change_when_a_limit_ends(ahead_s: float) -> None:
    """Break: read the reset time by another clock than the fleet's; two hours ahead, 1pm has passed."""
    state, now = AutoState(ahead_s=ahead_s), NOON + ahead_s
    after = waiting.parked(state, Cause.LIMIT, "resets 1pm (Europe/Berlin)", now, now, 300.0)
    assert after["parked_until_unix"] - now == 3600.0 + waiting.AFTER_RESET_S


def test_a_clock_that_is_set_moves_the_end_of_no_park() -> None:
    """Break: keep the end; or move one that was never compared."""
    parked = AutoState(parked_until_unix=1000.0)
    first = replace(parked, **waiting.clock_compared(parked, 600.0))
    assert (first.ahead_s, first.parked_until_unix) == (600.0, 1000.0)
    assert waiting.clock_compared(first, 601.0) == {}, "the time that an answer takes"
    right = waiting.clock_compared(parked, -0.01)
    assert right == {"ahead_s": 0.0, "parked_until_unix": 1000.0}, "midnight stays midnight"
    back = replace(first, **waiting.clock_compared(first, -60.0))
    assert (back.ahead_s, back.parked_until_unix) == (-60.0, 340.0)
    assert waiting.clock_compared(AutoState(ahead_s=0.0), 60.0)["parked_until_unix"] == 0.0, "not parked"


@given(st.text(max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    found = waiting.resets_at(f"resets {text}", NOON)
    assert found is None or found > NOON - waiting.PASSED_DAYS_S


@given(st.integers(1, 12), st.integers(0, 59), st.sampled_from(["am", "pm"]))
def test_no_time_of_day_is_more_than_a_day_away(hour: int, minute: int, half: str) -> None:
    found = waiting.resets_at(f"resets {hour}:{minute:02}{half} (Europe/Berlin)", NOON)
    assert found is not None
    assert -waiting.PASSED_S < found - NOON <= 86400 - waiting.PASSED_S


def test_one_goes_ahead_and_the_others_follow() -> None:
    """Break: let every worker continue when the time is over; each would hit the limit again."""
    state = AutoState()
    assert waiting.starts_a_park(state, "auto-1", 0)
    state = replace(state, **waiting.parked(state, Cause.LIMIT, "", 100.0, 100.0, 300.0))
    assert not waiting.starts_a_park(state, "auto-2", 0), "the same limit adds nothing"
    assert not waiting.may_resume(state, "auto-1", 0, now=399.0)
    assert waiting.may_resume(state, "auto-1", 0, now=400.0)
    state = replace(state, **waiting.probing(state, "auto-1", 400.0))
    assert not waiting.may_resume(state, "auto-2", 0, now=401.0), "one is enough to find out"
    assert waiting.last_resumed(state, "auto-1") == 400.0
    assert waiting.last_resumed(state, "auto-2") == 0.0
    assert not waiting.probe_succeeded(state, probe_works=True, now=459.0)
    assert waiting.probe_succeeded(state, probe_works=True, now=460.0)
    assert waiting.probe_succeeded(state, probe_works=False, now=401.0), "its turn ended well"
    assert waiting.starts_a_park(state, "auto-1", state.resumes)
    assert not waiting.starts_a_park(state, "auto-3", state.resumes), "it was never stopped before"
    again = replace(state, **waiting.parked(state, Cause.LIMIT, "", 402.0, 402.0, 300.0))
    assert again.parked_until_unix == 402.0 + 600.0
    over = replace(state, **waiting.resumed(state, 460.0))
    assert waiting.may_resume(over, "auto-2", 0, now=460.0)
    assert waiting.may_resume(over, "auto-3", state.resumes, now=460.0)
    assert not waiting.may_resume(over, "auto-2", over.resumes, now=470.0), "a new limit, and a new park"
    assert waiting.starts_a_park(over, "auto-2", over.resumes)
    assert waiting.last_resumed(over, "auto-2") == 460.0


def test_a_probe_that_was_not_told_is_told() -> None:
    """Break: wait for a worker that is recorded as the probe, but is still stopped; it waits for us."""
    state = replace(AutoState(), **waiting.parked(AutoState(), Cause.LIMIT, "", 100.0, 100.0, 300.0))
    state = replace(state, **waiting.probing(state, "auto-1", 400.0))
    assert waiting.may_resume(state, "auto-1", 0, now=401.0)
    assert not waiting.starts_a_park(state, "auto-1", 0)
    assert not waiting.may_resume(state, "auto-1", state.resumes, now=401.0), "it was told, and failed again"


def test_an_older_record_parks_once_more() -> None:
    """From an llmc that compared times, stopped before the fleet resumed. Break: let both steps have no effect."""
    old = AutoState(resumed_unix=500.0)
    assert waiting.starts_a_park(old, "auto-1", 0)
    probing = AutoState(parked_until_unix=400.0, probe="auto-1", probe_unix=401.0)
    assert waiting.starts_a_park(probing, "auto-1", 0)
    assert waiting.may_probe(AutoState(parked_until_unix=400.0), now=401.0)
    assert not waiting.may_probe(AutoState(parked_until_unix=400.0), now=-1e6), "its length is unknown"


@pytest.mark.parametrize(
    ("now", "over"), [(939.0, True), (940.0, False), (1000.0, False), (1299.0, False), (1300.0, True)]
)
def test_no_park_is_longer_because_the_clock_was_set_back(now: float, over: bool) -> None:
    """Break: compare only with the end of the wait. It started at 1000, for 300 s."""
    state = replace(AutoState(), **waiting.parked(AutoState(), Cause.API, "", 1000.0, 1000.0, 300.0))
    assert waiting.may_probe(state, now) is over
    probed = replace(state, **waiting.probing(state, "auto-1", 1300.0))
    assert waiting.probe_succeeded(probed, probe_works=True, now=900.0), "it cannot be known any more"


def test_a_clock_that_is_set_back_ends_no_park_of_a_fleet() -> None:
    """The next heartbeat moves the end of the park. Break: apply the rule for a root alone before that."""
    compared = AutoState(ahead_s=0.0)
    state = replace(compared, **waiting.parked(compared, Cause.API, "", 10_000.0, 10_000.0, 300.0))
    assert not waiting.may_probe(state, now=6_400.0), "set back by an hour"
    heard = replace(state, **waiting.clock_compared(state, -3_600.0))
    assert not waiting.may_probe(heard, now=6_699.0)
    assert waiting.may_probe(heard, now=6_700.0)


@pytest.mark.req("0-063", "0-064", "4-102")
def test_what_is_remembered() -> None:
    """The state has the fields of the wait for a source, and nothing of a task pool's back-off."""
    fields = AutoState.__struct_fields__
    cleared: dict[str, Any] = dict(NOT_DIRTY)
    assert set(cleared) == {
        "source_repo_dirty_retry_after_unix",
        "source_repo_dirty_backoff_secs",
        "source_repo_dirty_retry_count",
    }
    assert set(cleared) <= set(fields)
    assert not [name for name in fields if "task_pool" in name]
