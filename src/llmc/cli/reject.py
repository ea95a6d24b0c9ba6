"""llmc reject"""

import re

import click

from llmc.base.errors import NotFound, Refused, UsageError
from llmc.cli.output import json_option
from llmc.cli.workers import complete_worker, project_of, show_receipt, text_to_send
from llmc.repo.project import Project
from llmc.sessions.rules.prompt_text import normalise
from llmc.workers.start import reject, reviewed_last

#: a single word may be a worker's name with a slip of the finger: it is not sent to somebody else as feedback
_ONE_WORD = re.compile(r"[a-z][a-z0-9-]{0,30}")


@click.command("reject")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.argument("message", required=False)
@click.option(
    "--worker", "-w", "named", metavar="WORKER", shell_complete=complete_worker, help="Which worker."
)
@click.option("--file", "-f", "file", metavar="FILE", help="A file with the message; - is standard input.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    worker: str | None,
    message: str | None,
    named: str | None,
    file: str | None,
    as_json: bool,
) -> int:
    """Request changes: the worker gets your message in the same conversation, with its diff, and amends its commit.

    \b
    Examples:
      llmc reject "Keep the old name as an alias"  # the worker reviewed last
      llmc reject adam "Keep the old name as an alias"
      llmc reject adam --file notes.md

    Without a message, $EDITOR opens.
    """
    project = project_of(ctx)
    name, text = _whom_and_what(project, [a for a in (worker, message) if a is not None], named, file)
    project.store.worker(name)
    feedback = text_to_send(text, file, "message")
    normalise(feedback)  # bad input is bad in every state
    with project.worker_lock(name):
        receipt = reject(project, name, feedback)
    return show_receipt(receipt, as_json)


def _whom_and_what(
    project: Project, given: list[str], named: str | None, file: str | None
) -> tuple[str, str | None]:
    """The worker and the text, where one argument alone can be either."""
    if named is not None:
        if len(given) > 1:
            raise UsageError("a worker was given twice", hint="`llmc reject --help` shows how it is used.")
        return named, given[0] if given else None
    if len(given) == 2:
        return given[0], given[1]
    if given and (file is not None or given[0] in project.store.read().workers):
        return given[0], None
    last = reviewed_last(project.store.read())
    if given and _ONE_WORD.fullmatch(given[0]):
        meant = last.name if last else "NAME"
        raise NotFound(
            f"there is no worker {given[0]!r}",
            hint=f"If that is the message: llmc reject {meant} {given[0]}",
        )
    if last is None:
        raise Refused(
            "nothing that was reviewed waits, so it is not clear whose work is meant",
            hint="Look at it first: `llmc review`; or name the worker: llmc reject NAME ...",
        )
    return last.name, given[0] if given else None
