"""The digest of all nodes of a fleet: their events, and what needs the user on each of them."""

from collections.abc import Iterator

from llmc.auto.prices import prices_of
from llmc.base.clock import now_unix
from llmc.fleet import nodes, shared_events
from llmc.fleet.rules import Node, command_for, told_once
from llmc.records.items import OF_FLEET, Item
from llmc.repo.project import Project
from llmc.reports.digest import complete, completed, held_up_by_questions, list_tasks, since_last_look
from llmc.reports.rules.digest_parts import Digest, Facts, digest
from llmc.tasks.source import source_of

DAY_S = 24 * 3600.0


def report(project: Project, since: float | None) -> Digest:
    """The digest since that time, or since the user last read one; all times are by the database's clock."""
    own = nodes.membership(project)
    now = shared_events.clock(own)
    begin = since_last_look(project, now_unix()) if since is None else since
    begin += now - now_unix()
    problems: list[str] = []
    members = nodes.nodes(project)
    running = {node.name for node in members if node.state in ("up", "draining")}
    reach = begin, begin - project.config.auto.task_timeout_secs, now - shared_events.KEEP_DAYS * DAY_S
    rows = complete(lambda at: shared_events.since(own, at), *reach, running)
    facts = Facts(
        items=list(items(members)),
        tasks=list_tasks(project, problems),
        list_name=source_of(project).list_name,
        completed=completed(project),
        prices=prices_of(project),
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
