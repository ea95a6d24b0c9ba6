"""llmc wait"""

import time

import click

from llmc.base.clock import monotonic
from llmc.base.errors import Exit, UsageError
from llmc.cli import fast
from llmc.cli.output import json_option, print_error, print_json, say
from llmc.cli.workers import complete_worker, project_of
from llmc.config.durations import parse_duration
from llmc.repo.project import Project
from llmc.tasks import task_list

POLL_S = 0.2


@click.command("wait")
@click.argument("worker", required=False, shell_complete=complete_worker)
@click.option("--status", "statuses", metavar="S[,S]", help="The statuses to wait for.")
@click.option("--all-idle", is_flag=True, help="Wait until every worker is idle.")
@click.option("--tasks-done", is_flag=True, help="Wait until every task of the list is completed.")
@click.option("--timeout", metavar="SECONDS", help="Give up after this long (also 15m, 1h).")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    worker: str | None,
    statuses: str | None,
    all_idle: bool,
    tasks_done: bool,
    timeout: str | None,
    as_json: bool,
) -> int:
    """Wait until a worker has one of some statuses: exit 0 when it has, 1 on a timeout.

    \b
    Examples:
      llmc wait adam --status needs_review,needs_input --timeout 30m
      llmc wait --tasks-done --timeout 8h

    Ends at once with 1 and the reason when the worker goes to error or offline unasked, or when the tasks that are left need a person.
    """
    project = project_of(ctx)
    if tasks_done:
        if worker or statuses or all_idle:
            raise UsageError("--tasks-done waits for the tasks alone", hint="llmc wait --tasks-done")
        return _wait_for_tasks(project, _seconds(timeout), as_json)
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
    timeout_s = _seconds(timeout)
    names = (
        [str(project.store.worker(worker).name)] if worker else list(map(str, project.store.read().workers))
    )
    return fast.wait(str(project.root.path), names, wanted, timeout_s, as_json)


def _seconds(timeout: str | None) -> float | None:
    try:
        return parse_duration(timeout) if timeout else None
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error


def _wait_for_tasks(project: Project, timeout_s: float | None, as_json: bool) -> int:
    deadline = monotonic() + timeout_s if timeout_s is not None else None
    while True:
        left = task_list.left_to_do(project)
        over = deadline is not None and monotonic() >= deadline
        if not left.open or left.stuck or over:
            break
        time.sleep(POLL_S)
    if as_json:
        print_json({"reached": not left.open, "open": left.open, "needs_a_person": left.held})
    elif not left.open:
        say("every task is completed")
    elif left.stuck:
        print_error(
            f"{len(left.open)} tasks are left, and none can be begun",
            "See `llmc tasks list`.",
            Exit.FAILED,
            False,
        )
    else:
        print_error(f"{len(left.open)} tasks are not completed after {timeout_s:g} s", "", Exit.FAILED, False)
    return Exit.DONE if not left.open else Exit.FAILED
