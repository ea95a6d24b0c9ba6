"""Decides whether a daemon is healthy, and what to do if not. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import Exit
from llmc.config.model import Config, Overseer
from llmc.records.items import LOG_IN
from llmc.supervisor.model import Failure, FailureKind, Identity, Record

ENTERING = "⚠ Entering remediation mode..."
RESTARTING = "✓ Remediation complete. Restarting daemon..."
INTERRUPTED = "⚠ Remediation interrupted"


def outcome(kind: str, duration_s: float, problem: str) -> str:
    """The line about how a remediation ended."""
    if kind == "completed":
        return f"✓ Remediation completed in {duration_s:.1f}s"
    if kind == "interrupted":
        return INTERRUPTED
    return f"⚠ Remediation issue: {problem or kind}"


def style_of(text: str) -> str:
    """Red for the start of a remediation, green for success, yellow for problems."""
    if text == ENTERING:
        return "red"
    return "green" if text.startswith("✓") else "yellow" if text.startswith("⚠") else ""


DAY_S = 86400.0
#: maximum wait for a usage limit or an API outage; waits double
MOST_WAIT_S = 1800.0


class History(Struct, frozen=True):
    """What was tried so far."""

    #: a remediation ran since the last run that was at least as long as the cooldown
    remediated: bool = False
    #: when each remediation started
    remediations: tuple[float, ...] = ()
    #: waits in a row for a temporary failure
    waits: int = 0

    @property
    def attempt(self) -> int:
        return len(self.remediations)


class Remediate(Struct, frozen=True):
    """Run a remediation, then restart the daemon."""

    attempt: int


class Restart(Struct, frozen=True):
    """Restart the daemon after a wait; first reset the workers without progress."""

    why: str
    after_s: float = 0.0
    resets: bool = False


class End(Struct, frozen=True):
    """Stop the supervisor; says why, and what the user can do."""

    code: Exit
    why: str
    advice: str


Verdict = Remediate | Restart | End

_ADVICE = {
    "auth": f"Log in again with `{LOG_IN}`, then run `llmc overseer` again.",
    "disk": "Free some disk space, then run `llmc overseer` again.",
}


#: causes that pass on their own; `canary`: it had no result about the client
_PASSES = ("limit", "api", "canary")


def after_failure(
    failure: Failure, history: History, ran_s: float, now: float, config: Config
) -> tuple[Verdict, History]:
    """What to do about a daemon that failed after `ran_s`, and the updated history."""
    cooldown_s = config.overseer.restart_cooldown_secs
    if ran_s >= cooldown_s:
        history = replace(history, remediated=False, waits=0)
    if failure.kind is FailureKind.DRAINED:
        return End(Exit.DONE, failure.text, "Run `llmc digest` for a report."), history
    by_cause = _by_cause(failure.cause, failure.text, history, config)
    if by_cause is not None:
        return by_cause
    if failure.kind is FailureKind.STALL:
        return Restart("resetting the workers that made no progress", resets=True), history
    if history.remediated:
        why = (
            f"failure spiral: the daemon failed again {ran_s:.0f} s after its restart "
            f"(cooldown: {cooldown_s:g} s): {failure.text}"
        )
        return End(
            Exit.SPIRAL,
            why,
            "Read the latest logs/remediation_*.txt, fix the cause, then run `llmc overseer` again.",
        ), history
    recent = [at for at in history.remediations if now - at < DAY_S]
    if len(recent) >= config.overseer.max_remediations_per_day:
        why = f"remediation limit reached ({len(recent)} in 24 hours): {failure.text}"
        return End(
            Exit.HUMAN,
            why,
            "To find out what keeps failing, run `llmc events` and read logs/remediation_*.txt. Fix the cause, then run `llmc overseer` again.",
        ), history
    after = replace(history, remediated=True, remediations=(*history.remediations, now))
    return Remediate(after.attempt), after


def after_remediation(
    cause: str, problem: str, history: History, config: Config
) -> tuple[Verdict | None, History]:
    """What to do after a remediation that did not complete; None: restart the daemon at once."""
    return _by_cause(cause, f"the remediation agent failed: {problem}", history, config) or (None, history)


def _by_cause(cause: str, text: str, history: History, config: Config) -> tuple[Verdict, History] | None:
    """The verdict on a cause that no agent can fix, because it needs the user or passes on its own; None for others."""
    if cause in _ADVICE:
        return End(Exit.HUMAN, f"manual fix required ({cause}): {text}", _ADVICE[cause]), history
    if cause in _PASSES:
        first_s = config.auto.limit_backoff_secs if cause == "limit" else config.auto.api_backoff_secs
        wait_s = min(MOST_WAIT_S, first_s * 2.0 ** min(history.waits, 10))
        after = replace(history, remediated=False, waits=history.waits + 1)
        return Restart(f"temporary failure ({cause})", after_s=wait_s), after
    return None


def before_start(notes: Mapping[str, str]) -> End | None:
    """Stop if an agent requested manual intervention. `notes`: the text of its files, by path."""
    if not notes:
        return None
    said = "\n\n".join(f"{path}:\n{text.strip() or '(empty)'}" for path, text in notes.items())
    advice = "Fix the problem described in the file, delete the file, then run `llmc overseer` again."
    return End(Exit.MANUAL, f"the remediation agent requested manual intervention\n{said}", advice)


#: an exiting daemon removes its registration a moment before its process is gone
UNREGISTERED_S = 3.0


class Seen(Struct, frozen=True):
    """One observation of the daemon."""

    #: whether the registered process is alive; a zombie is not
    alive: bool = True
    #: its exit code, if known
    exit_code: int | None = None
    #: why the daemon stopped taking tasks, if it exited because of that
    drained: str = ""
    #: the identity in daemon.json, and how long there has been none
    registered: Identity | None = None
    unregistered_s: float = 0.0
    #: the sender of the heartbeat; None if there is none
    beat_of: str | None = None
    #: since the heartbeat last changed, or since the watch began
    beat_age_s: float = 0.0
    #: new lines of its log at WARN or above
    records: tuple[Record, ...] = ()
    #: time without progress, and whether there is work
    quiet_s: float = 0.0
    has_work: bool = False


def judge(expected: Identity, seen: Seen, settings: Overseer) -> Failure | None:
    """What is wrong; None if the daemon is healthy."""
    return (
        _other_daemon(expected, seen)
        or judge_records(seen.records)
        or _gone(expected, seen)
        or _unregistered(expected, seen)
        or _hung(expected, seen, settings)
        or _stalled(seen, settings)
    )


def is_quiet_for_long(quiet_s: float, settings: Overseer) -> bool:
    """Whether to check for work, which reads every task."""
    return quiet_s > settings.stall_timeout_secs


def _other_daemon(expected: Identity, seen: Seen) -> Failure | None:
    found = seen.registered
    if found is not None and found != expected:
        what = "another daemon has the same pid" if found.pid == expected.pid else "another daemon is running"
        text = f"{what}: expected {_name(expected)}, found {_name(found)}"
        return Failure(FailureKind.IDENTITY, text)
    if seen.beat_of is not None and seen.beat_of != expected.instance_id:
        text = f"the heartbeat is from another daemon: expected {expected.instance_id}, found {seen.beat_of}"
        return Failure(FailureKind.IDENTITY, text)
    return None


def judge_records(records: Sequence[Record]) -> Failure | None:
    """The first failure record, if any."""
    if not records:
        return None
    # The first record is the cause, but one that needs the user must not hide behind another.
    record = next((r for r in records if r.cause in ("auth", "disk")), records[0])
    about = " ".join(text for text in (record.cause, record.worker, _task(record)) if text)
    text = f"{record.level} in the daemon's log: {record.message}" + (f" ({about})" if about else "")
    return Failure(FailureKind.LOG, text, record.cause, record)


def _task(record: Record) -> str:
    return f"task {record.task_id}" if record.task_id else ""


def _gone(expected: Identity, seen: Seen) -> Failure | None:
    if seen.alive:
        return None
    if seen.drained:
        return Failure(FailureKind.DRAINED, f"the daemon exited normally: {seen.drained}")
    how = "" if seen.exit_code is None else f" ({_exit(seen.exit_code)})"
    return Failure(FailureKind.PROCESS, f"the daemon (pid {expected.pid}) is gone{how}")


def _unregistered(expected: Identity, seen: Seen) -> Failure | None:
    if seen.registered is not None or seen.unregistered_s <= UNREGISTERED_S:
        return None
    return Failure(
        FailureKind.IDENTITY,
        f"the daemon (pid {expected.pid}) is running, but daemon.json is missing or unreadable",
    )


def _hung(expected: Identity, seen: Seen, settings: Overseer) -> Failure | None:
    if seen.beat_age_s <= settings.heartbeat_timeout_secs:
        return None
    text = f"the daemon (pid {expected.pid}) is hung: no heartbeat for {seen.beat_age_s:.0f} s"
    return Failure(FailureKind.HEARTBEAT, text)


def _stalled(seen: Seen, settings: Overseer) -> Failure | None:
    if not seen.has_work or not is_quiet_for_long(seen.quiet_s, settings):
        return None
    text = f"no progress for {seen.quiet_s:.0f} s although tasks are ready"
    return Failure(FailureKind.STALL, text)


def _name(identity: Identity) -> str:
    return f"pid {identity.pid} started at {identity.start_time_unix:.3f} ({identity.instance_id})"


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
