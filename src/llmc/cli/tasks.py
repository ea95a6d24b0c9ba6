"""llmc tasks"""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from llmc.agents.task_files import TaskFiles
from llmc.cli.app import refuse_agents
from llmc.cli.output import json_option, note, paint, print_json
from llmc.cli.workers import project_of
from llmc.errors import Exit, LlmcError, UsageError
from llmc.services import task_list as service
from llmc.services.project import open_project
from llmc.tasks import draw
from llmc.tasks.draft import Draft
from llmc.tasks.model import PRIORITIES, Task

_COLORS = {"completed": "green", "in_progress": "cyan", "ready": "yellow"}


@click.group("tasks")
@click.pass_context
def command(ctx: click.Context) -> None:
    """The task list: Claude Code's own files, which agents and people share.

    \b
    Examples:
      llmc tasks add "Add the model" --label db --verify "make test"
      llmc tasks add --file api.md --after 1
      llmc tasks import plan/
      llmc tasks graph
    """
    refuse_agents(ctx)


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = service.open_list(open_project((ctx.find_root().params or {}).get("root"))).listing().tasks
    except (LlmcError, OSError):
        return []
    return [CompletionItem(i, help=task.subject) for i, task in found.items() if i.startswith(incomplete)]


@command.command("list")
@click.option(
    "--state", "-s", help="Only these, with commas between: ready, waits, in_progress, completed, ..."
)
@json_option
@click.pass_context
def list_(ctx: click.Context, state: str | None, as_json: bool) -> int:
    """List the tasks: number, state, priority, label, subject. Exit code 1 when the list has a problem."""
    found = service.overview(_files(ctx))
    wanted = set(state.split(",")) if state else None
    rows = [task for task in found.tasks.values() if wanted is None or found.states[task.id] in wanted]
    if as_json:
        views = [_view(task, found) for task in rows]
        print_json({"tasks": views, "problems": found.problems})
        return _code(found)
    width = max((len(task.id) for task in rows), default=1)
    for task in rows:
        label = f" [{task.label}]" if task.label else ""
        owner = f" {task.owner}" if task.owner else ""
        word = _painted(f"{found.states[task.id]:<11}", found.states[task.id])
        click.echo(f"{task.id:>{width}}  {word} p{task.priority}{label}{owner}  {task.subject}")
    if not rows:
        click.echo("no tasks" if not found.tasks else f"no task is {state}")
    return _say_problems(found)


@command.command("add")
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
    written = service.read_drafts([file])[0] if file else Draft(subject or "")
    task = service.add(_files(ctx), service.with_options(written, given))
    print_json({"id": task.id, "subject": task.subject}) if as_json else click.echo(
        f"added {task.id}: {task.subject}"
    )


@command.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@json_option
@click.pass_context
def import_(ctx: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Add the tasks of Markdown files and directories; `after: NAME` may name another of the files.

    All of them are added, or none.
    """
    made = service.import_all(_files(ctx), service.read_drafts(paths))
    if as_json:
        print_json([{"id": task.id, "subject": task.subject} for task in made])
        return
    for task in made:
        click.echo(f"added {task.id}: {task.subject}")


@command.command("show")
@click.argument("task_id", metavar="ID", shell_complete=complete_task)
@json_option
@click.pass_context
def show(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Show one task."""
    files = _files(ctx)
    task = files.get(task_id)
    found = service.overview(files)
    if as_json:
        print_json(_view(task, found))
        return
    click.echo(f"{task.id} {_painted(found.states[task.id], found.states[task.id])}  {task.subject}")
    facts = {
        "owner": task.owner,
        "priority": str(task.priority),
        "label": task.label,
        "after": ", ".join(sorted(found.edges.get(task.id, ()))),
        "verify": task.verify,
    }
    for name, value in facts.items():
        if value:
            click.echo(f"  {name}: {value}")
    if task.description:
        click.echo("\n" + task.description)


@command.command("graph")
@click.option("--mermaid", is_flag=True, help="A diagram for a Markdown page.")
@json_option
@click.pass_context
def graph(ctx: click.Context, mermaid: bool, as_json: bool) -> int:
    """Draw which task waits for which."""
    found = service.overview(_files(ctx))
    tasks = list(found.tasks.values())
    if as_json:
        print_json(
            {"needs": {i: sorted(found.edges.get(i, ())) for i in found.tasks}, "problems": found.problems}
        )
        return _code(found)
    for line in (draw.mermaid if mermaid else draw.tree)(tasks, found.edges, found.states):
        click.echo(line)
    return _say_problems(found)


def _files(ctx: click.Context) -> TaskFiles:
    return service.open_list(project_of(ctx))


def _painted(text: str, state: str) -> str:
    return paint(text, _COLORS.get(state, "bright_black" if state == "waits" else "red"))


def _say_problems(found: service.Overview) -> int:
    for problem in found.problems:
        note(f"problem: {problem}")
    return _code(found)


def _code(found: service.Overview) -> int:
    return Exit.FAILED if found.problems else Exit.DONE


def _view(task: Task, found: service.Overview) -> dict[str, Any]:
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
        "metadata": dict(task.metadata),
    }
