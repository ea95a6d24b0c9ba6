"""llmc attach"""

import os

import click

from llmc.cli.output import note
from llmc.cli.workers import pane_of, project_of, worker_argument
from llmc.tools.tmux import exact


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
    pane = pane_of(project, worker)
    note(f"attaching to {worker}; detach with C-b d")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TMUX")}
    flags = ["-r"] if read_only else []
    # The agent comes to the front, but not under the eyes of another person who looks at something else there.
    front = (
        []
        if pane.attached
        else ["select-window", "-t", pane.id, ";", "select-pane", "-Z", "-t", pane.id, ";"]
    )
    argv = project.tmux.argv(*front, "attach-session", *flags, "-t", exact(pane.session))
    os.execvpe(argv[0], argv, environment)
