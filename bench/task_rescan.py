"""Ten thousand task files: a rescan after one change, against the first scan."""

import json
import statistics
from pathlib import Path

from bench.fleets import fleet
from bench.measure import Row, clock_ms, row
from llmc.agents.claude.task_files import TaskFiles
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.queue import TaskQueue

NAME = "task_rescan"
TARGET = 0.02
TASKS = 10_000
ROUNDS = 15


def run() -> list[Row]:
    with fleet("scripted", up=None) as (made, project):
        folder = made.dir / "tasks"
        _write(folder)
        cold = []
        for _ in range(3):
            source = ClaudeTasks(TaskFiles(folder), TaskLedger(project.root.tasks_ledger))
            watch = source.watch()
            queue = TaskQueue(source)
            cold.append(clock_ms(queue.count_ready))
        warm = []
        for number in range(ROUNDS):
            name = f"{1 + number * 7}.json"
            task = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps({**task, "subject": f"changed {number}"}))
            watch.heard()
            warm.append(clock_ms(queue.count_ready))
    note = f"first scan of {TASKS} files: {statistics.median(cold):.0f} ms"
    return [
        row(
            NAME,
            "one file changed",
            warm,
            "the first scan",
            statistics.median(cold),
            target=TARGET,
            note=note,
        )
    ]


def _write(folder: Path) -> None:
    """Chains of ten, with labels and priorities."""
    folder.mkdir()
    for number in range(1, TASKS + 1):
        task = {
            "id": str(number),
            "subject": f"Task {number}",
            "description": "What to do, in a sentence or two of plain words.",
            "status": "completed" if number % 3 == 0 else "pending",
            "blocks": [],
            "blockedBy": [str(number - 1)] if number % 10 > 1 else [],
            "metadata": {"priority": number % 5, "label": f"area-{number % 7}"},
        }
        (folder / f"{number}.json").write_text(json.dumps(task))
