"""Names in the fleet, the health of a node, and how to read rows that many writers number. Pure."""

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.records.books import Books
from llmc.records.items import OF_FLEET, command_in
from llmc.records.statuses import AT_WORK

#: a number that is still missing after this time belongs to a change that was rolled back
MISSING_S = 60.0
#: heartbeats of a node per lease
BEATS = 4
#: longest time between two heartbeats
MOST_BEAT_S = 10.0
#: how the command for a question begins
ANSWER = "llmc answer "
#: the outcome of an answer without a receipt
PENDING = "pending"


def beat_s(lease_s: float) -> float:
    """Time between two heartbeats of a node."""
    return min(MOST_BEAT_S, lease_s / BEATS)


def full_name(node: str, worker: str) -> str:
    """The name of a worker in the books of all nodes."""
    return worker if "/" in worker or not worker else f"{node}/{worker}"


def own_name(node: str, worker: str) -> str:
    """The name of a worker on its own node."""
    return worker.removeprefix(f"{node}/")


def books_of(node: str, books: Books) -> Books:
    """The books of all nodes, as one node sees them: its own claims only, and its workers by their own names."""
    own = {worker: own_name(node, worker) for worker in books.claims}
    claims = {own[w]: replace(claim, worker=own[w]) for w, claim in books.claims.items() if own[w] != w}
    streaks = {own_name(node, worker): row for worker, row in books.streaks.items()}
    lately = [(own_name(node, worker), *row) for worker, *row in books.lately]
    return replace(books, claims=claims, streaks=streaks, lately=lately)


def split_name(node: str, worker: str) -> tuple[str, str]:
    """The node and the worker of a name."""
    of, _, name = full_name(node, worker).partition("/")
    return (of, name) if name else (node, worker)


class Reading(Struct):
    """How far numbered rows have been read.

    A number is taken before its row is visible, so a row may appear below those already read. Skipped numbers are
    queried again, until no writer can still have them.
    """

    after: int = 0
    #: skipped number -> when it was noticed
    missing: dict[int, float] = field(default_factory=dict)

    def took(self, numbers: Iterable[int], now: float) -> None:
        """Record that these rows were read, in order."""
        for number in numbers:
            if number > self.after:
                self.missing |= dict.fromkeys(range(self.after + 1, number), now)
                self.after = number
            self.missing.pop(number, None)
        self.missing = {number: since for number, since in self.missing.items() if now - since < MISSING_S}


class Need(Struct, frozen=True):
    """Something on a node that needs the user."""

    severity: str
    who: str
    text: str
    #: the command for it, on that node
    next: str
    #: its key in the attention list of that node
    key: str = ""
    kind: str = ""
    since_unix: float = 0.0


class Node(Struct, frozen=True):
    """A root that takes part in the fleet, as the database knows it."""

    name: str
    #: host and path of its root
    place: str
    #: `up`, `draining`, `down` or `silent`
    state: str
    #: time since it was last heard
    silent_s: float
    version: str
    client: str
    workers: dict[str, str]
    #: how many tasks it has
    claims: int
    attention: list[Need] = []
    #: whether it is this root
    is_own: bool = False
    #: whether it is on this machine
    is_near: bool = False

    @property
    def busy(self) -> list[str]:
        """Workers whose agent works."""
        return [name for name, status in self.workers.items() if status in AT_WORK]


class Sighting(Struct, frozen=True):
    """The other nodes, as a node's daemon saw them with its last heartbeat."""

    at_unix: float
    #: the node that saw them
    node: str
    nodes: list[Node]
    #: how many more nodes there are
    more: int = 0


def told_once(nodes: Iterable[Node], known: Collection[str] = ()) -> list[Node]:
    """The nodes, with each need about tasks or goals, which all nodes share, only once. `known`: keys to leave out."""
    told = set(known)
    found = []
    for node in nodes:
        new = [need for need in node.attention if need.kind not in OF_FLEET or need.key not in told]
        told |= {need.key for need in new}
        found.append(replace(node, attention=new))
    return found


def command_for(node: Node, need: Need) -> str:
    """The command that a node suggests, as typed on this node. Tasks and goals are the same on all nodes."""
    command = command_in(need.next)
    return need.next if node.is_own or need.kind in OF_FLEET or not command else elsewhere(node, command)


def elsewhere(node: Node, command: str) -> str:
    """A command for another node, as typed on this node."""
    if command.startswith(ANSWER):
        words = command.removeprefix(ANSWER)
        return f"{ANSWER}{node.name}/{words}" if words.partition(" ")[0] in node.workers else command
    host, _, root = node.place.partition(":")
    there = f"cd {shlex.quote(root)} && {command}"
    return there if node.is_near else f"ssh {shlex.quote(host)} -t {shlex.quote(there)}"


def question_for(worker: str, needs: Iterable[Need]) -> str:
    """What a worker asks, as its node shows it; "" if `llmc answer` cannot answer it."""
    return next((need.text for need in needs if need.who == worker and need.next.startswith(ANSWER)), "")


def storable(text: str) -> str:
    """The text without NULs and lone surrogates, which PostgreSQL does not accept."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def storable_json(value: object) -> str:
    return storable(json.dumps(value, ensure_ascii=False).replace("\\u0000", "\\ufffd"))


def where(worker: str, command: Sequence[str], nodes: Sequence[Node]) -> tuple[str, str] | None:
    """A message about a worker that is not on this node, and the next step; None if no other node has it.

    `worker` may be NODE/WORKER. `command`: the words after `llmc`, which name the worker.
    """
    of, _, name = worker.rpartition("/")
    found = [node for node in nodes if node.name == of or (not of and name in node.workers)]
    if of and not found:
        return f"no node {of!r} in the fleet", "Run `llmc fleet nodes` to see the nodes."
    if not found or found[0].is_own:
        return None
    node = found[0]
    if len(found) > 1:
        named = [f"{node.name}/{name}" if word == worker else word for word in command]
        places = ", ".join(node.name for node in found)
        return f"{name} is on {places}, not on this node", f"Specify the node: llmc {shlex.join(named)}"
    if name not in node.workers and node.workers:
        return f"node {of} has no worker {name!r}", f"Workers on that node: {', '.join(node.workers)}"
    state = "" if node.state == "up" else f"; that node is {node.state}"
    typed = ["llmc", *(name if word == worker else word for word in command)]
    said = f"{name} is on node {node.name} ({node.place}), not on this node{state}"
    return said, f"Run: {elsewhere(node, shlex.join(typed))}"


def node_of(row: Mapping[str, Any], instance: str, host: str) -> Node:
    state = "down"
    if row["runs"]:
        state = (
            "silent"
            if row["silent_s"] > row["lease_s"]
            else "draining"
            if row["state"] == "draining"
            else "up"
        )
    return Node(
        name=row["name"],
        place=row["place"],
        state=state,
        silent_s=max(0.0, row["silent_s"]),
        version=row["version"],
        client=row["client"],
        workers=dict(row["workers"]),
        claims=row["claims"],
        attention=[Need(**need) for need in row["attention"]],
        is_own=row["instance"] == instance,
        is_near=row["place"].partition(":")[0] == host,
    )
