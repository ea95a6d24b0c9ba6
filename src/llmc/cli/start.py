"""llmc start"""

from contextlib import ExitStack

import click

from llmc.base.errors import NotFound, UsageError
from llmc.cli.output import json_option, note
from llmc.cli.workers import complete_worker, project_of, show_receipt, text_to_send
from llmc.config.model import Worker
from llmc.repo.project import Project
from llmc.repo.setup import add_worker, new_project
from llmc.sessions.rules.prompt_text import normalise
from llmc.workers.catch_up import catch_up
from llmc.workers.fleet import bring_up
from llmc.workers.start import idle_worker, refuse_auto, start_task


@click.command("start")
@click.option("--prompt", "-p", metavar="TEXT", help="The task. Without it and --prompt-file, $EDITOR opens.")
@click.option("--prompt-file", "-f", metavar="FILE", help="A file with the task; - is standard input.")
@click.option(
    "--worker", "-w", shell_complete=complete_worker, help="Which worker (default: the first idle one)."
)
@click.option(
    "--self-review/--no-self-review",
    default=None,
    help="Let the agent read its own work once more before you do (default: as configured).",
)
@click.option("--new", is_flag=True, help="Add a worker when none is idle.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    prompt: str | None,
    prompt_file: str | None,
    worker: str | None,
    self_review: bool | None,
    new: bool,
    as_json: bool,
) -> int:
    """Give an idle worker a task: newest base, new conversation, prompt delivered and receipted.

    \b
    Examples:
      llmc start --prompt "Fix the flaky test in tests/test_io.py"
      llmc start --worker adam --prompt-file task.md --self-review

    The answer is acknowledged, queued, unconfirmed (exit 1) or refused (exit 3); never a bare OK.
    """
    project = project_of(ctx)
    text = text_to_send(prompt, prompt_file, "task")
    normalise(text)  # bad input is refused before a worker is picked
    if not project.daemon_runs():
        catch_up(str(project.root.path))
    if worker is not None:
        refuse_auto(project.store.worker(worker))
    with ExitStack() as held:
        if worker is None:
            name = _pick(project, held, new)
        else:
            name = project.store.worker(worker).name
            held.enter_context(project.worker_lock(name))
        receipt = start_task(project, name, text, self_review)
    return show_receipt(receipt, as_json)


def _pick(project: Project, held: ExitStack, new: bool) -> str:
    """An idle worker, with its lock in `held`."""
    try:
        return held.enter_context(idle_worker(project))
    except NotFound as error:
        if not new:
            raise NotFound(
                error.message, hint=f"{error.hint} Or let start do it: llmc start --new ..."
            ) from error
    name = _add_one(project)
    held.enter_context(project.worker_lock(name))
    return name


def _add_one(project: Project) -> str:
    names = set(project.store.read().workers)
    name = next((n for n in _NAMES if n not in names), None)
    if name is None:
        raise UsageError("all the usual names are in use", hint="Add a worker by hand: llmc add NAME")
    note(f"no worker is idle; adding {name}")
    add_worker(project, name, Worker())
    fresh = new_project(project.root)
    problem = bring_up(fresh, name)
    if problem:
        raise NotFound(f"{name} was added, but its agent did not start: {problem}")
    return name


_NAMES = [
    "adam",
    "baker",
    "charlie",
    "david",
    "edward",
    "frank",
    "george",
    "henry",
    "ida",
    "john",
    "king",
    "lincoln",
    "mary",
    "nora",
    "ocean",
    "peter",
]
