"""The entries of the list and the position of the cursor. Pure: the widgets draw it, and the tests drive it.

The cursor is on an entry such as a worker, never on a row number, so nothing moves under it. While the cursor is in a
section, new entries join that section at the end; the section is sorted when the cursor leaves.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from llmc.api.views import Fleet, Item, Landed, OtherNode, Row, There

NEEDS, WORKING, IDLE, NODES, LANDED = "needs", "working", "idle", "nodes", "landed"
SECTIONS = (NEEDS, WORKING, IDLE, NODES, LANDED)
TITLES = {
    NEEDS: "NEEDS YOU",
    WORKING: "WORKING",
    IDLE: "IDLE",
    NODES: "OTHER NODES",
    LANDED: "LANDED TODAY",
}
#: sections that start folded: one line with the names, or the latest entry
FOLDED = frozenset({IDLE})
#: how many landings an open section shows
MOST_LANDED = 30


class Spot(Struct, frozen=True):
    """What the cursor is on."""

    #: `worker`, `item`, `node`, `there`, `landed`, or `section` for a folded one
    kind: str
    id: str


class Entry(Struct, frozen=True):
    """One entry of the list."""

    spot: Spot
    section: str
    row: Row | None = None
    item: Item | None = None
    landed: Landed | None = None
    #: another node, and an entry on it
    node: OtherNode | None = None
    there: There | None = None
    #: for a folded section: the names of its entries
    names: tuple[str, ...] = ()


class Store(Struct):
    """The state of the list."""

    fleet: Fleet | None = None
    cursor: Spot | None = None
    filter: str = ""
    folded: set[str] = field(default_factory=lambda: set(FOLDED))
    #: the entries of each section in the order they are shown
    order: dict[str, list[Spot]] = field(default_factory=dict)

    def update(self, fleet: Fleet) -> None:
        """Take a new fleet; the cursor stays on the same entry."""
        before = self.section_of(self.cursor)
        was = self.entries()
        self.fleet = fleet
        for section in SECTIONS:
            natural = [entry.spot for entry in self._natural(section)]
            self.order[section] = (
                _kept(self.order.get(section, []), natural) if section == before else natural
            )
        self._find_cursor(was)

    def _find_cursor(self, was: list[Entry]) -> None:
        """Place the cursor after a change: on the same spot, else where its worker went, else on a neighbor."""
        now = {entry.spot for entry in self.entries()}
        if self.cursor in now:
            return
        moved = self._moved(self.cursor)
        if moved in now:
            self.cursor = moved
            return
        spots = [entry.spot for entry in was]
        at = spots.index(self.cursor) if self.cursor in spots else 0
        nearest = [*spots[at:], *reversed(spots[:at])]
        shown = [entry.spot for entry in self.entries()]
        self.cursor = next((spot for spot in nearest if spot in now), shown[0] if shown else None)

    def _moved(self, spot: Spot | None) -> Spot | None:
        """Where a worker is now: its own spot, or the folded section that it is in."""
        if spot is None or self.fleet is None or spot.kind != "worker":
            return None
        section = self.section_of(spot)
        return Spot("section", section) if section in self.folded else spot

    def section_of(self, spot: Spot | None) -> str:
        """The section of a spot; "" if there is none."""
        if spot is None or self.fleet is None:
            return ""
        if spot.kind == "section":
            return spot.id
        return next((s for s in SECTIONS if any(e.spot == spot for e in self._natural(s))), "")

    def entries(self) -> list[Entry]:
        """Everything that is shown, from top to bottom."""
        return [entry for section in SECTIONS for entry in self.shown(section)]

    def shown(self, section: str) -> list[Entry]:
        """The entries of a section, or one line for a folded one."""
        found = {entry.spot: entry for entry in self._natural(section)}
        if not found:
            return []
        if section in self.folded and not self.filter:
            names = tuple(_name(entry) for entry in found.values() if entry.there is None)
            first = next(iter(found.values()))
            return [Entry(Spot("section", section), section, landed=first.landed, names=names)]
        order = _kept(self.order.get(section, []), list(found))
        return [found[spot] for spot in order if _matches(found[spot], self.filter)]

    def count(self, section: str) -> int:
        """The count in the title of a section; undone landings do not count."""
        if section == NODES:
            return sum(entry.there is None for entry in self._matching(section))
        return len(self._matching(section)) - (self._undone if section == LANDED else 0)

    def apart(self, section: str) -> str:
        """The entries of a section that its title does not describe: undone landings or offline workers."""
        if section == LANDED:
            return f"{self._undone} undone" if self._undone else ""
        offline = sum(_is_offline(entry) for entry in self._matching(section)) if section == IDLE else 0
        return f"{offline} offline" if offline else ""

    @property
    def _undone(self) -> int:
        return sum(bool(entry.landed and entry.landed.undone) for entry in self._matching(LANDED))

    def _matching(self, section: str) -> list[Entry]:
        found = self._landed(None) if section == LANDED else self._natural(section)
        return [entry for entry in found if _matches(entry, self.filter)]

    def _landed(self, most: int | None) -> list[Entry]:
        landed = self.fleet.landed[:most] if self.fleet is not None else ()
        return [Entry(Spot("landed", one.commit), LANDED, landed=one) for one in landed]

    def _natural(self, section: str) -> list[Entry]:
        fleet = self.fleet
        if fleet is None:
            return []
        match section:
            case "needs":
                return self._needs(fleet)
            case "working":
                return [_worker(fleet, name, section) for name in fleet.working]
            case "idle":
                return [_worker(fleet, name, section) for name in fleet.idle]
            case "nodes":
                return self._nodes(fleet)
        return self._landed(MOST_LANDED)

    def _nodes(self, fleet: Fleet) -> list[Entry]:
        found: dict[Spot, Entry] = {}
        for node in fleet.others.nodes if fleet.others is not None else ():
            spot = Spot("node", node.name)
            found[spot] = Entry(spot, NODES, node=node)
            for one in node.there:
                spot = Spot("there", f"{node.name}/{one.who}")
                found.setdefault(spot, Entry(spot, NODES, node=node, there=one))
        return list(found.values())

    def _needs(self, fleet: Fleet) -> list[Entry]:
        found: dict[Spot, Entry] = {}
        for item in fleet.items:
            if item.severity == "notice":
                continue
            if item.worker is None:
                spot = Spot("item", item.key)
                found[spot] = Entry(spot, NEEDS, item=item)
            elif (spot := Spot("worker", item.worker)) not in found:
                found[spot] = Entry(spot, NEEDS, row=fleet.rows[item.worker], item=item)
        return list(found.values())

    @property
    def entry(self) -> Entry | None:
        """The entry that the cursor is on."""
        return next((entry for entry in self.entries() if entry.spot == self.cursor), None)

    def entry_of(self, worker: str) -> Entry | None:
        """The entry of a worker, even if it is folded or filtered out."""
        spot = Spot("worker", worker)
        return next((one for section in SECTIONS for one in self._natural(section) if one.spot == spot), None)

    @property
    def worker(self) -> str:
        """The worker that the cursor is on; "" if it is on something else."""
        entry = self.entry
        return entry.row.worker if entry is not None and entry.row is not None else ""

    def move(self, by: int) -> None:
        """Move the cursor by entries; it stops at the ends."""
        spots = [entry.spot for entry in self.entries()]
        if not spots:
            return
        at = spots.index(self.cursor) if self.cursor in spots else 0
        self._go(spots[max(0, min(len(spots) - 1, at + by))])

    def next_that_needs(self) -> bool:
        """Go to the next entry that needs the user, on any node, wrapping around; returns whether there is one."""
        there = [entry for entry in self.shown(NODES) if entry.there is not None and entry.there.sentence]
        spots = [entry.spot for entry in (*self.shown(NEEDS), *there)]
        if not spots:
            return False
        at = spots.index(self.cursor) + 1 if self.cursor in spots else 0
        self._go(spots[at % len(spots)])
        return True

    def go_to(self, worker: str) -> bool:
        """Put the cursor on a worker and unfold its section; returns whether it exists."""
        spot = Spot("worker", worker)
        section = self.section_of(spot)
        if not section:
            return False
        self.folded.discard(section)
        self._go(spot)
        return True

    def fold(self, *, folded: bool) -> None:
        """Fold or unfold the section of the cursor."""
        section = self.section_of(self.cursor)
        if not section or (section in self.folded) == folded:
            return
        was = self.entries()
        if folded:
            self.folded.add(section)
            self.cursor = Spot("section", section)
        else:
            self.folded.discard(section)
            shown = self.shown(section)
            self.cursor = shown[0].spot if shown else None
        self._find_cursor(was)

    def narrow(self, text: str) -> None:
        """Show only what matches the text."""
        was = self.entries()
        self.filter = text.strip().lower()
        self._find_cursor(was)

    def _go(self, spot: Spot) -> None:
        left = self.section_of(self.cursor)
        self.cursor = spot
        if left and left != self.section_of(spot):
            self.order[left] = [entry.spot for entry in self._natural(left)]


def _worker(fleet: Fleet, name: str, section: str) -> Entry:
    return Entry(Spot("worker", name), section, row=fleet.rows[name])


def _name(entry: Entry) -> str:
    return f"{entry.spot.id} (held)" if entry.row is not None and entry.row.held else entry.spot.id


def _is_offline(entry: Entry) -> bool:
    return entry.row is not None and entry.row.status == "offline"


def _kept(old: Iterable[Spot], new: list[Spot]) -> list[Spot]:
    """The new spots in the old order; added spots are at the end."""
    known = [spot for spot in old if spot in new]
    return [*known, *(spot for spot in new if spot not in known)]


def _matches(entry: Entry, words: str) -> bool:
    if not words:
        return True
    texts: list[str] = []
    if entry.row is not None:
        texts += [entry.row.worker, entry.row.task, entry.row.status, entry.row.subject, entry.row.look.word]
    if entry.item is not None:
        texts += [entry.item.who, entry.item.sentence, entry.item.kind]
    if entry.node is not None:
        texts += [entry.node.name, entry.node.place, entry.node.state]
    if entry.there is not None:
        texts += [entry.there.who, entry.there.status, entry.there.sentence]
    if entry.landed is not None:
        texts += [entry.landed.worker, entry.landed.subject, entry.landed.commit]
    return any(words in text.lower() for text in texts)
