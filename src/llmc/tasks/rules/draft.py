"""Parses tasks as the user or a command writes them, and adds the prologue and epilogue of a label. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base import given
from llmc.base.given import written_out
from llmc.base.names import TaskId
from llmc.records.task import LABEL_WORDS, PRIORITIES, Task, TaskStatus, is_label, is_model

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_KEYS = ("name", "after", "before", "priority", "label", "verify", "model")


class BadDraft(ValueError):
    """The draft is invalid; one line says why."""


class Draft(Struct, frozen=True):
    subject: str
    description: str = ""
    priority: int | None = None
    label: str = ""
    #: tasks before and after this one: ids, or names of drafts in the same import
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    verify: str = ""
    model: str = ""
    name: str = ""
    #: who wrote it
    by: str = "person"
    #: recognizes the task in a later import, or a later answer of the task pool command
    key: str = ""
    #: its plan item: goalId, workNodeId, assignmentId, dispatchId
    goal: Mapping[str, str] = field(default_factory=dict)


def check(draft: Draft) -> Draft:
    if not draft.subject.strip():
        raise BadDraft("the subject is missing")
    if draft.priority is not None and draft.priority not in PRIORITIES:
        raise BadDraft(
            f"priority must be between {PRIORITIES.start} and {PRIORITIES.stop - 1}, not {draft.priority}"
        )
    if odd := _CONTROL.search(draft.verify):
        raise BadDraft(f"the verify command must not contain control characters (U+{ord(odd[0]):04X})")
    if draft.model and not is_model(draft.model):
        raise BadDraft(f"{draft.model!r} is not a valid model name")
    if draft.label and not is_label(draft.label):
        raise BadDraft(f"invalid label {draft.label!r}: a label may contain only {LABEL_WORDS}")
    # The text may be a pasted log: make control characters visible, so that no terminal obeys them.
    return replace(draft, subject=written_out(draft.subject), description=written_out(draft.description))


def typed(text: str) -> Draft:
    """A task as a user types it: the first line is the subject, the rest the description."""
    subject, _, rest = text.strip().partition("\n")
    return Draft(subject.strip(), rest.strip())


def from_markdown(text: str, name: str) -> Draft:
    """Parse `# Subject` and the text below it, with optional front matter such as `priority: 1` between two `---`."""
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
    """Sort drafts after those they depend on, so that ids follow the order."""
    left = {draft.name: draft for draft in drafts}
    ordered: list[Draft] = []
    while left:
        free = [draft for draft in left.values() if not _earlier(draft, left.values())]
        if not free:
            raise BadDraft(f"dependency cycle: {', '.join(sorted(left))}")
        for draft in free:
            ordered.append(left.pop(draft.name))
    return ordered


def new_task(draft: Draft, resolve: Callable[[str], TaskId]) -> Task:
    """The task to add; it gets its id when added."""
    said = {"priority": draft.priority, "label": draft.label or None}
    ours: dict[str, Any] = {"verify": draft.verify, "model": draft.model, "by": draft.by, "key": draft.key}
    ours["goal"] = dict(draft.goal)
    task = Task(
        id=TaskId(""),
        subject=draft.subject,
        description=draft.description,
        status=TaskStatus.PENDING,
        blocks=tuple(resolve(name) for name in draft.before),
        blocked_by=tuple(resolve(name) for name in draft.after),
        metadata={key: value for key, value in said.items() if value is not None},
    )
    return task.with_ours(**{key: value for key, value in ours.items() if value})


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
            if not colon:
                raise BadDraft(f"line {number}: expected `key: value`, got {line.strip()!r}")
            if key.strip() not in _KEYS:
                raise BadDraft(f"line {number}: unknown key `{key.strip()}`; known keys: {', '.join(_KEYS)}")
            said[key.strip()] = value.strip()
    raise BadDraft("the front matter is not closed with `---`")


def _priority(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadDraft(f"priority must be an integer, not {text!r}") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", text.strip("[] ")) if word)


#: exit codes of a task pool command with a special meaning
NONE_READY = 4
CLAIM_LIMIT = 3

_ID_LINE = re.compile(r"id:[ \t]*(\S+)[ \t]*(?:\n|$)")
_TEXTS = ("subject", "description", "label", "verify", "model")
_LISTS = ("after", "before")


class NoTask(Struct, frozen=True):
    """The command has no task."""


class Failed(Struct, frozen=True):
    """The command failed; the user must fix it first."""

    reason: str


Answer = Draft | NoTask | Failed


def read_answer(code: int, text: str, key: str) -> Answer:
    """Read a task pool command's answer. `key`: for a task whose text has none, so that it is not added twice."""
    if code == NONE_READY:
        return NoTask()
    if code == CLAIM_LIMIT:
        return Failed(f"the task pool command reached its claim limit (code {code})")
    if code != 0:
        return Failed(f"the task pool command failed with exit code {code}")
    if not text.strip():
        return NoTask()
    try:
        return replace(check(_draft(text.strip(), key)), by="task_pool_command")
    except BadDraft as error:
        return Failed(f"the task pool command printed an invalid task: {error}")


def _draft(text: str, key: str) -> Draft:
    if text.startswith("{"):
        try:
            said = given.parse(text)
        except ValueError:
            said = None  # a subject may start with a brace
        if isinstance(said, dict) and "subject" in said:
            return _from_json(said, key)
    named = _ID_LINE.match(text)
    if named:
        key, text = named[1], text[named.end() :]
    return replace(from_markdown(text, ""), key=key)


def _from_json(said: dict[str, Any], key: str) -> Draft:
    unknown = sorted(said.keys() - {*_TEXTS, *_LISTS, "priority", "key"})
    if unknown:
        raise BadDraft(
            f"unknown key `{unknown[0]}`; valid keys are {', '.join((*_TEXTS, *_LISTS))}, priority, key"
        )
    for name in (*_TEXTS, "key"):
        if not isinstance(said.get(name, ""), str):
            raise BadDraft(f"`{name}` must be a string")
    priority = said.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise BadDraft(f"priority must be an integer, not {priority!r}")
    return Draft(
        **{name: said.get(name, "") for name in _TEXTS},
        after=_ids(said.get("after", []), "after"),
        before=_ids(said.get("before", []), "before"),
        priority=priority,
        key=said.get("key") or key,
    )


def _ids(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise BadDraft(f"`{name}` must be a list of task IDs")
    return tuple(str(item) for item in value)


class BadContext(ValueError):
    """The context file is invalid; one line says why."""


class Context(Struct, frozen=True):
    prologue: str = ""
    epilogue: str = ""


def read_contexts(raw: Mapping[str, Any]) -> dict[str, Context]:
    """The tables of the context file, checked."""
    found = {}
    for label, table in raw.items():
        if not isinstance(table, Mapping):
            raise BadContext(f"`{label}` must be a table: put prologue and epilogue under [{label}]")
        for key, value in table.items():
            if key not in ("prologue", "epilogue"):
                raise BadContext(f"unknown key `{key}` in [{label}]; valid keys are prologue and epilogue")
            if not isinstance(value, str):
                raise BadContext(f"[{label}].{key} must be a string")
        found[label] = Context(table.get("prologue", ""), table.get("epilogue", ""))
    return found


def of(task: Task, contexts: Mapping[str, Context]) -> Context:
    """The context of the task's label, else the default context, else an empty one; they are not combined."""
    return contexts.get(task.label) or contexts.get("default") or Context()


def task_text(task: Task, context: Context) -> str:
    """Join prologue, subject, description and epilogue; empty ones are skipped."""
    parts = (context.prologue, task.subject, task.description, context.epilogue)
    return "\n\n".join(text for part in parts if (text := part.strip("\n")).strip())
