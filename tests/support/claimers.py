"""A process that claims every task of a list as a daemon does, for a root of its own."""

import json
import sys
from pathlib import Path

from llmc.agents.claude.task_files import TaskFiles
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.queue import TaskQueue


def main(directory: str, ledger: str, result: str) -> None:
    """Starts at a line on stdin; exits without starting if there is none."""
    queue = TaskQueue(ClaudeTasks(TaskFiles(Path(directory)), TaskLedger(Path(ledger))))
    Path(f"{result}-ready").touch()
    if not sys.stdin.readline():
        return
    won = []
    while found := queue.take_next(f"auto-{len(won)}", ()):
        won.append(found[0].id)
    Path(result).write_text(json.dumps(won))


if __name__ == "__main__":
    main(*sys.argv[1:])
