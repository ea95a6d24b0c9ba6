"""The supervisor: starts the daemon, monitors it, and acts on failures as the rules decide."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from llmc.base import locks, proc
from llmc.base.clock import now_unix
from llmc.base.errors import Exit, LlmcError, Refused, UsageError
from llmc.daemon import control
from llmc.doctor import canary
from llmc.doctor.checks.what_runs import manual_notes
from llmc.notifications.notify import notify
from llmc.repo.project import Project, open_project
from llmc.supervisor import daemon_process, remediation, watch
from llmc.supervisor.daemon_process import Running
from llmc.supervisor.model import Failure, FailureKind, Identity
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.prompt import cleaned, remediation_prompt
from llmc.supervisor.rules.remedy import Outcome
from llmc.supervisor.supervisor_record import Journal, former
from llmc.supervisor.watch import LogTail, Watch
from llmc.tasks import queue
from llmc.workers.reset import reset_unattended

#: failures that only show that the daemon has exited
_UNEXPLAINED = (FailureKind.START, FailureKind.PROCESS)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check(project: Project) -> None:
    """Check the configuration before anything starts."""
    if not project.config.overseer.remediation_prompt.strip():
        raise UsageError(
            "overseer.remediation_prompt is not set",
            hint='To set the instructions for the remediation agent: llmc config set overseer.remediation_prompt "..."',
        )
    if not project.config.auto.task_list_id:
        raise queue.no_task_list()
    daemon_process.check_program()


class Supervisor:
    """One per root; runs until it is stopped or the user is needed."""

    def __init__(self, project: Project, show: Callable[[str, str], None]) -> None:
        """`show` prints a line in a color; "" for none."""
        self._project = project
        self._show = show
        self._stop = threading.Event()
        self._journal = Journal(project)
        self._history = decide.History()
        self._daemon: Running | None = None

    def run(self) -> int:
        """Keep a daemon running; returns the exit code."""
        check(self._project)
        lock = self._project.root.lock("overseer")
        with locks.claim(lock) as ours:
            if not ours:
                raise Refused(
                    f"a supervisor is already running for this root: {locks.holder(lock)}",
                    hint="Run `llmc status` to see its state, or press Ctrl-C in its terminal to stop it.",
                )
            with proc.handling(self._told, *_SIGNALS):
                return self._run()

    def _run(self) -> int:
        self._begin()
        try:
            ended = self._supervise()
        except LlmcError as error:
            ended = decide.End(Exit.HUMAN, error.message, error.hint)
        except Exception as error:
            # The daemon keeps running, and the next supervisor takes it over.
            self._notify("overseer_ended", "llmc: bug in the supervisor", f"{type(error).__name__}: {error}")
            raise
        return self._shut_down() if ended is None else self._end(ended)

    def _begin(self) -> None:
        before = former(self._project.root)
        self._daemon = daemon_process.adopt(self._project, before.daemon)
        if self._daemon is None and self._project.daemon_runs():
            hint = "Stop it with `llmc down`, then run `llmc overseer` again; the supervisor starts its own daemon."
            raise control.already_runs(self._project, hint)
        self._history = decide.History(remediations=before.remediations)
        identity = self._daemon.identity if self._daemon else None
        self._journal.begin(identity, before.remediations)
        self._say(
            f"supervisor {os.getpid()} started for {self._project.root.path}; press Ctrl-C to stop the supervisor and the daemon"
        )
        if identity is not None:
            self._say(f"took over daemon {identity.pid}")
        self._open_session()

    def _open_session(self) -> None:
        """Start the remediation session early; if it fails, the next remediation retries, so this is not fatal."""
        try:
            problem = remediation.open_session(self._project, self._repeat)
        except LlmcError as error:
            problem = error.message
        if problem:
            self._say(f"the remediation session is not ready: {problem}", "yellow")

    def _repeat(self, text: str) -> None:
        line = cleaned(text)
        self._show(line, decide.style_of(line))

    def _supervise(self) -> decide.End | None:
        """Run one daemon after another; None when we are told to stop."""
        while not self._stop.is_set():
            tail = LogTail(self._project.root.logs / "daemon.jsonl")
            try:
                found = self._daemon or self._start()
                failure = self._watch(found, tail) if isinstance(found, Running) else found
                if isinstance(failure, Failure):
                    failure = self._explained(failure, tail)
            finally:
                tail.close()
            ended = failure if failure is None or isinstance(failure, decide.End) else self._handle(failure)
            if ended is not None:
                return ended
        return None

    def _start(self) -> Running | Failure | decide.End | None:
        """Start a daemon; None if we are told to stop in the meantime."""
        ended = decide.before_start(manual_notes(self._project.root))
        if ended is not None:
            return ended
        self._reload()
        if refused := self._refused_by_canary():
            return refused
        if self._stop.is_set():
            return None
        found = daemon_process.start(self._project, self._stop.is_set)
        if isinstance(found, Failure):
            return None if self._stop.is_set() else found
        self._daemon = found
        self._journal.daemon(found.identity)
        pid = found.identity.pid
        self._note(
            "overseer_daemon_started",
            f"daemon {pid} started",
            pid=pid,
            instance_id=found.identity.instance_id,
        )
        return found

    def _refused_by_canary(self) -> decide.End | Failure | None:
        """Run the canary here, where it may take long, so that `up --auto` need not. No agent can fix a failed one.

        One without a result is tried again later.
        """
        try:
            canary.require(self._project, self._say)
        except KeyboardInterrupt:  # a signal, which the canary handles, to stop its session
            self._stop.set()
        except canary.Undecided as error:
            return Failure(FailureKind.START, error.message, cause="canary")
        except Refused as error:
            return decide.End(Exit.HUMAN, error.message, error.hint)
        except LlmcError:
            return None  # the daemon reports any other problem itself
        return None

    def _watch(self, daemon: Running, tail: LogTail) -> Failure | None:
        """Wait for a failure; None if we are told to stop."""
        settings = self._project.config.overseer
        looks = Watch(self._project, daemon, tail, settings)
        while not self._stop.is_set():
            if jump := looks.clock_jump():
                text = f"{jump}; all timeouts start over"
                self._say(text)
                self._journal.log(text)
            failure = decide.judge(daemon.identity, looks.look(), settings)
            if failure is not None:
                return failure
            self._stop.wait(settings.check_interval_secs)
        return None

    def _explained(self, failure: Failure, tail: LogTail) -> Failure:
        """Add the daemon's own failure record, or its output."""
        said = decide.judge_records(tail.read()) if failure.kind in _UNEXPLAINED else None
        if said is not None:
            failure = replace(failure, cause=said.cause, record=said.record)
        if failure.kind is FailureKind.PROCESS:
            failure = replace(failure, output=control.said(self._project))
        if not failure.cause and watch.disk_is_full(self._project.root):
            failure = replace(failure, cause="disk")
        return failure

    def _handle(self, failure: Failure) -> decide.End | None:
        """Stop the daemon, then act as the rules decide; None: continue with a new daemon."""
        identity, ran_s = (self._daemon.identity, self._daemon.ran_s()) if self._daemon else (None, 0.0)
        stalled = watch.stalled_workers(self._project)
        text = f"{failure.kind} failure: {failure.text}"
        is_failure = failure.kind is not FailureKind.DRAINED
        if is_failure:
            self._say(text, "red")
            self._journal.log(text)
        # Stop the daemon first: a hung one may hold the lock that an event needs.
        self._end_daemon()
        if is_failure:
            fields = {"kind": failure.kind, "cause": failure.cause, "ran_s": round(ran_s, 1)}
            self._journal.note("overseer_failure", text, reason=failure.text, **fields)
        if self._stop.is_set():
            return None
        verdict, self._history = decide.after_failure(
            failure, self._history, ran_s, now_unix(), self._project.config
        )
        match verdict:
            case decide.End():
                return verdict
            case decide.Remediate():
                return self._remediate(failure, identity, verdict.attempt)
            case decide.Restart():
                self._restart(failure.text, verdict, stalled if verdict.resets else [])
        return None

    def _end_daemon(self) -> None:
        """SIGTERM, SIGKILL after the grace period; raises if a daemon is still running."""
        running, self._daemon = self._daemon, None
        daemon_process.end_all(self._project, running, daemon_process.GRACE_S)
        self._journal.daemon(None)
        if running is not None:
            pid = running.identity.pid
            self._note("overseer_daemon_ended", f"daemon {pid} stopped", pid=pid)

    def _remediate(self, failure: Failure, identity: Identity | None, attempt: int) -> decide.End | None:
        self._reload()
        self._journal.remediating(attempt, self._history.remediations)
        self._journal.note("overseer_remediation", f"remediation {attempt} started", attempt=attempt)
        self._notify("overseer_failure", "llmc: the daemon failed; remediation started", failure.text)
        done = remediation.remediate(
            self._project,
            remediation_prompt(watch.situation(self._project, failure, identity)),
            limit_s=self._project.config.overseer.remediation_timeout_secs,
            stopping=self._stop.is_set,
            say=self._repeat,
        )
        self._journal.note(
            "overseer_remediation",
            f"remediation {attempt}: {done.outcome}",
            reason=done.problem,
            attempt=attempt,
            outcome=done.outcome,
            duration_s=round(done.duration_s, 1),
            log=str(done.log),
        )
        self._journal.running()
        if self._stop.is_set():
            return None
        if done.outcome is Outcome.COMPLETED:
            self._repeat(decide.RESTARTING)
            return None
        verdict, self._history = decide.after_remediation(
            done.cause, done.problem, self._history, self._project.config
        )
        if isinstance(verdict, decide.Restart):
            self._restart(done.problem, verdict, [])
        return verdict if isinstance(verdict, decide.End) else None

    def _restart(self, reason: str, verdict: decide.Restart, workers: list[str]) -> None:
        """Restart without a remediation, and reset the workers without progress."""
        self._notify("overseer_failure", "llmc: restarting the daemon", reason)
        for name in workers:
            self._reset(name)
        wait = f" in {verdict.after_s:g} s" if verdict.after_s else ""
        self._note(
            "overseer_restart",
            f"{verdict.why}; restarting the daemon{wait}",
            reason=reason,
            after_s=verdict.after_s,
            workers=workers,
        )
        self._stop.wait(verdict.after_s)

    def _reset(self, name: str) -> None:
        try:
            with self._project.worker_lock(name):
                done = reset_unattended(self._project, name)
        except LlmcError as error:
            self._say(f"cannot reset {name}: {error.message}", "yellow")
            return
        kept = f"; its work is in the trash: {done.pinned}" if done.pinned else ""
        self._say(f"{name} was reset{kept}")

    def _reload(self) -> None:
        """Reload the configuration, which a remediation may have changed. The daemon reports an invalid one."""
        with contextlib.suppress(LlmcError):
            fresh = open_project(str(self._project.root.path))
            if fresh.config.overseer.remediation_prompt.strip():
                self._project = fresh

    def _shut_down(self) -> int:
        """Stop as requested: first the daemon, then the supervisor."""
        self._say("stopping the daemon ... (press Ctrl-C again to kill the daemon and the supervisor)")
        try:
            self._end_daemon()
        except LlmcError as error:
            return self._end(decide.End(Exit.FAILED, error.message, error.hint))
        self._close_session()
        self._journal.end(Exit.DONE, "stopped on request")
        self._journal.auto_not_wanted()
        self._say("the daemon and the supervisor have stopped")
        return Exit.DONE

    def _end(self, ended: decide.End) -> int:
        """Stop without being told to; report the reason and what to do."""
        with contextlib.suppress(LlmcError):
            self._end_daemon()
        self._close_session()
        self._journal.end(ended.code, ended.why)
        self._journal.log(ended.advice)
        self._say(f"the supervisor stopped: {ended.why}", "green" if ended.code is Exit.DONE else "red")
        self._say(ended.advice)
        self._notify("overseer_ended", "llmc: the supervisor stopped", f"{ended.why}\n{ended.advice}")
        return ended.code

    def _close_session(self) -> None:
        with contextlib.suppress(LlmcError):
            remediation.close_session(self._project)

    def _note(self, action: str, text: str, style: str = "", *, reason: str = "", **fields: Any) -> None:
        self._say(text, style)
        self._journal.note(action, text, reason=reason, **fields)

    def _say(self, text: str, style: str = "") -> None:
        self._show(f"{time.strftime('%H:%M:%S')} {text}", style)

    def _notify(self, kind: str, title: str, body: str) -> None:
        """A failed notification must not keep the daemon from being restarted."""
        with contextlib.suppress(Exception):
            notify(self._project, kind, title, body, key=f"{kind}-{now_unix():.3f}")

    def _told(self, number: int, _: object) -> None:
        """The first signal stops the daemon and the supervisor; the second kills both immediately."""
        if self._stop.is_set() and number != signal.SIGHUP:  # a closing terminal sends it twice
            try:
                what = (
                    "the daemon and the supervisor"
                    if daemon_process.kill(self._project)
                    else "the supervisor"
                )
                os.write(2, f"llmc: killed {what} (see `llmc status`)\n".encode())
            finally:
                os._exit(128 + number)
        self._stop.set()
