"""What may be kept of a change: no secrets, and no more text than there is room for. Pure.

The store lets nothing in that did not pass here. What a person typed is refused, what a machine said is mended.
"""

from collections.abc import Callable
from enum import Enum
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.base.errors import Refused
from llmc.goals.drive.secrets import redact, scan
from llmc.goals.model import Change, Event, Row

R = TypeVar("R", bound=Row)

#: the most bytes of a text, by the name of its field
CAPS = {
    "last_instruction_text": 16 * 1024,
    "problem_statement": 16 * 1024,
    "planner_inputs": 16 * 1024,
    "repo_context_snapshot": 8 * 1024,
    "raw_planner_output_json": 512 * 1024,
    "notes": 1024,
    "data": 1024,
}
CAP = 4 * 1024
#: the most entries of a list of texts
MOST_ENTRIES = 500
#: the most bytes that the data of an event may have
MOST_DATA = 8 * 1024

#: what others refer to: it is never changed, so what cannot be kept of it is refused
KEYS = frozenset(
    {
        *("goal_id", "node_id", "parent_id", "work_node_id", "assignment_id", "dispatch_id"),
        *("crystallization_id", "instruction_hash", "session_key", "session_id", "run_id", "run_ids"),
        *("message_ids", "spawned_by_key", "source_session_key", "agent_id", "suggested_agent_id"),
        *("depends_on", "blocks", "applied_updates", "added", "removed", "changed", "moved"),
        *("type", "level", "kind"),
    }
)
#: half of such a text is worth nothing
WHOLE = frozenset({"raw_planner_output_json"})
_KEY_CAP = 512


class SecretRefused(Refused):
    """Nothing was written."""


def clean(change: Change, *, typed: bool) -> Change:
    """The change as it may be written; `typed`: a person wrote it just now, and nothing of it is altered."""
    keep = check_typed if typed else _mended

    def each(rows: tuple[R, ...]) -> tuple[R, ...]:
        return tuple(mapped(row, keep) for row in rows)

    return replaced(
        change,
        goal=mapped(change.goal, keep) if change.goal else None,
        nodes=each(change.nodes),
        assignments=each(change.assignments),
        crystallizations=each(change.crystallizations),
        events=tuple(_small(mapped(event, keep)) for event in change.events),
    )


def mapped(record: R, keep: Callable[[str, str], str]) -> R:
    """The record with each of its texts as `keep(name of the field, text)` wants it."""
    changed = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        new = _mapped_value(name, value, keep)
        if new is not value and new != value:
            changed[name] = new
    return replace(record, **changed) if changed else record


def _mapped_value(name: str, value: Any, keep: Callable[[str, str], str]) -> Any:
    match value:
        case Enum():
            return value
        case str():
            return keep(name, value)
        case tuple() | list():
            items = [_mapped_value(name, item, keep) for item in value]
            if len(items) > MOST_ENTRIES and name not in KEYS and all(isinstance(i, str) for i in items):
                left = len(items) - MOST_ENTRIES + 1
                items = [*items[: MOST_ENTRIES - 1], f"[{left} more]"]
            return type(value)(items)
        case dict():
            return {keep("key", str(key)): _mapped_value(name, item, keep) for key, item in value.items()}
        case Row():
            return mapped(value, keep)
        case float() if not isfinite(value):
            raise Refused(f"{_in_words(name)} is {value}, which is no amount: nothing was written")
        case _:
            return value


def check_typed(name: str, text: str) -> str:
    """What a person typed, as it is; refused where it holds a secret or is too long."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Refused(
            f"{_in_words(name)} is no valid UTF-8: nothing was written",
            hint="Check the locale of the terminal.",
        )
    if found := scan(text):
        raise SecretRefused(
            f"in {_in_words(name)} is a secret ({found[0].kind}, at character {found[0].start + 1}): nothing was written",
            hint="Say which credential is needed and where it is set up, not the credential itself.",
        )
    most = _KEY_CAP if name in KEYS else CAPS.get(name, CAP)
    if len(text.encode("utf-8", "replace")) > most:
        raise Refused(
            f"{_in_words(name)} is longer than {most} bytes: nothing was written",
            hint="Put it into a file of the repository and name that.",
        )
    return text


def _mended(name: str, text: str) -> str:
    if name in KEYS or name == "key":
        return check_typed(name, text)
    text = redact(text)
    return check_typed(name, text) if name in WHOLE else cut(text, CAPS.get(name, CAP))


def cut(text: str, most: int) -> str:
    """At most so many bytes, and a word about the rest."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    mark = f"\n[cut: {len(data)} bytes in all]"
    return data[: most - len(mark)].decode("utf-8", "ignore") + mark


def _small(event: Event) -> Event:
    """An event says what happened; what it is about is elsewhere."""
    size = len(msgspec.json.encode(event.data))
    if size <= MOST_DATA:
        return event
    kept = {k: v for k, v in event.data.items() if len(msgspec.json.encode(v)) <= MOST_DATA // 16}
    return replace(event, data={**dict(list(kept.items())[:12]), "cut": f"{size} bytes in all"})


def _in_words(name: str) -> str:
    return f"the {name.replace('_', ' ')}"
