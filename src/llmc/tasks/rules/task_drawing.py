"""Task states, and task graphs as a tree or a Mermaid diagram."""

from collections.abc import Callable, Collection, Iterable

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.graph import Needs, eligible

#: the state of a task that the user must decide about
QUESTION = "question"


def is_in_question(task: Task, completed: Collection[str]) -> bool:
    """Pending by its file, completed by the ledger: it was reopened, or its number was reused."""
    return task.id in completed and task.status is TaskStatus.PENDING and not task.owner and not task.claim


def states(
    tasks: Collection[Task],
    edges: Needs,
    completed: Collection[str],
    kept_back: Callable[[TaskId], str] = lambda task_id: "",
    landed: Collection[str] = (),
) -> dict[TaskId, str]:
    """The state of each task: `completed`, `in_progress`, `ready`, `waits`, or why the user has to act.

    `kept_back`: holds from the ledger, where the file has none. `landed`: completed by the ledger.
    """
    ready = {task.id for task in eligible(tasks, edges, completed)}
    found = {}
    for task in tasks:
        if is_in_question(task, landed):
            state = QUESTION
        elif task.id in completed:
            state = TaskStatus.COMPLETED.value
        elif task.status is not TaskStatus.PENDING or task.owner:
            state = TaskStatus.IN_PROGRESS.value
        else:
            waits = "ready" if task.id in ready else "waits"
            state = kept_back(task.id) or task.waits_for_a_person or waits
        found[task.id] = state
    return found


def tree(tasks: Collection[Task], edges: Needs, state_of: dict[TaskId, str]) -> list[str]:
    """One line per task, below one of its dependencies; the others are named beside it."""
    by_id = {task.id: task for task in tasks}
    depth = _depths(by_id, edges)
    parent = {}
    children: dict[TaskId | None, list[TaskId]] = {}
    for task_id in sorted(by_id, key=in_order):
        known = [
            other for other in edges.get(task_id, ()) if depth.get(other, depth[task_id]) < depth[task_id]
        ]
        # Below the deepest, so that it comes after all its dependencies.
        parent[task_id] = max(known, key=lambda other: (depth[other], in_order(other)), default=None)
        children.setdefault(parent[task_id], []).append(task_id)
    lines: list[str] = []
    stack: list[tuple[TaskId, str, str]] = [(root, "", "") for root in reversed(children.get(None, []))]
    while stack:
        task_id, indent, branch = stack.pop()
        others = sorted((o for o in edges.get(task_id, ()) if o != parent[task_id]), key=in_order)
        word = "after" if parent[task_id] is None else "also after"
        also = f"  ({word} {', '.join(others)})" if others else ""
        lines.append(f"{indent}{branch}{task_id} {state_of[task_id]}  {by_id[task_id].subject}{also}")
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        last = True
        for child in reversed(children.get(task_id, [])):
            stack.append((child, below, "└─ " if last else "├─ "))
            last = False
    return lines


def mermaid(tasks: Iterable[Task], edges: Needs, state_of: dict[TaskId, str]) -> list[str]:
    """A Mermaid flowchart for a Markdown page."""
    lines = ["flowchart TD"]
    names: dict[TaskId, str] = {}
    for number, task in enumerate(sorted(tasks, key=lambda task: in_order(task.id))):
        names[task.id] = f"t{number}"
        text = f"{task.id}: {task.subject} ({state_of[task.id]})".replace('"', "#quot;").replace("\n", " ")
        lines.append(f'    t{number}["{text}"]')
    lines += [
        f"    {names[other]} --> {names[task_id]}"
        for task_id in names
        for other in sorted(edges.get(task_id, ()), key=in_order)
        if other in names
    ]
    return lines


def _depths(known: Collection[TaskId], edges: Needs) -> dict[TaskId, int]:
    """The distance of each task from one without dependencies; tasks in a cycle are at the top."""
    depth: dict[TaskId, int] = {}
    left = set(known)
    while left:
        free = {task for task in left if not edges.get(task, frozenset()) & left}
        for task in sorted(free or left, key=in_order):
            depth[task] = 1 + max((depth.get(other, -1) for other in edges.get(task, ())), default=-1)
        left -= free or left
    return depth
