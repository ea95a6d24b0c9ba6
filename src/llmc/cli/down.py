"""llmc down"""

import click

from llmc.cli.output import json_option, note, print_json
from llmc.errors import Exit, NotFound, StateError
from llmc.services.daemon_control import stop
from llmc.services.fleet import end_every_session, take_down
from llmc.services.project import Project, bare_project, locate_root
from llmc.tools.tmux import Unknown
from llmc.workers.model import Status


@click.command("down")
@click.option("--force", is_flag=True, help="Kill the daemon if it does not stop.")
@json_option
@click.pass_context
def command(ctx: click.Context, force: bool, as_json: bool) -> int:
    """Stop the agents and the daemon. Work in the worktrees stays as it is. Needs no valid configuration or state.

    \b
    Example:
      llmc down
    """
    project = bare_project(locate_root(ctx.find_root().obj["root"]))
    had_daemon = stop(project, force=force)
    try:
        problems = _take_down(project)
    except (StateError, NotFound) as error:
        note(f"{error.message}; ending every session of this root")
        end_every_session(project)
        problems = []
    if as_json:
        print_json({"daemon_stopped": had_daemon, "problems": problems})
    else:
        for problem in problems:
            note(problem)
        click.echo("down" if not problems else "not everything could be stopped")
    return Exit.FAILED if problems else Exit.DONE


def _take_down(project: Project) -> list[str]:
    problems = []
    for name, record in project.store.read().workers.items():
        pane = project.tmux.pane(record.session_id)
        if pane is None and record.status in (Status.OFFLINE, Status.ERROR):
            continue
        problem = take_down(project, name)
        if problem:
            problems.append(problem)
    if not problems and not isinstance(project.tmux.panes(), Unknown):
        project.tmux.kill_server()
    return problems
