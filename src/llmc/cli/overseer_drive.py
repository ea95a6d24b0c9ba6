"""llmc overseer tick|why: let goals be looked at now, and ask why work stands where it does."""

import click

from llmc.api.goal_ticks import tick_now, undriven
from llmc.base.clock import now_unix
from llmc.base.errors import Exit
from llmc.cli.arguments import project_of
from llmc.cli.goal_views import complete_goal, complete_node
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.goals.work import clock
from llmc.goals.work import why as asked


def add_to(group: click.Group) -> None:
    for one in (tick, why):
        group.add_command(one)


@click.command("tick")
@click.option("--now", "at_once", is_flag=True, help="The same as without it: a tick is always made at once.")
@click.option("--reason", default="asked for by a person", help="Why; it is in goals.log.")
@json_option
@click.pass_context
def tick(ctx: click.Context, at_once: bool, reason: str, as_json: bool) -> int:
    """Look at all goals now, and do what follows: the daemon does it where one runs, else this command.

    \b
    Example:
      llmc overseer tick --now

    Exit code 1: it could not be done, and why is said.
    """
    done = tick_now(project_of(ctx), reason)
    if as_json:
        print_json(
            {
                "ok": done.ok,
                "didWork": done.did_work,
                "actions": list(done.actions),
                "problem": done.problem,
                "nextDue": done.next_due,
            }
        )
        return Exit.DONE if done.ok else Exit.FAILED
    for action in done.actions:
        say(action)
    if not done.ok:
        note(paint("llmc: ", "red", err=True) + done.problem)
        return Exit.FAILED
    if not done.actions:
        say("records brought up to date" if done.did_work else "nothing to do")
    if done.next_due is not None:
        say(f"next: {clock(now_unix()).to_come(done.next_due)}")
    return Exit.DONE


@click.command("why")
@click.argument("id", metavar="ID", shell_complete=complete_node)
@click.option("--goal", "goal_id", default="", shell_complete=complete_goal, help="Of this goal.")
@json_option
@click.pass_context
def why(ctx: click.Context, id: str, goal_id: str, as_json: bool) -> None:
    """Say why an assignment, a part of a plan or a goal stands where it does, and what comes next.

    \b
    Examples:
      llmc overseer why S1.2.3
      llmc overseer why goal_1f0c9a7e42

    From what is stored alone: what was seen, what was sent and whether it arrived, what was counted.
    """
    project = project_of(ctx)
    found, stands = asked(project, id, goal_id), undriven(project)
    if as_json:
        print_json({**found.data, "undriven": stands})
        return
    for line in found.lines:
        say(line)
    if stands and found.data.get("goalStatus", found.data["status"]) == "active":
        note(paint(stands, "yellow", err=True))
