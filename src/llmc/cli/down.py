"""llmc down"""

import click

from llmc.cli.output import json_option, note, print_json
from llmc.cli.workers import project_of
from llmc.errors import Exit, LlmcError
from llmc.services import sessions
from llmc.services.daemon_control import stop
from llmc.tools.tmux import Unknown
from llmc.workers.model import Status


@click.command("down")
@click.option("--force", is_flag=True, help="Kill the daemon if it does not stop.")
@json_option
@click.pass_context
def command(ctx: click.Context, force: bool, as_json: bool) -> int:
    """Stop the agents and the daemon. Work in the worktrees stays as it is.

    \b
    Example:
      llmc down
    """
    project = project_of(ctx)
    had_daemon = stop(project, force=force)
    problems = []
    for name, record in project.store.read().workers.items():
        pane = project.tmux.pane(record.session_id)
        if pane is None and record.status in (Status.OFFLINE, Status.ERROR):
            continue
        try:
            with project.worker_lock(name, timeout_s=20):
                sessions.end(project, name, "down")
        except LlmcError as error:
            problems.append(f"{name}: {error.message}")
    if not problems and not isinstance(project.tmux.panes(), Unknown):
        project.tmux.kill_server()
    if as_json:
        print_json({"daemon_stopped": had_daemon, "problems": problems})
    else:
        for problem in problems:
            note(problem)
        click.echo("down" if not problems else "not everything could be stopped")
    return Exit.FAILED if problems else Exit.DONE
