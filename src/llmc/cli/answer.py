"""llmc answer"""

import sys

import click

from llmc.base.errors import UsageError
from llmc.cli.output import json_option, read_line, say
from llmc.cli.workers import project_of, show_receipt, worker_argument
from llmc.workers import answering


@click.command("answer")
@worker_argument
@click.argument("text", required=False)
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, text: str | None, as_json: bool) -> int:
    """Answer what a worker asks: a question of its client, or its `llmc report blocked`.

    \b
    Examples:
      llmc answer adam 2
      llmc answer adam "neither, use the old name"

    TEXT is the number of an option, or the answer in your words; without it the question is shown, and you are
    asked for the answer. Permissions, and dialogs that llmc does not recognise for certain, need `llmc attach`.
    """
    project = project_of(ctx)
    question, options = answering.question_of(project, worker)
    if text is None:
        say(question)
        for number, label in enumerate(options, 1):
            say(f"  {number}. {label}")
        if not sys.stdin.isatty():
            raise UsageError("an answer is missing", hint=f'llmc answer {worker} "..."')
        text = read_line("Answer")
    return show_receipt(answering.answer(project, worker, text), as_json)
