"""What agents call: `llmc report` and `llmc hook`."""

import os
from typing import Any

import click

from llmc.api import agent_calls
from llmc.base.errors import UsageError
from llmc.cli.output import json_option, say_or_json


@click.command("report")
@click.argument("kind", type=click.Choice(["done", "blocked", "progress"]))
@click.argument("text", required=False, default="")
@click.option(
    "--no-changes", is_flag=True, help="With `done`, report that no changes are needed; TEXT says why"
)
@click.option("--progress", default="", metavar="TEXT", help="Current state of the work")
@click.option(
    "--decision",
    "decisions",
    multiple=True,
    metavar='"WHAT | WHY"',
    help="Decision you made and why (repeatable)",
)
@click.option(
    "--question",
    "questions",
    multiple=True,
    metavar="TEXT",
    help="Open question that does not block you (repeatable)",
)
@click.option("--next", "steps", multiple=True, metavar="TEXT", help="Next step (repeatable, in order)")
@click.option(
    "--evidence",
    multiple=True,
    metavar="KIND:VALUE",
    help='Evidence (a file, command, test, commit, pr, issue or link), such as test:"make test = passed" (repeatable)',
)
@json_option
@click.pass_context
def report(ctx: click.Context, /, kind: str, text: str, no_changes: bool, as_json: bool, **said: Any) -> None:
    """Report the status of your work (for agents)

    \b
    Examples:
      llmc report done --no-changes "The bug was already fixed in commit 1a2b3c"
      llmc report blocked "The test needs a database password"
      llmc report progress "Parser works" --decision "no grammar | two formats"
      llmc report done "Parser works" --evidence "test:make test = passed"

    Run this command in your own session. Your task ends when you stop; use reports for what git does not show. Progress,
    decisions, questions, next steps and evidence are recorded with the task's goal.
    """
    if no_changes and (kind != "done" or not text.strip()):
        raise UsageError(
            "--no-changes requires `done` and a reason", hint='Run: llmc report done --no-changes "why"'
        )
    if kind == "blocked" and not text.strip():
        raise UsageError(
            "`llmc report blocked` requires a reason", hint='Run: llmc report blocked "what you need"'
        )
    update = agent_calls.read_update(said)
    root = ctx.find_root().obj["root"]
    name = agent_calls.report(root, kind, text.strip(), no_changes=no_changes, update=update)
    body = {"worker": name, "kind": kind, "no_changes": no_changes, **update}
    say_or_json(f"{name}: reported {kind}", body, as_json)


@click.command("hook", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def hook(arguments: tuple[str, ...]) -> None:
    """Receive a hook event from an agent (internal)

    Reads the event from standard input. The hooks in the agent's settings run this command.

    \b
    Example:
      llmc hook <inbox directory> <wake-up socket> < payload.json
    """
    if not arguments:
        raise UsageError("missing inbox directory", hint="Run `llmc hook --help` for usage.")
    argv = agent_calls.hook_command(list(arguments))
    os.execv(argv[0], argv)
