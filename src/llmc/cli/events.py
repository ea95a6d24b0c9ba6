"""llmc events"""

import time

import click

from llmc.cli import fast
from llmc.cli.output import json_option
from llmc.cli.times import parse_since
from llmc.cli.workers import complete_worker
from llmc.repo.project import locate_root


@click.command("events")
@click.option("--follow", "-F", is_flag=True, help="Go on printing as things happen.")
@click.option(
    "--since", metavar="T", default="0", help="From this time on: unix seconds, ISO 8601, or like 12h."
)
@click.option("--worker", "-w", shell_complete=complete_worker, help="Only of this worker.")
@json_option
@click.pass_context
def command(ctx: click.Context, follow: bool, since: str, worker: str | None, as_json: bool) -> int:
    """Print what happened, oldest first; with --json one object a line.

    \b
    Example:
      llmc events --follow --worker adam
    """
    root = locate_root(ctx.find_root().obj["root"])
    return fast.events(str(root.path), parse_since(since, time.time()), follow, as_json, worker)
