"""How long to wait, and who goes first, after a usage limit, an API outage or a blocked source."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from llmc.records.state import AutoState
from llmc.records.worker import Cause

#: maximum waits for a limit and for the API; waits double
LIMIT_CAP_S = 3600.0
API_CAP_S = 1800.0
#: a probing worker that has worked this long shows that the API is back
PROBE_S = 60.0
#: how long after a named reset to probe: the server's clock may be a little behind
AFTER_RESET_S = 5.0
#: a reset time that is at most this long before its message has passed, and is not the next day's: longer than one
#: usage window. A wrong guess then costs some probes; the other way round, it would cost a day
PASSED_S = 6 * 3600.0
#: the same for a day without a year
PASSED_DAYS_S = 180 * 86400.0
#: a clock that was set back by less than this does not end a wait
CLOCK_SLACK_S = 60.0

DIRTY_CAP_S = 3600.0
DIRTY_RETRIES = 10
#: how often to check whether a blocked source is clean again, and the largest share of the time to spend on that
SOURCE_S = 2.0
SOURCE_SHARE = 0.02

_RESET = re.compile(
    r"resets?(?: at)? (?:(?P<day>[A-Z][a-z]{2} \d{1,2})(?:,| at)? )?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?"
    r" ?(?P<half>am|pm)(?: \((?P<zone>[A-Za-z_/+-]+)\))?",
    re.IGNORECASE,
)


def parked(
    state: AutoState, cause: Cause, reason: str, said_unix: float, now: float, first_s: float
) -> dict[str, Any]:
    """The state of a fleet that is parked now; a limit's reset time takes precedence over the doubling wait.

    `said_unix`: when the agent was told `reason`, which may be long ago if no daemon was running. All times are by this
    machine's clock; a reset time is found by the fleet's clock and converted.
    """
    cap = LIMIT_CAP_S if cause is Cause.LIMIT else API_CAP_S
    until = now + min(cap, first_s * 2.0 ** min(state.parks, 20))
    if cause is Cause.LIMIT:
        ahead_s = state.ahead_s or 0.0
        at = resets_at(reason, min(said_unix, now) - ahead_s)
        if at is not None and at + ahead_s > now:
            until = at + ahead_s + AFTER_RESET_S
    return {
        "parked_until_unix": until,
        "parked_for_s": until - now,
        "parked_cause": cause.value,
        "parked_reason": reason[:300],
        "parked_since_unix": state.parked_since_unix or now,
        "parked_by": "",
        "parks": state.parks + 1,
        **NO_PROBE,
    }


#: no worker is probing
NO_PROBE: dict[str, Any] = {"probe": "", "probe_unix": 0.0}

#: the state of a fleet that is not parked
NOT_PARKED: dict[str, Any] = {
    "parked_until_unix": 0.0,
    "parked_for_s": 0.0,
    "parked_cause": "",
    "parked_reason": "",
    "parked_since_unix": 0.0,
    "parked_by": "",
    "parks": 0,
    **NO_PROBE,
}


def probing(state: AutoState, worker: str, now: float) -> dict[str, Any]:
    """The changes for a worker that is told to continue as the first one."""
    return {"probe": worker, "probe_unix": now, "resumes": state.resumes + 1}


def resumed(state: AutoState, now: float) -> dict[str, Any]:
    """The changes for a fleet that is no longer parked."""
    return {**NOT_PARKED, "resumed_unix": now, "resumes": state.resumes + 1}


#: clocks that differ by less than this count as equal
SAME_CLOCK_S = 2.0


def clock_compared(state: AutoState, ahead_s: float) -> dict[str, Any]:
    """The changes for a clock that is `ahead_s` ahead of the fleet's; setting a clock does not move the end of a park."""
    known, ahead_s = state.ahead_s, ahead_s if abs(ahead_s) >= SAME_CLOCK_S else 0.0
    if known is not None and abs(ahead_s - known) < SAME_CLOCK_S:
        return {}
    moved_s = ahead_s - known if known is not None and is_parked(state) else 0.0
    return {"ahead_s": ahead_s, "parked_until_unix": state.parked_until_unix + moved_s}


def is_parked(state: AutoState) -> bool:
    return state.parked_until_unix > 0


def starts_a_park(state: AutoState, worker: str, stopped_after: int) -> bool:
    """Whether a worker that a limit stopped parks the fleet; others stopped by the same limit do not.

    `stopped_after`: how often the fleet had been told to continue by then. Counted, because a clock may be set.
    """
    may_be_first = not is_parked(state) or state.probe == worker
    return may_be_first and stopped_after >= state.resumes


def may_resume(state: AutoState, worker: str, stopped_after: int, now: float) -> bool:
    """Whether a stopped worker may continue: as the first one, or because the fleet has resumed.

    A worker that is recorded as the first one, but is still stopped, was never told.
    """
    if is_parked(state) and state.probe != worker:
        return may_probe(state, now)
    return stopped_after < state.resumes


def last_resumed(state: AutoState, worker: str) -> float:
    """When the fleet last resumed or this worker began to probe; 0: it was never parked."""
    return max(state.resumed_unix, state.probe_unix if state.probe == worker else 0.0)


def wait_is_over(state: AutoState, now: float) -> bool:
    """Whether a parked fleet has waited long enough. More time left than the whole wait: the clock was set back.

    If the clock is compared with the fleet's, the next heartbeat moves the end of the park instead.
    """
    left_s = state.parked_until_unix - now
    return left_s <= 0 or (state.ahead_s is None and 0 < state.parked_for_s < left_s - CLOCK_SLACK_S)


def may_probe(state: AutoState, now: float) -> bool:
    """Whether the wait is over and no worker is probing yet."""
    return is_parked(state) and wait_is_over(state, now) and not state.probe


def probe_succeeded(state: AutoState, probe_works: bool, now: float) -> bool:
    """Whether the probing worker has worked long enough, or finished its turn."""
    return bool(state.probe) and not (probe_works and 0 <= now - state.probe_unix < PROBE_S)


def resets_at(text: str, said_unix: float) -> float | None:
    """When a limit ends, from the client's message: "resets 3pm (Europe/Berlin)", "resets Nov 17, 9:30am".

    May be before `said_unix`, when the client got the message: then the limit was about to end, or has just ended.
    """
    found = _RESET.search(text)
    if found is None:
        return None
    try:
        zone = ZoneInfo(found["zone"]) if found["zone"] else None
    except (ZoneInfoNotFoundError, ValueError):
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if not 1 <= hour <= 12 or minute > 59:
        return None
    said = datetime.fromtimestamp(said_unix, zone)
    hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    at = said.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if found["day"]:
        could_be, passed_s = _in_years(at, found["day"]), PASSED_DAYS_S
    else:
        could_be, passed_s = [at + timedelta(days=days) for days in (-1, 0, 1)], PASSED_S
    times = [one.timestamp() for one in could_be]
    return min((one for one in times if one > said_unix - passed_s), default=None)


def _in_years(at: datetime, day: str) -> list[datetime]:
    """The same time on a day such as "Nov 17", last year, this year and next year."""
    found = []
    for year in (at.year - 1, at.year, at.year + 1):
        with suppress(ValueError):  # no such day, or not in that year
            on = datetime.strptime(f"{year} {day}", "%Y %b %d")
            found.append(at.replace(year=year, month=on.month, day=on.day))
    return found


class Dirty(Struct, frozen=True):
    """The source is blocked: retry after this wait, or stop."""

    wait_s: float
    attempt: int
    over: bool


def dirty(state: AutoState, first_s: float) -> Dirty:
    """The next of ten waits, each twice as long as the one before, at most an hour."""
    attempt = state.source_repo_dirty_retry_count + 1
    wait_s = min(DIRTY_CAP_S, first_s * 2.0 ** (attempt - 1))
    return Dirty(wait_s, attempt, over=attempt > DIRTY_RETRIES)


def source_is_due(state: AutoState, now: float) -> bool:
    """Whether to try the source again: no wait is set, it is over, or it is unknown since the clock was set back."""
    left_s = state.source_repo_dirty_retry_after_unix - now
    return not 0 < left_s <= state.source_repo_dirty_backoff_secs


def source_pause_s(took_s: float) -> float:
    """How long to wait after a check of the source that took `took_s`: `git status` is slow in a large repository."""
    return max(SOURCE_S, took_s / SOURCE_SHARE)
