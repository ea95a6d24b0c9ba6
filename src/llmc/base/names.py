"""The kinds of name that must never be mixed; the type checker keeps them apart."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NewType

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


class TaskKey(NamedTuple):
    """The whole name of a task: ids begin again at 1 in every list."""

    #: the directory of its list; "" in records of an older llmc, which had ids alone (`Books.whole` says which it was)
    list: str
    id: TaskId

    def __str__(self) -> str:
        return self.id

    def fields(self) -> dict[str, str]:
        """As events and records name it."""
        return {"task_id": self.id, "task_list": self.list}


#: where nothing is about a task
NO_TASK = TaskKey("", TaskId(""))


def task_of(row: Mapping[str, Any]) -> TaskKey | None:
    """The task that an event is about; None for one that names none."""
    value = row.get("task_id")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        return None
    list_name = row.get("task_list")
    return TaskKey(list_name if isinstance(list_name, str) else "", TaskId(value))


#: the supervisor's own session; no worker may be called so
OVERSEER = WorkerName("overseer")

#: how everything that llmc sends begins
HEADER = "[llmc "

#: alone on the first line, but for what a client itself puts before it. Further down, or in a sentence, it is quoted
_HEADER = re.compile(
    r"\A(?:\s|\[(?:Image|Pasted text) #\d+[^\]\n]*\])*\[llmc (?P<id>(?P<kind>[a-z]+)-[0-9a-z-]+)\][^\S\n]*(?:\n|\Z)"
)


def header_line(prompt_id: PromptId) -> str:
    """The first line of everything llmc sends."""
    return f"{HEADER}{prompt_id}]"


def header_id(text: str) -> PromptId | None:
    """The id in llmc's header line; None for a prompt llmc did not send."""
    match = _HEADER.search(text)
    return PromptId(match["id"]) if match else None


def carries(text: str, prompt_id: PromptId) -> bool:
    """Whether a prompt is the one with this id, whatever came to stand before it: its header is in the first line.

    The id is random and names one prompt, so nothing else has it there. Below that line anybody may quote it.
    """
    return header_line(prompt_id) in text.lstrip().partition("\n")[0]
