"""What an agent says about its own work with `llmc report`: an event in its inbox, like a hook."""

import json
import os
import time
from pathlib import Path
from typing import Any

from llmc.base.errors import Refused, UsageError
from llmc.base.files import private_dir, write_atomic
from llmc.base.panes import Pane
from llmc.base.processes import ancestors
from llmc.repo.project import Project
from llmc.sessions.caller import Caller, Kind, caller
from llmc.sessions.transcript_tail import last_word_id


def reporter(project: Project) -> Caller:
    """Who is calling; a worker may report only about itself, so it must really run in that worker's pane."""
    who = caller()
    if who.kind is Kind.PERSON:
        raise UsageError("`llmc report` is for agents", hint="It is called inside a worker's session.")
    if who.kind is not Kind.WORKER:
        raise Refused("`llmc report` is for workers", hint=who.why)
    claimed = os.environ.get("LLMC_WORKER") or who.name
    record = project.store.worker(claimed)
    pane = project.pane(record)
    is_there = isinstance(pane, Pane) and pane.pid in ancestors(os.getpid())
    if not is_there or (record.name, record.instance) != (who.name, who.instance):
        raise Refused(f"this is not the running agent of {claimed}, it cannot report for it")
    return who


def report(
    project: Project,
    who: Caller,
    kind: str,
    text: str,
    *,
    no_changes: bool = False,
    update: dict[str, Any] | None = None,
) -> None:
    """Put the report into the worker's inbox; it is judged with the hooks, in order. `update`: what its options said."""
    payload: dict[str, Any] = {
        "hook_event_name": "Report",
        "kind": kind,
        "text": text,
        "no_changes": no_changes,
    }
    if update:
        payload["update"] = update
    transcript = project.store.worker(who.name).transcript_path
    if transcript and (message_id := last_word_id(Path(transcript))):
        payload["message_id"] = message_id
    event = {"worker": who.name, "instance": who.instance, "payload": payload}
    folder = private_dir(project.root.inbox / who.name)
    write_atomic(folder / f"{time.time_ns()}-{os.getpid()}.json", json.dumps(event).encode())
    project.wake(who.name)
