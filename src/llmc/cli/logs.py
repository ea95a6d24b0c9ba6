"""llmc logs"""

import sys
import time
from pathlib import Path

import click

from llmc.cli.workers import complete_worker
from llmc.config.paths import Root
from llmc.errors import NotFound
from llmc.services.project import locate_root
from llmc.state.store import Store

DAEMON = "daemon"


@click.command("logs")
@click.argument("name", default=DAEMON, shell_complete=complete_worker)
@click.option("--follow", "-F", is_flag=True, help="Go on printing as it grows.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="How many lines to begin with.",
)
@click.pass_context
def command(ctx: click.Context, name: str, follow: bool, lines: int) -> None:
    """Print a worker's log (setup, validation, the last words of a crash), or the daemon's own.

    \b
    Examples:
      llmc logs adam
      llmc logs daemon --follow
    """
    path = _path(locate_root(ctx.find_root().obj["root"]), name)
    offset = _print_tail(path, lines)
    while follow:
        time.sleep(0.2)
        offset = _print_from(path, offset)


def _path(root: Root, name: str) -> Path:
    if name == DAEMON:
        return root.logs / "daemon.jsonl"
    record = Store(root).worker(name)
    return root.log(record.name)


def _print_tail(path: Path, lines: int) -> int:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"{path} is not there yet", hint="It is written when there is something to say."
        ) from error
    shown = b"".join(data.splitlines(keepends=True)[-lines:]) if lines else b""
    sys.stdout.buffer.write(shown)
    sys.stdout.buffer.flush()
    return len(data)


def _print_from(path: Path, offset: int) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return offset + len(data)
