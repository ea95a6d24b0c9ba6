"""`llmc status` for people, from the same data as `status --json`. Imports no click: it is called all day."""

import time

from llmc.attention.rules import next_command
from llmc.cli import fast
from llmc.cli.output import columns, is_terminal, paint
from llmc.cli.overview import PLAIN_WIDTH, Paint, age, render
from llmc.cli.views import status_view
from llmc.goals.ticks import last_tick
from llmc.repo.project import Project, subjects


def status_text(project: Project) -> str:
    project.store.read()  # says what is wrong with a state that cannot be read
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
    return columns(), paint
