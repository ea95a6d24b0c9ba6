"""What an agent says about its own work with `llmc report`: an event in its inbox, like a hook."""

import json
import os
import time
from dataclasses import dataclass

from llmc.errors import Refused, UsageError
from llmc.panes import Pane
from llmc.services.project import Project
from llmc.tools.files import private_dir, write_atomic
from llmc.tools.processes import ancestors


@dataclass(frozen=True)
class Caller:
    """The agent that calls us, by the marks of its launch."""

    worker: str
    instance: str


def caller(project: Project) -> Caller:
    """Who is calling; a worker may report only about itself, so it must really run in that worker's pane."""
    worker, instance = os.environ.get("LLMC_WORKER", ""), os.environ.get("LLMC_INSTANCE", "")
    if not worker:
        raise UsageError("`llmc report` is for agents", hint="It is called inside a worker's session.")
    record = project.store.worker(worker)
    pane = project.pane(record)
    if not isinstance(pane, Pane) or pane.pid not in ancestors(os.getpid()) or record.instance != instance:
        raise Refused(f"this is not the running agent of {worker}, it cannot report for it")
    return Caller(worker, instance)


def report(project: Project, who: Caller, kind: str, text: str, *, no_changes: bool = False) -> None:
    """Put the report into the worker's inbox; it is judged with the hooks, in order."""
    payload = {"hook_event_name": "Report", "kind": kind, "text": text, "no_changes": no_changes}
    event = {"worker": who.worker, "instance": who.instance, "payload": payload}
    folder = private_dir(project.root.inbox / who.worker)
    write_atomic(folder / f"{time.time_ns()}-{os.getpid()}.json", json.dumps(event).encode())
    project.wake(who.worker)
