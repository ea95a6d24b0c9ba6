"""llmc rebase"""

import click

from llmc.cli.output import json_option, paint, print_json, say
from llmc.cli.workers import project_of, worker_argument
from llmc.landing.rebase import rebase


@click.command("rebase")
@worker_argument
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Put a worker's commits onto the newest base, and validate them there.

    \b
    Example:
      llmc rebase adam

    Conflicts go to the worker: it is told about them, resolves them, and is needs_review again.
    """
    project = project_of(ctx)
    project.store.worker(worker)
    with project.worker_lock(worker):
        done = rebase(project, worker)
    if as_json:
        result = "clean" if done.moved else "up_to_date"
        print_json({"worker": worker, "result": result, "commit": done.head, "base": done.base})
        return
    branch = project.config.repo.default_branch
    if done.moved:
        say(paint(f"rebased {worker} onto {branch} {done.base[:12]}: {done.head[:12]}", "green"))
    else:
        say(f"{worker} is up to date with {branch}")
