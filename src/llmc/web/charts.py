"""The charts of a night as shapes: the position of each bar and span. The numbers come from the digest. Pure."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from llmc.api.night_view import Night, clock_of

WIDTH, HEIGHT = 960, 160
#: maximum width of a bar, however few there are
WIDEST = 60
#: height of a horizontal bar, which has its own lane
LANE = 10


class Bar(Struct, frozen=True):
    """A bar of a chart: its position, and its value as text."""

    x: float
    y: float
    width: float
    height: float
    label: str
    kind: str


class Chart(Struct, frozen=True):
    """A chart: its title with the total, its bars, and the same data as a table."""

    title: str
    name: str
    bars: tuple[Bar, ...]
    #: the time or the name of each bar, and its value
    rows: tuple[tuple[str, str], ...]
    #: for bars over time: the value at the top edge, and the height of the baseline
    most: str = ""
    zero: float = HEIGHT


class Lane(Struct, frozen=True):
    """A worker over time."""

    worker: str
    spans: tuple[Bar, ...]


class NightCharts(Struct, frozen=True):
    #: formats a time of the period
    clock: Callable[[float], str]
    landed: Chart
    cost: Chart
    outcomes: Chart
    waits: Chart
    lanes: tuple[Lane, ...]


def of_night(night: Night) -> NightCharts:
    digest = night.digest
    clock = clock_of(digest)
    times = [clock(at) for at in night.starts]
    landed = len(digest.accepted)
    rate = digest.runs.tasks_per_hour
    speed = f", {rate:.1f} per hour" if rate is not None else ""
    undone = f", {len(digest.undone)} undone" if digest.undone else ""
    total = digest.total_spend.cost or 0.0
    spends = {end: row for end, row in digest.spend.items() if row.attempts or row.spend.cost}
    each = digest.cost_per_accepted
    waits = {
        **{f"parked: {cause}": row.total_s for cause, row in digest.parks.items()},
        "uncommitted changes in the source repository": digest.dirty_source.total_s,
        "post-accept commands": digest.post_accept.total_s,
    }
    waits = {cause: seconds for cause, seconds in waits.items() if seconds}
    return NightCharts(
        clock=clock,
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
        lanes=_lanes(night),
    )


def _over_time(
    name: str, title: str, times: Sequence[str], up: Sequence[float], down: Sequence[float], form: str
) -> Chart:
    """Bars over time; those of `down` hang below the baseline."""
    most_up, most_down = max(up, default=0), max(down, default=0)
    scale = HEIGHT / ((most_up + most_down) or 1)
    zero = most_up * scale
    step = WIDTH / max(1, len(up))
    width = max(1.0, min(step - 2, WIDEST))
    bars = [
        Bar(
            (at + 0.5) * step - width / 2,
            zero - value * scale,
            width,
            value * scale,
            f"{time} {form.format(value)}",
            name,
        )
        for at, (time, value) in enumerate(zip(times, up, strict=True))
        if value
    ]
    bars += [
        Bar(
            (at + 0.5) * step - width / 2,
            zero,
            width,
            value * scale,
            f"{times[at]} undone {form.format(value)}",
            "undone",
        )
        for at, value in enumerate(down)
        if value
    ]
    rows = tuple((time, form.format(value)) for time, value in zip(times, up, strict=True))
    return Chart(title, name, tuple(bars), rows, form.format(most_up), zero)


def _by_name(name: str, title: str, values: dict[str, float], form: str) -> Chart:
    """Horizontal bars, each in its own lane."""
    most = max(values.values(), default=0) or 1
    bars = tuple(
        Bar(0, 0, max(1.0, value / most * WIDTH), LANE, f"{label}  {form.format(value)}", name)
        for label, value in values.items()
    )
    rows = tuple((label, form.format(value)) for label, value in values.items())
    return Chart(title, name, bars, rows)


def _lanes(night: Night) -> tuple[Lane, ...]:
    clock = clock_of(night.digest)
    begin, end = night.digest.since_unix, night.digest.until_unix
    scale = WIDTH / max(1.0, end - begin)
    return tuple(
        Lane(
            worker,
            tuple(
                Bar(
                    (span.start_unix - begin) * scale,
                    0,
                    max(0.5, (span.end_unix - span.start_unix) * scale),
                    LANE,
                    f"{worker} {span.state} {clock(span.start_unix)} to {clock(span.end_unix)}",
                    span.state,
                )
                for span in spans
            ),
        )
        for worker, spans in night.lanes.items()
    )
