"""What a person has to know of a task list: files that are no tasks, and tasks that only a person can decide about."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from llmc.agents.task_files import TaskFiles
from llmc.names import TaskId
from llmc.services.project import Project
from llmc.tasks.books import Books
from llmc.tasks.draw import is_in_question
from llmc.tasks.model import Task


class Concern(NamedTuple):
    """An item of the attention list, without its key."""

    kind: str
    who: str
    text: str
    next: str


def tell(project: Project, files: TaskFiles, books: Books, tasks: Mapping[TaskId, Task]) -> None:
    """The attention list has what is so now, and nothing that is over. Costs nothing while nothing changes."""
    wanted = {**_unreadable(files), **_questions(files, books, tasks.values())}
    told = project.store.read().attention
    over = [
        key
        for key in told
        if key.startswith((_file_key(files, ""), _task_key(files, ""))) and key not in wanted
    ]
    new = {key: one for key, one in wanted.items() if key not in told or told[key].text != one.text}
    if over or new:
        with project.store.transaction() as tx:
            for key in over:
                tx.clear_item(key)
            for key, one in new.items():
                tx.raise_item(key, severity="waiting", **one._asdict())


def _unreadable(files: TaskFiles) -> dict[str, Concern]:
    return {
        _file_key(files, bad.file): Concern(
            "bad_input",
            bad.file,
            f"{files.directory / bad.file} is no task: {bad.problem}"[:1000],
            "llmc tasks list",
        )
        for bad in files.unreadable
    }


def _questions(files: TaskFiles, books: Books, tasks: Iterable[Task]) -> dict[str, Concern]:
    completed = books.completed_in(files.list_name)
    return {
        _task_key(files, task.id): Concern(
            "task_question",
            task.id,
            f"task {task.id} is pending in its file, and was completed before under this number: "
            f"is it to be done again? If not: llmc tasks done {task.id}",
            f"llmc tasks requeue {task.id}",
        )
        for task in tasks
        if is_in_question(task, completed)
    }


def _file_key(files: TaskFiles, name: str) -> str:
    return f"task-file {files.list_name}/{name}"


def _task_key(files: TaskFiles, task_id: str) -> str:
    return f"task {files.list_name}/{task_id}"
