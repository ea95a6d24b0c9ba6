"""The digest as text: what needs the user, what landed, what did not, and what it cost. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from llmc.base.text import cells, counted, gist, padded, printable, shortened, wrap, wrap_command
from llmc.config.durations import format_duration
from llmc.notifications.rules import BODY_CHARS, Notice
from llmc.records.task import in_order
from llmc.reports.rules.digest_parts import Accepted, Digest, Ended, Pauses, Waiting
from llmc.reports.rules.spend import Spend

#: styles a text: (text, style) -> text
Paint = Callable[[str, str], str]
#: formats a time in the local time zone
When = Callable[[float], str]

#: items explained in full; for the others only the command is shown
MOST_WAITING = 6
#: a reason is not repeated if the text already has this many of its first characters
SAME = 40
#: up to this many landed tasks get a line each; more are shown in columns
MOST_LANDED = 12
#: only the latest are shown
MOST_INTERRUPTIONS = 8
#: column widths: the first if everything fits that way, else the second
COLUMNS = (38, 26)
#: length of the digest; landed tasks beyond it are shown by number only
MOST_LINES = 50
LEAST_ROWS = 6
MOST_NAMES = 60
MOST_WIDTH = 160
TRASH = "refs/llmc/trash/"


def render(report: Digest, width: int, paint: Paint, when: When) -> str:
    """The whole digest; every line fits into `width` cells."""
    page = _Page(max(40, min(width, MOST_WIDTH)), paint, when)
    first = [page.head(report), page.waiting(report.waits)]
    last = [
        page.notices(tuple(item for item in report.waiting if item not in report.waits)),
        page.refused_hosts(report),
        page.not_landed(report),
        page.interruptions(report),
        page.spend(report),
        page.pauses(report),
    ]
    taken = sum(len(part) + 1 for part in [*first, *last] if part)
    landed = page.landed(report.accepted, max(LEAST_ROWS, MOST_LINES - taken - 2))
    return "\n\n".join("\n".join(part) for part in [*first, landed, *last] if part)


def tokens(count: int) -> str:
    """950, 12k, 3.4M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            shown = count / size
            return f"{shown:.1f}{unit}" if shown < 10 else f"{shown:.0f}{unit}"
    return str(count)


def money(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else "less than a cent"


def listed(names: list[str]) -> str:
    """Comma-separated, with at most `MOST_NAMES` names."""
    return ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")


def ranges(ids: Iterable[str]) -> list[str]:
    """Sorted, with consecutive numbers as a range: 3-5."""
    found: list[list[str]] = []
    for name in sorted(ids, key=in_order):
        is_word, value, _ = in_order(name)
        if found and not is_word and in_order(found[-1][-1]) == (0, value - 1, ""):
            found[-1][1:] = [name]
        else:
            found.append([name])
    return ["-".join(parts) for parts in found]


class _Page:
    def __init__(self, width: int, paint: Paint, when: When) -> None:
        self.width, self.paint, self.when = width, paint, when

    def head(self, report: Digest) -> list[str]:
        period = f"{self.when(report.since_unix)} to {self.when(report.until_unix)}"
        long = format_duration(report.until_unix - report.since_unix)
        lines = [self.paint(shortened(f"{period} ({long})", self.width), "bold")]
        if report.is_empty:
            rest = "" if report.waits else ". Nothing is waiting for you"
            lines += self._plain(f"No tasks were started and nothing landed{rest}.", 0, 2)
        else:
            lines += self._plain(f"{summary(report)}.", 0, 2)
            lines += self._run(report)
        for problem in report.problems:
            lines += [self.paint(line, "red") for line in self._plain(f"incomplete: {problem}", 0, 3)]
        return lines

    def _run(self, report: Digest) -> list[str]:
        runs = report.runs
        at = f" at {self.when(runs.ended_unix)}" if runs.ended_unix is not None else ""
        cause = f" ({runs.cause})" if runs.cause else ""
        place = "".join(
            f" {word} {name}" for word, name in (("on", runs.worker), ("in task", runs.task_id)) if name
        )
        why = f": {runs.reason}" if runs.reason else ""
        said = {
            "running": "Auto mode is running.",
            "stopped": f"Auto mode ended{at}{why}",
            "failed": f"Auto mode failed{at}{cause}{place}{why}",
            "killed": f"Auto mode ended unexpectedly (last activity: {self.when(runs.ended_unix or 0)})",
        }.get(runs.how or "", "")
        again = f" Auto mode was started {runs.times} times." if runs.times > 1 else ""
        text = said + ("" if not said or said.endswith(".") else ".") + again
        style = "red" if runs.how in ("failed", "killed") else ""
        return [self.paint(line, style) if style else line for line in self._plain(text, 0, 3)]

    def waiting(self, items: tuple[Waiting, ...]) -> list[str]:
        lines: list[str] = []
        for item in items[:MOST_WAITING]:
            gain = f"   {_held_up(item)}" if item.unblocks else ""
            command = printable(item.command or item.kind)
            first, *rest = wrap_command(command, self.width - 2 - cells(gain)) or [""]
            lines.append(f"  {self.paint(first, 'yellow')}{gain}")
            lines += [f"  {self.paint(line, 'yellow')}" for line in rest]
            lines += self._plain(_about(item), 6, 2)
            if item.ref:
                lines += self._plain(f"to see its work: llmc trash show {item.ref.removeprefix(TRASH)}", 6, 2)
        if others := items[MOST_WAITING:]:
            commands = listed([item.command or item.kind for item in others])
            lines += self._plain(f"and {len(others)} more: {commands}", 2, 4)
        return self._section(f"Waiting for you ({len(items)})", lines)

    def notices(self, items: tuple[Waiting, ...]) -> list[str]:
        told = [one for one in items if one.kind != "refused_hosts"]  # they have a section of their own
        return self._section(
            "Notices", [line for one in told[:MOST_WAITING] for line in self._plain(_about(one))]
        )

    def refused_hosts(self, report: Digest) -> list[str]:
        lines: list[str] = []
        for row in report.refused_hosts[:MOST_WAITING]:
            tries = f", {counted(row.tries, 'attempt')}" if row.tries else ""
            lines += self._plain(f"{row.host} ({', '.join(row.workers)}{tries}): {row.why}")
        if (more := len(report.refused_hosts) - MOST_WAITING) > 0:
            lines += self._plain(f"and {more} more; to see them: llmc digest --json")
        if report.allow_hosts:
            lines += self._plain(f"to allow them: {report.allow_hosts}", 2, 6)
        return self._section(f"Refused connections ({len(report.refused_hosts)})", lines)

    def landed(self, rows: tuple[Accepted, ...], most: int) -> list[str]:
        """In at most `most` lines below its title."""
        if not rows:
            return []
        title = f"Landed ({len(rows)})"
        if len(rows) <= MOST_LANDED:
            return self._section(title, self._table(rows))
        hard = [f"{_name(row)}{_trouble(row)}" for row in rows if _trouble(row)]
        notes = self._plain(f"did not land on the first attempt: {listed(hard)}") if hard else []
        most = max(3, most - len(notes))
        counts = [max(1, (self.width - 2) // column) for column in COLUMNS]
        count = next((n for n in counts if n * most >= len(rows)), counts[-1])
        shown = rows if count * most >= len(rows) else rows[: count * (most - 2)]
        others = [_name(row) for row in rows[len(shown) :]]
        more = self._plain(f"and {len(others)} more: {listed(ranges(others))}") if others else []
        return self._section(title, [*self._side_by_side(shown, count), *more, *notes])

    def _table(self, rows: Iterable[Accepted]) -> list[str]:
        shown = [
            (
                row.task_id or "-",
                (row.commit or "no change")[:9],
                row.worker or "-",
                "" if row.took_s is None else format_duration(row.took_s),
            )
            for row in rows
        ]
        widths = [max(cells(printable(cell)) for cell in column) for column in zip(*shown, strict=True)]
        lines = []
        for row, parts in zip(rows, shown, strict=True):
            head = "  ".join(padded(printable(c), w) for c, w in zip(parts, widths, strict=True))
            room = self.width - 4 - cells(head)
            lines.append(f"  {head}  {shortened(printable(row.subject) + _trouble(row), max(8, room))}")
        return [shortened(line, self.width) for line in lines]

    def _side_by_side(self, rows: tuple[Accepted, ...], count: int) -> list[str]:
        column = (self.width - 2) // count
        name = max(cells(printable(row.task_id or "-")) for row in rows)

        def entry(row: Accepted) -> str:
            head = padded(printable(row.task_id or "-"), name)
            said = f"{head} {printable(row.subject or row.commit or '')}"
            return padded(shortened(said, column - 2), column)

        lines = ("".join(map(entry, rows[i : i + count])) for i in range(0, len(rows), count))
        return [f"  {line}".rstrip() for line in lines]

    def not_landed(self, report: Digest) -> list[str]:
        lines: list[str] = []
        if report.failed:
            causes = ", ".join(f"{cause}: {count}" for cause, count in report.failed_by_cause.items())
            lines += self._plain(f"{counted(len(report.failed), 'attempt')} failed ({causes})")
            lines += self._failures(report.failed)
        others = {
            "quarantined": _held(report, "quarantined"),
            "parked (over budget)": _held(report, "parked"),
            "released": _tasks(report.released),
            "still open": _tasks(report.open),
            "reverted with `llmc undo`": [
                f"{(row.commit or '')[:9]} {row.subject}".strip() for row in report.undone
            ],
        }
        for words, names in others.items():
            lines += self._plain(f"{words}: {listed(names)}") if names else []
        return self._section("Did not land", lines)

    def _failures(self, rows: tuple[Ended, ...]) -> Iterator[str]:
        """The latest reason for each cause, one line each."""
        last = {row.cause: row for row in rows if row.reason}
        for row in list(last.values())[:3]:
            yield from self._plain(f"task {row.task_id} ({row.cause or 'unknown'}): {gist(row.reason)}", 4, 2)

    def interruptions(self, report: Digest) -> list[str]:
        rows = report.interruptions
        earlier = len(rows) - MOST_INTERRUPTIONS
        lines = [f"  {counted(earlier, 'earlier event')}; to see all: llmc events"] if earlier > 0 else []
        for row in rows[-MOST_INTERRUPTIONS:]:
            lines += self._plain(f"{self.when(row.at_unix)}  {row.text}")
        return self._section(f"Interruptions ({len(rows)})", lines)

    def spend(self, report: Digest) -> list[str]:
        rows = {name: row.spend for name, row in report.spend.items() if row.spend != Spend()}
        if len(rows) > 1:
            rows["total"] = report.total_spend
        width = max(map(len, rows), default=0)
        lines = [f"  {name:<{width}}  {_spent(spend)}" for name, spend in rows.items()]
        if lines and report.cost_per_accepted is not None:
            lines.append(f"  {money(report.cost_per_accepted)} per landed task, all costs included")
        return self._section("Spent", [shortened(line, self.width) for line in lines])

    def pauses(self, report: Digest) -> list[str]:
        pauses = {f"parked ({cause})": row for cause, row in report.parks.items()}
        pauses["uncommitted changes in the source repository"] = report.dirty_source
        said = [
            f"{why}: {counted(row.times, 'time')}, {_long(row)}" for why, row in pauses.items() if row.times
        ]
        if report.post_accept.times:
            done = report.post_accept
            bad = f", {done.failed} failed" if done.failed else ""
            said.append(f"post-accept command: {counted(done.times, 'run')}{bad}, {_long(done)}")
        return self._section("Delays", [line for text in said for line in self._plain(text)])

    def _section(self, title: str, lines: list[str]) -> list[str]:
        """The lines below their title; nothing without lines."""
        return [self.paint(title, "bold"), *lines] if lines else []

    def _plain(self, text: str, indent: int = 2, most: int = 2) -> list[str]:
        return [" " * indent + line for line in wrap(printable(text), self.width - indent, most)]


def summary(report: Digest) -> str:
    """The run in one sentence, without the period."""
    tasks = [row for row in report.accepted if row.task_id is not None]
    by_hand = len(report.accepted) - len(tasks)
    runs = report.runs
    parts = [f"{counted(len(tasks), 'task')} landed"] if tasks or runs.times else []
    if runs.tasks_per_hour:
        parked = " excluding parked time" if runs.parked_s else ""
        parts[0] += f" in {format_duration(runs.total_s)} ({runs.tasks_per_hour:.1f} per hour{parked})"
    if by_hand:
        parts.append(f"{by_hand} accepted by hand")
    if report.total_spend.cost is not None:
        parts.append(money(report.total_spend.cost))
    if report.waits:
        parts.append(f"{counted(len(report.waits), 'item')} waiting for you")
    return ", ".join(parts) or "Nothing landed"


def _long(row: Pauses) -> str:
    return format_duration(row.total_s) + (" total" if row.times > 1 else "")


def _held_up(item: Waiting) -> str:
    """What this blocks."""
    return f"blocks {counted(item.unblocks or 0, 'plan item' if item.kind == 'goal_question' else 'task')}"


def _about(item: Waiting) -> str:
    """The item and its reason, unless the item already contains it."""
    reason = item.why.partition(": ")[2] or item.why
    return item.what if not reason or reason[:SAME] in item.what else f"{item.what} ({item.why})"


def _name(row: Accepted) -> str:
    return row.task_id or (row.commit or "")[:9]


def _trouble(row: Accepted) -> str:
    """Attempts, conflicts and returns; often nothing."""
    return _noted(
        "",
        f"attempt {row.attempts}" if row.attempts > 1 else "",
        counted(row.conflicts, "conflict") if row.conflicts else "",
        f"returned {row.sent_back}x" if row.sent_back else "",
    )


def _held(report: Digest, hold: str) -> list[str]:
    """The tasks on this hold: why, and after how many attempts."""
    rows = [row for row in report.held if row.hold == hold]
    return [_noted(row.task_id, row.cause, counted(row.attempts, "attempt")) for row in rows]


def _tasks(rows: Iterable[Ended]) -> list[str]:
    """Each task once, with its cause and how often."""
    times = Counter((row.task_id, row.cause) for row in rows)
    return [_noted(task, cause, f"{count}x" if count > 1 else "") for (task, cause), count in times.items()]


def _noted(text: str, *remarks: str) -> str:
    """The text with its remarks in parentheses."""
    said = ", ".join(filter(None, remarks))
    return f"{text} ({said})" if said else text


def _spent(spend: Spend) -> str:
    cached = spend.cache_read_input_tokens
    said = f"{tokens(spend.tokens)} tokens" + (f" (plus {tokens(cached)} from the cache)" if cached else "")
    if spend.cost is None:
        return said
    missing = f", plus {tokens(spend.unpriced_tokens)} unpriced" if spend.unpriced_tokens else ""
    return f"{said}, {money(spend.cost)}{missing}"


def ended_notice(found: Digest, text: str) -> Notice:
    """The notice when auto mode ends, with the summary as its title."""
    words = "nothing happened" if found.is_empty and not found.waits else summary(found)
    facts = {"accepted": len(found.accepted), "failed": len(found.failed), "waiting": len(found.waits)}
    return Notice("digest", f"{found.since_unix:.3f}", f"Auto mode ended: {words}", text[:BODY_CHARS], facts)
