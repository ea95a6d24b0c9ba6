"""llmc digest"""

import click

from llmc.base.clock import now_unix
from llmc.cli.output import json_option, print_json, say_lines
from llmc.cli.status_text import page
from llmc.cli.times import parse_since
from llmc.cli.workers import project_of
from llmc.reports import digest as service
from llmc.reports.rules.digest import as_json as plain


@click.command("digest")
@click.option(
    "--since",
    metavar="T",
    help="From this time on: unix seconds, ISO 8601, or 12h ago. Default: since you last ran this, at first 24h.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, since: str | None, as_json: bool) -> None:
    """The morning report: what waits for you, what landed, what did not, and what it cost.

    \b
    Examples:
      llmc digest
      llmc digest --since 12h
      llmc digest --json | jq '.waiting[].command'

    What unblocks the most tasks comes first, with the command for it. Nothing is asked of a model.
    """
    project = project_of(ctx)
    found = service.report(project, None if since is None else parse_since(since, now_unix()))
    if since is None and not as_json:
        service.remember_look(project, found)
    if as_json:
        print_json(plain(found))
        return
    say_lines(service.text_of(found, *page()))
