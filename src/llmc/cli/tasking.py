"""The task list: `llmc tasks`."""

from collections.abc import Callable, Collection
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from llmc.api import tasks as service
from llmc.api.roots import Project, open_project
from llmc.api.tasks import PRIORITIES, Overview, Task, TaskBoard
from llmc.base.errors import Exit, LlmcError, UsageError
from llmc.base.names import TaskId
from llmc.base.text import cells, padded, printable, wrap
from llmc.cli.app import refuse_agents
from llmc.cli.arguments import (
    Group,
    project_of,
)
from llmc.cli.output import (
    completion,
    is_terminal,
    json_option,
    note,
    paint,
    print_json,
    say,
    say_lines,
    screen_width,
)

#: why a task waits: at most so many lines, and never narrower than this
WHY_LINES = 3
LEAST_WHY = 40
_COLORS = {"completed": "green", "in_progress": "cyan", "ready": "yellow"}


@click.group("tasks", cls=Group)
@click.pass_context
def tasks(ctx: click.Context) -> None:
    """The task list: Claude Code's own files, which agents and people share.

    \b
    Examples:
      llmc tasks add "Add the model" --label db --verify "make test"
      llmc tasks add --file api.md --after 1
      llmc tasks import plan/
      llmc tasks graph
      llmc tasks requeue 3
    """
    refuse_agents(ctx)


#: so many of the tasks that landed are listed
RECENT = 50

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(applies: Callable[[Project, TaskBoard], Collection[str]]) -> Complete:
    """Completes the tasks that the command applies to, without those named already."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            project = open_project((ctx.find_root().params or {}).get("root"))
            board = service.board(project)
            given = ctx.params.get(param.name or "") or ()
            ids = [i for i in applies(project, board) if i not in given and i.startswith(incomplete)]
        except (LlmcError, OSError):
            return []
        return [completion(i, help=board.found.tasks[TaskId(i)].subject) for i in ids]

    return complete


def _in_state(*states: str) -> Complete:
    return _completion(
        lambda project, board: [i for i, state in board.found.states.items() if state in states]
    )


complete_task = _completion(lambda project, board: board.found.tasks)


@tasks.command("list")
@click.option(
    "--state", "-s", help="Only these, with commas between: ready, waits, in_progress, completed, ..."
)
@click.option("--all", "-a", "every", is_flag=True, help=f"Also what landed before the last {RECENT}.")
@json_option
@click.pass_context
def list_(ctx: click.Context, state: str | None, every: bool, as_json: bool) -> int:
    """List the tasks: number, state, priority, label, subject. Exit code 1 when the list has a problem."""
    board = service.board(project_of(ctx), recent=None if every else RECENT)
    found = board.found
    wanted = set(state.split(",")) if state else None
    rows = [task for task in found.tasks.values() if wanted is None or found.states[task.id] in wanted]
    if as_json:
        views = [board.view(task) for task in rows]
        print_json({"tasks": views, "earlier": found.earlier, "problems": found.problems})
        return _code(found)
    width = max((len(task.id) for task in rows), default=1)
    about = {task.id: [f"p{task.priority}", *_marks(task)] for task in rows}
    columns = [max(map(cells, column)) for column in zip_longest(*about.values(), fillvalue="")]
    for task in rows:
        word = _painted(f"{found.states[task.id]:<11}", found.states[task.id])
        marks = " ".join(
            padded(text, room) for text, room in zip(about[task.id], columns, strict=True) if room
        )
        why = board.why(task)
        say(f"{task.id:>{width}}  {word} {marks}  {printable(task.subject)}")
        if why and found.states[task.id] not in ("completed", "in_progress"):
            indent = width + 2 + 11 + 1
            room = max(LEAST_WHY, screen_width() - indent)
            for line in wrap(printable(why), room, WHY_LINES) if is_terminal() else [why]:
                say(" " * indent + line)
    if not rows:
        say("no tasks" if not found.tasks else f"no task is {state}")
    if found.earlier:
        say(f"{found.earlier} more landed earlier: llmc tasks list --all")
    return _say_problems(found)


def _marks(task: Task) -> list[str]:
    """Label and owner, in columns of their own."""
    return [printable(f"[{task.label}]" if task.label else ""), printable(task.owner)]


@tasks.command("add")
@click.argument("subject", required=False)
@click.option("--description", "-d", help="What exactly is to be done.")
@click.option("--file", "-f", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Markdown.")
@click.option(
    "--priority", "-p", type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1), help="0 is first."
)
@click.option("--label", "-l", help="Tasks of one label are not worked on at the same time, if possible.")
@click.option("--after", "-a", multiple=True, shell_complete=complete_task, help="It waits for this task.")
@click.option("--before", "-b", multiple=True, shell_complete=complete_task, help="This task waits for it.")
@click.option("--verify", help="Command that has to succeed on the rebased commit.")
@click.option("--model", help="Claude model for this task.")
@json_option
@click.pass_context
def add(ctx: click.Context, /, subject: str | None, file: Path | None, as_json: bool, **given: Any) -> None:
    """Add a task, from options or from a Markdown file.

    \b
    Such a file; the part between the lines is optional, and options win:
      ---
      priority: 1
      label: db
      after: 3, 5
      verify: make test
      ---
      # Add the model
      What exactly is to be done ...
    """
    if file and subject:
        raise UsageError("both a subject and a file were given", hint="Give one of them.")
    if not file and not subject:
        raise UsageError("the task has no subject", hint='llmc tasks add "What to do", or --file task.md')
    task = service.add(project_of(ctx), subject or "", file, given)
    print_json({"id": task.id, "subject": task.subject}) if as_json else say(
        f"added {task.id}: {task.subject}"
    )


@tasks.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@json_option
@click.pass_context
def import_(ctx: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Add the tasks of Markdown files and directories; `after: NAME` may name another of the files.

    All of them are added, or none.
    """
    made = service.import_files(project_of(ctx), paths)
    if as_json:
        print_json([{"id": task.id, "subject": task.subject} for task in made])
        return
    for task in made:
        say(f"added {task.id}: {task.subject}")


@tasks.command("show")
@click.argument("task_id", metavar="ID", shell_complete=complete_task)
@json_option
@click.pass_context
def show(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Show one task."""
    project = project_of(ctx)
    board = service.board(project)
    found, task = board.found, service.get(project, board, task_id)
    if as_json:
        print_json(board.view(task))
        return
    say(f"{task.id} {_painted(found.states[task.id], found.states[task.id])}  {task.subject}")
    facts = {
        "owner": task.owner,
        "priority": str(task.priority),
        "label": task.label,
        "after": ", ".join(sorted(found.edges.get(task.id, ()))),
        "verify": task.verify,
        "made by": board.made_by(task),
        board.hold(task) or found.states[task.id]: board.why(task),
    }
    for name, value in facts.items():
        if value:
            say(f"  {name}: {value}")
    for number, failure in enumerate(board.attempts(task), 1):
        say(f"  attempt {number}: {failure['cause']}: {failure['reason']}")
    if task.description:
        say("")
        say_lines(task.description)


@tasks.command("graph")
@click.option("--mermaid", is_flag=True, help="A diagram for a Markdown page.")
@json_option
@click.pass_context
def graph(ctx: click.Context, mermaid: bool, as_json: bool) -> int:
    """Draw which task waits for which."""
    board = service.board(project_of(ctx))
    found = board.found
    if as_json:
        print_json(
            {"needs": {i: sorted(found.edges.get(i, ())) for i in found.tasks}, "problems": found.problems}
        )
        return _code(found)
    for line in service.drawn(board, mermaid=mermaid):
        say(line)
    return _say_problems(found)


@tasks.command("release")
@click.argument(
    "task_ids", metavar="ID...", nargs=-1, required=True, shell_complete=_completion(service.releasable)
)
@json_option
@click.pass_context
def release(ctx: click.Context, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Release abandoned tasks: claimed, but no worker works on them.

    \b
    Example:
      llmc tasks release 3 5

    For a task that an agent, a person or another root took and left. One that a worker of this root is at is
    released by `llmc reset WORKER`.
    """
    return _each(ctx, task_ids, as_json, service.release, "released")


@tasks.command("requeue")
@click.argument(
    "task_ids",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=_in_state("question", "quarantined", "parked", "completed"),
)
@json_option
@click.pass_context
def requeue(ctx: click.Context, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Requeue failed, parked or completed tasks.

    \b
    Example:
      llmc tasks requeue 3

    Their failed attempts are forgotten.
    """
    return _each(ctx, task_ids, as_json, service.requeue, "requeued")


@tasks.command("done")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_task)
@json_option
@click.pass_context
def done(ctx: click.Context, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Mark tasks as completed without doing them. What waits for them can begin.

    \b
    Examples:
      llmc tasks done 3
    """
    return _each(ctx, task_ids, as_json, service.done, "done")


@tasks.command("approve")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, shell_complete=_in_state("proposed"))
@json_option
@click.pass_context
def approve(ctx: click.Context, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Approve tasks that workers proposed.

    \b
    Example:
      llmc tasks list --state proposed
      llmc tasks approve 7 8
    """
    return _each(ctx, task_ids, as_json, service.approve, "approved")


def _each(
    ctx: click.Context,
    task_ids: tuple[str, ...],
    as_json: bool,
    act: Callable[[Project, str], Task],
    done: str,
) -> int:
    """Each task for itself; what cannot be done with one is said, and the others go on."""
    project = project_of(ctx)
    rows: list[dict[str, Any]] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            task = act(project, task_id)
        except LlmcError as error:
            if len(set(task_ids)) == 1:
                raise
            rows.append({"id": task_id, "outcome": "failed", "error": error.message, "hint": error.hint})
            note(paint(f"{error.message}. ", "red", err=True) + error.hint)
            continue
        rows.append({"id": task.id, "outcome": done, "subject": task.subject})
        if not as_json:
            say(f"{done} {task.id}: {task.subject}")
    if as_json:
        print_json({"tasks": rows})
    return Exit.FAILED if any("error" in row for row in rows) else Exit.DONE


def _painted(text: str, state: str) -> str:
    return paint(text, _COLORS.get(state, "bright_black" if state == "waits" else "red"))


def _say_problems(found: Overview) -> int:
    for problem in found.problems:
        note(f"problem: {problem}")
    return _code(found)


def _code(found: Overview) -> int:
    return Exit.FAILED if found.problems else Exit.DONE
