"""`llmc inbox`, and the commands of `llmc goal` that are not about one goal alone."""

import time
from pathlib import Path

import click
import msgspec

from llmc.api import goal_orders, goal_views
from llmc.api.goal_orders import tick_now, undriven
from llmc.api.roots import Project
from llmc.base.clock import now_unix
from llmc.base.errors import Exit
from llmc.base.files import write_atomic
from llmc.base.text import json_text
from llmc.cli.arguments import (
    output_option,
    parse_since,
    project_of,
    since_option,
)
from llmc.cli.goal_show import (
    assignment_line,
    complete_goal,
    complete_node,
    complete_question,
    goal_line,
    note_settled,
    note_troubles,
    question_lines,
    question_row,
)
from llmc.cli.output import json_option, note, paint, print_json, say

goal_option = click.option(
    "--goal", "goal_id", default="", shell_complete=complete_goal, help="Goal that the ID belongs to"
)


@click.command("status")
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show goals and stalled work

    For stalled or blocked work, shows the reason, the last message and when the next one is due.

    \b
    Example:
      llmc overseer status --json
    """
    now, found = time.time(), goal_views.status(project_of(ctx))
    views, troubles, rows = found.goals.views, found.goals.troubles, found.assignments
    if as_json:
        print_json(
            {
                "enabled": found.enabled,
                "undriven": found.undriven,
                "safeMode": msgspec.to_builtins(troubles.safe_mode),
                "damage": troubles.damage,
                "unreadable": troubles.unreadable,
                "goals": [goal_views.summary(view) for view in views],
                "assignments": rows,
            }
        )
        return
    note_troubles(troubles)
    if found.undriven and (views or not found.enabled):
        say(found.undriven)
    for view in views:
        say(goal_line(view))
    if not views:
        say("no goals")
    for row in rows:
        if row["status"] in ("stalled", "blocked"):
            say(assignment_line(row, now))


@click.command("events")
@click.option(
    "--goal", "goal_id", default="", shell_complete=complete_goal, help="Show only this goal's events"
)
@since_option
@click.option("--last", metavar="N", type=click.IntRange(1), help="Show only the latest N events")
@json_option
@click.pass_context
def events(ctx: click.Context, goal_id: str, since: str, last: int | None, as_json: bool) -> None:
    """Show the goal event log

    With --json, prints one object per line.

    \b
    Example:
      llmc goal events --goal goal_1f0c9a7e42 --since 12h
    """
    project = project_of(ctx)
    rows = goal_views.events(project, goal_id, parse_since(since, time.time()), last)
    note_troubles(goal_views.troubles(project))
    for number, event in rows:
        if as_json:
            print_json({"seq": number, **goal_views.event_row(event)})
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.ts))
        about = " ".join(filter(None, (event.goal_id, event.work_node_id, event.assignment_id)))
        said = event.data.get("reason") or event.data.get("title") or event.data.get("answer") or ""
        say(f"{when}  {event.type:<22} {about}  {said}".rstrip())


@click.command("inbox")
@json_option
@click.pass_context
def inbox(ctx: click.Context, as_json: bool) -> None:
    """List open questions, oldest first

    Lists the questions of workers and goals, each with the command that answers it.

    \b
    Example:
      llmc inbox
    """
    project, now = project_of(ctx), time.time()
    found = goal_views.inbox(project)
    if as_json:
        print_json({"questions": [question_row(one) for one in found]})
        return
    note_troubles(goal_views.troubles(project))
    for one in found:
        for line in question_lines(one, now):
            say(line)
    if not found:
        say("no open questions")
    if others := goal_views.others_waiting(project):
        note(f"{others} other {'item needs' if others == 1 else 'items need'} you; see `llmc status`")


@click.command("answer")
@click.argument("question_id", metavar="ID", shell_complete=complete_question)
@click.argument("text")
@goal_option
@json_option
@click.pass_context
def answer(ctx: click.Context, question_id: str, text: str, goal_id: str, as_json: bool) -> None:
    """Answer an open question

    Answers only questions from goals; `llmc answer` also answers workers.

    \b
    Example:
      llmc answer S1.1.2 "use the second server"
    """
    answer_question(project_of(ctx), question_id, text, goal_id, as_json)


def answer_question(project: Project, question_id: str, text: str, goal_id: str, as_json: bool) -> None:
    one = goal_orders.answer(project, question_id, text, goal_id)
    row = question_row(one)
    print_json({key: row[key] for key in ("id", "goalId", "workNodeId", "assignmentId")}) if as_json else say(
        f"{one.work_node_id or one.goal_id}: answered"
    )
    note_settled(project, "answer")


@click.command("export")
@output_option
@json_option
@click.pass_context
def export(ctx: click.Context, output: Path | None, as_json: bool) -> None:
    """Export all goal data as JSON

    \b
    Example:
      llmc goal export --output goals.json
    """
    everything, found = goal_views.export(project_of(ctx))
    note_troubles(found.troubles)
    if output is None:
        print_json(everything, indent=1)
        return
    write_atomic(output, json_text(everything, indent=1).encode())
    print_json({"file": str(output), "goals": len(found.views)}) if as_json else say(f"wrote {output}")


@click.command("safe-mode")
@click.option("--clear", is_flag=True, help="End safe mode and resume goals")
@json_option
@click.pass_context
def safe_mode(ctx: click.Context, clear: bool, as_json: bool) -> None:
    """Show or clear safe mode

    llmc enters safe mode when it finds the goal database damaged. All goals are stopped until you clear safe mode.

    \b
    Example:
      llmc goal safe-mode --clear
    """
    project = project_of(ctx)
    was_on = clear and goal_views.end_safe_mode(project)
    on = None if clear else goal_views.troubles(project).safe_mode
    if as_json:
        print_json({"safeMode": msgspec.to_builtins(on), "cleared": was_on})
    elif on:
        say(f"safe mode is on: {on.reason}; damaged file: {goal_views.damaged_file(project, on)}")
        say("to end safe mode: llmc goal safe-mode --clear")
    else:
        say("safe mode cleared" if was_on else "safe mode is off")


@click.command("tick")
@click.option("--now", "at_once", is_flag=True, help="Accepted for compatibility; has no effect")
@click.option("--reason", default="requested by the user", help="Reason to record in goals.log")
@json_option
@click.pass_context
def tick(ctx: click.Context, at_once: bool, reason: str, as_json: bool) -> int:
    """Check all goals and act on them immediately

    If the daemon is running, it runs the tick; otherwise this command does. Exits with 1 if the tick fails.

    \b
    Example:
      llmc goal tick
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
        say("goal data updated" if done.did_work else "nothing to do")
    if done.next_due is not None:
        say(f"next check: {goal_views.clock(now_unix()).to_come(done.next_due)}")
    return Exit.DONE


@click.command("why")
@click.argument("id", metavar="ID", shell_complete=complete_node)
@goal_option
@json_option
@click.pass_context
def why(ctx: click.Context, id: str, goal_id: str, as_json: bool) -> None:
    """Explain the state of a goal, plan item or assignment

    Shows what llmc observed, what it sent, whether the message was received, and what happens next.

    \b
    Examples:
      llmc goal why S1.2.3
      llmc goal why goal_1f0c9a7e42
    """
    project = project_of(ctx)
    found, stands = goal_views.why(project, id, goal_id), undriven(project)
    if as_json:
        print_json({**found.data, "undriven": stands})
        return
    for line in found.lines:
        say(line)
    if stands and found.data.get("goalStatus", found.data["status"]) == "active":
        note(paint(stands, "yellow", err=True))


#: commands of `llmc goal`, also found under `llmc overseer`
VERBS = (events, tick, why, export, safe_mode)
