"""Shared by commands: arguments with completion, texts to send, times, groups, and confirmation."""

import functools
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

from llmc.api import roots
from llmc.api.roots import Project, Root
from llmc.base import proc
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.cli.commands import READS
from llmc.cli.output import ask, completion, note, paint, plain, print_json, say
from llmc.config.durations import parse_duration

if TYPE_CHECKING:
    from llmc.api.workers import Receipt

_P = ParamSpec("_P")
_R = TypeVar("_R")
#: a row in the JSON output of a command
Row = dict[str, Any]

#: key in the click context: path of the file with the user's text
_DRAFT = "llmc.draft"


def project_of(ctx: click.Context) -> Project:
    """The root of the command, with its configuration."""
    return roots.open_project(ctx.find_root().obj["root"], teller(ctx))


def teller(ctx: click.Context) -> Callable[[str], None] | None:
    """The function that tells the user which root a command reads; None if it does more than read."""
    return note if ctx.command_path.removeprefix("llmc ") in READS else None


def pass_project(command: Callable[Concatenate[Project, _P], _R]) -> Callable[_P, _R]:
    """Open the root of the command, and pass it as the first argument."""

    @click.pass_context
    @functools.wraps(command)
    def opened(ctx: click.Context, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return command(project_of(ctx), *args, **kwargs)

    return opened


def root_of(ctx: click.Context) -> Root:
    """The root of the command, even if its configuration is invalid."""
    return roots.locate_root(ctx.find_root().obj["root"], teller(ctx))


class WorkerName(click.types.StringParamType):
    """The name of a worker, with completion; in a fleet also NODE/WORKER."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx is None or not _WITH_NODE.fullmatch(value):
            return value
        from llmc.api.fleet_nodes import own_worker  # few roots are in a fleet

        return own_worker(ctx.find_root().obj["root"], value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = roots.statuses((ctx.find_root().params or {}).get("root"))
        return [
            completion(name, help=status) for name, status in names.items() if name.startswith(incomplete)
        ]


class Number(click.FloatRange):
    """Refuses `nan` and `inf`, which are in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


_WITH_NODE = re.compile(r"[\w.-]+/[a-z][a-z0-9-]*")
WORKER = WorkerName()
worker_argument = click.argument("worker", type=WORKER)
optional_worker = click.argument("worker", required=False, type=WORKER)
since_option = click.option(
    "--since", metavar="T", default="0", help="Start time: Unix seconds, ISO 8601, or an age such as 12h"
)
output_option = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of standard output",
)
#: for the help of --yes: what `confirm` does without a terminal
REQUIRED, OPTIONAL = "(required without a terminal)", "(llmc asks only on a terminal)"
yes_option = click.option("--yes", "-y", is_flag=True, help=f"Do not ask for confirmation {REQUIRED}")


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_with(known: Callable[[Project], Mapping[str, str]]) -> Complete:
    """Complete names known in the root, each with its help; nothing if the root cannot be read."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = known(roots.open_project((ctx.find_root().params or {}).get("root")))
        except (LlmcError, OSError):
            return []
        return [completion(name, help=about) for name, about in found.items() if name.startswith(incomplete)]

    return complete


def complete_list(names: Iterable[str]) -> Complete:
    """Complete the last item of a comma-separated list."""
    known = sorted(names)

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [
            completion(f"{before}{comma}{name}")
            for name in known
            if name.startswith(last) and name not in given
        ]

    return complete


#: completed by the shell itself
complete_file = click.Path().shell_complete
message_file_option = click.option(
    "--file",
    "-f",
    "file",
    metavar="FILE",
    shell_complete=complete_file,
    help="Read the message from FILE (- for standard input)",
)
complete_directory = click.Path(file_okay=False).shell_complete


def on_each(
    names: Iterable[str], act: Callable[[str], Row], failed: Callable[[str], Row], *, alone: bool
) -> Iterator[Row]:
    """Act on each name and yield a row for each. A failure is a row too and stops nothing; `alone`: it is raised."""
    for name in names:
        try:
            yield act(name)
        except LlmcError as error:
            if alone:
                raise
            yield {**failed(name), "error": error.message, "hint": error.hint}


#: a line as in git's commit messages; lines with # above it are Markdown
_CUT = "# ------------------------ >8 ------------------------"


def text_to_send(text: str | None, file: str | None, what: str) -> str:
    """The given text, the contents of the file, or what the user writes in an editor."""
    if text is not None and file is not None:
        raise UsageError(f"pass the {what} as text or as a file, not both")
    if text is not None:
        return text
    if file is not None:
        return _read(file)
    if not sys.stdin.isatty() and not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise UsageError(
            f"cannot open an editor for the {what}: there is no terminal, and $EDITOR is not set",
            hint="Pass --prompt or --prompt-file."
            if what == "task"
            else f"Pass the {what} as an argument or with --file.",
        )
    advice = f'# Write the {what} above the ">8" line; everything below that line is ignored.'
    path = _new_draft(what)
    empty = f"\n{_CUT}\n{advice}\n"
    path.write_text(empty, encoding="utf-8")
    try:
        open_editor(path, "Nothing was sent.")
        written = _read(str(path)).removeprefix("\ufeff")
    except UsageError as error:
        if path.read_bytes() == empty.encode():
            path.unlink()
        else:
            error.hint += f" Your text is in {path}."
        raise
    kept = [line for line in written.partition(_CUT)[0].splitlines() if line != advice]
    text = "\n".join(kept).strip()
    if not text:
        path.unlink()
        raise UsageError(f"empty {what}; nothing was sent", hint="Save the file before you close the editor.")
    _keep_draft(path, text)
    return text


def open_editor(path: Path, after_failure: str) -> None:
    """Let the user edit a file. `after_failure`: what to know when that fails."""
    import shutil  # few commands open an editor

    known = (name for name in ("sensible-editor", "vim", "nano") if shutil.which(name))
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or next(known, "vi")
    try:
        code = proc.run_attached([*shlex.split(editor), str(path)], env=os.environ)
    except ValueError as error:  # an open quote
        raise _no_editor(editor, f"{error}", after_failure) from error
    except LlmcError as error:
        raise _no_editor(editor, error.message, after_failure) from error
    if code:
        raise UsageError(f"{editor} exited with code {code}", hint=after_failure)


def _no_editor(editor: str, why: str, after_failure: str) -> UsageError:
    hint = f"Set $VISUAL or $EDITOR to the command of your editor. {after_failure}"
    return UsageError(f"cannot run the editor `{editor}`: {why}", hint=hint)


def _new_draft(what: str) -> Path:
    from tempfile import mkstemp  # few commands open an editor

    fd, path = mkstemp(prefix=f"llmc-{what}-", suffix=".md")
    os.close(fd)
    return Path(path)


def _keep_draft(path: Path, text: str) -> None:
    """Keep the user's text in its file until it is delivered."""
    path.write_text(text + "\n", encoding="utf-8")
    context = click.get_current_context()
    context.meta[_DRAFT] = path
    context.call_on_close(lambda: note(f"your text was saved in {path}") if path.exists() else None)


def _drop_draft() -> None:
    context = click.get_current_context(silent=True)
    if context is not None and (path := context.meta.get(_DRAFT)):
        path.unlink(missing_ok=True)


def show_receipt(receipt: "Receipt", as_json: bool) -> int:
    """Print a receipt; exit code 0 for acknowledged or queued, 1 for unconfirmed or pending, 3 for refused."""
    code = {"acknowledged": 0, "queued": 0, "unconfirmed": 1, "pending": 1}.get(receipt.outcome, 3)
    if code == 0:
        _drop_draft()
    if as_json:
        print_json(plain(receipt, "worker", "outcome", "prompt_id", "elapsed_ms", "reason"))
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
        raise NotFound(f"file not found: {file}", hint="Check the path. Use - for standard input.") from error
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="Pass a readable text file."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8 text",
            hint="Convert the file to UTF-8, or send its path for the agent to read.",
        ) from error


def confirm(question: str, what: str | None, yes: bool) -> None:
    """Ask for confirmation. Without a terminal, require `--yes`, or do not ask if `what` is None."""
    is_terminal = sys.stdin.isatty()
    if yes or (what is None and not is_terminal):
        return
    if not is_terminal:
        raise UsageError(
            f"{what}; cannot prompt for confirmation without a terminal", hint="Pass --yes to confirm."
        )
    ask(question, abort=True)


def parse_end(text: str, now: float) -> float:
    """A time in the future, in Unix seconds: `07:30` (today or tomorrow), ISO 8601, or a duration such as `8h`."""
    here = datetime.fromtimestamp(now)
    if found := re.fullmatch(r"(\d{1,2}):(\d{2})", text):
        hour, minute = int(found[1]), int(found[2])
        if hour > 23 or minute > 59:
            raise _no_time(text)
        at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    try:
        end = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # not a date, or one outside of the calendar
        try:
            end = now + parse_duration(text)
            datetime.fromtimestamp(end)
        except (ValueError, OverflowError, OSError):
            raise _no_time(text) from None
    if end <= now:
        raise UsageError(f"--until: {text} is in the past")
    return end


def parse_since(text: str, now: float) -> float:
    """A start time in Unix seconds, from Unix seconds, ISO 8601, or an age such as `12h`, `1d`, `30m`."""
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
        f"--since: invalid time {text!r}",
        hint="Use Unix seconds, a date such as 2026-01-31T08:00, or an age such as 12h.",
    )


def _no_time(text: str) -> UsageError:
    return UsageError(
        f"--until: invalid time {text!r}",
        hint="Use a time such as 07:30 or 2026-11-16T07:30, or a duration such as 8h.",
    )


#: longer than any help line, so that click does not cut it at 45 characters
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
