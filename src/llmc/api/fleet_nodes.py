"""The fleet: nodes that share one database, and the commands on them."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import LlmcError, NotFound, Refused, UnknownWorker
from llmc.base.names import PromptId
from llmc.fleet import answers as sent
from llmc.fleet import nodes as members
from llmc.fleet import shared_events as sent_events
from llmc.fleet.answers import Answer as Answer
from llmc.fleet.database import VERSION, DatabaseGone
from llmc.fleet.rules import Node as Node
from llmc.fleet.rules import command_for as command_for
from llmc.fleet.rules import full_name, own_name, where
from llmc.fleet.rules import told_once as told_once
from llmc.landing.remote import RemoteLanding
from llmc.records.worker import Outcome
from llmc.repo.project import Project, open_project
from llmc.repo.remote_probe import first_commits, probe
from llmc.sessions.submit import Receipt
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
    #: answers that wait for their node, and recent ones that it could not deliver
    answers: list[Answer] = []


class Joined(Struct, frozen=True):
    """What `init` or `join` did."""

    node: Node
    database: str
    #: how many migrations ran
    migrations: int


def init(project: Project) -> Joined:
    """Set up the database, or bring it up to date, and join. Safe to repeat."""
    first = _probe(project)
    return _joined(project, members.init(project), first)


def join(project: Project) -> Joined:
    """Make this root a node of the fleet. Safe to repeat."""
    return _joined(project, 0, _probe(project))


def _probe(project: Project) -> list[str]:
    """Refuse a remote where machines cannot land safely, before anything changes; returns its first commits."""
    own = members.membership(project)
    shared = project.shared
    assert shared is not None, f"{own.node} was not opened"
    with project.repo_lock():
        first = first_commits(project.root.path, shared.remote, project.base)
        probe(project.root.path, shared.remote)
    return first


def _joined(project: Project, migrations: int, first: list[str]) -> Joined:
    assert project.shared is not None, "a root with a database shares a remote"
    RemoteLanding(project.shared).agree()
    node = members.join(project, project.upstream, first)
    return Joined(node, members.membership(project).database.address, migrations)


def drain(project: Project, name: str, *, undo: bool) -> Node:
    """Let a node finish its tasks and stop; "" means this one."""
    return members.drain(project, name, undo=undo)


def leave(project: Project, name: str) -> Node:
    """Remove a node that is not running; its tasks go to the others. "" means this one."""
    return members.leave(project, name)


def own_node(project: Project) -> str:
    return members.membership(project).node


def question(project: Project, name: str, worker: str) -> str:
    """The question of a worker on another node, with its options; refuses one that `answer` cannot answer."""
    return sent.open_question(members.membership(project), name, worker)[1]


def answer(project: Project, name: str, worker: str, text: str, seen: str) -> Receipt:
    """Answer a worker's question on another node, but only the question that the user saw.

    Outcome `pending`: not delivered yet; a node that is away delivers the answer when it is back.
    """
    own = members.membership(project)
    node, asked = sent.open_question(own, name, worker)
    if asked != seen:
        raise Refused(
            f"{name}/{worker} is now asking a different question",
            hint=f"To read and answer it: llmc answer {name}/{worker}",
        )
    told = sent.send(own, node, worker, asked, text)
    reason = told.reason
    if told.outcome == Outcome.PENDING:
        reason = f"node {name} is {node.state}; the answer has not been delivered yet; to check on the node: llmc status --fleet"
    outcome = Outcome(told.outcome)
    return Receipt(f"{name}/{worker}", PromptId(told.prompt_id), outcome, told.elapsed_ms, reason)


def nodes(project: Project) -> list[Node]:
    return members.nodes(project)


def view(project: Project) -> FleetView:
    """The fleet; without the database, only what this node knows."""
    own = members.membership(project)
    alone = FleetView(own.node, own.database.address, VERSION, project.config.auto.task_list_id)
    try:
        return replace(
            alone, tasks=open_shared(project).counts(), nodes=members.nodes(project), answers=sent.recent(own)
        )
    except DatabaseGone as error:
        return replace(alone, problem=error.message)


def events(
    project: Project,
    since: float,
    worker: str | None = None,
    lines: int | None = None,
    *,
    follow: bool = False,
) -> Iterable[dict[str, Any]]:
    """The main events of all nodes, or of one worker (on this node unless its name includes one), oldest first.

    `lines`: only the last N existing events. `follow`: wait for new ones.
    """
    own = members.membership(project)
    wanted = worker if worker is None or "/" in worker else full_name(own.node, worker)
    if follow:
        return sent_events.follow(own, since, wanted, lines)
    return sent_events.since(own, since, wanted, lines)


def own_worker(given: str | None, name: str) -> str:
    """Strip this node's name from NODE/WORKER; any other name stays as it is."""
    try:
        return own_name(members.membership(open_project(given)).node, name)
    except LlmcError:
        return name  # the command says why


def not_here(given: str | None, error: UnknownWorker, command: Sequence[str]) -> NotFound:
    """The error for an unknown worker. In a fleet, asks the database which node has the worker."""
    try:
        project = open_project(given)
        if not project.config.fleet.database:
            return error
        found = where(error.worker, command, members.nodes(project))
    except LlmcError as gone:
        return NotFound(
            f"no worker {error.worker!r} on this node, and llmc cannot look for it on the other nodes: {gone.message}",
            hint=gone.hint,
        )
    return error if found is None else NotFound(found[0], hint=found[1])


def names(given: str | None) -> dict[str, str]:
    """Nodes with their states, for completion; empty if they cannot be read."""
    try:
        return {node.name: node.state for node in members.nodes(open_project(given))}
    except (LlmcError, OSError):
        return {}
