"""The task list: `llmc tasks`."""

from collections.abc import Callable, Collection
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from llmc.api import tasks as service
from llmc.api.roots import Project, open_project
from llmc.api.tasks import PRIORITIES, Overview, Taken, Task, TaskBoard
from llmc.base.errors import Exit, LlmcError, UsageError
from llmc.base.names import TaskId
from llmc.base.text import cells, counted, padded, printable, wrap
from llmc.cli.app import refuse_agents
from llmc.cli.arguments import Complete, Group, Row, complete_list, on_each, pass_project, project_of
from llmc.cli.output import (
    columns,
    completion,
    is_terminal,
    json_option,
    note,
    paint,
    plain,
    print_json,
    say,
    say_lines,
    say_or_json,
    warn,
)

#: the reason of a waiting task: maximum lines and minimum width
WHY_LINES = 3
LEAST_WHY = 40
_COLORS = {"completed": "green", "in_progress": "cyan", "ready": "yellow"}


@click.group("tasks", cls=Group)
@click.pass_context
def tasks(ctx: click.Context) -> None:
    """Manage the task list

    Tasks are stored in Claude Code's own task files, which you and the agents share.

    \b
    Examples:
      llmc tasks add "Add the model" --label db --verify "make test"
      llmc tasks add --file api.md --after 1
      llmc tasks import plan/
      llmc tasks graph
      llmc tasks requeue 3
    """
    refuse_agents(ctx)


#: how many completed tasks are listed
RECENT = 50

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _completion(applies: Callable[[Project, TaskBoard], Collection[str]]) -> Complete:
    """Complete the tasks that the command applies to, except those already given."""

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


def _states(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        board = service.board(open_project((ctx.find_root().params or {}).get("root")))
    except (LlmcError, OSError):
        return []
    return complete_list(set(board.found.states.values()))(ctx, param, incomplete)


complete_task = _completion(lambda project, board: board.found.tasks)


def _ids(complete: Complete) -> Callable[[_Command], _Command]:
    """The argument of commands that take several tasks."""
    return click.argument("task_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete)


@tasks.command("list")
@click.option(
    "--state",
    "-s",
    shell_complete=_states,
    help="Show only tasks in these states, such as ready,waits,in_progress",
)
@click.option(
    "--all", "-a", "every", is_flag=True, help=f"Show all completed tasks, not only the last {RECENT}"
)
@json_option
@pass_project
def list_(project: Project, state: str | None, every: bool, as_json: bool) -> int:
    """List tasks

    Shows ID, state, priority, label and subject. Exits with 1 if the task list has problems.
    """
    board = service.board(project, recent=None if every else RECENT)
    found = board.found
    wanted = set(state.split(",")) if state else None
    rows = [task for task in found.tasks.values() if wanted is None or found.states[task.id] in wanted]
    if as_json:
        views = [board.view(task) for task in rows]
        print_json({"tasks": views, "earlier": found.earlier, "problems": found.problems})
        return _code(found)
    width = max((len(task.id) for task in rows), default=1)
    about = {task.id: [f"p{task.priority}", *_marks(task)] for task in rows}
    widths = [max(map(cells, column)) for column in zip_longest(*about.values(), fillvalue="")]
    for task in rows:
        word = _painted(f"{found.states[task.id]:<11}", found.states[task.id])
        marks = " ".join(
            padded(text, room) for text, room in zip(about[task.id], widths, strict=True) if room
        )
        why = board.why(task)
        say(f"{task.id:>{width}}  {word} {marks}  {printable(task.subject)}")
        if why and found.states[task.id] not in ("completed", "in_progress"):
            indent = width + 2 + 11 + 1
            room = max(LEAST_WHY, columns() - indent)
            for line in wrap(printable(why), room, WHY_LINES) if is_terminal() else [why]:
                say(" " * indent + line)
    if not rows:
        say("no tasks" if not found.tasks else f"no tasks in state {state}")
    if found.earlier:
        say(f"{counted(found.earlier, 'older completed task')} not shown; to see all: llmc tasks list --all")
    return _say_problems(found)


def _marks(task: Task) -> list[str]:
    """The columns for label and owner."""
    return [printable(f"[{task.label}]" if task.label else ""), printable(task.owner)]


@tasks.command("add")
@click.argument("subject", required=False)
@click.option("--description", "-d", help="Description of the task")
@click.option(
    "--file",
    "-f",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the task from this Markdown file",
)
@click.option(
    "--priority",
    "-p",
    metavar="N",
    type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
    help="Priority of the task; 0 is highest",
)
@click.option("--label", "-l", help="Label; llmc avoids running tasks with the same label at the same time")
@click.option(
    "--after",
    "-a",
    multiple=True,
    shell_complete=complete_task,
    help="Task that must be completed first (repeatable)",
)
@click.option(
    "--before",
    "-b",
    multiple=True,
    shell_complete=complete_task,
    help="Task that must wait for this one (repeatable)",
)
@click.option("--verify", help="Command that must pass on the rebased commit before it lands")
@click.option("--model", help="Claude model for this task")
@json_option
@click.pass_context
def add(ctx: click.Context, /, subject: str | None, file: Path | None, as_json: bool, **given: Any) -> None:
    """Add a task from options or a Markdown file

    \b
    Task file format (options override the optional part between --- lines):
      ---
      priority: 1
      label: db
      after: 3, 5
      verify: make test
      ---
      # Add the model
      Description of the task ...
    """
    if file and subject:
        raise UsageError("SUBJECT and --file cannot be used together")
    if not file and not subject:
        raise UsageError(
            "a subject or --file is required",
            hint='Run: llmc tasks add "SUBJECT", or llmc tasks add --file task.md',
        )
    task = service.add(project_of(ctx), subject or "", file, given)
    say_or_json(f"added {task.id}: {task.subject}", plain(task, "id", "subject"), as_json)


@tasks.command("import")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from-files",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Import the open tasks from this directory of task files",
)
@click.option("--watch", is_flag=True, help="With --from-files, keep importing files as they appear")
@click.option("--again", is_flag=True, help="Import Markdown files that are in the list already")
@json_option
@pass_project
def import_(
    project: Project,
    paths: tuple[Path, ...],
    from_files: Path | None,
    watch: bool,
    again: bool,
    as_json: bool,
) -> int:
    """Import tasks from Markdown files or task files

    If a Markdown file is invalid, imports nothing. From a directory, imports all *.md files. `after: NAME`
    can refer to another imported file. Running the command again imports only files that are new or changed.

    \b
    Examples:
      llmc tasks import plan/
      llmc tasks import --from-files ~/.claude/tasks/my-project --watch
    """
    if bool(paths) == bool(from_files):
        raise UsageError("pass either Markdown files or --from-files", hint="Run: llmc tasks import plan/")
    if watch and not from_files:
        raise UsageError(
            "--watch requires --from-files", hint="Run: llmc tasks import --from-files DIR --watch"
        )
    if again and from_files:
        raise UsageError(
            "--again cannot be used with --from-files", hint="Run: llmc tasks import --again plan/"
        )
    if from_files and watch:
        for found in service.follow_files(project, from_files):
            _say_taken(found, as_json)
    elif from_files:
        return _say_taken(service.import_list(project, from_files), as_json)
    else:
        done = service.import_files(project, paths, again=again)
        _say_imported(done.added, as_json)
        if done.earlier and not as_json:
            for task in done.earlier:
                say(f"already imported as {task.id}: {task.subject}")
            say("to import them again, add --again")
    return Exit.DONE


def _say_taken(found: Taken, as_json: bool) -> int:
    _say_imported(found.added, as_json)
    for text in found.left_out:
        warn(f"not imported: {text}")
    return Exit.FAILED if found.left_out else Exit.DONE


def _say_imported(made: list[Task], as_json: bool) -> None:
    if as_json:
        print_json([plain(task, "id", "subject") for task in made])
        return
    for task in made:
        say(f"added {task.id}: {task.subject}")


@tasks.command("export")
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
@pass_project
def export(project: Project, directory: Path, as_json: bool) -> None:
    """Export all tasks to a new directory as task files

    To import them elsewhere, use `llmc tasks import --from-files`.

    \b
    Example:
      llmc tasks export backup/my-project
    """
    tasks = service.export(project, directory)
    body = {"directory": str(directory), "tasks": len(tasks)}
    say_or_json(f"exported {counted(len(tasks), 'task')} to {directory}", body, as_json)


@tasks.command("show")
@click.argument("task_id", metavar="ID", shell_complete=complete_task)
@json_option
@pass_project
def show(project: Project, task_id: str, as_json: bool) -> None:
    """Show a task"""
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
        "created by": board.made_by(task),
        "reason": board.why(task),
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
@click.option("--mermaid", is_flag=True, help="Print the graph as a Mermaid diagram")
@json_option
@pass_project
def graph(project: Project, mermaid: bool, as_json: bool) -> int:
    """Show task dependencies as a graph"""
    board = service.board(project)
    found = board.found
    if as_json:
        print_json(
            {"needs": {i: sorted(found.edges.get(i, ())) for i in found.tasks}, "problems": found.problems}
        )
        return _code(found)
    for line in service.drawn(board, mermaid=mermaid):
        say(line)
    if not found.tasks and not mermaid:
        say("no tasks")
    return _say_problems(found)


@tasks.command("release")
@_ids(_completion(service.releasable))
@json_option
@pass_project
def release(project: Project, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Release abandoned tasks so that they can start again

    A task is abandoned if it is in progress but no worker is working on it. To release a task that a worker in this root
    is working on, use `llmc reset WORKER`.

    \b
    Example:
      llmc tasks release 3 5
    """
    return _each(project, task_ids, as_json, service.release, "released")


@tasks.command("requeue")
@_ids(_in_state("question", "quarantined", "parked", "completed"))
@json_option
@pass_project
def requeue(project: Project, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Run failed, parked or completed tasks again

    Their earlier failed attempts no longer count toward quarantine.

    \b
    Example:
      llmc tasks requeue 3
    """
    return _each(project, task_ids, as_json, service.requeue, "requeued")


@tasks.command("done")
@_ids(complete_task)
@json_option
@pass_project
def done(project: Project, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Mark tasks as completed

    Tasks that depend on them can then start.

    \b
    Example:
      llmc tasks done 3
    """
    return _each(project, task_ids, as_json, service.done, "done")


@tasks.command("approve")
@_ids(_in_state("proposed"))
@json_option
@pass_project
def approve(project: Project, task_ids: tuple[str, ...], as_json: bool) -> int:
    """Approve tasks proposed by workers

    \b
    Example:
      llmc tasks list --state proposed
      llmc tasks approve 7 8
    """
    return _each(project, task_ids, as_json, service.approve, "approved")


@tasks.command("edit")
@_ids(_in_state("ready", "waits", "proposed", "in_progress", "parked", "quarantined"))
@click.option(
    "--priority",
    type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
    required=True,
    metavar="N",
    help="New priority; 0 is highest",
)
@json_option
@pass_project
def edit(project: Project, task_ids: tuple[str, ...], priority: int, as_json: bool) -> int:
    """Change the priority of tasks

    \b
    Example:
      llmc tasks edit 7 8 --priority 1
    """

    def act(project: Project, task_id: str) -> Task:
        return service.prioritise(project, task_id, priority)

    return _each(project, task_ids, as_json, act, "edited")


def _each(
    project: Project,
    task_ids: tuple[str, ...],
    as_json: bool,
    act: Callable[[Project, str], Task],
    done: str,
) -> int:
    """Act on each task. With several tasks, a failure does not stop the others."""
    ids = list(dict.fromkeys(task_ids))

    def act_on(task_id: str) -> Row:
        return {**plain(act(project, task_id), "id", "subject"), "outcome": done}

    rows = []
    for row in on_each(ids, act_on, lambda one: {"id": one, "outcome": "failed"}, alone=len(ids) == 1):
        rows.append(row)
        if "error" in row:
            note(paint(f"{row['error']}. ", "red", err=True) + row["hint"])
        elif not as_json:
            say(f"{done} {row['id']}: {row['subject']}")
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
