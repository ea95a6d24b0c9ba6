"""llmc logs"""

import codecs
import time
from collections import deque
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from llmc.base import given
from llmc.base.errors import NotFound, UsageError
from llmc.base.log_reader import LogReader, archives
from llmc.base.text import uncoloured
from llmc.cli.fast import in_a_line, time_of_day
from llmc.cli.output import completion, say_lines
from llmc.cli.workers import complete_worker
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo.project import locate_root

POLL_S = 0.2

#: what a line says without its name, or below it
_IN_THE_LINE = ("ts", "level", "logger", "message", "traceback")

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
@click.option("--json", "as_json", is_flag=True, help="The log of the daemon as it is written: JSON lines.")
@click.pass_context
def command(ctx: click.Context, name: str, follow: bool, lines: int, as_json: bool) -> None:
    """Print a worker's log (prompts, statuses, setup, validation, the last words of a crash), or one of llmc's own.

    Those are daemon, overseer, auto, task_pool, post_accept and goals. Rotated files are read as if they were one.

    \b
    Examples:
      llmc logs adam
      llmc logs daemon --follow
      llmc logs auto --lines 200
    """
    if as_json and name != DAEMON:
        raise UsageError(f"the log of {name} is text", hint=f"llmc logs {name}, or llmc logs {DAEMON} --json")
    path = _path(locate_root(ctx.find_root().obj["root"]), name)
    if not follow and not path.exists() and not archives(str(path)):
        raise NotFound(
            f"{path} is not there yet",
            hint=f"It is written when there is something to say; `llmc logs {name} --follow` waits for it.",
        )
    log = LogReader(str(path), after=_before_the_last(path, lines))
    # What is read may end in the middle of a character.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    shown = _Rows() if name == DAEMON and not as_json else _Text()
    _print(shown.of(decoder.decode(_last_lines(log, lines), final=not follow), last=not follow))
    while follow:
        time.sleep(POLL_S)
        _print(shown.of(decoder.decode(log.read())))


class _Text:
    """A log that is text: as it is."""

    def of(self, text: str, *, last: bool = False) -> str:
        return text


class _Rows(_Text):
    """A log of JSON lines, for people: a line is shown when all of it is there."""

    def __init__(self) -> None:
        self._rest = ""

    def of(self, text: str, *, last: bool = False) -> str:
        *whole, self._rest = (self._rest + text).split("\n")
        if last and self._rest:
            whole, self._rest = [*whole, self._rest], ""
        return "".join(f"{readable(line)}\n" for line in whole)


def readable(line: str) -> str:
    """A row of the daemon's log: time, level, message, then what else it knows; a traceback below it. Any other line as it is."""
    row = given.row(line.encode(errors="surrogateescape"))
    if row is None:
        return line
    when, level = time_of_day(row.get("ts"), "%Y-%m-%d %H:%M:%S"), str(row.get("level", ""))
    rest = [
        f"{key}={in_a_line(value)}"
        for key, value in row.items()
        if key not in _IN_THE_LINE and value not in (None, "")
    ]
    said = [f"{when} {level:<7} {in_a_line(str(row.get('message', '')))}", *rest]
    below = str(row.get("traceback") or "").splitlines()
    return "\n".join([" ".join(said).rstrip(), *(f"    {one}" for one in below)])


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
