"""Which task comes next."""

from collections.abc import Collection, Iterable

from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.graph import Needs


def completed_ids(
    tasks: Iterable[Task], ledger: Collection[str], held: Collection[str] = ()
) -> frozenset[str]:
    """What is done: by the files, or by the ledger, which outlives files that the client deletes.

    `held`: tasks that llmc's workers are at; of those only the ledger knows.
    """
    by_files = {task.id for task in tasks if task.status is TaskStatus.COMPLETED and task.id not in held}
    return frozenset(ledger) | by_files


def eligible(tasks: Iterable[Task], edges: Needs, completed: Collection[str]) -> list[Task]:
    """Tasks that could be begun now."""
    return [
        task
        for task in tasks
        if task.status is TaskStatus.PENDING
        and not task.owner
        and not task.waits_for_a_person
        and task.id not in completed
        and all(other in completed for other in edges.get(task.id, ()))
    ]


def choose(candidates: Iterable[Task], labels_in_use: Collection[str]) -> Task | None:
    """The next one: a label nobody is at first, then the lower priority value, then the lower number.

    Unlabelled tasks are distinct from everything. Without a distinct one, all are considered.
    """

    def rank(task: Task) -> tuple[bool, int, tuple[int, int, str]]:
        taken = bool(task.label) and task.label in labels_in_use
        return (taken, task.priority, in_order(task.id))

    return min(candidates, key=rank, default=None)
