"""What an agent leaves behind: background processes, and messages still queued in its client.

A client is idle for some milliseconds between a turn and a queued message, and an interrupt sends a queued message.
"""

import contextlib
import time
from pathlib import Path

from llmc import hook_client
from llmc.agents.kinds import reader_of, tool_children
from llmc.agents.protocol import ClientStatus, Transcript
from llmc.base import processes
from llmc.base.errors import LlmcError
from llmc.base.names import carries, header_line
from llmc.base.panes import Pane
from llmc.base.processes import Process
from llmc.records.worker import Delivery, Outcome, WorkerRecord
from llmc.repo.project import Project

#: how long a leftover process may take to exit when asked
END_GRACE_S = 2.0
COMMAND_CHARS = 200
#: most rounds of searching for more
END_ROUNDS = 5


def of(instance: str) -> list[Process]:
    """The processes of a launch, except its client and its hook senders, which still deliver events."""
    return [process for process in tool_children(instance) if not _is_hook(process)]


def end(project: Project, name: str, left: list[Process]) -> None:
    """Stop these processes; their command lines are logged first."""
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
    """Stop everything that a launch left running; repeats, because a process may start another before it stops."""
    for _ in range(END_ROUNDS):
        left = of(instance)
        if not left:
            break
        end(project, name, left)
    if left := of(instance) or _end_box(instance):
        _refuse(name, left)


def _end_box(instance: str) -> list[Process]:
    """Wait for a contained agent's sandbox to exit, or kill it; returns the processes that are still running.

    Process 1 of the sandbox exits last. Until then, any process inside may write, even one that has no mark.
    """
    ours = processes.marked("LLMC_INSTANCE", instance) if instance else []
    box = [process for process in ours if processes.name_of(process.pid) == processes.BUBBLEWRAP]
    processes.wait_until(lambda: not any(process.is_alive for process in box), END_GRACE_S)
    return processes.end_all(box, grace_s=0)


def _refuse(name: str, alive: list[Process]) -> None:
    still = ", ".join(str(process.pid) for process in alive)
    raise LlmcError(f"cannot stop the background processes of {name} (pid {still})")


def end_with_its_agent(project: Project, record: WorkerRecord) -> None:
    """Stop the background processes of an exited agent. While one survives, no new agent is launched."""
    with contextlib.suppress(LlmcError):
        end_launch(project, record.name, record.instance)


def _is_hook(process: Process) -> bool:
    return hook_client.__file__ in processes.command_of(process.pid)


#: a client idle for this long has not just ended a turn, and does not start one on its own
IDLE_S = 0.3
#: a client idle for this long has no queue, even if its transcript shows one, which a killed process lost
NO_QUEUE_S = 1.0


def has_queue(record: WorkerRecord, pane: Pane) -> bool:
    """Whether messages are queued in the client; if in doubt, yes."""
    if is_idle(record, pane, NO_QUEUE_S):
        return False
    transcript = _transcript(record)
    return transcript.queued() != [] or _is_on_its_way(record.delivery, transcript)


def never_left_queue(record: WorkerRecord) -> bool:
    """Whether the last message was queued in a client that has since exited, and never left the queue."""
    last, transcript = record.delivery, _transcript(record)
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    waits = any(carries(text, last.prompt_id) for text in transcript.queued() or ())
    return waits or _is_on_its_way(last, transcript)


def _transcript(record: WorkerRecord) -> Transcript:
    return reader_of(record.agent).transcript(record.transcript_path)


def _is_on_its_way(last: Delivery | None, transcript: Transcript) -> bool:
    """Whether a queued message is not in the transcript yet: it may be waiting or done."""
    if last is None or last.outcome is not Outcome.QUEUED:
        return False
    prompts, _ = transcript.prompts(header_line(last.prompt_id))
    return not any(carries(prompt.text, last.prompt_id) for prompt in prompts)


def is_idle(record: WorkerRecord, pane: Pane, for_s: float = IDLE_S) -> bool:
    """Whether no turn is in progress, and none has just ended."""
    said = reader_of(record.agent).state(Path(record.config_dir), pane.pid)
    return said.status in (ClientStatus.IDLE, ClientStatus.SHELL) and time.time() - said.since_unix >= for_s
