"""Observes the work on goals: task ledger, workers, transcripts, git, event log.

Collects facts, which drive/liveness.py judges. One judgement is made here: a worker that was active within its
idle limit has the task in flight (`_of_worker`). llmc's own prompts are marked, and do not count as activity.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.agents.kinds import reader_of
from llmc.auto.rules.waiting import is_parked
from llmc.base.clock import now_unix
from llmc.base.files import json_row
from llmc.base.given import number, text
from llmc.base.log_reader import LogReader
from llmc.base.names import TaskKey, WorkerName
from llmc.goals.drive.ladder import HOME, session_key, worker_of
from llmc.goals.drive.liveness import MAX_MESSAGES, Merged, Message, Report, Run, Signals, is_echo
from llmc.goals.drive.updates import KINDS, from_report
from llmc.goals.model import Assignment, BlockedReason, Evidence, Mode, Tested
from llmc.records.books import QUARANTINED, Books
from llmc.records.event_log import EventLog
from llmc.records.state import State
from llmc.records.task import Task
from llmc.records.worker import Outcome, Status, WorkerRecord
from llmc.repo import git, provision
from llmc.repo.project import Project
from llmc.sessions.rules.decide import STOPPED
from llmc.tasks.source import source_of
from llmc.tasks.task_list import believed_tasks

MAX_REPORTS = 50
_ARRIVED = tuple(one.value for one in Outcome if one.arrived)
_ABOUT = (b'"agent_reported"', b'"accepted"', b'"undone"', b'"prompt_pending"', b'"prompt_delivered"')


class _Log(Struct):
    """Events of workers, read incrementally."""

    reports: dict[str, list[Report]] = field(default_factory=dict)
    #: by worker: time and commit
    accepted: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    #: by worker: when llmc began and finished sending each prompt
    prompted: dict[str, list[float]] = field(default_factory=dict)
    #: by worker: when llmc began to send each prompt that arrived; the agent may reply before the receipt is written
    told: dict[str, list[float]] = field(default_factory=dict)
    #: by prompt id: when llmc began to send it
    _began: dict[str, float] = field(default_factory=dict)
    _reader: LogReader | None = None
    _since: float = 0.0

    def read(self, project: Project, since: float) -> None:
        """`since`: creation time of the oldest observed assignment."""
        if self._reader is None or since < self._since:
            self.reports, self.accepted, self.prompted, self.told, self._began = {}, {}, {}, {}, {}
            self._reader, self._since = EventLog(str(project.root.events)).reader(since), since
        for line in self._reader.lines():
            row = json_row(line) if any(mark in line for mark in _ABOUT) else None
            if row is not None:
                self._note(row)

    def _note(self, row: Mapping[str, Any]) -> None:
        worker, ts = str(row.get("worker")), number(row.get("ts")) or 0.0
        match row.get("action"):
            case "agent_reported" if str(row.get("kind")) in KINDS:
                update = from_report(str(row["kind"]), text(row.get("text")), row.get("update"))
                _keep(self.reports, worker, Report(ts, update, text(row.get("message_id"))))
            case "accepted":
                _keep(self.accepted, worker, (ts, str(row.get("commit") or "")))
            case "undone":
                landed = self.accepted.get(worker, [])
                self.accepted[worker] = [one for one in landed if one[1] != row.get("commit")]
            case "prompt_pending":
                _keep(self.prompted, worker, ts)
                self._began[text(row.get("prompt_id"))] = ts
            case "prompt_delivered":
                _keep(self.prompted, worker, ts)
                if row.get("outcome") in _ARRIVED:
                    _keep(self.told, worker, self._began.pop(text(row.get("prompt_id")), ts))


def _keep(rows: dict[str, list[Any]], worker: str, row: Any) -> None:
    rows[worker] = [*rows.get(worker, []), row][-MAX_REPORTS:]


class _Facts(Struct, frozen=True):
    """Facts shared by all assignments of one tick."""

    project: Project
    state: State
    books: Books
    list_name: str
    #: by dispatch
    tasks: Mapping[str, Task]
    log: _Log
    now: float
    idle_after_s: float


class Observer:
    """Observes the workers of goals; one per daemon, so that logs are read once."""

    def __init__(self, project: Project) -> None:
        self._source = source_of(project)
        self._log = _Log()

    def look(
        self, project: Project, assignments: Iterable[Assignment], samples: Collection[str] = ()
    ) -> dict[str, Signals]:
        """Signals by assignment; messages are read only for those in `samples`."""
        wanted = list(assignments)
        if not wanted:
            return {}
        self._log.read(project, min(one.created_at for one in wanted))
        found = believed_tasks(self._source) if self._source.list_name else []
        facts = _Facts(
            project=project,
            state=project.store.read(),
            books=self._source.books(),
            list_name=self._source.list_name,
            tasks={task.dispatch: task for task in found if task.dispatch},
            log=self._log,
            now=now_unix(),
            idle_after_s=project.config.overseer.goals.idle_after,
        )
        seen = {one.assignment_id: _of(facts, one) for one in wanted}
        for one in wanted:
            if one.assignment_id in samples:
                seen[one.assignment_id] = _sampled(facts, seen[one.assignment_id])
        return seen


def _of(facts: _Facts, assignment: Assignment) -> Signals:
    last = assignment.last_instruction
    if last is None:
        return Signals()
    if last.mode is Mode.SEND and assignment.agent_id != HOME:
        return _of_manual_worker(facts, assignment, last.ts)
    runs = [_task_of(facts, dispatch) for dispatch in _spawned(assignment)]
    landed = next((run for run in runs if run is not None and facts.books.is_completed(run[0])), None)
    run = landed or (runs[-1] if runs else None)
    return Signals() if run is None else _of_task(facts, assignment, *run)


def _task_of(facts: _Facts, dispatch: str) -> tuple[TaskKey, Task | None] | None:
    task = facts.tasks.get(dispatch)
    key = facts.books.dispatches.get(dispatch) or (TaskKey(facts.list_name, task.id) if task else None)
    return (key, task) if key is not None else None


def _spawned(assignment: Assignment) -> list[str]:
    """The dispatches that made task files, oldest first."""
    spawned = [d for d in assignment.dispatch_history if d.mode is Mode.SPAWN]
    return [d.dispatch_id for d in spawned if d.purpose in ("work", "reassign")]


def _of_task(facts: _Facts, assignment: Assignment, key: TaskKey, task: Task | None) -> Signals:
    books, run_id = facts.books, key.id
    if books.is_completed(key):
        return Signals(run_id=run_id, run=Run.ENDED, merged=_merged(facts, key, task))
    claim = books.claim_on(key)
    record = facts.state.workers.get(WorkerName(claim.worker)) if claim else None
    if claim is not None and record is not None and record.assignment and record.assignment.claim == claim.id:
        return _of_worker(facts, assignment, run_id, record, record.assignment.since_unix)
    if claim is not None or _is_elsewhere(facts, task):
        return Signals(run_id=run_id, run=Run.IN_FLIGHT)
    kept, held = books.kept_back(key), books.kept.get(key)
    if kept == QUARANTINED:
        words, reason = books.why_kept(key)
        ends = [*books.failures.get(key, ()), *filter(None, [held])]
        return Signals(
            run_id=run_id,
            run=Run.FAILED,
            run_error=reason or f"the task {words}",
            run_ended_at=max((one.at_unix for one in ends), default=None),
        )
    if kept and held is not None:
        asked = BlockedReason(kind=kept, text=held.reason[:1000], question=held.reason[:1000])
        return Signals(run_id=run_id, run=Run.ENDED, waiting=asked, waiting_since=held.at_unix)
    return Signals(run_id=run_id, run=Run.WAITING if task is not None else Run.NONE)


def _is_elsewhere(facts: _Facts, task: Task | None) -> bool:
    """Whether another node of the fleet has the task; a claim that its node does not renew is released."""
    return bool(facts.project.config.fleet.database and task is not None and task.claim)


def _of_worker(
    facts: _Facts, assignment: Assignment, run_id: str, record: WorkerRecord, since: float
) -> Signals:
    """Signals of work that a worker has: in flight while there is activity."""
    transcript = reader_of(record.agent).transcript(record.transcript_path)
    wrote = transcript.last_reply_unix() if record.transcript_path else None
    grew = transcript.last_growth_unix() if record.transcript_path else None
    prompted = tuple(facts.log.prompted.get(record.name, ()))
    committed = _committed(facts.project, record, since)
    own = grew if grew is not None and not is_echo(grew, prompted) else None
    newest = max(at for at in (wrote, own, committed, since) if at is not None)
    fresh = facts.now - newest < assignment.idle_after_s(facts.idle_after_s)
    moves = fresh or is_parked(facts.state.auto) or record.accept is not None
    # llmc's turn: landing or restart
    moves |= record.status in (Status.NEEDS_REVIEW, Status.OFFLINE)
    return Signals(
        run_id=run_id,
        run=Run.IN_FLIGHT if moves else Run.NONE,
        session_key=session_key(assignment.agent_id, record.name),
        session_id=record.claude_session_id or "",
        reachable=(record.status.is_busy or record.status is Status.NEEDS_INPUT) and not record.held,
        session_updated_at=grew,
        agent_wrote_at=wrote,
        committed_at=committed,
        prompted_at=prompted,
        told_at=tuple(facts.log.told.get(record.name, ())),
        reports=tuple(one for one in facts.log.reports.get(record.name, ()) if one.at > since),
    )


def _of_manual_worker(facts: _Facts, assignment: Assignment, since: float) -> Signals:
    """Signals of a manual worker that goals may prompt; accepting its commit completes the work."""
    record = facts.state.workers.get(WorkerName(assignment.agent_id))
    if record is None:
        return Signals()
    landed = [(ts, commit) for ts, commit in facts.log.accepted.get(record.name, ()) if ts > since]
    signals = _of_worker(facts, assignment, assignment.run_id, record, since)
    if landed:
        at, commit = landed[-1]
        return replace(
            signals, run=Run.ENDED, merged=Merged(commit, at, _evidence(facts.project, commit, ""))
        )
    if record.status is Status.NEEDS_INPUT and record.reason not in STOPPED:
        asked = BlockedReason(
            kind="worker", text=record.error_reason or f"the worker needs input ({record.reason})"
        )
        return replace(signals, run=Run.ENDED, waiting=asked, waiting_since=record.since_unix)
    return signals


def _committed(project: Project, record: WorkerRecord, since: float) -> float | None:
    """Time of the worker's newest commit after `since`, or None."""
    at = git.last_commit_unix(project.root.path, project.base, record.branch)
    return at if at is not None and at >= since - 1 else None


def _merged(facts: _Facts, key: TaskKey, task: Task | None) -> Merged:
    landed = facts.books.landed.get(key)
    commit, at = (landed.commit, landed.at_unix) if landed else ("", facts.now)
    verify = task.verify if task is not None else ""
    if not commit:
        return Merged("", at, Evidence(external_refs=(f"task {key}",)), "no changes needed")
    if not git.has_commit(facts.project.root.path, commit):  # another node landed it
        provision.refresh_base(facts.project)
    evidence = _evidence(facts.project, commit, verify)
    return Merged(
        commit, at, evidence, git.out(Path(facts.project.root.path), "log", "-1", "--format=%s", commit)
    )


def _evidence(project: Project, commit: str, verify: str) -> Evidence:
    """The commit's files, and the commands that llmc ran before landing."""
    done = git.git(project.root.path, "show", "--format=", "--name-only", "-z", commit, "--", check=False)
    files = tuple(git.rows(done.stdout)[:50]) if done.ok else ()
    checks = [command for command in (verify, project.config.repo.validate) if command]
    return Evidence(
        files_touched=files,
        commits=(commit,),
        tests_run=tuple(Tested(command=command[:500], result="passed before landing") for command in checks),
    )


def _sampled(facts: _Facts, signals: Signals) -> Signals:
    worker = worker_of(signals.session_key)
    record = facts.state.workers.get(WorkerName(worker))
    if record is None or not record.transcript_path:
        return replace(signals, messages=())
    rows = reader_of(record.agent).transcript(record.transcript_path).last_messages(MAX_MESSAGES)
    return replace(signals, messages=tuple(Message(*row) for row in rows))
