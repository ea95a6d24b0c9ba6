"""Remediation: the supervisor's own agent mends what stopped the fleet.

Its session is launched, told and listened to by the same functions as a worker's; only its record, inbox, locks and
socket are its own (`OverseerRoot`).
"""

import contextlib
import select
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from llmc.auto.usage import record_usage
from llmc.base import processes
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.base.names import OVERSEER
from llmc.base.wake import listen, receive
from llmc.records.worker import Outcome as Delivered
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.sessions import intake, sessions, submit
from llmc.supervisor.overseer_session import look, own_session, ready
from llmc.supervisor.remediation_log import RemediationLog
from llmc.supervisor.rules import remedy, words
from llmc.supervisor.rules.remedy import End, Outcome
from llmc.workers import reset
from llmc.workers.patrol import patrol
from llmc.workers.rules.patrol import Clock

#: how often the session is looked at where no hook says anything
TICK_S = 0.5
#: so much of the limit one look can use up: a machine that stood still has not used it
MOST_TICK_S = 3 * TICK_S
#: the last rows of a conversation are written after the hook that tells of its end; how long they are waited for
LAST_ROWS_S = 5.0
QUIET_S = 0.3
#: how long a prompt without a receipt may still turn out to have arrived
LATE_S = 15.0


class Remediation(Struct, frozen=True):
    """What became of it; `log` is the file with everything that was said."""

    outcome: Outcome
    duration_s: float
    problem: str
    log: Path
    #: what kind of failure it was (records/causes.py), where that is known
    cause: str = ""


def remediate(
    project: Project,
    prompt: str,
    *,
    limit_s: float,
    stopping: Callable[[], bool],
    say: Callable[[str], None],
) -> Remediation:
    """Tell the supervisor's agent of a failure and wait until it is done. What goes wrong is in the answer."""
    began = monotonic()
    say(words.ENTERING)
    log = None
    try:
        log = RemediationLog.create(project.root)
        log.section("prompt", prompt)
        with own_session(project) as own:
            end = _Turn(own, log, limit_s, stopping, say).run(remedy.printable(prompt))
            with contextlib.suppress(LlmcError):  # what it cost must not hide how it ended
                record_usage(own, OVERSEER)
    except LlmcError as error:
        end = End(Outcome.FAILED, f"{error.message}. {error.hint}".rstrip(". "))
    except OSError as error:
        end = End(Outcome.FAILED, str(error))
    duration_s = monotonic() - began
    if log is not None:
        with contextlib.suppress(LlmcError):  # a full disk must not hide how it ended
            log.section("outcome", _outcome_text(end, duration_s))
    say(words.outcome(end.outcome, duration_s, end.problem))
    path = log.path if log is not None else project.root.logs
    return Remediation(end.outcome, duration_s, end.problem, path, end.cause)


class _Turn:
    """One failure told to the agent, from the first key to its end."""

    def __init__(
        self,
        own: Project,
        log: RemediationLog,
        limit_s: float,
        stopping: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self.own = own
        self.log = log
        self.limit_s = limit_s
        self.stopping = stopping
        self.say = say
        self.spent_s = 0.0
        self.looked = monotonic()

    def run(self, prompt: str) -> End:
        """Its end; a session that crashes is started again, and told once more."""
        self.socket = listen(self.own.root.wake_socket())
        try:
            for attempt in range(1, remedy.TRIES + 1):
                self.log.section(f"session {self.own.session(OVERSEER)}, attempt {attempt}")
                end = self._attempt(prompt)
                if not end.crashed or attempt == remedy.TRIES:
                    break
                self._tell(f"the remediation session has to be started again: {end.problem}")
            return end
        finally:
            self.socket.close()
            self.own.root.wake_socket().unlink(missing_ok=True)

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
            return End(Outcome.FAILED, f"the prompt was {receipt.outcome}: {receipt.reason}", crashed=True)
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
        """Whether a prompt without proof was taken all the same: on a busy machine its hook may take a while."""

        def has_arrived() -> bool:
            delivery = intake.apply_pending(self.own, OVERSEER).delivery
            return delivery is not None and delivery.outcome.arrived

        unsure = receipt.outcome is Delivered.UNCONFIRMED
        return unsure and processes.wait_until(has_arrived, LATE_S, interval_s=0.1)

    def _wait_for_people(self) -> End | None:
        """Nobody types under a person's keys: who is attached is waited for. The end, if the supervisor ends first."""
        told = False
        while True:
            record, pane = look(self.own)
            taken = sessions.is_taken(record, pane)
            if not taken:
                return None
            if self.stopping():
                return End(Outcome.INTERRUPTED)
            if not told:
                self._tell(f"remediation waits: {taken}")
                told = True
            self._pause(attached=True)

    def _watch(self) -> End:
        while True:
            sessions.reconcile(self.own, OVERSEER)
            record, pane = look(self.own)
            self.log.follow(Path(record.transcript_path))
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
        """Until a hook comes, or a while; the limit does not run while a person is attached."""
        select.select([self.socket], [], [], TICK_S)
        while receive(self.socket) is not None:
            pass
        now = monotonic()
        if not attached:
            self.spent_s += min(now - self.looked, MOST_TICK_S)
        self.looked = now

    def _last_rows(self, end: End) -> None:
        """What the agent still writes of its turn after it has told of its end."""
        transcript = Path(self.own.store.worker(OVERSEER).transcript_path)
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
        """End the turn: Esc, and where that does not help, the process. What is left running, if anything."""
        record = intake.apply_pending(self.own, OVERSEER)
        record, pane = look(self.own)
        if sessions.is_taken(record, pane):
            return "somebody is attached to its session, so its turn was not interrupted"
        if not reset.quieten(self.own, record, pane):
            sessions.end(self.own, OVERSEER, "its turn was cut short")
        return ""

    def _tell(self, text: str) -> None:
        self.log.section("note", text)
        self.say(text)


def _outcome_text(end: End, duration_s: float) -> str:
    problem = f"\nproblem: {end.problem}" if end.problem else ""
    return f"{end.outcome}{problem}\nduration: {duration_s:.1f} s"
