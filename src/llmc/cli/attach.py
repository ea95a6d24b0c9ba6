"""llmc attach"""

import os

import click

from llmc.cli.output import note
from llmc.cli.workers import project_of, worker_argument
from llmc.errors import LlmcError, Refused
from llmc.tools.tmux import Unknown, exact


@click.command("attach")
@worker_argument
@click.option("--read-only", "-r", is_flag=True, help="Look only: keys are ignored.")
@click.pass_context
def command(ctx: click.Context, worker: str, read_only: bool) -> None:
    """Open a worker's terminal. While you are attached llmc types, accepts and resets nothing there.

    \b
    Example:
      llmc attach adam        # leave it with C-b d; the agent goes on
    """
    project = project_of(ctx)
    session = project.store.worker(worker).session_id
    pane = project.tmux.pane(session)
    if isinstance(pane, Unknown):
        raise LlmcError(f"tmux gave no answer: {pane.reason}")
    if pane is None:
        raise Refused(f"{worker} has no session", hint="Run `llmc up` to start it.")
    note(f"attaching to {worker}; detach with C-b d")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TMUX")}
    flags = ["-r"] if read_only else []
    argv = project.tmux.argv("attach-session", *flags, "-t", exact(session))
    os.execvpe(argv[0], argv, environment)
