"""Types for names that must not be mixed up."""

from collections.abc import Mapping
from typing import Any, NamedTuple, NewType

from llmc.base.text import pattern

#: a worker's name
WorkerName = NewType("WorkerName", str)
#: a tmux session, where an agent is launched and users attach
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
    """The full key of a task: ids start at 1 in every list."""

    #: the directory of its list; "" in records of an older llmc, which had only ids (see `Books.whole`)
    list: str
    id: TaskId

    def __str__(self) -> str:
        return self.id

    def fields(self) -> dict[str, str]:
        """Its fields in events and records."""
        return {"task_id": self.id, "task_list": self.list}


#: stands for no task in events and records
NO_TASK = TaskKey("", TaskId(""))


def task_of(row: Mapping[str, Any]) -> TaskKey | None:
    """The task of an event; None if it names none."""
    value = row.get("task_id")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        return None
    list_name = row.get("task_list")
    return TaskKey(list_name if isinstance(list_name, str) else "", TaskId(value))


#: the supervisor's own session; not allowed as a worker's name
OVERSEER = WorkerName("overseer")

#: the start of every prompt that llmc sends
HEADER = "[llmc "

#: alone on the first line, except for a client's own prefix. Elsewhere, it is a quote
_HEADER = pattern(
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
    """Whether a prompt is the one with this id: its header is on the first line, whatever comes before it.

    The id is random and unique. Below the first line it may be a quote.
    """
    return header_line(prompt_id) in text.lstrip().partition("\n")[0]
