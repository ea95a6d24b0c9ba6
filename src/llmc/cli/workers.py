"""What the commands about a worker share: its argument, with completion, and the text to send."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from llmc.base.errors import LlmcError, NotFound, Refused, StateError, UsageError
from llmc.base.files import read_json
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane
from llmc.base.tmux import answered
from llmc.cli.output import completion, note, paint, print_json, say
from llmc.records.worker import Outcome
from llmc.repo.project import Project, for_overseer, locate_root, open_project

if TYPE_CHECKING:
    from llmc.sessions.submit import Receipt

#: where a command has the file with what a person wrote
_DRAFT = "llmc.draft"


def project_of(ctx: click.Context) -> Project:
    return open_project(ctx.find_root().obj["root"])


def complete_worker(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        root = locate_root((ctx.find_root().params or {}).get("root"))
        workers = read_json(root.state)["workers"]
        names = {str(name): str(record.get("status", "")) for name, record in workers.items()}
    except (LlmcError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [completion(name, help=status) for name, status in names.items() if name.startswith(incomplete)]


def pane_of(project: Project, worker: str) -> Pane:
    """The pane of a worker's agent, or of the supervisor's; that there is none is an error with the fix."""
    is_overseer = worker == OVERSEER
    of = for_overseer(project) if is_overseer else project
    try:
        pane = answered(of.pane(of.store.worker(worker)))
    except (NotFound, StateError):
        if not is_overseer:
            raise
        pane = None  # there never was one
    if pane is None:
        starter = "overseer" if is_overseer else "up"
        raise Refused(f"{worker} has no agent", hint=f"Run `llmc {starter}` to start it.")
    return pane


worker_argument = click.argument("worker", shell_complete=complete_worker)


def chosen_workers(project: Project, worker: str | None, every: bool) -> list[str]:
    """The one that was named, or all of them with --all."""
    if bool(worker) == every:
        problem = "a worker and --all were given" if every else "no worker was named"
        raise UsageError(problem, hint="Name one worker, or give --all.")
    if worker:
        return [project.store.worker(worker).name]
    return list(project.store.read().workers)


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
    code = {Outcome.ACKNOWLEDGED: 0, Outcome.QUEUED: 0, Outcome.UNCONFIRMED: 1}.get(receipt.outcome, 3)
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
