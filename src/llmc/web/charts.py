"""The charts of a night as shapes: where each bar and each span stands. The numbers are the digest's own. Pure."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from llmc.api.night_view import Night

WIDTH, HEIGHT = 960, 160
LANE = 22


class Bar(Struct, frozen=True):
    """A bar of a chart: its place, and its number as text."""

    x: float
    y: float
    width: float
    height: float
    label: str
    kind: str


class Chart(Struct, frozen=True):
    """A chart: its title with the total, its bars, and the same as a table."""

    title: str
    name: str
    bars: tuple[Bar, ...]
    #: the time under each step, and its value
    rows: tuple[tuple[str, str], ...]
    height: int = HEIGHT


class Lane(Struct, frozen=True):
    """A worker over time."""

    worker: str
    y: int
    spans: tuple[Bar, ...]


class NightCharts(Struct, frozen=True):
    landed: Chart
    cost: Chart
    outcomes: Chart
    waits: Chart
    lanes: tuple[Lane, ...]
    lanes_height: int


def of_night(night: Night) -> NightCharts:
    digest = night.digest
    times = [_hour(at) for at in night.starts]
    landed = len(digest.accepted)
    rate = digest.runs.tasks_per_hour
    speed = f", {rate:.1f} per hour" if rate is not None else ""
    undone = f", {len(digest.undone)} undone" if digest.undone else ""
    total = digest.total_spend.cost or 0.0
    spends = {end: row for end, row in digest.spend.items() if row.attempts or row.spend.cost}
    each = digest.cost_per_accepted
    waits = {
        **{f"parked: {cause}": row.total_s for cause, row in digest.parks.items()},
        "the source had uncommitted changes": digest.dirty_source.total_s,
        "post-accept commands": digest.post_accept.total_s,
    }
    waits = {cause: seconds for cause, seconds in waits.items() if seconds}
    lanes = _lanes(night)
    return NightCharts(
        landed=_over_time(
            "landed", f"Landed: {landed}{undone}{speed}", times, night.landed, night.undone, "{:g}"
        ),
        cost=_over_time("cost", f"Cost: ${total:.2f}", times, night.cost, (), "${:.2f}"),
        outcomes=_by_name(
            "outcomes",
            f"Cost per landed task: ${each:.2f}" if each is not None else "Cost by outcome",
            {f"{end} ({row.attempts})": row.spend.cost or 0.0 for end, row in spends.items()},
            "${:.2f}",
        ),
        waits=_by_name(
            "waits",
            f"Waits: {sum(waits.values()) / 60:.0f} min",
            {cause: seconds / 60 for cause, seconds in waits.items()},
            "{:.0f} min",
        ),
        lanes=lanes,
        lanes_height=LANE * len(lanes) + 4,
    )


def _over_time(
    name: str, title: str, times: Sequence[str], up: Sequence[float], down: Sequence[float], form: str
) -> Chart:
    """Bars over time; `down` hangs below the line."""
    most_up, most_down = max(up, default=0), max(down, default=0)
    scale = (HEIGHT - 24) / ((most_up + most_down) or 1)
    zero = 12 + most_up * scale
    step = WIDTH / max(1, len(up))
    bars = [
        Bar(
            at * step + 1,
            zero - value * scale,
            max(1.0, step - 2),
            value * scale,
            f"{time} {form.format(value)}",
            name,
        )
        for at, (time, value) in enumerate(zip(times, up, strict=True))
        if value
    ]
    bars += [
        Bar(
            at * step + 1,
            zero,
            max(1.0, step - 2),
            value * scale,
            f"{times[at]} undone {form.format(value)}",
            "undone",
        )
        for at, value in enumerate(down)
        if value
    ]
    rows = tuple((time, form.format(value)) for time, value in zip(times, up, strict=True))
    return Chart(title, name, tuple(bars), rows)


def _by_name(name: str, title: str, values: dict[str, float], form: str) -> Chart:
    """Bars from left to right, one below the other."""
    most = max(values.values(), default=0) or 1
    bars = tuple(
        Bar(
            0,
            LANE * at + 3,
            max(1.0, value / most * (WIDTH - 320)),
            LANE - 6,
            f"{label}  {form.format(value)}",
            name,
        )
        for at, (label, value) in enumerate(values.items())
    )
    rows = tuple((label, form.format(value)) for label, value in values.items())
    return Chart(title, name, bars, rows, LANE * len(values) + 4)


def _lanes(night: Night) -> tuple[Lane, ...]:
    begin, end = night.digest.since_unix, night.digest.until_unix
    scale = WIDTH / max(1.0, end - begin)
    return tuple(
        Lane(
            worker,
            LANE * at,
            tuple(
                Bar(
                    (span.start_unix - begin) * scale,
                    LANE * at + 3,
                    max(0.5, (span.end_unix - span.start_unix) * scale),
                    LANE - 6,
                    f"{worker} {span.state} {_hour(span.start_unix)} to {_hour(span.end_unix)}",
                    span.state,
                )
                for span in spans
            ),
        )
        for at, (worker, spans) in enumerate(night.lanes.items())
    )


def _hour(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M")
