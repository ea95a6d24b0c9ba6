"""Names in the fleet, the health of a node, and how rows that are numbered by many writers are read. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.records.items import OF_FLEET

#: a number that is still missing after this time belongs to a change that was rolled back
MISSING_S = 60.0
#: a node beats this often while its lease lasts
BEATS = 4
#: but at least this often
MOST_BEAT_S = 10.0
#: the next command for a question
ANSWER = "llmc answer "
#: an answer without a receipt
PENDING = "pending"


def beat_s(lease_s: float) -> float:
    """Time between two heartbeats of a node."""
    return min(MOST_BEAT_S, lease_s / BEATS)


def full_name(node: str, worker: str) -> str:
    """A worker in the books of all nodes."""
    return worker if "/" in worker or not worker else f"{node}/{worker}"


def own_name(node: str, worker: str) -> str:
    """The same, as its own node calls it."""
    return worker.removeprefix(f"{node}/")


def split_name(node: str, worker: str) -> tuple[str, str]:
    """The node and the worker of a name."""
    of, _, name = full_name(node, worker).partition("/")
    return (of, name) if name else (node, worker)


class Reading(Struct):
    """How far numbered rows have been read.

    A number is taken before its row is visible, so a row may appear below those that were read already. Numbers that
    were skipped are asked for again, until no writer can still have them.
    """

    after: int = 0
    #: skipped number -> when it was noticed
    missing: dict[int, float] = field(default_factory=dict)

    def took(self, numbers: Iterable[int], now: float) -> None:
        """These rows came, in order."""
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
    #: as in the attention list of that node
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
    #: since it was last heard
    silent_s: float
    version: str
    client: str
    workers: dict[str, str]
    #: tasks that it has
    claims: int
    attention: list[Need] = []
    #: this root
    is_own: bool = False


def needs_of(nodes: Iterable[Node]) -> Iterator[tuple[Node, Need]]:
    """What needs the user on all nodes; tasks and goals, which all of them list, once."""
    seen: set[str] = set()
    for node in nodes:
        for need in node.attention:
            if need.kind not in OF_FLEET or need.key not in seen:
                seen.add(need.key)
                yield node, need


def command_for(node: Node, need: Need) -> str:
    """The command for something that a node needs, as it is typed here. Tasks and goals are the same on all nodes."""
    return need.next if node.is_own or need.kind in OF_FLEET else elsewhere(node, need.next)


def elsewhere(node: Node, command: str) -> str:
    """A command for another node, as it is typed here."""
    if command.startswith(ANSWER):
        asker = command.removeprefix(ANSWER).partition(" ")[0]
        return command.replace(asker, f"{node.name}/{asker}", 1) if asker in node.workers else command
    host, _, root = node.place.partition(":")
    return f"ssh {host} {command.replace('llmc ', f'llmc --root {root} ', 1)}" if command else ""


def question_for(worker: str, needs: Iterable[Need]) -> str:
    """What a worker asks, as its node shows it; "" if `llmc answer` cannot answer it."""
    return next((need.text for need in needs if need.who == worker and need.next.startswith(ANSWER)), "")


def storable(text: str) -> str:
    """PostgreSQL takes no NUL and no half of a surrogate pair."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def storable_json(value: object) -> str:
    return storable(json.dumps(value, ensure_ascii=False).replace("\\u0000", "\\ufffd"))


def node_of(row: Mapping[str, Any], instance: str, lease_s: float) -> Node:
    state = "down"
    if row["runs"]:
        state = "silent" if row["silent_s"] > lease_s else "draining" if row["state"] == "draining" else "up"
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
    )
