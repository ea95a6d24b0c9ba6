"""The seam holds: which modules know the format of Claude Code's task files, and where they are."""

import re
from pathlib import Path

import llmc

#: names, keys and places of the client's task files; and the types for them
KNOWS = re.compile(
    r"blockedBy|highwatermark|\bTaskFiles\b|\btask_files import|\.json\.lock|(?<!def )\blist_name\("
)
#: the format, the source based on it, and the modules that play the client
MAY = {
    "agents/claude/task_files.py",
    "tasks/claude_files.py",
    "agents/scripted/tools.py",
    "rehearsal/drills/scratch.py",
}


def test_nobody_else_knows_the_task_files() -> None:
    """Break: open a task's file in any other module."""
    home = Path(llmc.__file__).parent
    found = {str(path.relative_to(home)) for path in home.rglob("*.py") if KNOWS.search(path.read_text())}
    assert found == MAY
