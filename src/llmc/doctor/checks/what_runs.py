"""Checks of the daemon, the supervisor, tmux and its sessions."""

import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from llmc.base import locks
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import LlmcError, Refused
from llmc.base.files import explain, json_record, read_json, read_text
from llmc.base.names import SessionName
from llmc.config.durations import format_duration
from llmc.config.paths import Root
from llmc.doctor.check import DETACH, Check, Finding, Sight, Turn, fixable
from llmc.doctor.rules.facts import DaemonFacts, Facts
from llmc.records import sight
from llmc.records.items import Registration
from llmc.repo.project import Project
from llmc.sessions import sessions

#: how long a daemon may take until every session is ready or has failed
READY_S = 120.0
#: heartbeats come every 5 s
HEARTBEAT_LATE_S = 60.0
#: an older launch spec is of an agent that never started; a starting agent reads and removes its spec
STALE_SPEC_S = 60.0
#: prefix of the files in which a remediation requests manual intervention
MANUAL = "manual_intervention_needed_"


def daemon_facts(project: Project) -> DaemonFacts:
    root = project.root
    lock = root.lock("daemon")
    runs = project.daemon_runs()
    found = sight.registration(root.path)
    return DaemonFacts(
        runs=runs,
        ready=found is not None and found.ready,
        age_s=age_s(lock.stat().st_mtime, now_unix()) if runs else 0.0,
        holder=locks.holder(lock) if runs else "",
        files=() if runs else tuple(map(str, daemon_files(root))),
        other_pid=_other_pid(root, found) if runs and found else None,
        socket_problem=_socket_problem(root) if runs and found else "",
        heartbeat_age_s=_heartbeat_age_s(root, found) if runs and found else None,
    )


def daemon_files(root: Root) -> list[Path]:
    """Files that only a running daemon has, and unread launch specs (they hold an agent's environment)."""
    now = now_unix()
    # A normal exit leaves the heartbeat too, so that file alone means nothing.
    beat = [root.heartbeat] if root.daemon.exists() else []
    places = [root.daemon, *_socket(root), *beat]
    specs = [p for p in root.agents.glob("*.launch.json") if age_s(p.stat().st_mtime, now) > STALE_SPEC_S]
    return [path for path in (*places, *specs) if os.path.lexists(path)]


def _socket(root: Root) -> list[Path]:
    try:
        return [root.wake_socket()]
    except LlmcError:  # its directory belongs to another user; another check reports it
        return []


def _other_pid(root: Root, registration: Registration) -> int | None:
    """The process in daemon.json, if it is not the one that holds the daemon's lock."""
    signed = locks.signer(root.lock("daemon"))
    return registration.pid if signed is not None and registration.pid != signed else None


def _socket_problem(root: Root) -> str:
    """Why a wake-up does not reach the daemon; "" if it does. Sends nothing."""
    try:
        path = root.wake_socket()
    except LlmcError as error:
        return error.message
    if not os.path.lexists(path):
        return f"{path} is gone"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"no process is listening on {path} ({error.strerror})"
    return ""


def _heartbeat_age_s(root: Root, registration: Registration) -> float | None:
    """The time since this daemon's last heartbeat, or since it registered; None without auto mode."""
    if registration.auto is not True or not registration.ready:
        return None
    now = now_unix()
    try:
        ages = [age_s(root.daemon.stat().st_mtime, now)]
        beat = read_json(root.heartbeat)
        if beat.get("instance_id") == registration.instance_id:
            ages.append(age_s(float(beat["timestamp_unix"]), now))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not written yet
    return min(ages)


def _crashed(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    if not facts.daemon.runs and facts.daemon.files:
        yield fixable(f"a daemon crashed and left behind {', '.join(facts.daemon.files)}")


def _clear_daemon(project: Project, _: str) -> str:
    """While we hold the lock no daemon can start, so no files of a running daemon are removed."""
    with locks.claim(project.root.lock("daemon")) as ours:
        if not ours:
            raise Refused("a daemon has started in the meantime", hint="Run `llmc doctor` again.")
        try:
            for path in daemon_files(project.root):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, "cannot remove the daemon's files") from error
    return "removed; run `llmc up --detach` to start a new daemon"


def _not_ready(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    daemon = facts.daemon
    if daemon.runs and not daemon.ready and daemon.age_s > READY_S:
        text = f"the daemon, {daemon.holder}, is not ready after {daemon.age_s / 60:.0f} minutes"
        yield Finding(
            text,
            "check `llmc logs daemon`, then run `llmc down --force`, and `llmc up --detach` with your usual options",
        )


def _other(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    daemon = facts.daemon
    if daemon.runs and daemon.other_pid:
        text = f"daemon.json names process {daemon.other_pid}, but {daemon.holder} holds the daemon's lock"
        yield Finding(text, "stop the process that holds the lock, then run `llmc up --detach`")


def _deaf(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    problem = facts.daemon.socket_problem
    if facts.daemon.runs and problem:
        text = f"hooks cannot wake the daemon ({problem}), so it handles hook events only during patrols"
        yield Finding(
            text, "restart the daemon: `llmc down`, then `llmc up --detach` with your usual options"
        )


def _stalled(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    late_s = facts.daemon.heartbeat_age_s
    if facts.daemon.runs and late_s is not None and late_s > HEARTBEAT_LATE_S:
        text = f"the daemon is hung: no heartbeat for {format_duration(late_s)}"
        yield Finding(
            text,
            "check `llmc logs daemon`, then run `llmc down --force`, and `llmc up --detach` with your usual options",
        )


def manual_notes(root: Root) -> dict[str, str]:
    """The files that request manual intervention: path and text."""
    return {str(path): read_text(path) for path in sorted(root.private.glob(f"{MANUAL}*.txt"))}


def _notes(at: Sight) -> Iterator[tuple[str, str, str]]:
    """Path and first line of each such file, and where to move it."""
    for path, text in manual_notes(at.project.root).items():
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        yield path, lines[0][:200] if lines else "(empty)", f"{at.project.root.logs}/"


def _manual(_: Facts, seen: tuple[tuple[str, str, str], ...]) -> Iterator[Finding]:
    for path, first_line, away in seen:
        fix = f"fix the problem described in the file, then run: mv {shlex.quote(path)} {shlex.quote(away)}"
        yield Finding(
            f"the remediation agent requested manual intervention ({path}): {first_line}", fix, subject=path
        )


def _killed_overseer(project: Project) -> list[tuple[str, bool]]:
    """Path of the record of a killed supervisor, and whether its daemon is running; none if a supervisor runs."""
    return [] if locks.is_held(project.root.lock("overseer")) else _record_without_end(project)


def _record_without_end(project: Project) -> list[tuple[str, bool]]:
    """The same, if no supervisor is running. A record with its end is kept: it says why the supervisor stopped."""
    path = project.root.overseer_file
    record = json_record(path)  # {} if partial
    if not path.exists() or record.get("state") == "terminated":
        return []
    its, found = Registration.read(record.get("daemon")), sight.registration(project.root.path)
    its_daemon_runs = (
        its is not None
        and found is not None
        and found.instance_id == its.instance_id
        and project.daemon_runs()
    )
    return [(str(path), its_daemon_runs)]


def _killed(_: Facts, seen: tuple[tuple[str, bool], ...]) -> Iterator[Finding]:
    for path, its_daemon_runs in seen:
        if its_daemon_runs:  # the next supervisor needs the record
            fix = "run `llmc overseer` to take over the daemon, or `llmc down` to stop it"
            yield Finding("the supervisor was killed; its daemon is still running", fix, subject=path)
        else:
            yield fixable(f"a supervisor crashed and left behind {path}", subject=path)


def _forget_overseer(project: Project, path: str) -> str:
    """While we hold the lock no supervisor can start, so no record of a running one is removed."""
    with locks.claim(project.root.lock("overseer")) as ours:
        if not ours:
            raise Refused("a supervisor has started in the meantime", hint="Run `llmc doctor` again.")
        if (path, False) not in _record_without_end(project):
            return "already resolved"
        Path(path).unlink(missing_ok=True)
    return "removed"


def _tmux(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    if facts.sessions is None:
        yield Finding(f"tmux did not answer: {facts.tmux_problem}", "run `llmc doctor` again")


def _without_worker(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    known = {worker.record.session_id for worker in facts.workers}
    agents = {worker.record.instance for worker in facts.workers}  # the user may have moved a pane
    for session in facts.sessions or ():
        if session.name in known or session.instance in agents:
            continue
        text = f"tmux session {session.name} does not belong to any worker"
        if session.attached:
            yield Finding(text, DETACH, subject=session.name)
        else:
            yield fixable(text, subject=session.name)


def _end_session(project: Project, name: str) -> str:
    if any(record.session_id == name for record in project.store.read().workers.values()):
        return "already resolved"
    sessions.end_stray(project, SessionName(name))
    return "stopped"


# fmt: off
CHECKS = (
    Check("daemon_crashed", "daemon", "a crashed daemon left files behind", judge=_crashed,
        fix=_clear_daemon),
    Check("daemon_not_ready", "daemon", "the daemon is running but not ready", judge=_not_ready),
    Check("daemon_other", "daemon", "daemon.json names a process that is not the running daemon",
        judge=_other),
    Check("daemon_socket", "daemon", "hooks cannot wake the daemon", judge=_deaf),
    Check("daemon_stalled", "daemon", "the daemon is hung", judge=_stalled),
    Check("manual_intervention", "supervisor", "the remediation agent requested manual intervention",
        look=_notes, judge=_manual),
    Check("overseer_crashed", "supervisor", "a crashed supervisor left a file behind",
        look=lambda at: _killed_overseer(at.project), judge=_killed, fix=_forget_overseer),
    Check("tmux", "sessions", "tmux did not answer", judge=_tmux, needs=("tmux",)),
    Check("session_without_worker", "sessions", "a tmux session does not belong to any worker", judge=_without_worker,
        fix=_end_session, turn=Turn.CLONE, needs=("state",)),
)
# fmt: on
