"""llmc reset"""

import sys
from typing import Any

import click

from llmc.base.errors import Exit, LlmcError
from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.cli.workers import chosen_workers, complete_worker, project_of
from llmc.repo.project import Project
from llmc.repo.trash import short
from llmc.workers.reset import Reset, reset_worker


@click.command("reset")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--all", "every", is_flag=True, help="Every worker.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask (only --all asks, on a terminal).")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str | None, every: bool, yes: bool, as_json: bool) -> int:
    """Make a worker idle again, clean and on the newest base, whatever it does now.

    \b
    Example:
      llmc reset adam

    Its commits, changes and new files are kept: the command says how to get them back.
    """
    project = project_of(ctx)
    names = chosen_workers(project, worker, every)
    if every and sys.stdin.isatty():  # nothing is lost, so a script need not say --yes
        confirm(f"Reset {', '.join(names)}?", "this resets every worker", yes)
    if worker:
        return _show([_row(_reset(project, worker))], as_json, every)
    rows = []
    for name in names:
        try:
            rows.append(_row(_reset(project, name)))
        except LlmcError as error:
            rows.append({"worker": name, "error": error.message, "hint": error.hint})
    return _show(rows, as_json, every)


def _reset(project: Project, name: str) -> Reset:
    with project.worker_lock(name):
        return reset_worker(project, name)


def _row(done: Reset) -> dict[str, Any]:
    return {
        "worker": done.worker,
        "status": done.status,
        "base": done.base,
        "ref": done.pinned,
        "restarted": done.restarted,
        "error": done.problem,
    }


def _show(rows: list[dict[str, Any]], as_json: bool, every: bool) -> int:
    if as_json:
        print_json({"workers": rows} if every else rows[0])
    for row in [] if as_json else rows:
        if "status" in row:
            say(f"reset {row['worker']}: {row['status']} at {row['base'][:12]}")
            if row["ref"]:
                say(f"  its work is kept; get it back with: llmc trash restore {short(row['ref'])}")
        if row["error"]:
            note(paint(f"{row['worker']}: {row['error']}. {row.get('hint', '')}".rstrip(), "red", err=True))
    return Exit.FAILED if any(row["error"] for row in rows) else Exit.DONE
