"""The digest of all nodes of a fleet: their events, and what needs the user on each of them."""

from collections.abc import Iterator

from llmc.base.clock import now_unix
from llmc.fleet import nodes, shared_events
from llmc.fleet.rules import Node, command_for, told_once
from llmc.records.items import OF_FLEET, Item
from llmc.repo.project import Project
from llmc.reports.digest import completed, held_up_by_questions, list_tasks, since_last_look
from llmc.reports.rules.digest_parts import Digest, Facts, digest
from llmc.tasks.source import source_of


def report(project: Project, since: float | None) -> Digest:
    """The digest since that time, or since the user last read one; all times are by the database's clock."""
    own = nodes.membership(project)
    now = shared_events.clock(own)
    begin = since_last_look(project, now_unix()) if since is None else since
    begin += now - now_unix()
    problems: list[str] = []
    members = nodes.nodes(project)
    # An attempt counts in full, including what happened before the period.
    rows = shared_events.since(own, begin - project.config.auto.task_timeout_secs)
    running = {node.name for node in members if node.state in ("up", "draining")}
    facts = Facts(
        items=list(items(members)),
        tasks=list_tasks(project, problems),
        list_name=source_of(project).list_name,
        completed=completed(project),
        running=bool(running),
        gone={row["node"] for row in rows} - running,
        hosts=project.config.sandbox.hosts,
        held_up=held_up_by_questions(project, problems),
    )
    return digest(rows, begin, now, facts, tuple(problems))


def items(members: list[Node]) -> Iterator[Item]:
    """The attention lists of all nodes as one."""
    needs = ((node, need) for node in told_once(members) for need in node.attention)
    for node, need in needs:
        if need.kind in OF_FLEET:
            key, who, said = need.key, need.who, need.text
        else:
            who = f"{node.name}/{need.who}" if need.who in node.workers else node.name
            key, said = f"{node.name}/{need.key}", f"{who}: {need.text}"
        yield Item(key, need.kind, need.severity, who, need.since_unix, said, command_for(node, need))
