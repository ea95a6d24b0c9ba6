"""What commands share: arguments with completion, a text to send, points in time, groups, and asking before something is done."""

import math
import os
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from llmc.api import roots
from llmc.api.roots import Project, Root
from llmc.base.errors import NotFound, UsageError
from llmc.cli.output import ask, completion, note, paint, print_json, say
from llmc.config.durations import parse_duration

if TYPE_CHECKING:
    from llmc.api.workers import Receipt


#: where a command has the file with what a person wrote
_DRAFT = "llmc.draft"


def project_of(ctx: click.Context) -> Project:
    """The root that the command is about, with its configuration."""
    return roots.open_project(ctx.find_root().obj["root"])


def root_of(ctx: click.Context) -> Root:
    """The same, also where its configuration cannot be read."""
    return roots.locate_root(ctx.find_root().obj["root"])


def complete_worker(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = roots.statuses((ctx.find_root().params or {}).get("root"))
    return [completion(name, help=status) for name, status in names.items() if name.startswith(incomplete)]


worker_argument = click.argument("worker", shell_complete=complete_worker)


def text_to_send(text: str | None, file: str | None, what: str) -> str:
    """The text given, or a file's, or what a person writes in an editor now."""
    if text is not None and file is not None:
        raise UsageError(f"both a {what} and a file were given", hint="Give one of them.")
    if text is not None:
        return text
    if file is not None:
        return _read(file)
    if not sys.stdin.isatty() and not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise UsageError(
            f"no {what} was given, and there is no terminal for an editor", hint="Give it as text or a file."
        )
    written = click.edit(
        f"\n# Write the {what} above; lines that start with # are left out.\n", extension=".md"
    )
    lines = [line for line in (written or "").splitlines() if not line.startswith("#")]
    if not "".join(lines).strip():
        raise UsageError(
            f"no {what} was written, nothing was sent", hint="Give it on the command line, or save it."
        )
    text = "\n".join(lines).strip()
    _keep_draft(text, what)
    return text


def _keep_draft(text: str, what: str) -> None:
    """What a person wrote in an editor is in a file until it has arrived."""
    from tempfile import mkstemp  # few commands open an editor

    fd, path = mkstemp(prefix=f"llmc-{what}-", suffix=".md")
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    context = click.get_current_context()
    context.meta[_DRAFT] = path
    context.call_on_close(lambda: note(f"what you wrote is in {path}") if os.path.exists(path) else None)


def _drop_draft() -> None:
    context = click.get_current_context(silent=True)
    if context is not None and (path := context.meta.get(_DRAFT)):
        Path(path).unlink(missing_ok=True)


def show_receipt(receipt: "Receipt", as_json: bool) -> int:
    """The exit code tells the outcome too: arrived 0, unconfirmed 1, refused 3."""
    code = {"acknowledged": 0, "queued": 0, "unconfirmed": 1}.get(receipt.outcome, 3)
    if code == 0:
        _drop_draft()
    if as_json:
        print_json(
            {
                "worker": receipt.worker,
                "outcome": receipt.outcome,
                "prompt_id": receipt.prompt_id,
                "elapsed_ms": receipt.elapsed_ms,
                "reason": receipt.reason,
            }
        )
        return code
    line = f"{receipt.worker}: {receipt.outcome} ({receipt.prompt_id}, {receipt.elapsed_ms} ms)"
    if code == 0:
        say(paint(line, "green"))
    else:
        note(paint(line, "red", err=True) + (f": {receipt.reason}" if receipt.reason else ""))
    return code


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode()
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}", hint="Check its path; - is standard input.") from error
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", hint="Name a text file.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8 text", hint="Convert it, or send a path for the agent to read."
        ) from error


def confirm(question: str, what: str, yes: bool) -> None:
    """Go on only after a yes; without a terminal, `--yes` has to say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}; this is not a terminal", hint="Pass --yes.")
    ask(question, abort=True)


def parse_end(text: str, now: float) -> float:
    """A time to come: `07:30` (today or tomorrow), ISO 8601, or a duration from now such as `8h`; unix seconds."""
    here = datetime.fromtimestamp(now)
    if found := re.fullmatch(r"(\d{1,2}):(\d{2})", text):
        hour, minute = int(found[1]), int(found[2])
        if hour > 23 or minute > 59:
            raise _no_time(text)
        at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now + parse_duration(text)
        except ValueError:
            raise _no_time(text) from None
    if at.timestamp() <= now:
        raise UsageError(f"--until: {text} is over already")
    return at.timestamp()


def parse_since(text: str, now: float) -> float:
    """A time gone by: unix seconds, ISO 8601, or how long ago: `12h`, `1d`, `30m`."""
    for reading in (
        float,
        lambda t: datetime.fromisoformat(t).timestamp(),
        lambda t: now - parse_duration(t),
    ):
        try:
            seconds = reading(text)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(seconds):
            return seconds
    raise UsageError(
        f"--since: {text!r} is no time", hint="Unix seconds, like 2026-01-31T08:00, or how long ago: 12h."
    )


def _no_time(text: str) -> UsageError:
    return UsageError(
        f"--until: {text!r} is no time", hint="Write 07:30, 2026-11-16T07:30, or a duration such as 8h."
    )


#: longer than any sentence: click would cut it at 45 characters, and end it with dots
_WHOLE = 1000


class Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, found.get_short_help_str(_WHOLE))
            for name, found in commands.items()
            if found is not None and not found.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
