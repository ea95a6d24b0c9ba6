"""Watches one daemon (registration, heartbeat, log, progress) and collects the facts after a failure."""

import os
import shutil
import time
from pathlib import Path

from msgspec import Struct, field

from llmc.agents.kinds import reader_of
from llmc.agents.protocol import Transcript
from llmc.auto.rules.steps import waits_for_answer
from llmc.base import proc
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import json_record
from llmc.base.log_reader import LogReader, archives
from llmc.config.model import Overseer
from llmc.config.paths import Root
from llmc.doctor.checks.what_runs import MANUAL
from llmc.records import sight
from llmc.records.event_log import EventLog
from llmc.records.items import Registration
from llmc.records.state import State
from llmc.records.worker import WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project
from llmc.supervisor.daemon_process import Running
from llmc.supervisor.model import Failure, Identity, Record, failures
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.prompt import LINES, Situation
from llmc.tasks.source import source_of
from llmc.tasks.task_list import overview
from llmc.workers.rules import clock_jump

#: with less free space than this, nothing can be written
DISK_FULL_BYTES = 4 * 1024 * 1024
#: how much of a log's end is read for its last lines
TAIL_BYTES = 256 * 1024


def at_work(state: State) -> list[WorkerRecord]:
    """Auto workers with a task, except those that wait for the user or for their work to land."""
    able = _able_to_work(state)
    return [record for record in able if record.assignment is not None and not waits_for_answer(record)]


def _able_to_work(state: State) -> list[WorkerRecord]:
    """Auto workers that could take a task: neither the user nor a landing, which may take hours, keeps them from it.

    One that waits for an answer takes a task if no other worker is free.
    """
    return [
        record
        for record in state.workers.values()
        if record.auto and not record.waits_for_a_person and not record.landing_waits_for
    ]


def stalled_workers(project: Project) -> list[str]:
    """The names of workers that are at work; none if the state cannot be read."""
    try:
        return [record.name for record in at_work(project.store.read())]
    except LlmcError:
        return []


def disk_is_full(root: Root) -> bool:
    try:
        return shutil.disk_usage(root.path).free < DISK_FULL_BYTES
    except OSError:
        return False


def situation(project: Project, failure: Failure, daemon: Identity | None) -> Situation:
    """The facts for the remediation prompt; in place of a fact that cannot be read, the problem as text."""
    root = project.root
    workers, problem = _workers(project)
    logs = (root.logs / "daemon.jsonl", root.log("task_pool"), root.log("post_accept"))
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return Situation(
        instructions=project.config.overseer.remediation_prompt,
        failure=failure,
        root=str(root.path),
        source=project.source,
        daemon=daemon,
        logs={str(path): _last_lines(path) for path in logs},
        workers=workers,
        state_problem=problem,
        git_status=_git_status(project),
        manual_file=str(root.private / f"{MANUAL}{stamp}.txt"),
    )


def _last_lines(path: Path) -> tuple[str, ...]:
    try:
        return tuple(proc.tail(path, 0, TAIL_BYTES).splitlines()[-LINES:])
    except OSError:
        return ()


def _workers(project: Project) -> tuple[tuple[WorkerRecord, ...] | None, str]:
    try:
        state = project.store.read()
    except LlmcError as error:
        return None, f"{error.message}. {error.hint}".removesuffix(". ")
    return tuple(record for _, record in sorted(state.workers.items())), ""


def _git_status(project: Project) -> str:
    if not os.path.isdir(project.source):
        return f"{project.source} is not a local directory"
    try:
        done = git.git(Path(project.source), "status", "--short", "--branch", check=False)
    except LlmcError as error:
        return error.message
    return done.stdout if done.ok else done.stderr


#: if checks are closer together than this, a late one proves nothing
LEAST_INTERVAL_S = 1.0


class Since(Struct):
    """How long a value has not changed, by the monotonic clock."""

    at: float
    value: object = None

    def see(self, value: object, now: float) -> float:
        """Record the value; returns how long it has not changed."""
        if value != self.value:
            self.value, self.at = value, now
        return now - self.at


class LogTail:
    """New failure records in the daemon's log."""

    def __init__(self, path: Path) -> None:
        known = archives(str(path))
        self._reader = LogReader(str(path), after=known[-1][0] if known else 0)
        self._reader.read()  # older records do not count

    def read(self) -> list[Record]:
        return failures(self._reader.lines())

    def close(self) -> None:
        self._reader.close()


class Progress(Struct):
    """How long ago work made progress: a task started or completed, a park ended, or an agent wrote something."""

    _quiet: Since
    #: how far each transcript was read
    _read_to: dict[Path, int] = field(default_factory=dict)
    _rows: int = 0

    def quiet_s(self, state: State, now: float) -> float:
        wall = now_unix()
        for record in at_work(state):
            self._rows += sum(self._agent_rows(transcript) for transcript in _transcripts(record))
        auto = state.auto
        waits = wall < max(auto.parked_until_unix, auto.source_repo_dirty_retry_after_unix)
        mark = (
            auto.last_task_completion_unix,
            auto.last_task_assignment_unix,
            auto.resumed_unix,
            auto.parked_until_unix,
            auto.source_repo_dirty_retry_after_unix,
            self._rows,
            wall if waits or state.failing_base is not None else 0.0,
        )
        return self._quiet.see(mark, now)

    def forget(self, now: float) -> None:
        """Start one full limit from now: the clock jumped, or the daemon has just become ready."""
        self._quiet.at = now

    def _agent_rows(self, transcript: Transcript) -> int:
        """Rows that the agent wrote since the last check; prompts do not count, because llmc sends them."""
        path, size = transcript.path, transcript.size()
        if path not in self._read_to:
            self._read_to[path] = size
            return 0
        begin = self._read_to[path] if size >= self._read_to[path] else 0
        replies, self._read_to[path] = transcript.replies(begin)
        return replies


def _transcripts(record: WorkerRecord) -> list[Transcript]:
    if not record.transcript_path:
        return []
    transcript = reader_of(record.agent).transcript(record.transcript_path)
    return [transcript, *transcript.subagents()]


class Watch:
    """Watches one daemon from start to end."""

    def __init__(self, project: Project, daemon: Running, tail: LogTail, settings: Overseer) -> None:
        now = monotonic()
        self._project = project
        self._daemon = daemon
        self._tail = tail
        self._settings = settings
        self._looked = (now, now_unix())
        self._registered = Since(now)
        self._beat = Since(now)
        self._progress = Progress(Since(now))
        self._was_ready = False

    def look(self) -> decide.Seen:
        """Observe the daemon."""
        now = monotonic()
        # Check this first: if another daemon takes over in the meantime, that must be the finding.
        alive = self._daemon.is_alive()
        found = sight.registration(self._project.root.path) or Registration()
        identity = Identity.of(found)
        beat = self._beat_now()
        if found.ready and not self._was_ready:  # before that, nothing could make progress
            self._was_ready = True
            self._progress.forget(now)
        quiet_s = self._quiet_s(now)
        return decide.Seen(
            alive=alive,
            exit_code=None if alive else self._daemon.exit_code(),
            drained="" if alive else self._drained(),
            registered=identity,
            unregistered_s=self._registered.see(identity is None, now),
            beat_of=beat[0] if beat else None,
            beat_age_s=self._beat.see(beat, now),
            records=tuple(self._tail.read()),
            quiet_s=quiet_s,
            has_work=decide.is_quiet_for_long(quiet_s, self._settings) and self._has_work(),
        )

    def clock_jump(self) -> str:
        """Why all timeouts start over now; "" if they do not."""
        now, wall = monotonic(), now_unix()
        interval_s = max(LEAST_INTERVAL_S, self._settings.check_interval_secs)
        (before, wall_before), self._looked = self._looked, (now, wall)
        why = clock_jump(interval_s, now - before, wall - wall_before)
        if why:
            self._beat.at = self._registered.at = now
            self._progress.forget(now)
        return why.replace("patrol", "the daemon check")

    def _drained(self) -> str:
        """Why the daemon stopped taking tasks, if it exited because of that."""
        if self._daemon.exit_code() != 0:
            return ""
        log = EventLog(str(self._project.root.events)).since(self._daemon.identity.start_time_unix)
        ours = [row for row in log if row.get("action") == "auto_stopped"]
        return str(ours[-1].get("reason")) if ours else ""

    def _beat_now(self) -> tuple[str, float] | None:
        row = json_record(self._project.root.heartbeat)
        return (str(row.get("instance_id")), float(row.get("timestamp_unix") or 0.0)) if row else None

    def _quiet_s(self, now: float) -> float:
        try:
            return self._progress.quiet_s(self._project.store.read(), now)
        except LlmcError:
            return 0.0  # the daemon reports an unreadable state

    def _has_work(self) -> bool:
        """Whether a worker has a task or could start one; False while commits still arrive."""
        try:
            state = self._project.store.read()
            stall_s = self._settings.stall_timeout_secs
            if any(self._committed_s(record) <= stall_s for record in at_work(state)):
                return False
            return bool(at_work(state)) or (bool(_able_to_work(state)) and _is_ready_work(self._project))
        except (LlmcError, OSError):
            return False

    def _committed_s(self, record: WorkerRecord) -> float:
        """Age of the worker's latest commit."""
        at = git.last_commit_unix(self._project.root.path, self._project.base, record.branch)
        return float("inf") if at is None else max(0.0, now_unix() - at)


def _is_ready_work(project: Project) -> bool:
    """Whether a task could start now. One in progress does not count: its worker may wait for the user for hours."""
    return "ready" in overview(source_of(project), recent=0).states.values()
