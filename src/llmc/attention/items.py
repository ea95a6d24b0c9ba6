"""The attention list: everything that waits for a person, or soon will. Pure, and light enough for the hot commands.

Some items follow from the state alone. The others were seen by a command or the daemon (a task file that cannot be
read, a draft in an agent's box): those are raised in state.json by the process that saw them, and cleared by the one that
sees that they are over.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmc.given import number

#: how urgent an item is: `blocked` needs a person now, `waiting` can wait, `notice` is worth knowing
SEVERITIES = ("blocked", "waiting", "notice")

#: every kind of item, with what it means; docs/protocol.md is generated from this table
KINDS: dict[str, str] = {
    "person": "a person is in the way of a worker: a draft, an open dialog, an attached terminal or a hold",
    "bad_input": "a file or a row that llmc cannot use; everything else goes on without it",
    "task_question": "a task that llmc will not take before a person has decided about it",
    "bug": "llmc met an error that nobody thought of while it looked after a worker; the others go on",
    "git_config": "settings in the root's clone that run or redirect a program; they were undone",
    "worktree": "a worktree that llmc could not reset; its worker takes no work before that",
    "validation": "the default branch itself fails its check, or no slot can be used and work is validated in the worktrees",
}


class Item(NamedTuple):
    """One thing that needs a person."""

    #: stable as long as it is the same thing
    key: str
    kind: str
    severity: str
    #: the worker, task or file it is about
    who: str
    since_unix: float
    #: one sentence
    text: str
    #: the command to run next; empty where there is none
    next: str = ""


def attention(state: Mapping[str, Any]) -> list[Item]:
    """The list, most urgent first, from `state.json` as plain data."""
    raised = state.get("attention") or {}
    items = [_from_state(key, row) for key, row in raised.items() if isinstance(row, Mapping)]
    return sorted(items, key=lambda item: (SEVERITIES.index(item.severity), item.since_unix, item.key))


def _from_state(key: str, row: Mapping[str, Any]) -> Item:
    severity = row.get("severity")
    return Item(
        key=key,
        kind=str(row.get("kind", "")),
        severity=severity if severity in SEVERITIES else "waiting",
        who=str(row.get("who", "")),
        since_unix=number(row.get("since_unix")) or 0.0,
        text=str(row.get("text", "")),
        next=str(row.get("next", "")),
    )
