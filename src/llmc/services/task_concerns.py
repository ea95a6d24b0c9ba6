"""What a person has to know of a task list: files that are no tasks, and tasks that only a person can decide about."""

from collections.abc import Iterable, Mapping

from llmc.agents.task_files import TaskFiles
from llmc.names import TaskId
from llmc.services import attention
from llmc.services.project import Project
from llmc.tasks.books import Books
from llmc.tasks.draw import is_in_question
from llmc.tasks.model import Task, TaskStatus

#: why a task waits for a person: the kind of its item, what is said of it, and the command about it
_HOLDS = {
    "quarantined": ("quarantined", "failed too often, and waits for you", "requeue"),
    "parked": ("parked_task", "used up its budget, and waits for you", "requeue"),
    "proposed": ("proposed", "was proposed by a worker, and waits for your approval", "approve"),
}


def tell(project: Project, files: TaskFiles, books: Books, tasks: Mapping[TaskId, Task]) -> None:
    """The attention list has what is so now, and nothing that is over. Costs nothing while nothing changes."""
    wanted = {
        **_unreadable(files),
        **_held(files, books, tasks.values()),
        **_questions(files, books, tasks.values()),
    }
    attention.sync(project, (_file_key(files, ""), _task_key(files, "")), wanted)


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
        found[_task_key(files, task.id)] = {
            "kind": kind,
            "severity": "waiting",
            "who": task.id,
            "text": f"task {task.id} {words}: {task.subject}"[:500],
            "next": f"llmc tasks {verb} {task.id}",
        }
    return found


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


def _task_key(files: TaskFiles, task_id: str) -> str:
    return f"task {files.list_name}/{task_id}"
