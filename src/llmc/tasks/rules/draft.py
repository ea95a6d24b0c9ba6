"""A task as a person writes it: a Markdown file with a heading, and what else there is to say above it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.given import written_out
from llmc.base.names import TaskId
from llmc.records.task import LABEL_WORDS, PRIORITIES, is_label, is_model

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_KEYS = ("name", "after", "before", "priority", "label", "verify", "model")


class BadDraft(ValueError):
    """What is wrong with it, in one line."""


class Draft(Struct, frozen=True):
    subject: str
    description: str = ""
    priority: int | None = None
    label: str = ""
    #: tasks that come first, and tasks that wait for this one: ids, or names of drafts of the same import
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    verify: str = ""
    model: str = ""
    name: str = ""
    #: who wrote it
    by: str = "person"
    #: what a task pool command calls it
    key: str = ""
    #: the part of a goal's plan that it is: goalId, workNodeId, assignmentId, dispatchId
    goal: Mapping[str, str] = field(default_factory=dict)


def check(draft: Draft) -> Draft:
    if not draft.subject.strip():
        raise BadDraft("it has no subject")
    if draft.priority is not None and draft.priority not in PRIORITIES:
        raise BadDraft(
            f"priority {draft.priority} is not between {PRIORITIES.start} and {PRIORITIES.stop - 1}"
        )
    if odd := _CONTROL.search(draft.verify):
        raise BadDraft(f"verify has a control character (U+{ord(odd[0]):04X})")
    if draft.model and not is_model(draft.model):
        raise BadDraft(f"model {draft.model!r} cannot be the name of a model")
    if draft.label and not is_label(draft.label):
        raise BadDraft(f"label {draft.label!r} has other characters than {LABEL_WORDS}")
    # A log that somebody pasted: nothing in it may act on a terminal, and all of it can be read.
    return replace(draft, subject=written_out(draft.subject), description=written_out(draft.description))


def from_markdown(text: str, name: str) -> Draft:
    """`# Subject` and the text below it; above it, between two `---`, lines like `priority: 1`."""
    said, body = _head(text.replace("\r\n", "\n"))
    subject, _, description = body.strip().partition("\n")
    return check(
        Draft(
            subject=subject.lstrip("#").strip(),
            description=description.strip(),
            priority=_priority(said.get("priority")),
            label=said.get("label", ""),
            after=_words(said.get("after", "")),
            before=_words(said.get("before", "")),
            verify=said.get("verify", ""),
            model=said.get("model", ""),
            name=said.get("name", name),
        )
    )


def in_order(drafts: Iterable[Draft]) -> list[Draft]:
    """Each after those it names, so that the numbers tell the order, too."""
    left = {draft.name: draft for draft in drafts}
    ordered: list[Draft] = []
    while left:
        free = [draft for draft in left.values() if not _earlier(draft, left.values())]
        if not free:
            raise BadDraft(f"they wait for each other in a circle: {', '.join(sorted(left))}")
        for draft in free:
            ordered.append(left.pop(draft.name))
    return ordered


def fields(draft: Draft, resolve: Callable[[str], TaskId]) -> dict[str, Any]:
    """The file of a new task, without its id."""
    metadata: dict[str, Any] = {}
    if draft.priority is not None:
        metadata["priority"] = draft.priority
    if draft.label:
        metadata["label"] = draft.label
    ours: dict[str, Any] = {"verify": draft.verify, "model": draft.model, "by": draft.by, "key": draft.key}
    ours["goal"] = dict(draft.goal)
    metadata["llmc"] = {key: value for key, value in ours.items() if value}
    return {
        "subject": draft.subject,
        "description": draft.description,
        "status": "pending",
        "blocks": [resolve(name) for name in draft.before],
        "blockedBy": [resolve(name) for name in draft.after],
        "metadata": metadata,
    }


def _earlier(draft: Draft, others: Iterable[Draft]) -> list[str]:
    return [
        other.name
        for other in others
        if other is not draft and (other.name in draft.after or draft.name in other.before)
    ] + [name for name in draft.after if name == draft.name]


def _head(text: str) -> tuple[Mapping[str, str], str]:
    lines = text.lstrip("\n").split("\n")
    if lines[0].strip() != "---":
        return {}, text
    said: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "---":
            return said, "\n".join(lines[number:])
        if line.strip():
            key, colon, value = line.partition(":")
            if not colon or key.strip() not in _KEYS:
                raise BadDraft(
                    f"line {number} is {line.strip()!r}; known are {', '.join(_KEYS)}, as `key: value`"
                )
            said[key.strip()] = value.strip()
    raise BadDraft("the `---` at the top is never closed")


def _priority(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadDraft(f"priority {text!r} is no number") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", text.strip("[] ")) if word)
