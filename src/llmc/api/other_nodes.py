"""The other nodes of the fleet, for screens: as the daemon saw them at its last heartbeat, without another query."""

from collections.abc import Collection

from llmc.api.said import command_line
from llmc.api.views import LOOKS, OtherNode, Others, There, look_of_status
from llmc.fleet import sightings
from llmc.fleet.rules import Need, Node, Sighting, command_for, elsewhere, question_for, told_once
from llmc.records.items import counts
from llmc.records.statuses import Status
from llmc.repo.project import Project

#: the look of a node by its state; any other node shows whether its workers are busy
_LOOKS = {"draining": "held", "silent": "broken", "down": "offline"}


#: statuses that show what a worker waits for
WAITING = (Status.NEEDS_INPUT, Status.NEEDS_REVIEW)


def others(project: Project, now: float, known: Collection[str]) -> Others | None:
    """The other nodes; None if this root is in no fleet or has seen none yet. `known`: keys of the items here."""
    fleet = project.config.fleet
    seen = sightings.remembered(project.root) if fleet.database else None
    return others_of(seen, now, fleet.lease_secs, known) if seen is not None else None


def others_of(seen: Sighting, now: float, lease_s: float, known: Collection[str] = ()) -> Others:
    nodes = tuple(_node(node, seen.at_unix) for node in told_once(seen.nodes, known))
    return Others(
        node=seen.node,
        at_unix=seen.at_unix,
        stale=now - seen.at_unix > lease_s,
        nodes=nodes,
        more=seen.more,
        need=sum(node.need for node in nodes),
    )


def _node(node: Node, at_unix: float) -> OtherNode:
    needs = [need for need in node.attention if counts(need.severity)]
    busy = node.busy
    asking = {need.who for need in needs}
    rest = [name for name in dict.fromkeys([*busy, *node.workers]) if name not in asking]
    return OtherNode(
        name=node.name,
        place=node.place,
        state=node.state,
        look=LOOKS[_LOOKS.get(node.state) or ("works" if busy else "idle")],
        seen_unix=at_unix - node.silent_s,
        version=node.version,
        client=node.client,
        workers=len(node.workers),
        busy=len(busy),
        there=(*(_need(node, need) for need in needs), *(_worker(node, name) for name in rest)),
        need=len(needs),
        command=elsewhere(node, "llmc"),
    )


def _need(node: Node, need: Need) -> There:
    status = node.workers.get(need.who, "")
    look = LOOKS["broken" if need.severity == "blocked" else "notice"]
    return There(
        who=need.who,
        status=status,
        look=look_of_status(status) if status in WAITING else look,
        sentence=need.text,
        next=command_for(node, need),
        attach=_attach(node, need.who) if status else "",
        question=question_for(need.who, [need]) if status else "",
    )


def _worker(node: Node, name: str) -> There:
    status = node.workers[name]
    return There(name, status, look_of_status(status), "", "", _attach(node, name))


def _attach(node: Node, worker: str) -> str:
    return elsewhere(node, command_line("attach", worker))
