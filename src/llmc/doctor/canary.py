"""The canary: tests an unknown version of the client or of tmux in a scratch session before auto mode uses it.

The session has its own root, state and tmux server below `.llmc/canary/`. So the functions that run workers can run
it, and it does not touch the fleet.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from llmc.agents.agent_events import What
from llmc.agents.kinds import reader_of, tool_children
from llmc.agents.protocol import ClientStatus, Prompt
from llmc.base import locks, proc, processes
from llmc.base.clock import now_unix
from llmc.base.errors import Exit, LlmcError, Refused
from llmc.base.files import private_dir, read_given, remove_tree, write_atomic
from llmc.base.names import SessionName, WorkerName, header_id
from llmc.base.panes import Pane
from llmc.base.tmux import Tmux
from llmc.config.paths import Root
from llmc.doctor.rules.canary_verdict import (
    PROBES,
    Observed,
    Result,
    Verdict,
    hooks_in,
    judge,
    result_of,
    why_probe,
)
from llmc.records.event_log import EventLog
from llmc.records.store import Store
from llmc.records.worker import Cause, WorkerRecord
from llmc.repo.project import Project, agent_for
from llmc.sessions import intake, sessions, typist
from llmc.sessions.submit import submit

NAME = WorkerName("canary")
PROMPT = "Reply with OK. Do nothing else."
#: how long a one-word turn may take; the client retries an overloaded API for minutes
TURN_S = 45.0
#: how long the client may be idle before its Stop hook counts as missing
REST_S = 5.0
#: how long it must be idle for its turns to be over: before a queued turn, it is idle for a moment
PAUSE_S = 0.7
#: how long to wait for each sign from the client; long enough for a busy machine
SIGN_S = 10.0
EXIT_S = 10.0
SCREEN_LINES = 25
SCREEN_WIDTH = 160

Say = Callable[[str], None]


class Undecided(Refused):
    """The canary has no result about the client; it must run again later."""

    exit_code = Exit.PASSING


def last_verdict(root: Root) -> Verdict | None:
    """The result of the last canary; None if there is no readable one."""
    try:
        return msgspec.json.decode(read_given(root.canary), type=Verdict)
    except (OSError, ValueError, RecursionError):
        return None


def require(project: Project, say: Say, *, asked: bool = False) -> Verdict | None:
    """Run the canary unless this client and tmux passed it; refuse auto mode if it fails. None: it did not run.

    The scripted agent changes only with llmc, so it is tested only on request.
    """
    agent = agent_for(project)
    if agent.ships_with_llmc and not asked:
        return None
    client, tmux = agent.version(), tmux_version()
    why = why_probe(last_verdict(project.root), client, tmux)
    if not why and not asked:
        return None
    say(f"canary: {why or f'{client} with {tmux}'}; testing in a scratch session")
    verdict = probe(project, say, client, tmux)
    if not verdict.passed:
        refused = Undecided if verdict.is_undecided else Refused
        error = refused(f"cannot start auto mode: {verdict.reason}", hint=f"{verdict.fix}.")
        error.details = {"canary": msgspec.to_builtins(verdict)}
        raise error
    return verdict


def tmux_version() -> str:
    return proc.run(["tmux", "-V"], timeout_s=20).stdout.strip()


def probe(project: Project, say: Say, client: str, tmux: str) -> Verdict:
    """Run every probe in a scratch session, and write the verdict to disk, if there is one."""
    lock = project.root.lock("canary")
    # Each of these ends the canary with KeyboardInterrupt, whatever the caller does with them: no agent is left behind.
    with locks.claim(lock) as ours, proc.handling(_interrupt, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if not ours:
            raise Undecided(
                f"cannot run the canary: another canary is running ({locks.holder(lock)})",
                hint="Wait for it to finish, then run the command again.",
            )
        end_leftovers(project.root)
        scratch = _scratch(project)
        drive = _Drive(scratch, say, project.config.defaults.ready_timeout_s)
        try:
            seen = drive.observe()
            hooks, screen = _hooks(scratch), drive.screen
        finally:
            _end(scratch)
        verdict = judge(
            seen, agent_for(project).name, client, tmux, now_unix(), hooks=hooks, screen=tuple(screen)
        )
        if not verdict.is_undecided:
            write_atomic(project.root.canary, msgspec.json.format(msgspec.json.encode(verdict), indent=1))
        if verdict.passed:  # else kept as evidence until the next canary
            _discard(scratch.root.path)
        return verdict


def leftovers(root: Root) -> list[Path]:
    """Scratch sessions left running by a killed canary; none while a canary runs."""
    if locks.is_locked(root.lock("canary")):
        return []
    return [path for path in _folders(root) if Tmux(Root(path).tmux_server).panes() != {}]


def end_leftovers(root: Root) -> None:
    """Stop what a killed canary left running, and remove old scratch folders; they hold no work."""
    for path in _folders(root):
        tmux = Tmux(Root(path).tmux_server)
        panes = tmux.panes()
        for pane in panes.values() if isinstance(panes, dict) else ():
            instance = processes.environment(pane.pid).get("LLMC_INSTANCE", "")
            sessions.end_program(pane)
            processes.kill(tool_children(instance))
        tmux.kill_server()
        _discard(path)


def _discard(path: Path) -> None:
    with suppress(OSError):  # the next canary tries again
        remove_tree(path)


def repair_leftovers(root: Root) -> None:
    """Like `end_leftovers`, but not while a canary runs."""
    with locks.claim(root.lock("canary")) as ours:
        if not ours:
            raise Refused("a canary is running", hint="Wait for it to finish, then run the command again.")
        end_leftovers(root)


def _folders(root: Root) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(root.canaries) if entry.is_dir())
    except OSError:
        return []


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _scratch(project: Project) -> Project:
    """A project with one worker, without git and without the fleet's task list."""
    root = Root(private_dir(project.root.canaries) / f"{time.time_ns()}")
    work = private_dir(root.path / "work")
    config = replace(project.config, auto=replace(project.config.auto, task_list_id=""), workers={})
    store = Store(root)
    store.create()
    record = WorkerRecord(
        name=NAME,
        worktree_path=str(work),
        branch="",
        session_id=SessionName(f"llmc-{NAME}"),
        created_at_unix=now_unix(),
        auto=True,
    )
    with store.transaction() as tx:
        tx.put(record)
    return Project(root, config, store, Tmux(root.tmux_server), trusted_as=project.root.path)


def _end(scratch: Project) -> None:
    with suppress(LlmcError), scratch.worker_lock(NAME):
        sessions.end(scratch, NAME, "canary")
    scratch.tmux.kill_server()


def _events(scratch: Project) -> list[dict[str, Any]]:
    return list(EventLog(str(scratch.root.events)).all())


class _Drive(msgspec.Struct):
    """One scratch session, from launch to exit. It stops at the first essential probe that does not pass."""

    project: Project
    say: Say
    ready_s: float
    seen: Observed = Observed()
    screen: list[str] = []

    def observe(self) -> Observed:
        with self.project.worker_lock(NAME):
            try:
                for act in (self._launch, self._submit, self._wait_for_the_end, self._clear, self._exit):
                    act()
                    if self.seen.busy or self._has_failed():
                        self._look()
                        break
            except LlmcError as error:  # of tmux or the disk, not the client, but still a failure
                self._note(launched=False, launch_problem=error.message)
        return self.seen

    def _note(self, **facts: Any) -> None:
        """Record facts, and print each probe that they decide."""
        before, self.seen = self.seen, replace(self.seen, **facts)
        for probe in PROBES:
            result = result_of(probe, self.seen)
            if result is not result_of(probe, before) and result is not Result.NOT_TRIED:
                self.say(f"canary: {probe.name.replace('_', ' ')}: {result.value}")

    def _has_failed(self) -> bool:
        return any(result_of(probe, self.seen) is Result.FAILED for probe in PROBES)

    def _launch(self) -> None:
        try:
            sessions.start(self.project, NAME)
        except LlmcError as error:
            self._note(launched=False, launch_problem=error.message)
            return
        self._note(launched=True)
        ready = processes.wait_until(
            lambda: self._has(What.SESSION_STARTED) or self._is_dead(), self.ready_s, interval_s=0.05
        )
        self._note(ready=ready and not self._is_dead())
        if self.seen.ready:
            known = processes.wait_until(
                lambda: self._status() is not ClientStatus.UNKNOWN, SIGN_S, interval_s=0.05
            )
            self._note(status_file=known)

    def _submit(self) -> None:
        self._look()
        receipt = submit(self.project, NAME, "canary", PROMPT)
        self._note(arrived=receipt.outcome.arrived, why_not=receipt.reason)
        if not receipt.outcome.arrived:
            return
        if self._status() is ClientStatus.BUSY:
            self._send_to_a_busy_agent()
        record = self._record()

        def has_row() -> bool:
            return _found(record, receipt.prompt_id) is not None

        self._note(
            prompt_hook=processes.wait_until(lambda: self._has(What.PROMPT_ARRIVED), SIGN_S),
            transcript_row=processes.wait_until(has_row, SIGN_S, interval_s=0.05),
        )

    def _send_to_a_busy_agent(self) -> None:
        """Send the prompt again while the first one is being answered."""
        record = self._record()
        receipt = submit(self.project, NAME, "canary", PROMPT)
        if not receipt.outcome.arrived:
            self._note(queue_row=False)
            return
        processes.wait_until(lambda: _found(record, receipt.prompt_id) is not None, SIGN_S, interval_s=0.05)
        row = _found(record, receipt.prompt_id)
        if row is None or row.queued:  # else the turn was already over, so nothing was queued
            self._note(queue_row=row is not None)

    def _wait_for_the_end(self) -> None:
        """Wait until hooks and the status file, if there is one, report that the client's turns are over."""
        resting_since = time.monotonic()
        deadline = resting_since + TURN_S
        while time.monotonic() < deadline and not self._is_dead():
            now = time.monotonic()
            if self._status() is ClientStatus.BUSY:
                resting_since = now
            rested_s = now - resting_since
            said = self._has(What.TURN_ENDED) or self._has(What.TURN_FAILED)
            if said and (rested_s > PAUSE_S or not self.seen.status_file):
                break
            if self.seen.status_file and rested_s > REST_S:
                break
            time.sleep(0.05)
        said = self._has(What.TURN_ENDED) or self._has(What.TURN_FAILED)
        failed = [row for row in _events(self.project) if row.get("action") == "agent_failed"]
        error = str(failed[-1].get("error")) if failed else ""
        cause = Cause(failed[-1].get("cause", Cause.AGENT)) if failed else Cause.AGENT
        status = self._status()
        rests, busy = status is ClientStatus.IDLE, status is ClientStatus.BUSY and not said
        self._note(turn_ended=said, api_error=error, api_cause=cause, rests=rests, busy=busy)

    def _clear(self) -> None:
        self._look()
        try:
            typist.start_new_conversation(self.project, self._record())
        except typist.Refusal:
            self._note(cleared=False)
            return
        self._note(cleared=True)

    def _exit(self) -> None:
        self._look()
        typist.leave(self.project, self._record())
        gone = processes.wait_until(self._is_dead, EXIT_S, interval_s=0.05)
        pane = self.project.pane(self._record())
        self._note(exited=gone, exit_code=pane.exit_code if isinstance(pane, Pane) else None)
        self._record()

    def _record(self) -> WorkerRecord:
        return intake.apply_pending(self.project, NAME)

    def _has(self, what: What) -> bool:
        self._record()
        name = reader_of(agent_for(self.project).name).hook_names[what]
        return any(hook.split()[0] == name for hook in _hooks(self.project))

    def _pane(self) -> Pane | None:
        pane = self.project.pane(self.project.store.worker(NAME))
        return pane if isinstance(pane, Pane) else None

    def _is_dead(self) -> bool:
        pane = self._pane()
        return pane is not None and pane.dead

    def _status(self) -> ClientStatus:
        pane = self._pane()
        return ClientStatus.UNKNOWN if pane is None else sessions.status_of(self._record(), pane)

    def _look(self) -> None:
        """Keep the end of the screen as evidence for the user; no decision depends on it."""
        with suppress(LlmcError):
            pane = self._pane()
            shown = self.project.tmux.capture(pane, history=50) if pane is not None else ""
            self.screen = [line.rstrip()[:SCREEN_WIDTH] for line in shown.splitlines() if line.strip()][
                -SCREEN_LINES:
            ]


def _hooks(scratch: Project) -> tuple[str, ...]:
    """The hooks that arrived, in order."""
    return hooks_in(_events(scratch), reader_of(agent_for(scratch).name).hook_names)


def _found(record: WorkerRecord, prompt_id: str) -> Prompt | None:
    """The first transcript row with a prompt: a prompt row or a queue row."""
    prompts, _ = reader_of(record.agent).transcript(record.transcript_path).prompts(prompt_id)
    return next((prompt for prompt in prompts if header_id(prompt.text) == prompt_id), None)
