"""llmc wait"""

import click

from llmc.cli import fast
from llmc.cli.output import json_option
from llmc.cli.workers import complete_worker, project_of
from llmc.config.durations import parse_duration
from llmc.errors import UsageError


@click.command("wait")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--status", "statuses", metavar="S[,S]", help="The statuses to wait for.")
@click.option("--all-idle", is_flag=True, help="Wait until every worker is idle.")
@click.option("--timeout", metavar="SECONDS", help="Give up after this long (also 15m, 1h).")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    worker: str | None,
    statuses: str | None,
    all_idle: bool,
    timeout: str | None,
    as_json: bool,
) -> int:
    """Wait until a worker has one of some statuses: exit 0 when it has, 1 on a timeout.

    \b
    Example:
      llmc wait adam --status needs_review,needs_input --timeout 30m
    Ends at once with 1 and the reason when the worker goes to error or offline unasked.
    """
    project = project_of(ctx)
    wanted = {"idle"} if all_idle else set((statuses or "").split(",")) - {""}
    if not wanted or bool(worker) == all_idle:
        raise UsageError(
            "say what to wait for", hint="llmc wait WORKER --status needs_review, or llmc wait --all-idle"
        )
    unknown = wanted - fast.STATUSES
    if unknown:
        raise UsageError(
            f"there is no status {', '.join(sorted(unknown))}",
            hint="They are: " + " ".join(sorted(fast.STATUSES)),
        )
    try:
        timeout_s = parse_duration(timeout) if timeout else None
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    names = (
        [str(project.store.worker(worker).name)] if worker else list(map(str, project.store.read().workers))
    )
    return fast.wait(str(project.root.path), names, wanted, timeout_s, as_json)
