"""What an agent leaves: processes that outlive it, and messages that still wait in its client.

A client calls itself idle for some milliseconds between a turn and the message that was queued behind it; and an
interrupt is what sends such a message.
"""

import contextlib
import time
from pathlib import Path

from llmc import hook_client
from llmc.agents.protocol import ClientStatus, Transcript
from llmc.agents.registry import reader_of, tool_children
from llmc.base import processes
from llmc.base.errors import LlmcError
from llmc.base.names import carries, header_line
from llmc.base.panes import Pane
from llmc.base.processes import Process
from llmc.records.worker import Delivery, Outcome, WorkerRecord
from llmc.repo.project import Project

#: how long a leftover process has to end by itself when it is told to
END_GRACE_S = 2.0
COMMAND_CHARS = 200
#: how often it is looked for more
END_ROUNDS = 5


def of(instance: str) -> list[Process]:
    """The processes of a launch beside its client. A hook sender is one too, but brings the agent's word: it is left."""
    return [process for process in tool_children(instance) if not _is_hook(process)]


def end(project: Project, name: str, left: list[Process]) -> None:
    """End these and say so; what they were at is in the log first."""
    if not left:
        return
    pids = [process.pid for process in left]
    commands = [processes.command_of(pid)[:COMMAND_CHARS] for pid in pids]
    with project.store.transaction() as tx:
        tx.emit("background_ended", worker=name, pids=pids, commands=commands)
    alive = processes.end_all(left, grace_s=END_GRACE_S)
    if alive:
        _refuse(name, alive)


def end_launch(project: Project, name: str, instance: str) -> None:
    """End all that a launch left running. One of them may have started another just before it was ended."""
    for _ in range(END_ROUNDS):
        left = of(instance)
        if not left:
            return
        end(project, name, left)
    if left := of(instance):
        _refuse(name, left)


def _refuse(name: str, alive: list[Process]) -> None:
    still = ", ".join(str(process.pid) for process in alive)
    raise LlmcError(f"{name}: what it left running does not end (pid {still})")


def end_with_its_agent(project: Project, record: WorkerRecord) -> None:
    """An agent's end was noticed: nothing of it may write on. What does not end keeps the next launch from beginning."""
    with contextlib.suppress(LlmcError):
        end_launch(project, record.name, record.instance)


def _is_hook(process: Process) -> bool:
    return hook_client.__file__ in processes.command_of(process.pid)


#: a client that is idle for so long has not just ended a turn, and does not begin one by itself
IDLE_S = 0.3
#: and one that is idle for so long has no queue, whatever its transcript says: a process that was killed took it along
NO_QUEUE_S = 1.0


def has_queue(record: WorkerRecord, pane: Pane) -> bool:
    """Whether messages wait in the client; in doubt they do."""
    if is_idle(record, pane, NO_QUEUE_S):
        return False
    transcript = _transcript(record)
    return transcript.queued() != [] or _is_on_its_way(record.delivery, transcript)


def never_left_queue(record: WorkerRecord) -> bool:
    """Whether the last message was queued in a client that has ended since, and was not taken out of there."""
    last, transcript = record.delivery, _transcript(record)
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    waits = any(carries(text, last.prompt_id) for text in transcript.queued() or ())
    return waits or _is_on_its_way(last, transcript)


def _transcript(record: WorkerRecord) -> Transcript:
    return reader_of(record.agent).transcript(record.transcript_path)


def _is_on_its_way(last: Delivery | None, transcript: Transcript) -> bool:
    """A message was queued, and the transcript does not have it yet: it may wait, or be done."""
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    prompts, _ = transcript.prompts(header_line(last.prompt_id))
    return not any(carries(prompt.text, last.prompt_id) for prompt in prompts)


def is_idle(record: WorkerRecord, pane: Pane, for_s: float = IDLE_S) -> bool:
    """Whether no turn runs, and none has just ended."""
    said = reader_of(record.agent).state(Path(record.config_dir), pane.pid)
    return said.status in (ClientStatus.IDLE, ClientStatus.SHELL) and time.time() - said.since_unix >= for_s
