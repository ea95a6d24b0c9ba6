"""The agents there are: the one table that names them. What belongs to each is imported when it is asked for."""

from pathlib import Path
from typing import Protocol

from llmc.agents.claude.kind import ClaudeKind
from llmc.agents.protocol import Agent, Reader
from llmc.agents.scripted.kind import ScriptedKind
from llmc.base.errors import UsageError
from llmc.base.processes import Process, environment, marked


class Kind(Protocol):
    """A kind of agent: what can be had of it."""

    @property
    def child_mark(self) -> str:
        """The variable that it sets in everything it starts."""
        ...

    def agent(self, command: str, private: Path) -> Agent:
        """`command`: the path of its program, "" to look for it. `private`: a directory for files of its own."""
        ...

    def reader(self) -> Reader: ...


KINDS: dict[str, Kind] = {"claude": ClaudeKind(), "scripted": ScriptedKind()}

#: the agent in records of an older llmc, and the one that a path names
_FIRST = "claude"


def agent_named(choice: str, command: str, private: Path) -> Agent:
    """The agent of that name; a path is a program of the first kind."""
    if "/" in choice:
        return KINDS[_FIRST].agent(choice, private)
    if choice not in KINDS:
        named = ", ".join(f"`{name}`" for name in KINDS)
        raise UsageError(f"there is no agent {choice!r}", hint=f"LLMC_AGENT is {named}, or a path.")
    return KINDS[choice].agent(command, private)


def tool_children(instance: str) -> list[Process]:
    """What one launch of an agent has started and that still runs, by the marks of the launch and of the agent; not the agent itself.

    Of any kind: a pane that is no worker's says only which launch it is of.
    """
    marks = {kind.child_mark for kind in KINDS.values()}
    ours = marked("LLMC_INSTANCE", instance) if instance else []
    return [process for process in ours if marks & environment(process.pid).keys()]


def reader_of(agent: str) -> Reader:
    """By the name in a worker's record."""
    return KINDS.get(agent, KINDS[_FIRST]).reader()
