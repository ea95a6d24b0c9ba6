"""Turns the hooks in an inbox into neutral events."""

from typing import overload

from llmc.agents.agent_events import PANE_DIED, REPORT, AgentEvent, What
from llmc.agents.kinds import reader_of
from llmc.config.paths import Root
from llmc.records import inbox
from llmc.records.hook_events import HookEvent, Malformed

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
