"""llmc logs"""

import codecs
import time
from collections import deque
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from llmc.cli.output import completion, say_lines
from llmc.cli.workers import complete_worker
from llmc.config.paths import Root
from llmc.errors import NotFound
from llmc.fit import uncoloured
from llmc.log_reader import LogReader, archives
from llmc.services.project import locate_root
from llmc.state.store import Store

POLL_S = 0.2

DAEMON = "daemon"
#: logs that are no worker's: the name to ask for, and the file
OTHERS = {
    DAEMON: "daemon.jsonl",
    "overseer": "overseer.log",
    "auto": "auto.log",
    "task_pool": "task_pool.log",
    "post_accept": "post_accept.log",
    "goals": "goals.log",
}


def complete_log(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    others = [completion(name) for name in OTHERS if name.startswith(incomplete)]
    return complete_worker(ctx, param, incomplete) + others


@click.command("logs")
@click.argument("name", default=DAEMON, shell_complete=complete_log)
@click.option(
    "--follow", "-F", is_flag=True, help="Go on printing as it grows; wait for it if it is not there."
)
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
    """Print a worker's log (prompts, statuses, setup, validation, the last words of a crash), or one of llmc's own.

    Those are daemon, overseer, auto, task_pool, post_accept and goals. Rotated files are read as if they were one.

    \b
    Examples:
      llmc logs adam
      llmc logs daemon --follow
      llmc logs auto --lines 200
    """
    path = _path(locate_root(ctx.find_root().obj["root"]), name)
    if not follow and not path.exists() and not archives(str(path)):
        raise NotFound(
            f"{path} is not there yet",
            hint=f"It is written when there is something to say; `llmc logs {name} --follow` waits for it.",
        )
    log = LogReader(str(path), after=_before_the_last(path, lines))
    # What is read may end in the middle of a character.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    _print(decoder.decode(_last_lines(log, lines), final=not follow))
    while follow:
        time.sleep(POLL_S)
        _print(decoder.decode(log.read()))


def _path(root: Root, name: str) -> Path:
    if name in OTHERS:
        return root.logs / OTHERS[name]
    return root.log(Store(root).worker(name).name)


def _before_the_last(path: Path, lines: int) -> int:
    """The number of the newest rotated file that is not needed for so many lines."""
    found = _count(str(path))
    for number, archive in reversed(archives(str(path))):
        if found >= lines:
            return number
        found += _count(archive)
    return 0


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0


def _last_lines(log: LogReader, lines: int) -> bytes:
    """The end of what is there; a line that is not complete yet counts, too."""
    kept: deque[bytes] = deque(maxlen=lines)
    rest = b""
    for chunk in log.chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if rest:
        kept.append(rest)
    return b"".join(kept)


def _print(text: str) -> None:
    if text:
        say_lines(uncoloured(text), nl=False)
