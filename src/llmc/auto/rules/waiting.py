"""How long to wait, and who goes first, after a usage limit, an API outage or a blocked source."""

import re
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


def parked(state: AutoState, cause: Cause, reason: str, now: float, first_s: float) -> dict[str, Any]:
    """The state of a fleet that is parked now; a limit's reset time takes precedence over the doubling wait.

    All times are by this machine's clock; a reset time is found by the fleet's clock and converted.
    """
    cap = LIMIT_CAP_S if cause is Cause.LIMIT else API_CAP_S
    until = now + min(cap, first_s * 2.0 ** min(state.parks, 20))
    if cause is Cause.LIMIT:
        ahead_s = state.ahead_s or 0.0
        at = resets_at(reason, now - ahead_s)
        until = at + ahead_s if at is not None else until
    return {
        "parked_until_unix": until,
        "parked_cause": cause.value,
        "parked_reason": reason[:300],
        "parked_since_unix": state.parked_since_unix or now,
        "parked_by": "",
        "parks": state.parks + 1,
        "probe": "",
        "probe_unix": 0.0,
    }


#: the state of a fleet that is not parked
NOT_PARKED: dict[str, Any] = {
    "parked_until_unix": 0.0,
    "parked_cause": "",
    "parked_reason": "",
    "parked_since_unix": 0.0,
    "parked_by": "",
    "parks": 0,
    "probe": "",
    "probe_unix": 0.0,
}


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


def starts_a_park(state: AutoState, worker: str, failed_unix: float) -> bool:
    """Whether a worker that a limit stopped parks the fleet; others stopped by the same limit do not."""
    if is_parked(state):
        return state.probe == worker and failed_unix > state.probe_unix
    return failed_unix > state.resumed_unix


def may_resume(state: AutoState, failed_unix: float, now: float) -> bool:
    """Whether a stopped worker may continue: as the first one, or because the fleet has resumed."""
    return may_probe(state, now) if is_parked(state) else failed_unix <= state.resumed_unix


def last_resumed(state: AutoState, worker: str) -> float:
    """When the fleet last resumed or this worker began to probe; 0: it was never parked."""
    return max(state.resumed_unix, state.probe_unix if state.probe == worker else 0.0)


def may_probe(state: AutoState, now: float) -> bool:
    """Whether the wait is over and no worker is probing yet."""
    return is_parked(state) and now >= state.parked_until_unix and not state.probe


def probe_succeeded(state: AutoState, probe_works: bool, now: float) -> bool:
    """Whether the probing worker has worked long enough, or finished its turn."""
    return bool(state.probe) and (not probe_works or now - state.probe_unix >= PROBE_S)


def resets_at(text: str, now: float) -> float | None:
    """When a limit ends, from the client's message: "resets 3pm (Europe/Berlin)", "resets Nov 17, 9:30am"."""
    found = _RESET.search(text)
    if found is None:
        return None
    try:
        zone = ZoneInfo(found["zone"]) if found["zone"] else None
    except (ZoneInfoNotFoundError, ValueError):
        return None
    here = datetime.fromtimestamp(now, zone).astimezone(zone)
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if not 1 <= hour <= 12 or minute > 59:
        return None
    at = here.replace(
        hour=hour % 12 + (12 if found["half"].lower() == "pm" else 0), minute=minute, second=0, microsecond=0
    )
    if found["day"]:
        try:
            day = datetime.strptime(f"{here.year} {found['day']}", "%Y %b %d")
            at = at.replace(month=day.month, day=day.day)
        except ValueError:
            return None
        if at < here - timedelta(days=180):
            at = at.replace(year=at.year + 1)
    elif at <= here:
        at += timedelta(days=1)
    return at.timestamp() if at.timestamp() > now else None


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
