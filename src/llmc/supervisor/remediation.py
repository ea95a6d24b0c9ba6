"""Remediation: runs the supervisor's own agent to fix what stopped the fleet, and logs its conversation.

The session runs on the same functions as a worker's; only its record, inbox, locks and socket are its own
(`OverseerRoot`).
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from llmc.agents.kinds import reader_of
from llmc.agents.protocol import Transcript
from llmc.auto.usage import record_usage
from llmc.base import processes
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError, NotFound, StateError
from llmc.base.files import append_line, explain, private_dir
from llmc.base.given import written_out
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane
from llmc.base.tmux import answered
from llmc.base.wake import listen, receive
from llmc.config.paths import Root
from llmc.records.transitions import step
from llmc.records.worker import Outcome as Delivered
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project, for_overseer
from llmc.sessions import intake, sessions, submit
from llmc.supervisor.rules import decide, remedy
from llmc.supervisor.rules.remedy import End, Outcome
from llmc.workers import reset
from llmc.workers.patrol import patrol
from llmc.workers.rules import Clock


class RemediationLog:
    """Follows the conversation and appends new rows to a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: how far each transcript was read
        self._read_to: dict[Path, int] = {}
        #: whether the last row read is one that ends a turn
        self.turn_is_over = False

    @classmethod
    def create(cls, root: Root) -> "RemediationLog":
        """Create a log file; the names sort by time."""
        folder = private_dir(root.logs)
        while True:
            path = folder / f"remediation_{_stamp(now_unix())}.txt"
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                continue  # in the same millisecond
            except OSError as error:
                raise explain(error, f"cannot create {path}") from error
            return cls(path)

    def section(self, title: str, text: str = "") -> None:
        self._append(f"=== {title}\n{text}".rstrip("\n") + "\n")

    def follow(self, transcript: Transcript) -> bool:
        """Append new rows, including those of subagents; returns whether there were any."""
        if not transcript.path.name:
            return False  # the agent has not reported its transcript yet
        found = self._follow_file(transcript, "agent", is_main=True)
        for one in transcript.subagents():
            found |= self._follow_file(one, f"sub{one.path.stem}")
        return found

    def _follow_file(self, transcript: Transcript, speaker: str, *, is_main: bool = False) -> bool:
        offset = self._read_to.get(transcript.path, 0)
        if transcript.size() <= offset:
            return False
        said = transcript.passage(offset, speaker, was_over=self.turn_is_over)
        self._read_to[transcript.path] = said.end
        if is_main:
            self.turn_is_over = said.turn_is_over
        if said.text:
            self._append(said.text)
        return said.end > offset

    def _append(self, text: str) -> None:
        append_line(self.path, text.encode("utf-8", "backslashreplace"))


def _stamp(now: float) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def open_session(project: Project, say: Callable[[str], None]) -> str:
    """Start the supervisor's agent if it is not running; returns the problem if it does not become ready."""
    with own_session(project) as own:
        return ready(own, say)


def close_session(project: Project) -> None:
    """Stop the supervisor's agent; only the supervisor itself does that."""
    with own_session(project) as own:
        sessions.end(own, OVERSEER, "the supervisor stopped")


def main_directory(project: Project) -> tuple[Path, str]:
    """Where the supervisor's agent works: the checkout of the source, else the root, and why."""
    source = Path(project.source)
    if not source.is_dir():
        return project.root.path, f"{project.source} is not a local directory"
    if (source / ".git").exists():  # checked without git, which may be what is broken
        return source, ""
    with contextlib.suppress(LlmcError):
        place = git.checked_out_at(source, project.config.repo.default_branch)
        if place is not None and place.is_dir():
            return place, ""
    return project.root.path, f"{source} has no working tree"


@contextmanager
def own_session(project: Project) -> Iterator[Project]:
    """The project of the supervisor's session, with its record, locked."""
    own = for_overseer(project)
    private_dir(own.root.locks)
    with own.worker_lock(OVERSEER, timeout_s=10):
        _make_record(own)
        yield own


def _make_record(own: Project) -> None:
    try:
        own.store.worker(OVERSEER)
    except (NotFound, StateError):
        place, _ = main_directory(own)
        record = WorkerRecord(
            name=OVERSEER,
            worktree_path=str(place),
            branch="",
            session_id=own.session(OVERSEER),
            created_at_unix=now_unix(),
            auto=True,  # without tools that wait for the user
        )
        state = own.root.state
        unreadable = state.with_name(f"{state.name}.unreadable-{int(now_unix())}") if state.exists() else None
        own.store.start_anew([record], unreadable)


def ready(own: Project, say: Callable[[str], None]) -> str:
    """Make the session idle, or restart it without its old conversation; returns the problem if that fails."""
    sessions.reconcile(own, OVERSEER)
    place, why = main_directory(own)
    record, pane = look(own)
    fits = record.worktree_path == str(place) and reset.quieten(own, record, pane)
    if not fits:
        sessions.end(own, OVERSEER, "restart")
    with own.store.transaction() as tx:
        found = tx.update(OVERSEER, delivery=None, current_prompt="", worktree_path=str(place))
        if found.status not in (Status.IDLE, Status.OFFLINE):
            found = tx.move(OVERSEER, step(Status.IDLE, "ready"))
        if not fits and found.status is Status.IDLE:
            tx.move(OVERSEER, step(Status.OFFLINE, "restart"))
    if fits:
        return ""
    if why:
        say(f"the remediation agent works in {place} because {why}")
    sessions.start(own, OVERSEER)
    return sessions.wait_ready(own, OVERSEER, own.config.defaults.ready_timeout_s) or ""


def look(own: Project) -> tuple[WorkerRecord, Pane | None]:
    record = own.store.worker(OVERSEER)
    pane = answered(own.pane(record), record.session_id, hint="")
    return record, pane


#: how often the session is checked without a hook
TICK_S = 0.5
#: most of the limit that one check uses up, so that suspending the machine does not use it up
MOST_TICK_S = 3 * TICK_S
#: how long to wait for the last rows, which the client writes after its Stop hook
LAST_ROWS_S = 5.0
QUIET_S = 0.3
#: how long to wait for late proof that a prompt was delivered
LATE_S = 15.0


class Remediation(Struct, frozen=True):
    """The result; `log` is the file with the whole conversation."""

    outcome: Outcome
    duration_s: float
    problem: str
    log: Path
    #: the kind of failure (records/worker.py), if known
    cause: str = ""


def remediate(
    project: Project,
    prompt: str,
    *,
    limit_s: float,
    stopping: Callable[[], bool],
    say: Callable[[str], None],
) -> Remediation:
    """Send a failure to the supervisor's agent and wait until it is done. Problems are in the result."""
    began = monotonic()
    say(decide.ENTERING)
    log = None
    try:
        log = RemediationLog.create(project.root)
        log.section("prompt", prompt)
        with own_session(project) as own:
            with _hooks(own) as hooks:
                end = _Turn(own, log, limit_s, stopping, say, hooks).run(written_out(prompt))
            with contextlib.suppress(LlmcError):  # accounting must not hide how it ended
                record_usage(own, OVERSEER)
    except LlmcError as error:
        end = End(Outcome.FAILED, f"{error.message}. {error.hint}".rstrip(". "))
    except OSError as error:
        end = End(Outcome.FAILED, str(error))
    except Exception as error:
        end = End(Outcome.FAILED, f"bug in the supervisor: {type(error).__name__}: {error}")
    duration_s = monotonic() - began
    if log is not None:
        with contextlib.suppress(LlmcError):  # a full disk must not hide how it ended
            problem = f"\nproblem: {end.problem}" if end.problem else ""
            log.section("outcome", f"{end.outcome}{problem}\nduration: {duration_s:.1f} s")
    say(decide.outcome(end.outcome, duration_s, end.problem))
    path = log.path if log is not None else project.root.logs
    return Remediation(end.outcome, duration_s, end.problem, path, end.cause)


@contextmanager
def _hooks(own: Project) -> Iterator[socket.socket]:
    """The wake-up socket for the hooks of the session."""
    sock = listen(own.root.wake_socket())
    try:
        yield sock
    finally:
        sock.close()
        own.root.wake_socket().unlink(missing_ok=True)


class _Turn(Struct):
    """One remediation, from the prompt to its end."""

    own: Project
    log: RemediationLog
    limit_s: float
    stopping: Callable[[], bool]
    say: Callable[[str], None]
    hooks: socket.socket
    spent_s: float = 0.0
    looked: float = field(default_factory=monotonic)

    def run(self, prompt: str) -> End:
        """Run it to the end; a session that crashes is restarted and gets the prompt again."""
        for attempt in range(1, remedy.TRIES + 1):
            self.log.section(f"session {self.own.session(OVERSEER)}, attempt {attempt}")
            end = self._attempt(prompt)
            if not end.crashed or attempt == remedy.TRIES:
                break
            self._tell(f"{end.problem}; restarting the remediation session")
        return end

    def _attempt(self, prompt: str) -> End:
        end = self._wait_for_people()
        if end is not None:
            return end
        problem = ready(self.own, self._tell)
        if problem:
            return End(Outcome.FAILED, problem, crashed=True)
        then = Status.WORKING
        receipt = submit.submit(
            self.own, OVERSEER, "remedy", prompt, clear=True, then=then, current_prompt=prompt
        )
        if not receipt.outcome.arrived and not self._arrives_late(receipt):
            return End(
                Outcome.FAILED,
                f"cannot deliver the prompt ({receipt.outcome}): {receipt.reason}",
                crashed=True,
            )
        try:
            end = self._watch()
        except (LlmcError, OSError):
            self._interrupt()
            raise
        if end.outcome in (Outcome.TIMEOUT, Outcome.INTERRUPTED):
            end = self._cut_short(end)
        self._last_rows(end)
        return end

    def _arrives_late(self, receipt: submit.Receipt) -> bool:
        """Whether an unconfirmed prompt was delivered after all: on a busy machine its hook may be late."""

        def has_arrived() -> bool:
            delivery = intake.apply_pending(self.own, OVERSEER).delivery
            return delivery is not None and delivery.outcome.arrived

        unsure = receipt.outcome is Delivered.UNCONFIRMED
        return unsure and processes.wait_until(has_arrived, LATE_S, interval_s=0.1)

    def _wait_for_people(self) -> End | None:
        """Wait while a terminal is attached, to keep out of the user's input; returns the end if told to stop."""
        told = False
        while True:
            record, pane = look(self.own)
            taken = sessions.is_taken(record, pane)
            if not taken:
                return None
            if self.stopping():
                return End(Outcome.INTERRUPTED)
            if not told:
                self._tell(f"remediation is waiting: {taken}")
                told = True
            self._pause(attached=True)

    def _watch(self) -> End:
        while True:
            sessions.reconcile(self.own, OVERSEER)
            record, pane = look(self.own)
            self.log.follow(reader_of(record.agent).transcript(record.transcript_path))
            attached = pane is not None and pane.attached
            end = remedy.judge(
                record,
                attached=attached,
                stopping=self.stopping(),
                spent_s=self.spent_s,
                limit_s=self.limit_s,
            )
            if end is not None:
                return end
            if record.background_since_unix:
                patrol(self.own, OVERSEER, Clock(now_unix()), float("inf"))
            self._pause(attached)

    def _pause(self, attached: bool) -> None:
        """Wait for a hook, but not for long; the time limit is paused while a terminal is attached."""
        select.select([self.hooks], [], [], TICK_S)
        while receive(self.hooks) is not None:
            pass
        now = monotonic()
        if not attached:
            self.spent_s += min(now - self.looked, MOST_TICK_S)
        self.looked = now

    def _last_rows(self, end: End) -> None:
        """Log the rows that the client writes after its Stop hook."""
        record = self.own.store.worker(OVERSEER)
        transcript = reader_of(record.agent).transcript(record.transcript_path)
        expects_more = end.outcome is Outcome.COMPLETED
        read = monotonic()

        def is_all() -> bool:
            nonlocal read
            if self.log.follow(transcript):
                read = monotonic()
            return self.log.turn_is_over if expects_more else monotonic() - read > QUIET_S

        processes.wait_until(is_all, LAST_ROWS_S, interval_s=0.05)

    def _cut_short(self, end: End) -> End:
        left = self._interrupt()
        return End(end.outcome, "; ".join(filter(None, (end.problem, left))), end.cause)

    def _interrupt(self) -> str:
        """Stop the turn with Esc or, if that fails, by stopping the agent; returns why it keeps running, if it does."""
        record = intake.apply_pending(self.own, OVERSEER)
        record, pane = look(self.own)
        if sessions.is_taken(record, pane):
            return "the agent keeps running because a terminal is attached"
        if not reset.quieten(self.own, record, pane):
            sessions.end(self.own, OVERSEER, "the remediation was interrupted")
        return ""

    def _tell(self, text: str) -> None:
        self.log.section("note", text)
        self.say(text)
