"""llmc overseer status|goal|work|events|inbox|answer|tick|why|export|safe-mode: goals, beside the supervisor."""

import time
from pathlib import Path

import click

from llmc.api.goal_ticks import undriven
from llmc.base.files import write_atomic
from llmc.base.text import json_text
from llmc.cli import goal, overseer_drive, work
from llmc.cli.arguments import parse_since, project_of
from llmc.cli.goal_views import (
    assignment_line,
    assignment_row,
    complete_goal,
    goal_line,
    note_settled,
    question_lines,
    question_row,
    summary,
    warn,
)
from llmc.cli.output import json_option, print_json, say
from llmc.goals import work as goal_work
from llmc.goals.goals import open_store
from llmc.goals.report.handoff import event_row
from llmc.goals.report.handoff import export as exported
from llmc.goals.store.errors import unknown_goal

goal_option = click.option(
    "--goal", "goal_id", default="", shell_complete=complete_goal, help="Of this goal."
)


def add_to(group: click.Group) -> None:
    """`llmc overseer` alone stays the supervisor."""
    for one in (status, goal.goal, work.work, events, inbox, answer, export, safe_mode):
        group.add_command(one)
    overseer_drive.add_to(group)


@click.command("status")
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show the goals, and the work that does not get on: why, what was sent last, and until when it is left alone.

    \b
    Example:
      llmc overseer status --json
    """
    project, now = project_of(ctx), time.time()
    store = open_store(project)
    with store.reading() as found:
        mode = found.safe_mode()
        views = found.views(besides=("archived",))
        unreadable = found.unreadable
        rows = [
            assignment_row(
                one,
                found.last_event("assignment.stalled", one.assignment_id),
                found.crystallizations(one.goal_id),
            )
            for view in views
            for one in view.assignments.values()
            if one.status.is_open
        ]
    if as_json:
        safe = {"since": mode.since, "reason": mode.reason, "file": mode.file} if mode else None
        print_json(
            {
                "enabled": project.config.overseer.goals.enabled,
                "undriven": undriven(project),
                "safeMode": safe,
                "damage": store.damage,
                "unreadable": unreadable,
                "goals": [summary(view) for view in views],
                "assignments": rows,
            }
        )
        return
    warn(store, unreadable)
    if (why := undriven(project)) and (views or not project.config.overseer.goals.enabled):
        say(why)
    for view in views:
        say(goal_line(view))
    if not views:
        say("no goals")
    for row in rows:
        if row["status"] in ("stalled", "blocked"):
            say(assignment_line(row, now))


@click.command("events")
@goal_option
@click.option(
    "--since", metavar="T", default="0", help="From this time on: unix seconds, ISO 8601, or like 12h."
)
@click.option("--last", type=click.IntRange(1), help="Only so many of the newest.")
@json_option
@click.pass_context
def events(ctx: click.Context, goal_id: str, since: str, last: int | None, as_json: bool) -> None:
    """Print what happened to goals, one line each; with --json one object a line.

    \b
    Example:
      llmc overseer events --goal goal_1f0c9a7e42 --since 12h
    """
    store = open_store(project_of(ctx))
    with store.reading() as found:
        if goal_id and found.goal(goal_id) is None:
            raise unknown_goal(goal_id, found.goal_ids())
        rows = found.events(goal_id, since=parse_since(since, time.time()), last=last)
    warn(store)
    for number, event in rows:
        if as_json:
            print_json({"seq": number, **event_row(event)})
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.ts))
        about = " ".join(filter(None, (event.goal_id, event.work_node_id, event.assignment_id)))
        said = event.data.get("reason") or event.data.get("title") or event.data.get("answer") or ""
        say(f"{when}  {event.type:<22} {about}  {said}".rstrip())


@click.command("inbox")
@json_option
@click.pass_context
def inbox(ctx: click.Context, as_json: bool) -> None:
    """List what waits for a person's word, the oldest first.

    \b
    Example:
      llmc overseer inbox
    """
    project, now = project_of(ctx), time.time()
    found = goal_work.inbox(project)
    if as_json:
        print_json({"questions": [question_row(one) for one in found]})
        return
    warn(open_store(project))
    for one in found:
        for line in question_lines(one, now):
            say(line)
    if not found:
        say("nothing waits for you")


@click.command("answer")
@click.argument("question_id", metavar="ID")
@click.argument("text")
@goal_option
@json_option
@click.pass_context
def answer(ctx: click.Context, question_id: str, text: str, goal_id: str, as_json: bool) -> None:
    """Answer what waits: ID is from `llmc overseer inbox`, TEXT in your words or the number of an option.

    \b
    Examples:
      llmc overseer answer b398fb37a0a6abe2 "use the second server"
      llmc overseer answer S1.1.2 2 --goal goal_1f0c9a7e42
    """
    project = project_of(ctx)
    one = goal_work.answer(project, question_id, text, goal_id)
    row = {
        "id": one.id,
        "goalId": one.goal_id,
        "workNodeId": one.work_node_id,
        "assignmentId": one.assignment_id,
    }
    print_json(row) if as_json else say(f"{one.work_node_id or one.goal_id}: answered")
    note_settled(project, "answer")


@click.command("export")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Into this file.")
@json_option
@click.pass_context
def export(ctx: click.Context, output: Path | None, as_json: bool) -> None:
    """Print everything that is kept about goals, as one JSON object.

    \b
    Example:
      llmc overseer export --output goals.json
    """
    store = open_store(project_of(ctx))
    with store.reading() as found:
        views = found.views()
        proofs = [one for view in views for one in found.crystallizations(view.goal.goal_id)]
        log = [event for _, event in found.events()]
        unreadable = {goal_id: found.raw(goal_id) for goal_id in found.unreadable}
        why = found.unreadable
    if store.damage:  # or a good copy would be replaced by an empty one
        raise store.damaged()
    warn(store, why)
    everything = {**exported(views, proofs, log), **({"unreadable": unreadable} if unreadable else {})}
    if output is None:
        print_json(everything, indent=1)
        return
    write_atomic(output, json_text(everything, indent=1).encode())
    print_json({"file": str(output), "goals": len(views)}) if as_json else say(f"wrote {output}")


@click.command("safe-mode")
@click.option("--clear", is_flag=True, help="A person has looked: goals may be driven again.")
@json_option
@click.pass_context
def safe_mode(ctx: click.Context, clear: bool, as_json: bool) -> None:
    """Show, or end, the safe mode that follows a damaged store: nothing is sent while it lasts.

    \b
    Example:
      llmc overseer safe-mode --clear
    """
    store = open_store(project_of(ctx))
    if clear:
        was = store.clear_safe_mode()
        on = None
    else:
        with store.reading() as found:
            was = on = found.safe_mode()
    if as_json:
        safe = {"since": on.since, "reason": on.reason, "file": on.file} if on else None
        print_json({"safeMode": safe, "cleared": bool(clear and was)})
        return
    if on:
        say(f"on: {on.reason}; the damaged file is {store.directory / on.file}")
    else:
        say("off now" if was else "off")
