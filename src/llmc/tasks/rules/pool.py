"""What the answer of a task pool command means: a task, none, or that something is wrong. Pure."""

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base import given
from llmc.tasks.rules import draft as drafts
from llmc.tasks.rules.draft import BadDraft, Draft

#: exit codes with a meaning of their own
NONE_READY = 4
CLAIM_LIMIT = 3

_ID_LINE = re.compile(r"id:[ \t]*(\S+)[ \t]*(?:\n|$)")
_TEXTS = ("subject", "description", "label", "verify", "model")
_LISTS = ("after", "before")


class NoTask(Struct, frozen=True):
    """There is nothing to do."""


class Failed(Struct, frozen=True):
    """Going on makes no sense before a person has looked."""

    reason: str


Answer = Draft | NoTask | Failed


def read(code: int, text: str, key: str) -> Answer:
    """`key` names the task if its text does not: the same answer must not become two tasks."""
    if code == NONE_READY:
        return NoTask()
    if code == CLAIM_LIMIT:
        return Failed(f"the task pool command reports its claim limit (code {code})")
    if code != 0:
        return Failed(f"the task pool command failed with code {code}")
    if not text.strip():
        return NoTask()
    try:
        return replace(drafts.check(_draft(text.strip(), key)), by="task_pool_command")
    except BadDraft as error:
        return Failed(f"the task pool command printed what is no task: {error}")


def _draft(text: str, key: str) -> Draft:
    if text.startswith("{"):
        try:
            said = given.parse(text)
        except ValueError:
            said = None  # a subject may well begin with a brace
        if isinstance(said, dict) and "subject" in said:
            return _from_json(said, key)
    named = _ID_LINE.match(text)
    if named:
        key, text = named[1], text[named.end() :]
    return replace(drafts.from_markdown(text, ""), key=key)


def _from_json(said: dict[str, Any], key: str) -> Draft:
    unknown = sorted(said.keys() - {*_TEXTS, *_LISTS, "priority", "key"})
    if unknown:
        raise BadDraft(
            f"`{unknown[0]}` is not known; known are {', '.join((*_TEXTS, *_LISTS))}, priority, key"
        )
    for name in (*_TEXTS, "key"):
        if not isinstance(said.get(name, ""), str):
            raise BadDraft(f"`{name}` is no text")
    priority = said.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise BadDraft(f"priority {priority!r} is no number")
    return Draft(
        **{name: said.get(name, "") for name in _TEXTS},
        after=_ids(said.get("after", []), "after"),
        before=_ids(said.get("before", []), "before"),
        priority=priority,
        key=said.get("key") or key,
    )


def _ids(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise BadDraft(f"`{name}` is no list of ids")
    return tuple(str(item) for item in value)
