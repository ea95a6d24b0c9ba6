"""llmc attach"""

import os
from pathlib import Path

import click

from llmc.base.tmux import exact, outer, prefix_of
from llmc.cli.output import note
from llmc.cli.workers import pane_of, project_of, worker_argument


@click.command("attach")
@worker_argument
@click.option("--read-only", "-r", is_flag=True, help="Look only: keys are ignored.")
@click.pass_context
def command(ctx: click.Context, worker: str, read_only: bool) -> None:
    """Open a worker's terminal. While you are attached llmc types, accepts and resets nothing there.

    Inside a tmux of your own, it says which keys detach from the inner one.

    \b
    Example:
      llmc attach adam        # leave it with C-b d; the agent goes on
    """
    project = project_of(ctx)
    pane = pane_of(project, worker)
    around = outer(os.environ)
    is_ours = around is not None and Path(around).name == project.tmux.server
    # The agent comes to the front, but not under the eyes of another person who looks at something else there.
    front = (
        []
        if pane.attached
        else ["select-window", "-t", pane.id, ";", "select-pane", "-Z", "-t", pane.id, ";"]
    )
    inner = prefix_of(project.tmux.argv())
    if is_ours:
        note(f"switching to {worker}; {inner} L switches back")
        argv = project.tmux.argv(*front, "switch-client", *_flags(read_only), "-t", exact(pane.session))
        # TMUX says which client is to switch.
        os.execvpe(argv[0], argv, {k: v for k, v in os.environ.items() if k != "TMUX_TMPDIR"})
    keys = detach_keys(inner, None if around is None else prefix_of(["tmux", "-S", around]))
    note(f"attaching to {worker}; detach with {keys}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TMUX")}
    argv = project.tmux.argv(*front, "attach-session", *_flags(read_only), "-t", exact(pane.session))
    os.execvpe(argv[0], argv, environment)


def _flags(read_only: bool) -> list[str]:
    return ["-r"] if read_only else []


def detach_keys(inner: str, around: str | None) -> str:
    """The keys that leave the worker's terminal; `around` is the prefix of the tmux that it is shown in."""
    return f"{inner} {inner} d" if around == inner else f"{inner} d"
