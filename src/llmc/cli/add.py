"""llmc add"""

import click

from llmc.cli.output import json_option, note, print_json, say
from llmc.cli.workers import project_of
from llmc.config.model import Worker
from llmc.repo.setup import add_worker


@click.command("add")
@click.argument("name")
@click.option("--model", help="The model of this worker (default: [defaults].model).")
@click.option("--role-prompt", default="", help="Text put before each of its tasks.")
@click.option("--excluded-from-pool", is_flag=True, help="Never chosen by `llmc start` on its own.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    model: str | None,
    role_prompt: str,
    excluded_from_pool: bool,
    as_json: bool,
) -> None:
    """Add a worker: a worktree on its own branch. A running daemon starts its agent at once.

    \b
    Example:
      llmc add adam --model sonnet
    """
    project = project_of(ctx)
    worker = Worker(model=model, role_prompt=role_prompt, excluded_from_pool=excluded_from_pool)
    record = add_worker(project, name, worker, warn=lambda problem: note(f"{name}: {problem}"))
    project.wake()
    if as_json:
        print_json({"worker": name, "worktree": record.worktree_path, "branch": record.branch})
        return
    say(f"added {name}: {record.worktree_path} on {record.branch}")
    if not project.daemon_runs():
        say("next: llmc up --detach")
