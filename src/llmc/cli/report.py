"""llmc report"""

import click

from llmc.cli.output import json_option, print_json, say
from llmc.cli.workers import project_of
from llmc.errors import UsageError
from llmc.services.reports import report, reporter


@click.command("report")
@click.argument("kind", type=click.Choice(["done", "blocked", "progress"]))
@click.argument("text", required=False, default="")
@click.option("--no-changes", is_flag=True, help="With done: nothing needs to change, and TEXT says why.")
@json_option
@click.pass_context
def command(ctx: click.Context, kind: str, text: str, no_changes: bool, as_json: bool) -> None:
    """Say how your own work stands (for agents, inside their session).

    \b
    Examples:
      llmc report done --no-changes "The bug is fixed already, in commit 1a2b3c"
      llmc report blocked "The test needs a database password"

    A task ends when you stop; a report says what your stopping means where git cannot tell.
    """
    if no_changes and (kind != "done" or not text.strip()):
        raise UsageError(
            "--no-changes goes with `done` and a reason", hint='llmc report done --no-changes "why"'
        )
    if kind == "blocked" and not text.strip():
        raise UsageError("say what blocks you", hint='llmc report blocked "what you need"')
    project = project_of(ctx)
    who = reporter(project)
    report(project, who, kind, text.strip(), no_changes=no_changes)
    if as_json:
        print_json({"worker": who.name, "kind": kind, "no_changes": no_changes})
    else:
        say(f"{who.name}: reported {kind}")
