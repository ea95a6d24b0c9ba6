"""llmc down"""

import click

from llmc.base.errors import Exit, NotFound, Refused, StateError
from llmc.base.panes import Pane
from llmc.cli.output import json_option, note, print_json, say
from llmc.daemon.control import stop
from llmc.records.worker import BUSY, Status
from llmc.repo.project import Project, bare_project, locate_root
from llmc.sessions import leftovers
from llmc.supervisor import supervisor_record
from llmc.workers.fleet import close_server, end_every_session, take_down, told_of


@click.command("down")
@click.option(
    "--force",
    is_flag=True,
    help="Kill the daemon if it does not stop; also where a supervisor will start it again.",
)
@json_option
@click.pass_context
def down(ctx: click.Context, force: bool, as_json: bool) -> int:
    """Stop the agents and the daemon. Work in the worktrees, and panes that you opened, stay as they are. Needs no valid configuration or state.

    \b
    Example:
      llmc down
    """
    project = bare_project(locate_root(ctx.find_root().obj["root"]))
    if supervisor_record.runs(project.root):
        _warn_of_supervisor(project, force)
    at_work = _at_work(project)
    had_daemon = stop(project, force=force)
    try:
        problems, left = _take_down(project)
    except (StateError, NotFound) as error:
        note(f"{error.message}; ending every session of this root")
        problems, left = [], end_every_session(project)
    if as_json:
        panes = [{"pane": pane.id, "session": pane.session, "pid": pane.pid} for pane in left]
        body = {"daemon_stopped": had_daemon, "interrupted": at_work, "problems": problems, "left": panes}
        print_json(body)
    else:
        for text in [*problems, *([told_of(project, left)] if left else [])]:
            note(text)
        say("down" if not problems else "not everything could be stopped")
        for name in at_work:
            say(f"  {name} was at work; {_what_next(project, name)}")
    return Exit.FAILED if problems else Exit.DONE


def _at_work(project: Project) -> list[str]:
    """Workers whose turn is cut; none where the state cannot be read."""
    try:
        workers = project.store.read().workers
    except (StateError, NotFound):
        return []
    return [name for name, record in workers.items() if record.status in (*BUSY, Status.REBASING)]


def _what_next(project: Project, name: str) -> str:
    """An auto worker's task is back on the list; anybody may take it."""
    if project.store.worker(name).auto:
        return "its task goes on with `llmc up --auto --detach`, from the beginning"
    return "`llmc up --detach` continues its conversation"


def _warn_of_supervisor(project: Project, force: bool) -> None:
    """It would take this for a failure, and start the daemon again."""
    holder = supervisor_record.name_of(project.root)
    advice = (
        f"Stop it first, and the daemon with it: Ctrl-C in its terminal, or kill -TERM {holder.split()[1]}."
    )
    text = f"a supervisor runs ({holder}): it takes a daemon that ends for a failure, and starts it again"
    if not force:
        raise Refused(text, hint=f"{advice} `llmc down --force` ends the daemon all the same.")
    note(f"{text}. {advice}")


def _take_down(project: Project) -> tuple[list[str], list[Pane]]:
    """What could not be ended, and the panes of a person that were left alone."""
    with project.store.transaction() as tx:
        tx.remember_auto(False)
    problems = []
    for name, record in project.store.read().workers.items():
        pane = project.pane(record)
        runs = pane is not None or record.status.is_live
        if not runs and not leftovers.of(record.instance):
            continue
        problem = take_down(project, name)
        if problem:
            problems.append(problem)
    return problems, [] if problems else close_server(project)
