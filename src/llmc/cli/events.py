"""llmc events"""

from datetime import datetime

import click

from llmc.cli import fast
from llmc.cli.output import json_option
from llmc.cli.workers import complete_worker
from llmc.errors import UsageError
from llmc.services.project import locate_root


@click.command("events")
@click.option("--follow", "-F", is_flag=True, help="Go on printing as things happen.")
@click.option("--since", metavar="T", default="0", help="From this time on: unix seconds or ISO 8601.")
@click.option("--worker", "-w", shell_complete=complete_worker, help="Only of this worker.")
@json_option
@click.pass_context
def command(ctx: click.Context, follow: bool, since: str, worker: str | None, as_json: bool) -> int:
    """Print what happened, oldest first; with --json one object a line (docs/protocol.md).

    \b
    Example:
      llmc events --follow --worker adam
    """
    root = locate_root(ctx.find_root().obj["root"])
    return fast.events(str(root.path), _time(since), follow, as_json, worker)


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise UsageError(
            f"--since: {text!r} is no time", hint="Unix seconds, or like 2026-01-31T08:00."
        ) from error
