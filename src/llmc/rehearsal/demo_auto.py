"""The demo of auto mode: nine tasks with dependencies, labels and one conflict, through three auto workers."""

import json
import sys
import time

from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.cli.output import paint, say
from llmc.rehearsal import sample, sample_plan
from llmc.rehearsal.demo_show import Show

WORKERS = 3
#: a model may take its time; the scripted agent needs seconds
LIMITS_S = {"scripted": 120.0, "claude": 3600.0}
REDRAW_S = 0.25

#: what is told while it runs, and how
_TOLD = {
    "task_assigned": ("cyan", "{worker}  takes task {task_id}: {subject}"),
    "rebase_conflicted": ("magenta", "{worker}  conflicts in {files}; it resolves them itself"),
    "task_sent_back": ("yellow", "{worker}  does not pass the check of task {task_id}, and fixes it"),
    "task_completed": ("green", "{worker}  landed task {task_id}: {subject}"),
    "task_failed": ("red", "{worker}  gave task {task_id} back: {reason}"),
    "fleet_parked": ("yellow", "everybody waits: {reason}"),
}


def tell(show: Show) -> None:
    show.title("A sample repository, and a root for it")
    sample.create(show.source)
    show.llmc(
        "init", "--target", str(show.root), "--agent", show.agent, "--validate", "python3 -m unittest -q"
    )
    show.llmc("config", "set", "auto.tasks_root", str(show.root.parent / "tasks"))
    show.title("A plan: nine tasks in Markdown files, with labels and what comes first")
    sample_plan.write(show.source.parent / "plan", scripted=show.agent == "scripted")
    show.llmc("tasks", "import", "../plan")
    show.llmc("tasks", "graph")
    show.title("Three auto workers take what is ready, and land it: rebased, checked, one commit each")
    show.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    watch(show, LIMITS_S[show.agent])
    show.title("A straight history, and it is green")
    show.run(["git", "log", "--oneline", "--graph"], "git log --oneline --graph")
    show.run([sys.executable, "-m", "unittest", "-q"], "python3 -m unittest -q")
    show.title("What the morning report says")
    show.llmc("digest")
    show.llmc("status")


def watch(show: Show, limit_s: float) -> None:
    """Tell what happens, as it happens, until every task is completed."""
    deadline = monotonic() + limit_s
    told = done = 0
    while done < len(sample_plan.TASKS):
        events = [json.loads(line) for line in show.output("events", "--json").splitlines()]
        for event in events[told:]:
            _tell_one(event)
            done += event["action"] == "task_completed"
        told = len(events)
        if monotonic() > deadline:
            raise LlmcError(f"{done} of {len(sample_plan.TASKS)} tasks were done in {limit_s:g} s")
        if any(event["action"] == "auto_failed" for event in events):
            raise LlmcError("auto mode ended before the plan was done")
        time.sleep(REDRAW_S)


def _tell_one(event: dict[str, object]) -> None:
    if event["action"] in _TOLD:
        colour, text = _TOLD[str(event["action"])]
        files = event.get("files")
        values = {**event, "files": ", ".join(map(str, files)) if isinstance(files, list) else ""}
        when = time.strftime("%H:%M:%S", time.localtime(float(str(event["ts"]))))
        say(f"{when}  " + paint(text.format(**values), colour))
