"""The attention list of a root, for all but the hot commands; and raising a group of items."""

import time
from collections.abc import Mapping
from typing import Any

from llmc.attention import rules
from llmc.base.tmux import Unknown
from llmc.records.items import Facts, Item
from llmc.records.state import Raised
from llmc.repo.project import Project


def current(project: Project, *, ending: bool = False) -> list[Item]:
    """Everything that needs the user now, most urgent first; the same list as in `llmc status`.

    `ending`: the daemon asks while it exits, so the list must treat it as gone.
    """
    state, facts = _observed(project)
    return rules.attention(
        state, facts._replace(running=False, holder=None, daemon=None) if ending else facts
    )


def advice(project: Project, name: str) -> str:
    """What to do about a worker after a command was refused. The caller may hold the worker's lock."""
    state, facts = _observed(project)
    record = (state.get("workers") or {}).get(name)
    if record is None:
        return "Next: llmc status"
    seen = facts.seen(name)._replace(acting=False)  # it may be the refused command itself
    return rules.advice(record, rules.worker_view(record, seen.attached), seen, facts)


def without_auto(project: Project) -> Item | None:
    """Why auto mode will not continue with the tasks; None if it will."""
    return rules.without_auto(*_observed(project))


def _observed(project: Project) -> tuple[dict[str, Any], Facts]:
    from llmc.agents.glance import glance  # most commands raise items, and few need the list
    from llmc.records.sight import look

    state = project.store.read_raw()
    panes = project.tmux.panes() if state.get("workers") else {}
    seen = None if isinstance(panes, Unknown) else panes
    return state, look(str(project.root.path), state, seen, time.time(), glance)


def fields_of(one: Raised) -> dict[str, str]:
    """The fields of a raised item."""
    return {"kind": one.kind, "severity": one.severity, "who": one.who, "text": one.text, "next": one.next}


def sync(project: Project, prefixes: tuple[str, ...], wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Replace all items whose key starts with a prefix. Writes only if something changed."""
    listed = project.store.read().attention
    known = {key: fields_of(one) for key, one in listed.items() if key.startswith(prefixes)}
    if known != {key: dict(fields) for key, fields in wanted.items()}:
        with project.store.transaction() as tx:
            tx.sync_items(prefixes, wanted)
