"""The fleet as data for every screen: its workers, items, landings and other nodes. Pure, typed and versioned.

Numbers and names come from `status --json` and the attention list; a screen only draws them.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.given import number, text
from llmc.base.text import counted
from llmc.landing.accept_journal import STEPS
from llmc.records.items import UP, Raw, counts
from llmc.records.statuses import AT_WORK, FREE

#: of every view here; raised when a field changes its meaning
VERSION = 1


class Look(Struct, frozen=True):
    """How a status looks: a glyph, its ASCII form, and the word. Each screen has its own colors."""

    name: str
    glyph: str
    ascii: str
    word: str


LOOKS = {
    look.name: look
    for look in (
        Look("asks", "?", "?", "asks"),
        Look("review", "◆", "R", "review"),
        Look("broken", "✗", "x", "error"),
        Look("works", "●", "*", "working"),
        Look("landing", "▲", "^", "landing"),
        Look("held", "‖", "=", "held"),
        Look("idle", "○", "o", "idle"),
        Look("offline", "◌", "-", "offline"),
        Look("landed", "✓", "+", "landed"),
        Look("notice", "!", "!", "notice"),
    )
}

#: the look of an item by its kind; any other is `broken` if it blocks, else `notice`
_OF_KIND = {
    "review": "review",
    **dict.fromkeys(("question", "input", "dialog", "goal_question", "task_question", "proposed"), "asks"),
    **dict.fromkeys(("held", "person", "parked", "parked_task"), "held"),
}


class Item(Struct, frozen=True):
    """Something that needs the user."""

    key: str
    kind: str
    severity: str
    #: the worker it is about; None: a task, a goal or the fleet
    worker: str | None
    who: str
    look: Look
    since_unix: float
    sentence: str
    #: the command that helps; "" if there is none
    next: str


class Row(Struct, frozen=True):
    """A worker in a list."""

    worker: str
    status: str
    look: Look
    since_unix: float
    task: str
    #: a short note for the right edge, such as the step of a landing
    fact: str
    auto: bool
    held: bool
    #: a terminal is attached to it; None: unknown
    attached: bool | None
    commit: str
    subject: str
    reviewed: bool
    accept_step: str
    #: the command that the user most likely wants next
    next: str
    #: changed lines of committed work; None: not counted
    added: int | None = None
    deleted: int | None = None


class Landed(Struct, frozen=True):
    """A commit on the default branch."""

    at_unix: float
    worker: str
    commit: str
    subject: str
    task_id: str
    undone: bool = False


class Health(Struct, frozen=True):
    """The state of the fleet as a whole."""

    daemon: bool
    pid: int | None
    #: the command that starts the daemon as it last ran
    start: str
    #: "": auto mode never ran; else `running`, `finished` as requested, or `stopped`
    auto: str
    auto_workers: int
    parked_until_unix: float | None
    parked_cause: str

    @property
    def is_bad(self) -> bool:
        """Whether the daemon is not running, unless auto mode finished."""
        return not self.daemon and self.auto != "finished"


class Counts(Struct, frozen=True):
    """How many there are of each."""

    need: int
    working: int
    idle: int
    landed: int
    offline: int = 0


class There(Struct, frozen=True):
    """A worker of another node, or something there that needs the user."""

    who: str
    #: "" if it is not a worker
    status: str
    look: Look
    #: why it needs the user; "" if it does not
    sentence: str
    #: commands to run on this node; "" if there is none
    next: str
    attach: str
    #: what a worker asks, if it can be answered from here
    question: str = ""


class OtherNode(Struct, frozen=True):
    """Another node of the fleet."""

    name: str
    #: host and path of its root
    place: str
    #: `up`, `draining`, `down` or `silent`
    state: str
    look: Look
    #: when it was last heard from
    seen_unix: float
    #: the versions of llmc and of the client
    version: str
    client: str
    #: how many workers it has, and how many of them are at work
    workers: int
    busy: int
    #: what needs the user, then the busy workers, then the others
    there: tuple[There, ...]
    need: int
    #: opens its screen from this node
    command: str


class Others(Struct, frozen=True):
    """The other nodes, as this node's daemon last saw them."""

    #: this node
    node: str
    at_unix: float
    #: that was long ago: what they do now is unknown
    stale: bool
    nodes: tuple[OtherNode, ...]
    #: how many more nodes there are
    more: int
    #: how many items on them need the user
    need: int


class Fleet(Struct, frozen=True):
    """The whole fleet."""

    root: str
    name: str
    at_unix: float
    health: Health
    counts: Counts
    items: tuple[Item, ...]
    #: every worker, by name; the lists below name them
    rows: dict[str, Row]
    #: workers with an item that counts, most urgent first; the other workers at work; the rest
    needs: tuple[str, ...]
    working: tuple[str, ...]
    idle: tuple[str, ...]
    landed: tuple[Landed, ...]
    #: None: this root works alone
    others: Others | None = None
    version: int = VERSION


def fleet_of(
    view: Raw,
    now: float,
    landed: Sequence[Landed] = (),
    changed: Mapping[str, tuple[int, int]] | None = None,
    others: Others | None = None,
) -> Fleet:
    """The fleet from the view of `status_for_people`. `changed`: lines added and deleted, by commit."""
    names = {worker["name"] for worker in view["workers"]}
    items = tuple(_item(item, names) for item in view["attention"])
    asks: dict[str, Item] = {}
    for item in items:
        if item.worker and counts(item.severity):
            asks.setdefault(item.worker, item)
    rows = {
        worker["name"]: _row(worker, asks.get(worker["name"]), changed or {}) for worker in view["workers"]
    }
    working = tuple(name for name, row in rows.items() if name not in asks and _is_at_work(row))
    needs = tuple(dict.fromkeys(item.worker for item in items if item.worker in asks and item.worker))
    rest = tuple(name for name in rows if name not in asks and name not in working)
    offline = sum(rows[name].status == "offline" for name in rest)
    return Fleet(
        root=view["root"],
        name=view["root"].rstrip("/").rpartition("/")[2],
        at_unix=now,
        health=_health(view),
        counts=Counts(
            need=sum(counts(item.severity) for item in items),
            working=len(working),
            idle=len(rest) - offline,
            landed=sum(not one.undone for one in landed),
            offline=offline,
        ),
        items=items,
        rows=rows,
        needs=needs,
        working=working,
        idle=rest,
        landed=tuple(landed),
        others=others,
    )


def _item(item: Raw, workers: Iterable[str]) -> Item:
    name = _OF_KIND.get(item["kind"]) or ("broken" if item["severity"] == "blocked" else "notice")
    return Item(
        key=item["key"],
        kind=item["kind"],
        severity=item["severity"],
        worker=item["who"] if item["who"] in workers else None,
        who=item["who"],
        look=LOOKS[name],
        since_unix=item["since_unix"],
        sentence=item["text"],
        next=item["next"],
    )


def _row(worker: Raw, item: Item | None, changed: Mapping[str, tuple[int, int]]) -> Row:
    commit = text(worker["commit_sha"])
    added, deleted = changed.get(commit, (None, None))
    return Row(
        worker=worker["name"],
        status=worker["status"],
        look=look_of(worker, item),
        since_unix=number(worker["since_unix"]) or 0.0,
        task=task_line(worker),
        fact=_fact(worker, item),
        auto=bool(worker["auto"]),
        held=bool(worker["held"]),
        attached=worker["attached"],
        commit=commit,
        subject=text(worker.get("subject")),
        reviewed=bool(worker["reviewed"]),
        accept_step=text(worker["accept_step"]),
        next=(item.next if item else "") or text(worker.get("next")),
        added=added,
        deleted=deleted,
    )


def look_of(worker: Raw, item: Item | None) -> Look:
    """The look of a worker: what it waits for comes first, then what it does."""
    if item is not None:
        return item.look
    if worker["accept_step"] or worker["status"] == "rebasing":
        return LOOKS["landing"]
    if worker["held"] or worker["attached"]:
        return LOOKS["held"]
    return look_of_status(worker["status"])


_LOOK_OF_STATUS = {
    **dict.fromkeys(map(str, AT_WORK), "works"),
    **dict.fromkeys(map(str, FREE), "idle"),
    "needs_review": "review",
    "needs_input": "asks",
    "error": "asks",
    "offline": "offline",
}


def look_of_status(status: str) -> Look:
    """The look of a worker if only its status is known."""
    return LOOKS[_LOOK_OF_STATUS.get(status, "asks")]


def _is_at_work(row: Row) -> bool:
    return row.status in AT_WORK or bool(row.accept_step)


def task_line(worker: Raw) -> str:
    """The task in one line: its subject, else the first line of its prompt."""
    lines = [line.strip() for line in text(worker["prompt"]).splitlines() if line.strip()]
    return text(worker["task_subject"]) or (lines[0] if lines else "")


def _fact(worker: Raw, item: Item | None) -> str:
    step = text(worker["accept_step"])
    if step in STEPS:
        return f"landing {STEPS.index(step) + 1}/{len(STEPS)} {step}"
    if worker["held"]:
        return "on hold"
    if worker["attached"]:
        return "attached"
    if worker["status"] == "rebasing":
        count = len(worker["conflicted_files"])
        return f"resolving conflicts in {counted(count, 'file')}"
    if item is None and worker["status"] in ("reviewing", "rejected"):
        return {"reviewing": "reviewing its own work", "rejected": "working on your comments"}[
            worker["status"]
        ]
    return ""


def _auto(auto: Raw) -> str:
    if not auto:
        return ""
    return "running" if auto["running"] else "finished" if auto["finished_reason"] else "stopped"


def _health(view: Raw) -> Health:
    auto = view["auto"] or {}
    return Health(
        daemon=bool(view["daemon"]["running"]),
        pid=view["daemon"]["pid"],
        start=text(auto.get("start")) if auto.get("wanted") else UP,
        auto=_auto(auto),
        auto_workers=auto.get("workers") or 0,
        parked_until_unix=auto.get("parked_until_unix"),
        parked_cause=text(auto.get("parked_cause")),
    )


def landed_of(events: Iterable[Raw], subjects: Mapping[str, str]) -> list[Landed]:
    """The landings among some events, latest first."""
    found: dict[str, Landed] = {}
    undone = set()
    for row in events:
        commit = text(row.get("commit"))
        if row.get("action") == "undone":
            undone.add(commit)
        elif row.get("action") == "accepted" and commit:
            undone.discard(commit)
            found[commit] = Landed(
                at_unix=number(row.get("ts")) or 0.0,
                worker=text(row.get("worker")),
                commit=commit,
                subject=subjects.get(commit)
                or text(row.get("subject"))
                or first_line(text(row.get("prompt"))),
                task_id=text(row.get("task_id")),
            )
    rows = sorted(found.values(), key=lambda one: -one.at_unix)
    return [replace(one, undone=one.commit in undone) for one in rows]


def first_line(prompt: str) -> str:
    return next((line.strip() for line in prompt.splitlines() if line.strip()), "")
