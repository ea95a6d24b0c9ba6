"""Draws the list, the header and the pane's texts as styled lines. Pure: no widget, no clock, no files.

Text from agents and repositories is cleaned here before it becomes a line.
"""

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from llmc.api.views import LOOKS, Fleet, Landed, OtherNode, Others, Row, There
from llmc.base.text import age as age_of
from llmc.base.text import cells, counted, moment, printable, shortened
from llmc.tui.list_store import IDLE, LANDED, NEEDS, NODES, SECTIONS, TITLES, Entry, Spot, Store
from llmc.tui.theme import Theme, glyph_of


class Brush(Struct, frozen=True):
    """How to draw: the colors, and whether to use only ASCII."""

    theme: Theme
    plain: bool = False

    def look(self, name: str) -> str:
        return self.theme.looks[name]

    def glyph(self, name: str) -> str:
        return glyph_of(LOOKS[name], plain=self.plain)

    @property
    def dot(self) -> str:
        return "-" if self.plain else "·"

    @property
    def rule(self) -> str:
        return "-" if self.plain else "─"

    @property
    def goes_on(self) -> str:
        """The mark before the rest of a line that is wider than the screen."""
        return "\\" if self.plain else "↪"


class Line(Struct, frozen=True):
    """One line of the list, and the entry it belongs to."""

    text: Text
    spot: Spot | None = None
    #: the first line of its entry, where the cursor is drawn
    first: bool = True


def age(seconds: float, *, frozen: bool = False) -> str:
    """An age, with `~` if no daemon keeps it up to date."""
    return f"{'~' if frozen else ''}{age_of(seconds)}"


def clock(at: float) -> str:
    return time.strftime("%H:%M", time.localtime(at))


def header(
    fleet: Fleet | None, now: float, width: int, brush: Brush, trouble: str, roots: Callable[[int], str]
) -> Text:
    """The first line: the root, the daemon, and the counts. `roots` names the root, and others if they fit."""
    theme = brush.theme
    if fleet is None:
        return Text(shortened(printable(trouble or "loading the fleet ..."), width), style=theme.muted)
    counts, health = fleet.counts, fleet.health
    dot = f" {brush.dot} "
    left = Text()
    if trouble:
        left.append(printable(trouble), style=theme.error)
    elif health.daemon:
        left.append("daemon up", style=theme.text)
    else:
        left.append("daemon not running", style=f"bold {theme.error}" if health.is_bad else theme.muted)
    if health.auto:
        many = counted(health.auto_workers, "worker")
        word = f"auto mode, {many}" if health.auto == "running" else f"auto mode {health.auto}"
        left.append(f"{dot}{word}", style=theme.error if health.auto == "stopped" else theme.text)
    if health.parked_until_unix:
        until = (
            moment(health.parked_until_unix, now) if health.parked_until_unix > now else "a retry succeeds"
        )
        left.append(f"{dot}parked until {until}", style=brush.look("held"))
    right = Text()
    right.append(needs_you(counts.need), style=f"bold {brush.look('asks')}" if counts.need else theme.muted)
    offline = f"{dot}{counts.offline} offline" if counts.offline else ""
    rest = f"{dot}{counts.working} working{dot}{counts.idle} idle{offline}  {clock(now)} "
    is_wrong = bool(trouble) or health.is_bad
    if not is_wrong or width >= left.cell_len + right.cell_len + len(rest) + 12:  # problems take precedence
        right.append(rest, style=theme.muted)
    begin = f" llmc{dot}"
    room = width - len(begin) - len(dot) - left.cell_len - right.cell_len - 1
    name = roots(room)
    head = " " if is_wrong and cells(name) > room else f"{begin}{name}{dot}"
    left = Text.assemble((head, f"bold {theme.text}"), left)
    return _ends(left, right, width)


def _ends(left: Text, right: Text, width: int) -> Text:
    """Both parts on one line, the right one at the right edge; the left one is cut to fit."""
    room = width - right.cell_len - 1
    if room < 8:
        right.truncate(width, overflow="ellipsis")
        return right
    left.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(left, " ", right)


def list_lines(store: Store, now: float, width: int, brush: Brush, *, wide: bool) -> list[Line]:
    """The list, from top to bottom. `wide`: entries that need you have a second line with details."""
    if store.fleet is None:
        return []
    if not store.fleet.rows and not store.shown(NEEDS) and not store.shown(NODES):
        return _no_workers(store, width, brush)
    frozen = not store.fleet.health.daemon
    lines: list[Line] = []
    for section in SECTIONS:
        if section == NODES and store.fleet.others is None:
            continue
        entries = store.shown(section)
        lines.append(_title(store, section, now, width, brush, entries))
        for entry in entries:
            if entry.spot.kind != "section":
                lines += _entry_lines(entry, now, width, brush, wide=wide, frozen=frozen)
    return lines


def tiny_lines(store: Store, width: int) -> list[Line]:
    """For a terminal too small for the list: how many need you, and who."""
    if store.fleet is None:
        return [Line(Text("loading ..."))]
    lines = [Line(Text(needs_you(store.fleet.counts.need), style="bold"))]
    for entry in store.shown(NEEDS):
        who = entry.item.who if entry.item else entry.spot.id
        lines.append(Line(Text(printable(who)[:width]), entry.spot))
    return lines


def _no_workers(store: Store, width: int, brush: Brush) -> list[Line]:
    said = ("No workers yet.", "n  add a worker", "s  start a task", ":tasks import PLAN  import tasks")
    lines = [Line(Text(f"  {shortened(text, width - 2)}", style=brush.theme.muted)) for text in said]
    landed = [
        line for entry in store.shown(LANDED) for line in _entry_lines(entry, 0, width, brush, wide=False)
    ]
    return lines + landed


def _title(
    store: Store, section: str, now: float, width: int, brush: Brush, entries: Sequence[Entry]
) -> Line:
    theme = brush.theme
    text = Text(f" {TITLES[section]} {store.count(section)}", style=f"bold {theme.muted}")
    if apart := store.apart(section):
        text.append(f" ({apart})")
    if section == NODES and store.fleet is not None and store.fleet.others is not None:
        _tell_of_nodes(text, store.fleet.others, now, brush)
    spot = None
    if section == NEEDS and not entries and not store.filter:
        text.append("  nothing needs you", style=theme.muted)
    if entries and entries[0].spot.kind == "section":
        spot = entries[0].spot
        if section == LANDED and entries[0].landed is not None:
            last = entries[0].landed
            told = f"last: {clock(last.at_unix)} {last.worker} {_undone(last)}{last.subject}"
        else:
            told = " ".join(entries[0].names)
        text.append(f"  {printable(told)}", style=theme.text if section == IDLE else theme.muted)
    text.truncate(width, overflow="ellipsis")
    return Line(marked(text, spot is not None and store.cursor == spot, width, brush), spot)


def _entry_lines(
    entry: Entry, now: float, width: int, brush: Brush, *, wide: bool, frozen: bool = False
) -> list[Line]:
    if entry.landed is not None:
        return [Line(_landed(entry.landed, width, brush), entry.spot)]
    if entry.node is not None:
        there = entry.there
        line = _there(there, width, brush) if there is not None else _node(entry.node, now, width, brush)
        return [Line(line, entry.spot)]
    if entry.row is None:
        assert entry.item is not None
        look, since = entry.item.look.name, entry.item.since_unix
        head = _row(
            look, entry.item.who, age(now - since, frozen=frozen), entry.item.sentence, "", width, brush
        )
        return [Line(head, entry.spot)]
    row, item = entry.row, entry.item
    since = item.since_unix if item else row.since_unix
    asks = item is not None and item.kind in ("question", "goal_question")
    told = item.sentence if item is not None and asks else row.task
    fact = _fact(row) if item is None or not wide else _lines_changed(row)
    if item is not None and not wide and not asks:
        fact = item.sentence if not fact else f"{item.sentence}  {fact}"
    if row.held:
        told, fact = f"(held) {told}", "" if fact == row.fact else fact
    lines = [
        Line(
            _row(row.look.name, row.worker, age(now - since, frozen=frozen), told, fact, width, brush),
            entry.spot,
        )
    ]
    if item is not None and wide:
        said = f"question {brush.dot} {row.task}" if asks else item.sentence
        under = Text("      " + shortened(printable(said), width - 7), style=brush.theme.muted)
        lines.append(Line(under, entry.spot, first=False))
    return lines


def _tell_of_nodes(text: Text, others: Others, now: float, brush: Brush) -> None:
    """Add the totals of all other nodes to the section title."""
    if others.need:
        text.append(f" ({needs_you(others.need)})", style=brush.look("asks"))
    if others.more:
        text.append(f" and {others.more} more")
    if others.stale:
        text.append(f"  as of {age(now - others.at_unix)} ago", style=brush.theme.error)


#: in a narrower list, only the pane shows the client's version
NODE_CELLS = 60


def needs_you(count: int) -> str:
    return "1 needs you" if count == 1 else f"{count} need you"


def _node(node: OtherNode, now: float, width: int, brush: Brush) -> Text:
    busy = f"{node.busy}/{node.workers} busy" if node.workers else ""
    told = ", ".join(filter(None, (node.state, needs_you(node.need) if node.need else "", busy)))
    client = node.client.partition(" ")[0] if width >= NODE_CELLS else ""
    old = age(now - node.seen_unix)
    return _row(node.look.name, node.name, old, told, client, width, brush)


def _there(there: There, width: int, brush: Brush) -> Text:
    theme = brush.theme
    text = Text("    ")
    text.append(brush.glyph(there.look.name), style=brush.look(there.look.name))
    text.append(f" {_padded(middle(printable(there.who), NAME_CELLS), NAME_CELLS)} ", style=theme.text)
    told = printable(there.sentence or there.status)
    text.append(told, style=theme.text if there.sentence else theme.muted)
    text.truncate(width, overflow="ellipsis")
    return text


def about(entry: Entry | None, now: float, width: int, brush: Brush, opens: str = "Enter") -> list[Text]:
    """The pane's text for an entry that is not a worker of this root. `opens`: the key that opens it."""
    if entry is not None and entry.item is not None:
        return plain_lines(f"{entry.item.sentence}\n\nnext: {entry.item.next}", width)
    if entry is not None and entry.landed is not None:
        one = entry.landed
        told = f"{one.subject}\n\n{one.commit}\nlanded {clock(one.at_unix)} by {one.worker}"
        return plain_lines(f"{told}\n\nPress {opens} to show the commit", width)
    if entry is not None and entry.node is not None:
        return _about_node(entry.node, entry.there, now, width, brush)
    return [Text("")]


def _about_node(node: OtherNode, there: There | None, now: float, width: int, brush: Brush) -> list[Text]:
    """Everything known about another node or an entry on it, with the commands to run here."""
    facts = {
        "node": f"{node.name} ({node.state})",
        "place": node.place,
        "heard": f"{age(now - node.seen_unix)} ago",
        "llmc": node.version,
        "client": node.client or "unknown",
        "workers": f"{node.workers}, {node.busy} busy",
    }
    commands = {"To open the node's screen from here": node.command}
    lines = []
    if there is not None:
        lines = plain_lines(
            there.sentence or f"{there.who}: {there.status}", width, f"bold {brush.theme.text}"
        )
        commands = {"Next command to run here": there.next, "To attach from here": there.attach}
        if there.question:
            lines += [Text(""), Text("Press A to answer", style=brush.theme.muted)]
    for name, command in commands.items():
        if command:
            lines += [Text(""), Text(f"{name}:", style=brush.theme.muted)]
            lines += plain_lines(command, width, brush.theme.text)
    told = [f"{name:<8} {value}" for name, value in facts.items()]
    return [*lines, Text(""), *(one for text in told for one in plain_lines(text, width, brush.theme.muted))]


def _fact(row: Row) -> str:
    return row.fact or _lines_changed(row)


def _lines_changed(row: Row) -> str:
    return "" if row.added is None else f"+{row.added} -{row.deleted}"


NAME_CELLS = 12


def _row(look: str, name: str, old: str, task: str, fact: str, width: int, brush: Brush) -> Text:
    """Glyph, name, age, task, and one fact at the right edge."""
    theme = brush.theme
    fact = shortened(printable(fact), max(0, (width - NAME_CELLS - 12) // 2))
    text = Text("  ")
    text.append(brush.glyph(look), style=brush.look(look))
    text.append(" " + _padded(middle(printable(name), NAME_CELLS), NAME_CELLS), style=f"bold {theme.text}")
    text.append(f" {old:>4}  ", style=theme.muted)
    room = width - text.cell_len - (cells(fact) + 1 if fact else 0)
    text.append(_padded(shortened(printable(task), max(0, room - 1)), max(0, room)), style=theme.text)
    if fact:
        text.append(f" {fact}", style=theme.muted)
    text.truncate(width)
    return text


def _landed(landed: Landed, width: int, brush: Brush) -> Text:
    theme = brush.theme
    text = Text("  ")
    text.append(brush.glyph("landed"), style=brush.look("landed"))
    text.append(f" {clock(landed.at_unix)} ", style=theme.muted)
    text.append(f"{_padded(middle(printable(landed.worker), 9), 9)} ", style=theme.text)
    text.append(f"{landed.commit[:7]} ", style=theme.muted)
    told = _undone(landed) + printable(landed.subject)
    text.append(told, style=theme.text if not landed.undone else theme.muted)
    text.truncate(width, overflow="ellipsis")
    return text


def _undone(landed: Landed) -> str:
    return "undone: " if landed.undone else ""


def marked(text: Text, selected: bool, width: int, brush: Brush, *, first: bool = True) -> Text:
    """A line, with the cursor on it if it is selected."""
    if selected:
        text.pad_right(max(0, width - text.cell_len))
        text.stylize(Style(bgcolor=brush.theme.selected))
        if first and text.plain.startswith(" "):
            text = Text.assemble((">", f"bold {brush.theme.text} on {brush.theme.selected}"), text[1:])
    return text


def with_cursor(line: Line, store: Store, width: int, brush: Brush) -> Text:
    """The line, marked if the cursor is on it."""
    is_here = line.spot is not None and line.spot == store.cursor
    return marked(line.text.copy(), is_here, width, brush, first=line.first)


def middle(name: str, width: int) -> str:
    """A name shortened in the middle, since both ends distinguish names."""
    if cells(name) <= width:
        return name
    keep = width - 1
    return f"{name[: keep - keep // 3]}…{name[len(name) - keep // 3 :]}"


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - cells(text))


def screen_text(lines: Sequence[str], width: int) -> list[Text]:
    """A captured screen, with its colors but no other control sequences."""
    return [_ansi(line, width) for line in lines]


def _ansi(line: str, width: int) -> Text:
    text = Text.from_ansi(line, no_wrap=True)
    clean = Text(no_wrap=True)
    for segment in text.split("\n") if "\n" in text.plain else [text]:
        clean.append_text(_cleaned(segment))
    clean.truncate(width, overflow="ellipsis")
    return clean


def _cleaned(text: Text) -> Text:
    """The text, with a space for each character that would act on a terminal."""
    plain = "".join(char if printable(char) == char else " " for char in text.plain)
    return Text(plain, spans=list(text.spans), style=text.style)


def plain_lines(text: str, width: int, style: str = "") -> list[Text]:
    """A text of one or more lines, wrapped."""
    lines: list[Text] = []
    for line in text.splitlines() or [""]:
        rest = printable(line)
        while cells(rest) > width and width > 4:
            cut = _fits(rest, width)
            space = rest.rfind(" ", 1, cut)
            cut = space if space > width // 3 else cut
            lines.append(Text(rest[:cut].rstrip(), style=style))
            rest = rest[cut:].lstrip()
        lines.append(Text(rest, style=style))
    return lines


def _fits(text: str, width: int) -> int:
    """How many characters fit into the width."""
    used = 0
    for at, char in enumerate(text):
        used += cells(char)
        if used > width:
            return max(1, at)
    return len(text)


_SPARKS = " ▁▂▃▄▅▆▇█"
_ASCII_SPARKS = " .:-=+*#@"


def sparkline(values: Sequence[float], *, plain: bool) -> str:
    """One character for each value; the largest is the highest."""
    marks = _ASCII_SPARKS if plain else _SPARKS
    top = max(values, default=0.0)
    if top <= 0:
        return marks[0] * len(values)
    return "".join(marks[0 if value <= 0 else 1 + int((len(marks) - 2) * value / top)] for value in values)
