"""llmc status"""

import shutil
import time

import click

from llmc.attention.rules import next_command
from llmc.cli import fast
from llmc.cli.output import clear_screen, is_terminal, json_option, paint, say_lines, show_frame
from llmc.cli.overview import PLAIN_WIDTH, Paint, age, render
from llmc.cli.views import status_view
from llmc.cli.workers import project_of
from llmc.goals.status import last_tick
from llmc.repo.project import Project, subjects


@click.command("status")
@click.option("--watch", "-w", is_flag=True, help="Go on showing it until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds, with --watch."
)
@json_option
@click.pass_context
def command(ctx: click.Context, watch: bool, interval: float, as_json: bool) -> int:
    """Show the workers: who needs you, what each does, since when, and the next useful command.

    \b
    Example:
      llmc status --watch

    On a terminal it is coloured (unless NO_COLOR is set) and as wide as that; else it is plain, and 80 columns wide.
    """
    project = project_of(ctx)
    project.store.read()  # says what is wrong with a state that cannot be read
    if as_json:
        return fast.status(str(project.root.path))
    if not watch:
        say_lines(_text(project))
        return 0
    clear_screen()
    while True:
        _draw(_text(project), f"every {interval:g} s; Ctrl-C ends this")
        time.sleep(interval)


def _draw(text: str, foot: str) -> None:
    """As much of it as the screen is high."""
    if not is_terminal():
        say_lines(f"{text}\n")
        return
    lines, rows = text.splitlines(), shutil.get_terminal_size().lines - 3
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"... and {len(lines) - rows + 1} more lines"]
    show_frame([*lines, "", foot])


def _text(project: Project) -> str:
    root = str(project.root.path)
    state, facts = fast.current(root)
    view = status_view(root, state, facts)
    known = subjects(project, [worker["commit_sha"] for worker in view["workers"] if worker["commit_sha"]])
    for worker in view["workers"]:
        worker["subject"] = known.get(worker["commit_sha"] or "", "")
        worker["next"] = next_command(worker, facts.seen(worker["name"]), facts)
    text = render(view, facts.now, *page())
    goals = goals_line(project, sum(item["kind"] == "goal_question" for item in view["attention"]))
    return f"{text}\n\n{goals}" if goals else text


def goals_line(project: Project, questions: int) -> str:
    """The goals in a line, as the last tick saw them; the store itself is not opened for this. `questions` are on the list."""
    if not project.config.overseer.goals.enabled:
        return ""
    seen = last_tick(project)
    if seen is None:
        return "Goals: no tick yet" + ("" if project.daemon_runs() else " (llmc up --auto --detach)")
    goals = seen.goals
    counts = {"active": goals.active, "paused": goals.paused, "completed": goals.completed}
    parts = [", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"]
    if goals.total:
        parts.append(f"{goals.done} of {goals.total} parts done ({goals.percent}%)")
    if questions:
        word = "waits" if questions == 1 else "wait"
        parts.append(f"{questions} {word} for your answer: llmc overseer inbox")
    if not seen.ok:
        parts.append(f"the last tick failed: {seen.problem}")
    when = (
        "" if project.daemon_runs() else f" ({age(time.time() - seen.ended_at)} ago; no daemon drives them)"
    )
    return "Goals: " + "; ".join(parts) + when


def page() -> tuple[int, Paint]:
    """How wide what is printed may be, and how it is coloured."""
    if not is_terminal():
        return PLAIN_WIDTH, paint
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns, paint
