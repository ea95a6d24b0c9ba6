"""What a browser may order: each verb of a worker, of a question, a task, a goal or a review, as an order of `api/`."""

from collections.abc import Callable, Mapping

from llmc.api import acceptance, goal_orders, orders, tasks, workers
from llmc.api.roots import Project
from llmc.api.said import GOOD, Act, Said, command_line
from llmc.base.clock import now_unix
from llmc.base.errors import Refused, UsageError

Form = Mapping[str, str]
#: the command line for people, and what does it
Order = tuple[str, Act]


def _text(form: Form, what: str = "text") -> str:
    text = form.get(what, "")
    if not text.strip():
        raise UsageError(f"{what} is empty", hint="Type something first.")
    return text


def accept(project: Project, worker: str, form: Form) -> Order:
    """Only the change that the user was asked about."""
    return orders.accept(project, worker, _text(form, "commit"), only_seen=True)


def reject(project: Project, worker: str, form: Form) -> Order:
    return orders.request(project, worker, form.get("text", "").strip())


def message(project: Project, worker: str, form: Form) -> Order:
    return orders.message(project, worker, _text(form))


def answer(project: Project, worker: str, form: Form) -> Order:
    """Only the question that the browser showed."""
    if form.get("asked") and form["asked"] != workers.question(project, worker).key:
        raise Refused(f"{worker} asks another question now", hint="Read it, then answer again.")
    return orders.answer(project, worker, _text(form))


def hold(project: Project, worker: str, form: Form) -> Order:
    return orders.hold(project, worker)


def start(project: Project, worker: str, form: Form) -> Order:
    return orders.start(project, worker, _text(form))


OF_WORKER: dict[str, Callable[[Project, str, Form], Order]] = {
    "accept": accept,
    "answer": answer,
    "hold": hold,
    "message": message,
    "reject": reject,
    "start": start,
}


def start_any(project: Project, form: Form) -> Order:
    return orders.start(project, None, _text(form))


def add(project: Project, form: Form) -> Order:
    return orders.add(project, _text(form, "name").strip())


def undo(project: Project, form: Form) -> Order:
    """Only the change that the user was asked about."""
    target = acceptance.undo_target(project)
    if form.get("commit", "") != target.commit:
        raise UsageError(
            f"the last change is {target.commit[:9]} now, not {form.get('commit', '')[:9]}",
            hint="Look again.",
        )
    return orders.undo(project, target)


OF_FLEET: dict[str, Callable[[Project, Form], Order]] = {"add": add, "start": start_any, "undo": undo}


def goal(project: Project, form: Form) -> Order:
    """Answer a question of a goal."""
    question, text = _text(form, "question"), _text(form)
    command = command_line("answer", question, text)

    def act() -> str:
        done = goal_orders.answer(project, question, text, form.get("goal", ""))
        goal_orders.settle(project, "an answer from the web page")
        return f"answered {done.id}"

    return command, _simple(command, act)


def add_task(project: Project, form: Form) -> Order:
    subject = _text(form)
    command = command_line("tasks", "add", subject)
    return command, _simple(command, lambda: f"added task {tasks.add(project, subject, None, {}).id}")


def approve_task(project: Project, form: Form) -> Order:
    task_id = _text(form, "task")
    command = command_line("tasks", "approve", task_id)
    return command, _simple(command, lambda: f"approved task {tasks.approve(project, task_id).id}")


def requeue_task(project: Project, form: Form) -> Order:
    task_id = _text(form, "task")
    command = command_line("tasks", "requeue", task_id)
    return command, _simple(command, lambda: f"task {tasks.requeue(project, task_id).id} is open again")


def _simple(command: str, act: Callable[[], str]) -> Act:
    return orders.guarded(command, lambda show: Said(command, act(), now_unix(), GOOD))


OF_TASKS: dict[str, Callable[[Project, Form], Order]] = {
    "add": add_task,
    "approve": approve_task,
    "requeue": requeue_task,
}
