"""The task list of a root: its contents, new tasks, and its items on the attention list."""

import hashlib
import heapq
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.attention import raising
from llmc.base.errors import LlmcError, NotFound, Refused, UsageError
from llmc.base.names import TaskId, TaskKey
from llmc.base.text import gist, shortened
from llmc.records.books import QUARANTINED, Books
from llmc.records.task import Task, TaskStatus, Unreadable, in_order
from llmc.repo.project import Project
from llmc.tasks.rules import draft as drafts
from llmc.tasks.rules.claims import believed
from llmc.tasks.rules.draft import BadDraft, Draft
from llmc.tasks.rules.graph import (
    Index,
    Needs,
    Stuck,
    completed_ids,
    cycle,
    dangling,
    is_in_question,
    needs,
    states,
    stuck,
)
from llmc.tasks.source import TaskSource, source_of

#: maximum length of a task's subject, and of why it failed, in an attention item
MOST_SUBJECT, MOST_REASON = 200, 200
#: why a task needs the user: the kind of its item, its text, and the command for it
_HOLDS = {
    QUARANTINED: (QUARANTINED, "", "requeue"),  # the text comes from its attempts
    "parked": ("parked_task", "used up its budget and is parked", "requeue"),
    "proposed": ("proposed", "was proposed by a worker and needs your approval", "approve"),
}


def tell(project: Project, source: TaskSource, books: Books, tasks: Mapping[TaskId, Task]) -> None:
    """Update the attention list: raise current items, clear old ones. Writes nothing if nothing changed."""
    held, wrong = _held_before(project, source), dict[TaskId, str]()
    if held:
        unreadable = {bad.task_id for bad in source.unreadable}
        index = Index(tasks, books.completed_in(source.list_name))
        found = stuck(index.dangling, index.cycles, unreadable)
        wrong = {task: said for task, said in found.items() if task in held}
    _tell(project, source, books, tasks, wrong)


def tell_running(
    project: Project,
    source: TaskSource,
    books: Books,
    tasks: Mapping[TaskId, Task],
    wrong: Stuck,
    starting: bool,
) -> Collection[TaskId]:
    """Like `tell`, while auto mode runs; returns the stuck tasks it holds: at the start, only those held before."""
    before = _held_before(project, source) if starting and wrong else frozenset()
    held = {task: said for task, said in wrong.items() if not starting or task in before}
    _tell(project, source, books, tasks, held)
    return held.keys()


def _tell(
    project: Project, source: TaskSource, books: Books, tasks: Mapping[TaskId, Task], wrong: Stuck
) -> None:
    wanted = {
        **_unreadable(source),
        **_held(source, books, tasks.values()),
        **_questions(source, books, tasks.values()),
        **_stuck(source, wrong),
    }
    keys = (_file_key(source, ""), _task_key(source, ""), _stuck_key(source, ""))
    raising.sync(project, keys, wanted)


def _held_before(project: Project, source: TaskSource) -> frozenset[TaskId]:
    """Stuck tasks that are already on the attention list."""
    key = _stuck_key(source, "")
    raised = project.store.read().attention
    return frozenset(TaskId(one.removeprefix(key)) for one in raised if one.startswith(key))


def _item(kind: str, who: str, text: str, command: str) -> dict[str, str]:
    return {"kind": kind, "severity": "waiting", "who": who, "text": text, "next": command}


def _stuck(source: TaskSource, wrong: Stuck) -> dict[str, dict[str, str]]:
    fix = f"Other tasks are not affected. To fix this, {source.how_to_unblock}"
    return {
        _stuck_key(source, task): _item(
            "stuck", task, f"{said}. {fix}"[:1000], f"llmc tasks show {shlex.quote(task)}"
        )
        for task, said in wrong.items()
    }


def _unreadable(source: TaskSource) -> dict[str, dict[str, str]]:
    texts = {bad.file: f"{bad.where} is not a valid task: {bad.problem}"[:1000] for bad in source.unreadable}
    return {
        _file_key(source, file): _item("bad_input", file, text, "llmc tasks list")
        for file, text in texts.items()
    }


def _held(source: TaskSource, books: Books, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    """Tasks that are held for the user."""
    completed = books.completed_in(source.list_name)
    found = {}
    for task in tasks:
        key = source.key(task.id)
        hold = _HOLDS.get(books.kept_back(key) or task.waits_for_a_person)
        if hold is None or task.status is TaskStatus.COMPLETED or task.id in completed:
            continue
        kind, words, verb = hold
        said = f"task {task.id} {words}: {task.subject}" if words else _quarantined(task, key, books)
        found[_task_key(source, task.id)] = _item(
            kind, task.id, said[:500], f"llmc tasks {verb} {shlex.quote(task.id)}"
        )
    return found


def _quarantined(task: Task, key: TaskKey, books: Books) -> str:
    """How often a task failed, and why. A failure that would repeat quarantines the task at its first attempt."""
    words, reason = books.why_kept(key)
    why = f" ({gist(reason, MOST_REASON)})" if reason else ""
    return f"task {task.id} {words}: {shortened(task.subject, MOST_SUBJECT)}{why}"


def _questions(source: TaskSource, books: Books, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    completed = books.completed_in(source.list_name)
    found = {}
    for task in tasks:
        if is_in_question(task, completed):
            text = (
                f"task {task.id} is pending in its file, but llmc already completed a task with this ID. "
                f"Requeue the task to run it, or mark it as done: llmc tasks done {shlex.quote(task.id)}"
            )
            item = _item("task_question", task.id, text, f"llmc tasks requeue {shlex.quote(task.id)}")
            found[_task_key(source, task.id)] = item
    return found


def _file_key(source: TaskSource, name: str) -> str:
    return f"task-file {source.list_name}/{name}"


def _stuck_key(source: TaskSource, task_id: str) -> str:
    return f"stuck-task {source.list_name}/{task_id}"


def _task_key(source: TaskSource, task_id: str) -> str:
    return f"task {source.list_name}/{task_id}"


class Overview(Struct, frozen=True):
    """All tasks of the list, and its problems."""

    list_name: str
    tasks: dict[TaskId, Task]
    edges: Needs
    states: dict[TaskId, str]
    unreadable: list[Unreadable]
    problems: list[str]
    #: how many earlier landed tasks are not in `tasks`
    earlier: int = 0

    def key(self, task_id: str) -> TaskKey:
        return TaskKey(self.list_name, TaskId(task_id))


def overview(source: TaskSource, *, recent: int | None = None) -> Overview:
    """All tasks, with landed ones from the books: Claude Code deletes the files of completed tasks.

    `recent`: how many landed tasks to include, latest first; None: all.
    """
    found, books = source.listing(), source.books()
    landed = books.completed_in(source.list_name)
    wanted = landed if recent is None else _newest(source, books, landed, recent)
    gone = [_without_file(source, books, task_id) for task_id in wanted if task_id not in found.tasks]
    there = [task for task in found.tasks.values() if task.id in wanted or not _is_settled(task, landed)]
    tasks = sorted([*there, *gone], key=lambda task: in_order(task.id))
    edges = needs(tasks)
    completed = completed_ids(tasks, landed, books.claimed_in(source.list_name))
    problems = [f"{bad.file}: {bad.problem}" for bad in found.unreadable]
    known = completed | {bad.task_id for bad in found.unreadable}
    problems += map(str, dangling(tasks, known))
    if found_cycle := cycle(edges):
        problems.append(f"dependency cycle: {', '.join(found_cycle)}")
    words = states(tasks, edges, completed, lambda task_id: books.kept_back(source.key(task_id)), landed)
    return Overview(
        source.list_name,
        {task.id: task for task in tasks},
        edges,
        words,
        found.unreadable,
        problems,
        earlier=len(landed) - len(wanted),
    )


def _without_file(source: TaskSource, books: Books, task_id: TaskId) -> Task:
    """A landed task whose file the client has removed."""
    subject = books.subjects.get(source.key(task_id)) or "(task file deleted)"
    return Task(task_id, subject, "", TaskStatus.COMPLETED)


def _newest(source: TaskSource, books: Books, landed: Collection[TaskId], count: int) -> set[TaskId]:
    def at(task_id: TaskId) -> float:
        found = books.landed.get(source.key(task_id))
        return found.at_unix if found else 0.0

    return set(heapq.nlargest(count, landed, key=at))


def _is_settled(task: Task, landed: Collection[TaskId]) -> bool:
    """Whether the file and the ledger have the task as completed; if only the ledger does, the task is a question."""
    return task.status is TaskStatus.COMPLETED and task.id in landed


class Left(Struct, frozen=True):
    """Open tasks."""

    open: list[TaskId]
    #: open tasks that wait for the user
    held: list[TaskId]
    #: no task can start, and none is in progress
    stuck: bool


def left_to_do(project: Project) -> Left:
    found = overview(source_of(project), recent=0)
    left = [task for task, state in found.states.items() if state != TaskStatus.COMPLETED]
    waiting = ("ready", "waits", TaskStatus.IN_PROGRESS)
    held = [task for task in left if found.states[task] not in waiting]
    moving = any(found.states[task] in ("ready", TaskStatus.IN_PROGRESS) for task in left)
    return Left(left, held, stuck=bool(left) and not moving)


def believed_tasks(source: TaskSource, list_name: str = "") -> list[Task]:
    """The tasks of a list without untrusted metadata; "" means the configured one."""
    books, name = source.books(), list_name or source.list_name
    found = source.listing(list_name).tasks.values()
    return [believed(task, books.made.get(TaskKey(name, task.id))) for task in found]


class TooLate(Refused):
    """A new task cannot come before one that has begun."""

    def __init__(self, message: str, tasks: Collection[str]) -> None:
        super().__init__(message, hint="Remove that task from `before`, then run the command again.")
        self.tasks = tasks


class Known(Struct, frozen=True):
    """The tasks that new ones may refer to: those in the list, and those that landed."""

    source: TaskSource
    tasks: Mapping[TaskId, Task]
    books: Books
    landed: frozenset[TaskId]

    def has(self, name: str) -> bool:
        return name in self.tasks or name in self.landed

    def refuse_late(self, what: str, before: Iterable[TaskId]) -> None:
        """Refuse a task that must come before one that has begun. `what`: the beginning of the error."""
        began = {task_id: said for task_id in before if (said := self._has_begun(task_id))}
        for task_id, said in began.items():
            raise TooLate(f"{what} cannot come before task {task_id}, which is already {said}", began)

    def _has_begun(self, task_id: TaskId) -> str:
        task = self.tasks.get(task_id)
        if task_id in self.landed or (task is not None and task.status is TaskStatus.COMPLETED):
            return "completed"
        return "in progress" if task is not None and task.status is TaskStatus.IN_PROGRESS else ""

    @property
    def by_key(self) -> dict[str, TaskId]:
        """The tasks by what they were made from. A file of a task that has not landed may be added again if deleted."""
        keys = self.books.keys.items()
        landed = {
            key: task.id
            for task, key in keys
            if task.list == self.source.list_name and task.id in self.landed
        }
        return landed | {task.pool_key: task.id for task in self.tasks.values() if task.pool_key}

    def add(self, new: Task, by: str) -> Task:
        """Add a task, without its dependencies on tasks that are gone: they have landed, but only our ledger knows."""
        gone = self.landed - self.tasks.keys()
        after = tuple(task_id for task_id in new.blocked_by if task_id not in gone)
        return self.source.add(replace(new, blocked_by=after), by)


def known_tasks(source: TaskSource) -> Known:
    tasks, books = source.listing().tasks, source.books()
    return Known(source, tasks, books, books.completed_in(source.list_name))


def add(source: TaskSource, draft: Draft) -> Task:
    """Add a task; its dependencies must exist, and no task that it must come before may have begun."""
    try:
        draft = drafts.check(draft)
    except BadDraft as error:
        raise UsageError(f"cannot add the task: {error}") from error
    known = known_tasks(source)
    for name in (*draft.before, *draft.after):
        if not known.has(name):
            raise NotFound(
                f"cannot add the task: task {name} does not exist",
                hint="Run `llmc tasks list` to see all tasks.",
            )
    known.refuse_late("cannot add the task: it", _ids(draft.before))
    _refuse_cycle(known.tasks.values(), [replace(draft, name="the new task")])
    return known.add(drafts.new_task(draft, TaskId), draft.by)


def with_options(draft: Draft, given: Mapping[str, Any]) -> Draft:
    """Options override the file; dependencies from both are combined."""
    after, before = (*draft.after, *given.get("after", ())), (*draft.before, *given.get("before", ()))
    others = {
        key: value for key, value in given.items() if value is not None and key not in ("after", "before")
    }
    return replace(draft, **others, after=after, before=before)


class Imported(Struct, frozen=True):
    added: list[Task]
    #: what an earlier import of the same text added
    earlier: list[Task]


def import_all(source: TaskSource, found: Iterable[Draft], *, again: bool = False) -> Imported:
    """Add tasks that may refer to each other: all or none. Tasks already in the list are added only with `again`."""
    wanted = list(found)
    names = [draft.name for draft in wanted]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"nothing was imported: two tasks are named {twice[0]!r}",
            hint="Give one of them another name with `name:`.",
        )
    known = known_tasks(source)
    by_key = {} if again else known.by_key
    made = {draft.name: by_key[draft.key] for draft in wanted if draft.key in by_key}
    earlier = sorted(made.values(), key=in_order)
    new = [draft for draft in wanted if draft.name not in made]
    for draft in new:
        for other in (*draft.after, *draft.before):
            if other not in names and not known.has(other):
                raise NotFound(
                    f"nothing was imported: {draft.name} refers to task {other!r}, which does not exist",
                    hint="Run `llmc tasks list` to see all tasks.",
                )
    try:
        ordered = drafts.in_order(new)
    except BadDraft as error:
        raise UsageError(f"nothing was imported: {error}") from error

    def resolve(name: str) -> TaskId:
        return made.get(name, TaskId(name))

    linked = []
    for draft in ordered:
        # Of two new tasks, the dependency is written on the later one: then both have ids.
        after = (*draft.after, *(other.name for other in wanted if draft.name in other.before))
        before = tuple(name for name in draft.before if name in made or name not in names)
        known.refuse_late(f"nothing was imported: {draft.name}", map(resolve, before))
        linked.append(replace(draft, after=tuple(dict.fromkeys(after)), before=before))
    resolved = [
        replace(draft, after=tuple(map(resolve, draft.after)), before=tuple(map(resolve, draft.before)))
        for draft in linked
    ]
    _refuse_cycle(known.tasks.values(), resolved)
    added = []
    for draft in linked:
        task = known.add(drafts.new_task(draft, resolve), draft.by)
        made[draft.name] = task.id
        added.append(task)
    return Imported(added, [known.tasks.get(i) or _without_file(source, known.books, i) for i in earlier])


def _refuse_cycle(known: Iterable[Task], new: Iterable[Draft]) -> None:
    """New tasks must not create a dependency cycle."""
    planned = [
        Task(TaskId(d.name), d.subject, "", TaskStatus.PENDING, _ids(d.before), _ids(d.after)) for d in new
    ]
    found = cycle(needs([*known, *planned]))
    if {task.id for task in planned} & set(found):
        raise UsageError(f"nothing was added: the tasks would form a dependency cycle ({', '.join(found)})")


def _ids(names: Iterable[str]) -> tuple[TaskId, ...]:
    return tuple(TaskId(name) for name in names)


def read_drafts(paths: Iterable[Path]) -> list[Draft]:
    """Parse the given Markdown files, and those in the given directories."""
    found = []
    for path in paths:
        files = sorted(path.glob("*.md")) if path.is_dir() else [path]
        if not files:
            raise NotFound(f"no Markdown files in {path}")
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
                found.append(replace(drafts.from_markdown(text, file.stem), key=_key(file.stem, text)))
            except BadDraft as error:
                raise UsageError(f"{file}: {error}") from error
            except (OSError, UnicodeDecodeError) as error:
                raise LlmcError(f"cannot read {file}: {error}") from error
    return found


def _key(name: str, text: str) -> str:
    """A key that stays the same while the file's name and text do, wherever the file is."""
    digest = hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()
    return f"markdown:{digest[:32]}"
