"""The digest as data for charts: landings, costs and a lane for each worker over time. Pure except for `night`."""

import math
from collections.abc import Iterable

from msgspec import Struct

from llmc.api.views import VERSION
from llmc.base.clock import now_unix
from llmc.base.given import number, text
from llmc.records.event_log import EventLog, Row
from llmc.records.statuses import AT_WORK
from llmc.repo.project import Project
from llmc.reports import digest
from llmc.reports.digest import clock_of as clock_of
from llmc.reports.rules.digest_parts import Digest

#: step lengths: a period uses the first one that needs at most `MOST_STEPS` steps
STEPS_S = (300.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
MOST_STEPS = 48
#: a shorter part of a step at the end is not drawn: it is the time that the digest itself took
LEAST_STEP = 0.05


class Span(Struct, frozen=True):
    """A time in which a worker's state did not change."""

    worker: str
    #: `works`, `asks`, `idle`, `broken` or `offline`: the name of a look
    state: str
    start_unix: float
    end_unix: float


class Night(Struct, frozen=True):
    """A period, for a page of charts."""

    digest: Digest
    #: the start of each step, and how long a step is
    starts: tuple[float, ...]
    step_s: float
    #: in each step; the sums are `len(digest.accepted)` and `len(digest.undone)`
    landed: tuple[int, ...]
    undone: tuple[int, ...]
    #: known dollars in each step; the digest also counts what its attempts cost before the period
    cost: tuple[float, ...]
    #: by worker, oldest first
    lanes: dict[str, tuple[Span, ...]]
    version: int = VERSION


def night(project: Project, since: float | None = None) -> Night:
    """The period since a time, by default since the user last read the digest."""
    found = digest.report(project, since)
    rows = EventLog(str(project.root.events)).since(found.since_unix)
    return night_of(found, rows, now_unix())


def night_of(found: Digest, events: Iterable[Row], now: float) -> Night:
    """The series of a digest."""
    end = min(found.until_unix, now)
    step_s = _step(end - found.since_unix)
    count = max(1, math.ceil((end - found.since_unix) / step_s - LEAST_STEP))
    starts = tuple(found.since_unix + at * step_s for at in range(count))
    rows = list(events)
    return Night(
        digest=found,
        starts=starts,
        step_s=step_s,
        landed=_counted((one.at_unix for one in found.accepted), starts, step_s),
        undone=_counted((one.at_unix for one in found.undone), starts, step_s),
        cost=_cost(rows, starts, step_s),
        lanes=lanes_of(rows, found.since_unix, end),
    )


def _step(length_s: float) -> float:
    fits = (step_s for step_s in STEPS_S if length_s / step_s - LEAST_STEP <= MOST_STEPS)
    return next(fits, length_s / MOST_STEPS)


def _at(at: float, starts: tuple[float, ...], step_s: float) -> int:
    return max(0, min(len(starts) - 1, int((at - starts[0]) // step_s)))


def _counted(times: Iterable[float], starts: tuple[float, ...], step_s: float) -> tuple[int, ...]:
    counts = [0] * len(starts)
    for at in times:
        counts[_at(at, starts, step_s)] += 1
    return tuple(counts)


def _cost(rows: Iterable[Row], starts: tuple[float, ...], step_s: float) -> tuple[float, ...]:
    sums = [0.0] * len(starts)
    for row in rows:
        if row.get("action") == "usage_recorded":
            sums[_at(number(row.get("ts")) or 0.0, starts, step_s)] += number(row.get("cost")) or 0.0
    return tuple(sums)


_STATES = {
    **dict.fromkeys(map(str, AT_WORK), "works"),
    **dict.fromkeys(("needs_review", "needs_input"), "asks"),
    **dict.fromkeys(("idle", "no_changes"), "idle"),
    "error": "broken",
    "offline": "offline",
}


def lanes_of(rows: Iterable[Row], since: float, until: float) -> dict[str, tuple[Span, ...]]:
    """A lane for each worker whose status changed in the period; equal neighbors become one span."""
    lanes: dict[str, list[Span]] = {}
    state: dict[str, tuple[str, float]] = {}
    for row in rows:
        if row.get("action") != "status_changed":
            continue
        worker, at = text(row.get("worker")), number(row.get("ts")) or 0.0
        before, began = state.get(worker, (_STATES.get(text(row.get("from")), "offline"), since))
        _extend(lanes.setdefault(worker, []), Span(worker, before, began, at))
        state[worker] = (_STATES.get(text(row.get("to")), "offline"), at)
    for worker, (now_in, began) in state.items():
        _extend(lanes[worker], Span(worker, now_in, began, until))
    return {worker: tuple(spans) for worker, spans in sorted(lanes.items())}


def _extend(spans: list[Span], span: Span) -> None:
    if span.end_unix <= span.start_unix:
        return
    if spans and spans[-1].state == span.state and spans[-1].end_unix == span.start_unix:
        last = spans.pop()
        span = Span(span.worker, span.state, last.start_unix, span.end_unix)
    spans.append(span)
