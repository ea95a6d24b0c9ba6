"""llmc message"""

import click

from llmc.cli.output import json_option, note
from llmc.cli.workers import project_of, show_receipt, text_to_send, worker_argument
from llmc.sessions.rules.prompt_text import normalise
from llmc.workers import start


@click.command("message")
@worker_argument
@click.argument("text", required=False)
@click.option("--file", "-f", "file", metavar="FILE", help="A file with the message; - is standard input.")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, text: str | None, file: str | None, as_json: bool) -> int:
    """Say something to a worker in its running conversation. Without text, $EDITOR opens.

    While its work is validated to be accepted, that accept is cancelled.

    \b
    Example:
      llmc message adam "Use the existing auth helper instead"
    """
    project = project_of(ctx)
    project.store.worker(worker)
    words = text_to_send(text, file, "message")
    normalise(words)  # bad input is bad in every state
    receipt, cancelled = start.message(project, worker, words)
    if cancelled:
        note(f"the accept of {worker} was cancelled; nothing landed")
    return show_receipt(receipt, as_json)
