"""The seam holds: who knows what a task file of Claude Code looks like, and where it is."""

import re
from pathlib import Path

import llmc

#: names, keys and places of the client's task files; and the types that stand for them
KNOWS = re.compile(
    r"blockedBy|highwatermark|\bTaskFiles\b|\btask_files import|\.json\.lock|(?<!def )\blist_name\("
)
#: the format, the source that is made of it, and who plays the client
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
