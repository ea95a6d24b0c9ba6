"""The six kinds of name that must never be mixed; the type checker keeps them apart."""

import re
from typing import NewType

#: a worker, as people call it
WorkerName = NewType("WorkerName", str)
#: a tmux session: where an agent is launched, and people attach
SessionName = NewType("SessionName", str)
#: a tmux pane, `%7`: where keys go
PaneId = NewType("PaneId", str)
#: Claude's own session UUID; it changes with /clear, so nothing is keyed by it
ClaudeSessionId = NewType("ClaudeSessionId", str)
#: one prompt sent by llmc, `<kind>-<random>`: the receipt names it
PromptId = NewType("PromptId", str)
#: a task in the task list: the name of its file
TaskId = NewType("TaskId", str)

#: the supervisor's own session; no worker may be called so
OVERSEER = WorkerName("overseer")

_HEADER = re.compile(r"^\[llmc (?P<id>(?P<kind>[a-z]+)-[0-9a-z-]+)\]$", re.MULTILINE)


def header_line(prompt_id: PromptId) -> str:
    """The first line of everything llmc sends."""
    return f"[llmc {prompt_id}]"


def header_id(text: str) -> PromptId | None:
    """The id in llmc's header line; None for a prompt llmc did not send."""
    match = _HEADER.search(text)
    return PromptId(match["id"]) if match else None


def header_kind(text: str) -> str | None:
    """The first word of that id: `task`, `message`, `reject`, `conflict`, `review`."""
    match = _HEADER.search(text)
    return match["kind"] if match else None
