"""Find an agent by its name in config/model.py, and turn its hooks into events. Loads its modules on first use."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args, overload

from llmc import launch
from llmc.agents.agent_events import PANE_DIED, REPORT, AgentEvent, What
from llmc.agents.protocol import Agent, Kind, Reader
from llmc.base.errors import UsageError
from llmc.base.processes import Process, command_of, environment, marked_among_all, strayed
from llmc.config.model import AgentName
from llmc.config.paths import Root
from llmc.records import inbox
from llmc.records.hook_events import HookEvent, Malformed

AGENTS: tuple[str, ...] = get_args(AgentName)

#: for records from an older llmc, and for an agent given as a path
_FIRST = "claude"


@cache
def kind_of(agent: str) -> Kind:
    """The kind of the agent named in a worker's record."""
    folder = agent if agent in AGENTS else _FIRST
    kind: Kind = import_module(f"llmc.agents.{folder}.kind").KIND
    return kind


def reader_of(agent: str) -> Reader:
    return kind_of(agent).reader()


def agent_named(choice: str, command: str, private: Path) -> Agent:
    """The agent with that name; a path means a Claude Code program."""
    if "/" in choice:
        return kind_of(_FIRST).agent(choice, private)
    if choice not in AGENTS:
        named = ", ".join(f"`{name}`" for name in AGENTS)
        raise UsageError(f"unknown agent {choice!r}", hint=f"Set LLMC_AGENT to {named} or a path.")
    return kind_of(choice).agent(command, private)


def tool_children(instance: str) -> list[Process]:
    """The running processes that one launch of an agent started, except the agent itself and its helpers.

    Covers every kind of agent: a pane without a worker says only which launch it belongs to.
    """
    marks = {kind_of(name).child_mark for name in AGENTS}
    ours, everyone = marked_among_all("LLMC_INSTANCE", instance) if instance else ([], {})
    tools = [process for process in ours if marks & environment(process.pid).keys()]
    # Skip the holder of a contained agent: it adopts no orphans, and its proxy has a session of its own.
    agent = [one for one in ours if one not in tools and launch.__file__ not in command_of(one.pid)]
    return list(dict.fromkeys([*tools, *strayed(agent, everyone)]))


# Hooks in an inbox, as neutral events.

#: events from llmc itself, for any agent
_OWN = {REPORT: What.REPORTED, PANE_DIED: What.EXITED}


@overload
def event_of(hook: HookEvent, agent: str) -> AgentEvent: ...
@overload
def event_of(hook: HookEvent | Malformed, agent: str) -> AgentEvent | Malformed: ...
def event_of(hook: HookEvent | Malformed, agent: str) -> AgentEvent | Malformed:
    """The event behind a hook of that agent."""
    if isinstance(hook, Malformed):
        return hook
    if hook.name not in _OWN:
        return reader_of(agent).event(hook)
    return AgentEvent(
        id=hook.id,
        worker=hook.worker,
        instance=hook.instance,
        what=_OWN[hook.name],
        name=hook.name,
        told=hook.payload,
    )


def waiting(root: Root, worker: str, agent: str) -> list[AgentEvent | Malformed]:
    """The pending events of a worker's inbox, in order."""
    return [event_of(hook, agent) for hook in inbox.read(root, worker)]
