"""What a person has to know of a task list: files that are no tasks, and tasks that only a person can decide about."""

from collections.abc import Collection, Iterable, Mapping

from llmc.agents.task_files import TaskFiles
from llmc.attention import raising
from llmc.base.names import TaskId, TaskKey
from llmc.base.text import gist, shortened
from llmc.records.books import QUARANTINED, Books
from llmc.records.task import Task, TaskStatus
from llmc.repo.project import Project
from llmc.tasks.rules.draw import is_in_question
from llmc.tasks.rules.stuck import Stuck, stuck_in

#: so much of a task's subject, and of why it failed, is in the sentence about it
MOST_SUBJECT, MOST_REASON = 200, 200
#: why a task waits for a person: the kind of its item, what is said of it, and the command about it
_HOLDS = {
    QUARANTINED: (QUARANTINED, "", "requeue"),  # what is said of it, its attempts say
    "parked": ("parked_task", "used up its budget, and waits for you", "requeue"),
    "proposed": ("proposed", "was proposed by a worker, and waits for your approval", "approve"),
}


def tell(project: Project, files: TaskFiles, books: Books, tasks: Mapping[TaskId, Task]) -> None:
    """The attention list has what is so now, and nothing that is over. Costs nothing while nothing changes."""
    held, wrong = _held_before(project, files), dict[TaskId, str]()
    if held:
        unreadable = {bad.task_id for bad in files.unreadable}
        found = stuck_in(tasks, books.completed_in(files.list_name), unreadable)
        wrong = {task: said for task, said in found.items() if task in held}
    _tell(project, files, books, tasks, wrong)


def tell_running(
    project: Project,
    files: TaskFiles,
    books: Books,
    tasks: Mapping[TaskId, Task],
    wrong: Stuck,
    starting: bool,
) -> Collection[TaskId]:
    """The same while tasks are given out: what gets stuck now is held. At the start only what was held before is."""
    before = _held_before(project, files) if starting and wrong else frozenset()
    held = {task: said for task, said in wrong.items() if not starting or task in before}
    _tell(project, files, books, tasks, held)
    return held.keys()


def _tell(
    project: Project, files: TaskFiles, books: Books, tasks: Mapping[TaskId, Task], wrong: Stuck
) -> None:
    wanted = {
        **_unreadable(files),
        **_held(files, books, tasks.values()),
        **_questions(files, books, tasks.values()),
        **_stuck(files, wrong),
    }
    keys = (_file_key(files, ""), _task_key(files, ""), _stuck_key(files, ""))
    raising.sync(project, keys, wanted)


def _held_before(project: Project, files: TaskFiles) -> frozenset[TaskId]:
    """What is stuck, and is on the list already."""
    key = _stuck_key(files, "")
    raised = project.store.read().attention
    return frozenset(TaskId(one.removeprefix(key)) for one in raised if one.startswith(key))


def _stuck(files: TaskFiles, wrong: Stuck) -> dict[str, dict[str, str]]:
    return {
        _stuck_key(files, task): {
            "kind": "stuck",
            "severity": "waiting",
            "who": task,
            "text": f"{said}. The others go on; change `blockedBy` or `blocks` in {files.directory}"[:1000],
            "next": f"llmc tasks show {task}",
        }
        for task, said in wrong.items()
    }


def note_freed(project: Project, files: TaskFiles, task: Task) -> None:
    """A task that its file called in progress, without an owner, is pending again."""
    with project.store.transaction() as tx:
        reason = "it was in progress without an owner"
        tx.emit("task_released", **files.key(task.id).fields(), reason=reason, cause="", ref=None)


def _unreadable(files: TaskFiles) -> dict[str, dict[str, str]]:
    return {
        _file_key(files, bad.file): {
            "kind": "bad_input",
            "severity": "waiting",
            "who": bad.file,
            "text": f"{files.directory / bad.file} is no task: {bad.problem}"[:1000],
            "next": "llmc tasks list",
        }
        for bad in files.unreadable
    }


def _held(files: TaskFiles, books: Books, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    """What nobody takes before a person has said so."""
    completed = books.completed_in(files.list_name)
    found = {}
    for task in tasks:
        hold = _HOLDS.get(books.kept_back(files.key(task.id)) or task.waits_for_a_person)
        if hold is None or task.status is TaskStatus.COMPLETED or task.id in completed:
            continue
        kind, words, verb = hold
        said = (
            f"task {task.id} {words}: {task.subject}"
            if words
            else _quarantined(task, files.key(task.id), books)
        )
        found[_task_key(files, task.id)] = {
            "kind": kind,
            "severity": "waiting",
            "who": task.id,
            "text": said[:500],
            "next": f"llmc tasks {verb} {task.id}",
        }
    return found


def _quarantined(task: Task, key: TaskKey, books: Books) -> str:
    """How often it failed, and why: one attempt is enough where no other could go better."""
    words, reason = books.why_kept(key)
    why = f" ({gist(reason, MOST_REASON)})" if reason else ""
    return f"task {task.id} {words}, and waits for you: {shortened(task.subject, MOST_SUBJECT)}{why}"


def _questions(files: TaskFiles, books: Books, tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    completed = books.completed_in(files.list_name)
    return {
        _task_key(files, task.id): {
            "kind": "task_question",
            "severity": "waiting",
            "who": task.id,
            "text": f"task {task.id} is pending in its file, and was completed before under this number: "
            f"is it to be done again? If not: llmc tasks done {task.id}",
            "next": f"llmc tasks requeue {task.id}",
        }
        for task in tasks
        if is_in_question(task, completed)
    }


def _file_key(files: TaskFiles, name: str) -> str:
    return f"task-file {files.list_name}/{name}"


def _stuck_key(files: TaskFiles, task_id: str) -> str:
    return f"stuck-task {files.list_name}/{task_id}"


def _task_key(files: TaskFiles, task_id: str) -> str:
    return f"task {files.list_name}/{task_id}"
