"""Nodes: how a root joins the fleet, shows that it is alive, drains and leaves."""

import json
import os
import shlex
import socket
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from llmc import __version__
from llmc.base.clock import now_unix
from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.names import TaskId, TaskKey
from llmc.config import trust
from llmc.config.model import Config
from llmc.config.options import check_node
from llmc.config.paths import Root
from llmc.fleet import statements
from llmc.fleet.database import Database, open_database
from llmc.fleet.rules import Need, Node, node_of

#: most other nodes that a heartbeat returns
MOST_NODES = 100
#: the state of a node that finishes its tasks and stops, until the user undoes it
DRAINING = "draining"
#: if an answer takes longer, the clocks are not compared
MOST_ANSWER_S = 1.0


class InFleet(Protocol):
    """A root with its configuration."""

    @property
    def root(self) -> Root: ...

    @property
    def config(self) -> Config: ...


class Membership(Struct, frozen=True):
    """This root in its fleet."""

    database: Database
    node: str
    #: the id of the root
    instance: str
    #: host and path of the root
    place: str
    lease_s: float

    @property
    def values(self) -> dict[str, Any]:
        """The values for a statement."""
        return {
            "node": self.node,
            "instance": self.instance,
            "place": self.place,
            "version": __version__,
            "lease": timedelta(seconds=self.lease_s),
        }

    def seen(self, row: Mapping[str, Any]) -> Node:
        """A node, from its row."""
        return node_of(row, self.instance, self.place.partition(":")[0])


def membership(project: InFleet) -> Membership:
    """This root as the configuration describes it; it need not have joined."""
    fleet = project.config.fleet
    if not fleet.database:
        raise UsageError(
            "this root is not in a fleet",
            hint="Set a database: llmc config set fleet.database postgresql://USER@HOST/DATABASE",
        )
    root = str(project.root.path)
    return Membership(
        open_database(fleet.database),
        node_name(project.config),
        trust.own_id(root),
        f"{socket.gethostname()}:{root}",
        fleet.lease_secs,
    )


def node_name(config: Config) -> str:
    return config.fleet.node or _host_name()


def _host_name() -> str:
    name = socket.gethostname().partition(".")[0].lower()
    if not name or check_node(name):
        raise UsageError(
            f"the host name {name!r} is not a valid node name",
            hint="Choose one: llmc config set fleet.node NAME",
        )
    return name


def init(project: InFleet) -> int:
    """Set up the database; returns how many migrations ran."""
    return membership(project).database.migrate()


def join(project: InFleet, address: str, first: Collection[str]) -> Node:
    """Enter this root into the fleet. Safe to repeat. `first`: the first commits of the branch at `address`."""
    own = membership(project)
    _refuse_other_repository(own, address, first)
    if not own.database.rows(statements.JOIN, own.values):
        raise _name_taken(own)
    return find(own, own.node)


def _refuse_other_repository(own: Membership, address: str, first: Collection[str]) -> None:
    """Refuse a repository other than the fleet's, which is that of the first node to join."""
    known = own.database.rows(statements.REPOSITORY)
    if not known:
        own.database.rows(statements.ADD_REPOSITORY, {"first": list(first), "address": address})
    elif not {row["first_commit"] for row in known} & set(first):
        there = known[0]["address"]
        raise Refused(
            f"{address} is not the fleet's repository: it shares no history with {there}",
            hint=f"Create a root for the fleet's repository: llmc init --source {shlex.quote(there)} --target DIR",
        )


def _name_taken(own: Membership) -> Refused:
    other = own.database.rows(statements.NODE, {"node": own.node})
    where = other[0]["place"] if other else "another root"
    if other and other[0]["instance"] == own.instance:
        return Refused(
            f"node {own.node} is running in a copy of this root: {where}",
            hint=f"Stop the daemon there. To make this root a separate node instead, delete {own.place.partition(':')[2]}/.llmc/root-id, then run: llmc config set fleet.node NAME",
        )
    return Refused(
        f"the node name {own.node} belongs to another root: {where}",
        hint=f"Choose another name: llmc config set fleet.node NAME. If that root is gone: llmc fleet leave {own.node}",
    )


def nodes(project: InFleet) -> list[Node]:
    own = membership(project)
    rows = own.database.rows(statements.NODE, {"node": ""})
    return [own.seen(row) for row in rows]


def find(own: Membership, name: str) -> Node:
    rows = own.database.rows(statements.NODE, {"node": name})
    if not rows:
        raise NotFound(f"no node {name}", hint="Run `llmc fleet nodes` to see the nodes.")
    return own.seen(rows[0])


def is_draining(own: Membership) -> bool:
    return any(row["state"] == DRAINING for row in own.database.rows(statements.NODE, {"node": own.node}))


def drain(project: InFleet, name: str, *, undo: bool = False) -> Node:
    """Let a node finish its tasks and stop; with `undo`, let it take tasks again."""
    own = membership(project)
    node = find(own, name or own.node)
    own.database.rows(statements.DRAIN, {"node": node.name, "state": "joined" if undo else DRAINING})
    return find(own, node.name)


def leave(project: InFleet, name: str) -> Node:
    """Remove a node; its tasks go to the other nodes."""
    own = membership(project)
    node = find(own, name or own.node)
    if node.state in ("up", "draining"):
        raise Refused(
            f"cannot remove node {node.name} from the fleet: it is running in {node.place}",
            hint=f"Run `llmc fleet drain {node.name}` and wait until the node has stopped, then run `llmc fleet leave` again.",
        )
    ends = (
        statements.EXPIRE_NODE,
        statements.STOP_WAITING,
        statements.DROP_UNWANTED,
        statements.EXPIRE_POST_ACCEPTS,
        statements.REFUSE_ANSWERS,
        statements.LEAVE,
        statements.END_AGREEMENT,
    )
    own.database.do(lambda rows: [rows.execute(sql, {"node": node.name}) for sql in ends])
    return node


def has_lease(own: Membership, name: str) -> bool:
    """Whether this node has the lease, taking it if it is free: one node at a time has it. The heartbeat renews it."""
    return bool(own.database.rows(statements.LEASE, {**own.values, "name": name}))


class Park(Struct, frozen=True):
    """The pause of a node until an account limit ends."""

    cause: str
    reason: str
    #: by the database's clock
    until_unix: float
    node: str = ""


class Used(Struct, frozen=True):
    """The used part of the budgets, in dollars and tokens."""

    cost_today: float = 0.0
    tokens_today: int = 0
    cost_of_run: float = 0.0
    tokens_of_run: int = 0


class Life(Struct, frozen=True):
    """What a node reports about itself with a heartbeat."""

    #: tokens of its claims
    claims: Collection[int] = ()
    #: name -> status
    workers: Mapping[str, str] = {}
    client: str = ""
    attention: Collection[Need] = ()
    #: the calendar day that `used` is about
    day: str | None = None
    used: Used = Used()
    park: Park | None = None


class Pulse(Struct, frozen=True):
    """What a heartbeat found."""

    #: `joined` or `draining`; "" if another daemon has the name, or the node left
    state: str
    #: whether the lease of a task has expired
    expired: bool
    #: whether a task of the list is ready
    ready: bool
    #: how far this machine's clock is ahead of the database's; None: the answer took too long to say
    ahead_s: float | None = None
    #: the budget used by all other nodes
    used: Used = Used()
    #: the longest park of another node
    park: Park | None = None
    #: landed tasks whose post-accept command has not finished: those of this node, and those of nodes that died
    due: tuple[TaskKey, ...] = ()
    lost: tuple[TaskKey, ...] = ()
    #: whether an answer waits for a worker of this node
    answers: bool = False
    #: whether this node drives the goals
    drives: bool = False
    #: other nodes, those that need the user first
    nodes: list[Node] = []
    #: how many other nodes there are besides these
    more: int = 0


class Beating:
    """The heartbeats of a daemon, which show that its node is alive and renew the leases of its claims."""

    def __init__(self, own: Membership, list_name: str) -> None:
        self._own = own
        self._list = list_name
        self._daemon = os.urandom(8).hex()

    def start(self) -> bool:
        """Take the node's name for this daemon; Refused while another daemon has it. Returns whether the node drains."""
        own = self._own
        if rows := own.database.rows(statements.START, {**own.values, "daemon": self._daemon}):
            return bool(rows[0]["state"] == DRAINING)
        known = own.database.rows(statements.NODE, {"node": own.node})
        if not known:
            raise Refused(f"node {own.node} has not joined the fleet", hint="Join the fleet: llmc fleet join")
        raise _name_taken(own)

    def beat(self, life: Life) -> Pulse:
        park = life.park
        values = {
            **self._own.values,
            "daemon": self._daemon,
            "list": self._list,
            "claims": list(life.claims),
            "workers": json.dumps(dict(life.workers)),
            "client": life.client,
            "attention": json.dumps([asdict(need) for need in life.attention]),
            "day": life.day,
            **asdict(life.used),
            "parked": park.until_unix if park else None,
            "parked_cause": park.cause if park else "",
            "parked_reason": park.reason if park else "",
            "most": MOST_NODES,
        }
        row, ahead_s = self._timed(values)
        used = Used(**{name: row[name] for name in Used.__struct_fields__})
        parked = None
        if row["parked_node"]:
            parked = Park(row["parked_cause"], row["parked_reason"], row["parked_unix"], row["parked_node"])
        due, lost = (tuple(TaskKey(name, TaskId(task)) for name, task in row[key]) for key in ("due", "lost"))
        seen = [self._own.seen(node) for node in row["nodes"] or ()]
        told = {"due": due, "lost": lost, "answers": row["answers"], "drives": row["drives"]}
        others = {"nodes": seen, "more": row["others"] - len(seen)}
        return Pulse(
            row["state"] or "", row["expired"], row["ready"], ahead_s, used, parked, **told, **others
        )

    def _timed(self, values: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
        """The row of a heartbeat, and how far this machine's clock is ahead of the database's."""
        before = now_unix()
        row = self._own.database.rows(statements.BEAT, values)[0]
        after = now_unix()
        return row, before - row["now_unix"] if abs(after - before) < MOST_ANSWER_S else None

    def stop(self) -> None:
        values = {"node": self._own.node, "daemon": self._daemon}
        ends = (
            statements.END_LEASES,
            statements.EXPIRE_POST_ACCEPTS,
            statements.STOP_WAITING,
            statements.STOP,
        )
        self._own.database.do(lambda rows: [rows.execute(sql, values) for sql in ends])
