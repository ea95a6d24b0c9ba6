"""llmc console"""

import os

import click

from llmc.cli.output import note
from llmc.cli.workers import project_of, worker_argument


@click.command("console")
@worker_argument
@click.pass_context
def command(ctx: click.Context, worker: str) -> None:
    """Open your own shell in a worker's worktree; leave it with `exit`. The agent is not touched.

    \b
    Example:
      llmc console adam
    """
    project = project_of(ctx)
    record = project.store.worker(worker)
    shell = os.environ.get("SHELL") or "/bin/sh"
    note(f"a shell in {record.worktree_path}; leave it with `exit`")
    os.chdir(record.worktree_path)
    # Not LLMC_WORKER: that marks an agent, and agents may call very little.
    os.execvpe(shell, [shell], {**os.environ, "LLMC_ROOT": str(project.root.path)})
