"""The fleet: nodes that share one database, and the commands on them."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from llmc.api.other_nodes import next_on as next_on
from llmc.base.errors import LlmcError, NotFound, UnknownWorker
from llmc.fleet import nodes as members
from llmc.fleet.database import VERSION, DatabaseGone
from llmc.fleet.rules import Node as Node
from llmc.fleet.rules import own_name, where
from llmc.fleet.rules import told_once as told_once
from llmc.repo.project import Project, open_project
from llmc.repo.remote_probe import probe
from llmc.repo.shared import shared_of
from llmc.tasks.shared import open_shared


class FleetView(Struct, frozen=True):
    """The fleet as this node sees it."""

    node: str
    #: without the password
    database: str
    #: the version of its tables
    schema: int
    list_name: str
    #: why the database cannot be used; "" if it can
    problem: str = ""
    #: tasks of the list, by state
    tasks: dict[str, int] = {}
    nodes: list[Node] = []


class Joined(Struct, frozen=True):
    """What `init` or `join` did."""

    node: Node
    database: str
    #: how many migrations ran
    migrations: int


def init(project: Project) -> Joined:
    """Set up the database, or bring it up to date, and join. Safe to repeat."""
    _probe(project)
    return _joined(project, members.init(project))


def join(project: Project) -> Joined:
    """Make this root a node of the fleet. Safe to repeat."""
    _probe(project)
    return _joined(project, 0)


def _probe(project: Project) -> None:
    """Refuse a remote on which machines cannot land safely, before anything is changed."""
    own = members.membership(project)
    shared = shared_of(project.root)
    assert shared is not None, f"{own.node} was not opened"
    with project.repo_lock():
        probe(project.root.path, shared.remote)


def _joined(project: Project, migrations: int) -> Joined:
    node = members.join(project)
    return Joined(node, members.membership(project).database.address, migrations)


def drain(project: Project, name: str, *, undo: bool) -> Node:
    """Let a node finish its tasks and stop; "" means this one."""
    return members.drain(project, name, undo=undo)


def leave(project: Project, name: str) -> Node:
    """Remove a node that is not running; its tasks go to the others. "" means this one."""
    return members.leave(project, name)


def nodes(project: Project) -> list[Node]:
    return members.nodes(project)


def view(project: Project) -> FleetView:
    """The fleet; without the database, only what this node knows."""
    own = members.membership(project)
    alone = FleetView(own.node, own.database.address, VERSION, project.config.auto.task_list_id)
    try:
        return replace(alone, tasks=open_shared(project).counts(), nodes=members.nodes(project))
    except DatabaseGone as error:
        return replace(alone, problem=error.message)


def own_worker(given: str | None, name: str) -> str:
    """NODE/WORKER of this node without the node; any other name as it is."""
    try:
        return own_name(members.membership(open_project(given)).node, name)
    except LlmcError:
        return name  # the command says why


def not_here(given: str | None, error: UnknownWorker, command: Sequence[str]) -> NotFound:
    """An unknown worker, with the node that has it. Asks the database, in a fleet only."""
    try:
        project = open_project(given)
        if not project.config.fleet.database:
            return error
        found = where(error.worker, command, members.nodes(project))
    except LlmcError as gone:
        return NotFound(
            f"no worker {error.worker!r} on this node; the other nodes are unknown: {gone.message}",
            hint=gone.hint,
        )
    return error if found is None else NotFound(found[0], hint=found[1])


def names(given: str | None) -> dict[str, str]:
    """Nodes with their states, for completion; empty if they cannot be read."""
    try:
        return {node.name: node.state for node in members.nodes(open_project(given))}
    except (LlmcError, OSError):
        return {}
