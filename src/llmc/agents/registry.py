"""The agents there are, by the names in config/model.py. What belongs to an agent is loaded when it is asked for."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args

from llmc.agents.protocol import Agent, Kind, Reader
from llmc.base.errors import UsageError
from llmc.base.processes import Process, environment, marked
from llmc.config.model import AgentName

AGENTS: tuple[str, ...] = get_args(AgentName)

#: the agent in records of an older llmc, and the one that a path names
_FIRST = "claude"


@cache
def kind_of(agent: str) -> Kind:
    """By the name in a worker's record."""
    folder = agent if agent in AGENTS else _FIRST
    kind: Kind = import_module(f"llmc.agents.{folder}.kind").KIND
    return kind


def reader_of(agent: str) -> Reader:
    return kind_of(agent).reader()


def agent_named(choice: str, command: str, private: Path) -> Agent:
    """The agent of that name; a path is a program of the first kind."""
    if "/" in choice:
        return kind_of(_FIRST).agent(choice, private)
    if choice not in AGENTS:
        named = ", ".join(f"`{name}`" for name in AGENTS)
        raise UsageError(f"there is no agent {choice!r}", hint=f"LLMC_AGENT is {named}, or a path.")
    return kind_of(choice).agent(command, private)


def tool_children(instance: str) -> list[Process]:
    """What one launch of an agent has started and that still runs, by the marks of the launch and of the agent; not the agent itself.

    Of any kind: a pane that is no worker's says only which launch it is of.
    """
    marks = {kind_of(name).child_mark for name in AGENTS}
    ours = marked("LLMC_INSTANCE", instance) if instance else []
    return [process for process in ours if marks & environment(process.pid).keys()]
