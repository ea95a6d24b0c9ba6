"""The actions of the web page: orders of `api/` for workers, the fleet, tasks and goals.

Each order says what it is about: only one order about the same thing runs at a time, and all others run in parallel.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from llmc.api import acceptance, goal_orders, goal_views, orders, tasks, workers
from llmc.api.roots import Project
from llmc.api.said import GOOD, Act, Said, command_line
from llmc.base.clock import now_unix
from llmc.base.errors import Refused, UsageError

Form = Mapping[str, str]


class Order(Struct, frozen=True):
    """What an order is about, its command line to show, and the function that runs it."""

    about: str
    command: str
    act: Act


def _text(form: Form, what: str = "text") -> str:
    text = form.get(what, "")
    if not text.strip():
        raise UsageError(f"{what} is empty", hint="Type something first.")
    return text


def accept(project: Project, worker: str, form: Form) -> Order:
    """Land only the change that the user confirmed. The worker can get other orders meanwhile, as in a terminal."""
    return Order(
        f"accept of {worker}", *orders.accept(project, worker, _text(form, "commit"), only_seen=True)
    )


def reject(project: Project, worker: str, form: Form) -> Order:
    """Send only the prompt that the user saw, if one was shown."""
    general = form.get("text", "").strip()
    return Order(worker, *orders.request(project, worker, general, form.get("seen", "")))


def message(project: Project, worker: str, form: Form) -> Order:
    return Order(worker, *orders.message(project, worker, _text(form)))


def answer(project: Project, worker: str, form: Form) -> Order:
    """Answer only the question that the browser showed."""
    if form.get("asked") and form["asked"] != workers.question(project, worker).key:
        raise Refused(
            f"{worker} is now asking a different question", hint="Read the new question, then answer it."
        )
    return Order(worker, *orders.answer(project, worker, _text(form)))


def hold(project: Project, worker: str, form: Form) -> Order:
    """Put on hold, never toggle: the page may be out of date. Waits for nothing, as it takes no lock of the worker."""
    return Order(f"hold of {worker}", *orders.hold(project, worker, True))


def release(project: Project, worker: str, form: Form) -> Order:
    return Order(f"hold of {worker}", *orders.hold(project, worker, False))


def start(project: Project, worker: str, form: Form) -> Order:
    return Order(worker, *orders.start(project, worker, _text(form)))


OF_WORKER: dict[str, Callable[[Project, str, Form], Order]] = {
    "accept": accept,
    "answer": answer,
    "hold": hold,
    "message": message,
    "reject": reject,
    "release": release,
    "start": start,
}


def start_any(project: Project, form: Form) -> Order:
    """Start a task on any free worker. Different tasks start in parallel; the same task twice is one order."""
    return _of_command(*orders.start(project, None, _text(form)))


def add(project: Project, form: Form) -> Order:
    return _of_command(*orders.add(project, _text(form, "name").strip()))


def undo(project: Project, form: Form) -> Order:
    """Revert only the change that the user confirmed."""
    target = acceptance.undo_target(project)
    if form.get("commit", "") != target.commit:
        raise UsageError(
            f"cannot undo {form.get('commit', '')[:9]}: the last landed change is {target.commit[:9]} from {target.worker}",
            hint="Only the last landed change can be undone. Reload the page.",
        )
    return _of_command(*orders.undo(project, target))


def answer_there(project: Project, form: Form) -> Order:
    """Answer a worker on another node, but only the question that the browser showed."""
    name = _text(form, "worker")
    return Order(name, *orders.answer(project, name, _text(form), _text(form, "asked")))


OF_FLEET: dict[str, Callable[[Project, Form], Order]] = {
    "add": add,
    "answer": answer_there,
    "start": start_any,
    "undo": undo,
}


def answer_goal(project: Project, form: Form) -> Order:
    """Answer a question of a goal."""
    question, text, goal_id = _text(form, "question"), _text(form), form.get("goal", "")

    def act() -> str:
        done = goal_orders.answer(project, question, text, goal_id)
        return _settled(project, f"answered {done.id}", "an answer from the web page")

    words = ("answer", question, text, *(("--goal", goal_id) if goal_id else ()))
    return _simple(f"{goal_id} {question}".strip(), words, act)


def plan_goal(project: Project, form: Form) -> Order:
    """Plan a goal that has no plan."""
    goal_id = _text(form, "goal")

    def act() -> str:
        goal_orders.plan(project, goal_id, None)
        return _settled(project, f"planned {goal_id}", "a plan from the web page")

    return _simple(goal_id, ("goal", "plan", goal_id), act)


def replan_goal(project: Project, form: Form) -> Order:
    goal_id, why = _text(form, "goal"), form.get("text", "").strip()

    def act() -> str:
        _, revision = goal_orders.replan(project, goal_id, why, None)
        return _settled(project, "; ".join(goal_views.revision_lines(revision)), "replan")

    words = ("goal", "plan", goal_id, "--replan", *(("--why", why) if why else ()))
    return _simple(goal_id, words, act)


def _settled(project: Project, done: str, reason: str) -> str:
    """What was done, and what is left to do."""
    left = goal_orders.settle(project, reason)
    return f"{done}; {left}" if left else done


OF_GOALS: dict[str, Callable[[Project, Form], Order]] = {
    "answer": answer_goal,
    "plan": plan_goal,
    "replan": replan_goal,
}


def add_task(project: Project, form: Form) -> Order:
    subject = _text(form)
    words = ("tasks", "add", subject)
    return _simple(
        command_line(*words), words, lambda: f"added task {tasks.add(project, subject, None, {}).id}"
    )


def approve_task(project: Project, form: Form) -> Order:
    task_id = _text(form, "task")
    words = ("tasks", "approve", task_id)
    return _simple(f"task {task_id}", words, lambda: f"approved task {tasks.approve(project, task_id).id}")


def edit_task(project: Project, form: Form) -> Order:
    task_id, priority = _text(form, "task"), form.get("priority", "")
    if priority not in map(str, tasks.PRIORITIES):
        raise UsageError(
            f"{priority[:20]!r} is not a priority",
            hint=f"Choose a priority from {tasks.PRIORITIES.start} (highest) to {tasks.PRIORITIES.stop - 1}.",
        )
    words = ("tasks", "edit", task_id, "--priority", priority)
    return _simple(
        f"task {task_id}",
        words,
        lambda: f"task {tasks.prioritise(project, task_id, int(priority)).id} has priority {priority}",
    )


def requeue_task(project: Project, form: Form) -> Order:
    task_id = _text(form, "task")
    words = ("tasks", "requeue", task_id)
    return _simple(
        f"task {task_id}", words, lambda: f"task {tasks.requeue(project, task_id).id} is pending again"
    )


def _simple(about: str, words: Sequence[str], act: Callable[[], str]) -> Order:
    command = command_line(*words)
    said = orders.guarded(command, lambda show: Said(command, act(), now_unix(), GOOD))
    return Order(about, command, said)


def _of_command(command: str, act: Act) -> Order:
    """An order that conflicts only with the same command."""
    return Order(command, command, act)


OF_TASKS: dict[str, Callable[[Project, Form], Order]] = {
    "add": add_task,
    "approve": approve_task,
    "edit": edit_task,
    "requeue": requeue_task,
}
