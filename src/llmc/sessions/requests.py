"""Requests of contained agents to the daemon: a command in a file in the inbox, and its output in a file beside it.

A contained agent cannot find its root. The daemon runs only commands that any agent may run
(sessions/rules/agent_commands.py), and only for the current launch. A request changes nothing, so the agent can repeat
a lost one.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec import json as msgspec_json

from llmc.base import proc, processes
from llmc.base.errors import Exit, LlmcError, ToolFailed
from llmc.base.files import read_given, write_atomic
from llmc.base.wake import wake
from llmc.records import inbox
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project
from llmc.sessions.caller import Caller
from llmc.sessions.rules.agent_commands import shown_to_agents

#: how long an agent waits for its answer: the daemon may be busy with this worker
ANSWER_S = 30.0
#: limits of a command: its time, and the size of its output and of the request
COMMAND_S = 20.0
MOST_PRINTED = 4 << 20
MOST_ASKED = 1 << 16
#: most requests answered in one round; the others are removed
MOST_AT_ONCE = 4


class Request(Struct, frozen=True):
    """The command that an agent asks for."""

    worker: str
    instance: str
    argv: list[str]


class Answer(Struct, frozen=True):
    """What the command printed, and its exit code."""

    code: int
    out: str = ""
    err: str = ""


def ask(who: Caller, argv: list[str]) -> Answer:
    """Inside a contained agent: have the daemon run a command, and wait for its output."""
    stem = Path(who.inbox) / f"{time.time_ns()}-{os.getpid()}"
    asked, answered = stem.with_suffix(inbox.ASKED), stem.with_suffix(inbox.ANSWERED)
    request = Request(who.name, who.instance, argv)
    write_atomic(asked, msgspec_json.encode(request))
    wake(Path(who.wake), who.name)
    if not processes.wait_until(answered.exists, ANSWER_S):
        asked.unlink(missing_ok=True)
        raise LlmcError("the daemon did not answer", hint="Continue with your task without this command.")
    data = read_given(answered)
    answered.unlink(missing_ok=True)
    return msgspec_json.decode(data, type=Answer)


def answer(project: Project, name: str) -> None:
    """In the daemon: answer the requests of a worker's agent. Invalid requests are ignored, and logged as events."""
    waiting = inbox.requests(project.root, name)
    if not waiting:
        return
    record = project.store.worker(name)
    refused = [f"{len(waiting) - MOST_AT_ONCE} requests too many"] if len(waiting) > MOST_AT_ONCE else []
    for number, request_id in enumerate(waiting):
        path = project.root.inbox / name / request_id
        try:
            request = read_request(path) if number < MOST_AT_ONCE else None
            path.unlink()  # before it runs, so that it runs once
        except (OSError, ValueError, RecursionError) as error:
            refused.append(f"a request that cannot be read: {error}"[:200])
            inbox.forget(project.root, name, [request_id])
            continue
        if request is None:
            continue
        if problem := _not_believed(record, request):
            refused.append(problem)
            continue
        given = _run(project, request.argv)
        with suppress(LlmcError):  # the agent can make its inbox read-only
            write_atomic(path.with_suffix(inbox.ANSWERED), msgspec_json.encode(given))
    if refused:
        with project.store.transaction() as tx:
            for why in refused:
                tx.emit("hook_ignored", worker=name, why=why)


def read_request(path: Path) -> Request:
    return msgspec_json.decode(read_given(path, MOST_ASKED), type=Request)


def _not_believed(record: WorkerRecord, request: Request) -> str:
    if not record.contained or not record.instance or request.instance != record.instance:
        return "a request from an earlier launch"
    return f"a request that claims to be from {request.worker[:80]}" if request.worker != record.name else ""


def _run(project: Project, argv: list[str]) -> Answer:
    command = shown_to_agents(argv)
    if command is None:
        return Answer(Exit.REFUSED, err="llmc: this command is not available to agents\n")
    root = project.root.path
    words = [sys.executable, "-P", "-m", "llmc", "--root", str(root), *command]
    try:
        done = proc.run_bounded(
            words,
            cwd=root,
            env=proc.clean_env(),
            input=b"",
            timeout_s=COMMAND_S,
            most_bytes=MOST_PRINTED,
            stopping=project.stopping,
        )
    except ToolFailed as error:
        return Answer(Exit.FAILED, err=f"llmc: {error.message}\n")
    return Answer(done.returncode, done.stdout, done.stderr)
