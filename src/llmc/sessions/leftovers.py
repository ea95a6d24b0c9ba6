"""What an agent leaves running: tool children and background work of a launch, which outlive a client that was killed."""

import contextlib

from llmc import hook_client
from llmc.base import processes
from llmc.base.errors import LlmcError
from llmc.base.processes import Process
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project

#: how long a leftover process has to end by itself when it is told to
END_GRACE_S = 2.0
COMMAND_CHARS = 200
#: how often it is looked for more
END_ROUNDS = 5


def of(instance: str) -> list[Process]:
    """The processes of a launch beside its client. A hook sender is one too, but brings the agent's word: it is left."""
    return [process for process in processes.leftovers(instance) if not _is_hook(process)]


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
