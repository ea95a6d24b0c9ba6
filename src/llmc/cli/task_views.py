"""A task as `tasks list` and `tasks show` print it."""

from typing import Any

from llmc.base.text import gist
from llmc.records.books import QUARANTINED, Books
from llmc.records.task import Task
from llmc.tasks.rules.claims import PROPOSED
from llmc.tasks.rules.draw import QUESTION
from llmc.tasks.task_list import Overview


def hold(task: Task, found: Overview, books: Books) -> str:
    """The word for why it waits for a person; nothing when it does not."""
    return books.kept_back(found.key(task.id)) or task.waits_for_a_person


def why(task: Task, found: Overview, books: Books) -> str:
    """The reason behind that word, as far as it is known."""
    key = found.key(task.id)
    word, kept = hold(task, found, books), books.kept.get(key)
    if word == PROPOSED and (made := made_by(task, found, books)):
        return f"made by {made}"
    if word == QUARANTINED:
        said, reason = books.why_kept(key)
        return f"it {said}: {gist(reason)}" if reason else ""
    if word and kept is not None:
        return gist(kept.reason)
    if found.states.get(task.id) == QUESTION:
        return f"it was completed before: llmc tasks requeue {task.id} has it done again, or llmc tasks done {task.id}"
    return ""


def maker(task: Task, found: Overview, books: Books) -> dict[str, str]:
    """The worker whose session made it, and the task that one was at. A file without a row is of an older llmc."""
    made = books.made.get(found.key(task.id))
    if made is None:
        return {key: str(value) for key, value in task.made_by.items()}
    return {"worker": made.worker, **({"task": made.at} if made.at else {})}


def made_by(task: Task, found: Overview, books: Books) -> str:
    by = maker(task, found, books)
    at = f" at task {by['task']}" if by.get("task") else ""
    return f"{by['worker']}{at}" if by.get("worker") else ""


def view(task: Task, found: Overview, books: Books) -> dict[str, Any]:
    return {
        "id": task.id,
        "list": found.list_name,
        "subject": task.subject,
        "description": task.description,
        "state": found.states[task.id],
        "status": task.status,
        "owner": task.owner or None,
        "priority": task.priority,
        "label": task.label or None,
        "after": sorted(found.edges.get(task.id, ())),
        "verify": task.verify or None,
        "hold": hold(task, found, books) or None,
        "hold_reason": why(task, found, books) or None,
        "made_by": maker(task, found, books) or None,
        "attempts": [
            {"cause": failure.cause, "reason": failure.reason, "at_unix": failure.at_unix}
            for failure in books.failures.get(found.key(task.id), ())
        ],
        "metadata": dict(task.metadata),
    }
