"""A task as `tasks list` and `tasks show` print it."""

from typing import Any

from llmc.services.task_list import Overview
from llmc.tasks.books import Books
from llmc.tasks.claims import PROPOSED
from llmc.tasks.model import Task


def hold(task: Task, books: Books) -> str:
    """The word for why it waits for a person; nothing when it does not."""
    return task.waits_for_a_person or books.kept_back(task.id)


def why(task: Task, books: Books) -> str:
    """The reason behind that word, as far as it is known."""
    word = hold(task, books)
    kept, failures = books.kept.get(task.id), books.failures.get(task.id, [])
    if word == PROPOSED and task.made_by:
        return f"made by {made_by(task)}"
    if word and kept is not None:
        return kept.reason
    if word and failures:
        return f"{len(failures)} attempts failed, the last one by {failures[-1].cause}: {failures[-1].reason}"
    return ""


def made_by(task: Task) -> str:
    by = task.made_by
    at = f" at task {by['task']}" if by.get("task") else ""
    return f"{by['worker']}{at}" if by.get("worker") else ""


def view(task: Task, found: Overview, books: Books) -> dict[str, Any]:
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "state": found.states[task.id],
        "status": task.status,
        "owner": task.owner or None,
        "priority": task.priority,
        "label": task.label or None,
        "after": sorted(found.edges.get(task.id, ())),
        "verify": task.verify or None,
        "hold": hold(task, books) or None,
        "hold_reason": why(task, books) or None,
        "made_by": dict(task.made_by) or None,
        "attempts": [
            {"cause": failure.cause, "reason": failure.reason, "at_unix": failure.at_unix}
            for failure in books.failures.get(task.id, ())
        ],
        "metadata": dict(task.metadata),
    }
