"""The attention list of a root, for whoever is not a hot command; and the one door for what is raised as a whole group."""

import time
from collections.abc import Mapping

from llmc.attention import rules
from llmc.attention.rules import attention
from llmc.base.tmux import Unknown
from llmc.records.items import Item
from llmc.records.sight import look
from llmc.records.state import Raised
from llmc.repo.project import Project


def current(project: Project, *, ending: bool = False) -> list[Item]:
    """Everything that waits for a person now, most urgent first; the same list as in `llmc status`.

    `ending`: the daemon itself asks, at its end. Who reads its last words finds it gone.
    """
    state = project.store.read_raw()
    panes = project.tmux.panes() if state.get("workers") else {}
    seen = None if isinstance(panes, Unknown) else panes
    facts = look(str(project.root.path), state, seen, time.time())
    return attention(state, facts._replace(running=False, holder=None, daemon=None) if ending else facts)


def advice(project: Project, name: str) -> str:
    """What a person can do about a worker for which a command was just refused. The caller may hold its lock."""
    state = project.store.read_raw()
    record = (state.get("workers") or {}).get(name)
    if record is None:
        return "Next: llmc status"
    panes = project.tmux.panes()
    facts = look(str(project.root.path), state, None if isinstance(panes, Unknown) else panes, time.time())
    seen = facts.seen(name)._replace(acting=False)  # that is the refused command itself
    return rules.advice(record, rules.worker_view(record, seen.attached), seen, facts)


def fields_of(one: Raised) -> dict[str, str]:
    """An item as it was raised."""
    return {"kind": one.kind, "severity": one.severity, "who": one.who, "text": one.text, "next": one.next}


def sync(project: Project, prefixes: tuple[str, ...], wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Of the items whose key begins so, the list has these and no others. Costs nothing while nothing changes."""
    listed = project.store.read().attention
    known = {key: fields_of(one) for key, one in listed.items() if key.startswith(prefixes)}
    if known != {key: dict(fields) for key, fields in wanted.items()}:
        with project.store.transaction() as tx:
            tx.sync_items(prefixes, wanted)
