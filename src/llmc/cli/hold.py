"""llmc hold"""

import click

from llmc.cli.output import json_option, print_json, say
from llmc.cli.workers import project_of, worker_argument
from llmc.repo.project import Project


def set_held(project: Project, worker: str, held: bool) -> bool:
    """Whether it changed."""
    with project.store.transaction() as tx:
        if tx.worker(worker).held == held:
            return False
        tx.update(worker, held=held, held_since_unix=tx.now if held else 0.0)
        tx.emit("held" if held else "released", worker=worker)
    project.wake(worker)
    return True


@click.command("hold")
@worker_argument
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Keep llmc's hands off a worker: it types, accepts and resets nothing there until `llmc release`.

    \b
    Example:
      llmc hold adam
    """
    set_held(project_of(ctx), worker, True)
    if as_json:
        print_json({"worker": worker, "held": True})
    else:
        say(f"{worker} is held; `llmc release {worker}` gives it back")
