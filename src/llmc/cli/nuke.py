"""llmc nuke"""

from typing import Any

import click

from llmc.base.errors import Exit, LlmcError
from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.cli.workers import chosen_workers, complete_worker, project_of
from llmc.repo.project import Project
from llmc.repo.trash import short
from llmc.workers.nuke import nuke_worker


@click.command("nuke")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--all", "every", is_flag=True, help="Every worker.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str | None, every: bool, yes: bool, as_json: bool) -> int:
    """Remove a worker: its agent, worktree, branch and configuration. All it had goes into the trash.

    \b
    Example:
      llmc nuke adam --yes
    """
    project = project_of(ctx)
    names = chosen_workers(project, worker, every)
    if names:
        confirm(f"Remove {', '.join(names)}?", f"this removes {', '.join(names)}", yes)
    if worker:
        rows = [_nuke(project, worker)]
    else:
        rows = [_nuke_or_tell(project, name) for name in names]
    project.wake()
    if as_json:
        print_json({"workers": rows} if every else rows[0])
    else:
        for row in rows:
            _show(row)
    return Exit.FAILED if any(row["error"] for row in rows) else Exit.DONE


def _nuke(project: Project, name: str) -> dict[str, Any]:
    with project.worker_lock(name):
        done = nuke_worker(project, name)
    directory = str(done.directory) if done.directory else None
    return {"worker": name, "ref": done.ref, "directory": directory, "error": ""}


def _nuke_or_tell(project: Project, name: str) -> dict[str, Any]:
    try:
        return _nuke(project, name)
    except LlmcError as error:
        return {"worker": name, "ref": None, "directory": None, "error": error.message, "hint": error.hint}


def _show(row: dict[str, Any]) -> None:
    if row["error"]:
        note(paint(f"{row['worker']}: {row['error']}. {row['hint']}".rstrip(), "red", err=True))
        return
    say(f"removed {row['worker']}")
    if row["directory"]:
        say(f"  its files are in {row['directory']}")
    if row["ref"]:
        say(f"  its commits and changes: llmc trash restore {short(row['ref'])}")
