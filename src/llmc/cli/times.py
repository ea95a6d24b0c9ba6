"""Points in time as people write them on a command line."""

import math
import re
from datetime import datetime, timedelta

from llmc.base.errors import UsageError
from llmc.config.durations import parse_duration


def parse_end(text: str, now: float) -> float:
    """A time to come: `07:30` (today or tomorrow), ISO 8601, or a duration from now such as `8h`; unix seconds."""
    here = datetime.fromtimestamp(now)
    if found := re.fullmatch(r"(\d{1,2}):(\d{2})", text):
        hour, minute = int(found[1]), int(found[2])
        if hour > 23 or minute > 59:
            raise _no_time(text)
        at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now + parse_duration(text)
        except ValueError:
            raise _no_time(text) from None
    if at.timestamp() <= now:
        raise UsageError(f"--until: {text} is over already")
    return at.timestamp()


def parse_since(text: str, now: float) -> float:
    """A time gone by: unix seconds, ISO 8601, or how long ago: `12h`, `1d`, `30m`."""
    for reading in (
        float,
        lambda t: datetime.fromisoformat(t).timestamp(),
        lambda t: now - parse_duration(t),
    ):
        try:
            seconds = reading(text)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(seconds):
            return seconds
    raise UsageError(
        f"--since: {text!r} is no time", hint="Unix seconds, like 2026-01-31T08:00, or how long ago: 12h."
    )


def _no_time(text: str) -> UsageError:
    return UsageError(
        f"--until: {text!r} is no time", hint="Write 07:30, 2026-11-16T07:30, or a duration such as 8h."
    )
