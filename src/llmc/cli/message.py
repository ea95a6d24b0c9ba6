"""llmc message"""

import click

from llmc.cli.output import json_option
from llmc.cli.workers import project_of, show_receipt, text_to_send, worker_argument
from llmc.services.tasks import refuse_while_accepting, send_message
from llmc.workers.prompt_text import normalise


@click.command("message")
@worker_argument
@click.argument("text", required=False)
@click.option("--file", "-f", "file", metavar="FILE", help="A file with the message; - is standard input.")
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, text: str | None, file: str | None, as_json: bool) -> int:
    """Say something to a worker in its running conversation. Without text, $EDITOR opens.

    \b
    Example:
      llmc message adam "Use the existing auth helper instead"
    """
    project = project_of(ctx)
    project.store.worker(worker)
    message = text_to_send(text, file, "message")
    normalise(message)  # bad input is bad in every state
    refuse_while_accepting(project, worker)
    with project.worker_lock(worker):
        receipt = send_message(project, worker, message)
    return show_receipt(receipt, as_json)
