"""What a supervisor concludes: whether a daemon is well, and what follows when it is not. Pure."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import Exit
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
    """Red for the beginning of a remediation, green for what went well, yellow for what did not."""
    if text == ENTERING:
        return "red"
    return "green" if text.startswith("✓") else "yellow" if text.startswith("⚠") else ""


DAY_S = 86400.0
#: waits for a limit, or an API that is away, double up to this
MOST_WAIT_S = 1800.0


class Limits(Struct, frozen=True):
    """What the configuration says."""

    cooldown_s: float
    remediations_a_day: int
    #: the first wait for a usage limit, and for an API that is away
    limit_wait_s: float = 300.0
    api_wait_s: float = 60.0


class History(Struct, frozen=True):
    """What was tried so far."""

    #: there was a remediation since the last run that was long enough
    remediated: bool = False
    #: when each remediation began
    remediations: tuple[float, ...] = ()
    #: waits in a row for something that passes by itself
    waits: int = 0

    @property
    def attempt(self) -> int:
        return len(self.remediations)


class Remediate(Struct, frozen=True):
    """An agent looks for the cause; then the daemon starts again."""

    attempt: int


class Restart(Struct, frozen=True):
    """The daemon starts again, after a while; the workers that got nowhere are reset before that."""

    why: str
    after_s: float = 0.0
    resets: bool = False


class End(Struct, frozen=True):
    """The supervisor ends: why, and what a person can do."""

    code: Exit
    why: str
    advice: str


Verdict = Remediate | Restart | End

_ADVICE = {
    "auth": "Log in again (run `claude` and /login), then start `llmc overseer` again.",
    "disk": "Free some disk space, then start `llmc overseer` again.",
}


def after_failure(
    failure: Failure, history: History, ran_s: float, now: float, limits: Limits
) -> tuple[Verdict, History]:
    """What to do about a daemon that failed after it ran for so long, and the history with it."""
    if ran_s >= limits.cooldown_s:
        history = replace(history, remediated=False, waits=0)
    if failure.kind is FailureKind.DRAINED:
        return End(Exit.DONE, failure.text, "`llmc digest` says what became of it."), history
    by_cause = _by_cause(failure.cause, failure.text, history, limits)
    if by_cause is not None:
        return by_cause
    if failure.kind is FailureKind.STALL:
        return Restart("a stall needs no remediation", resets=True), history
    if history.remediated:
        why = (
            f"failure spiral: the daemon failed {ran_s:.0f} s after a remediation "
            f"(less than {limits.cooldown_s:g} s): {failure.text}"
        )
        return End(
            Exit.SPIRAL, why, "Read the newest logs/remediation_*.txt, mend the cause, start it again."
        ), history
    recent = [at for at in history.remediations if now - at < DAY_S]
    if len(recent) >= limits.remediations_a_day:
        why = f"{len(recent)} remediations in 24 hours are enough: {failure.text}"
        return End(Exit.HUMAN, why, "See what keeps failing: llmc events, logs/remediation_*.txt."), history
    after = replace(history, remediated=True, remediations=(*history.remediations, now))
    return Remediate(after.attempt), after


def after_remediation(
    cause: str, problem: str, history: History, limits: Limits
) -> tuple[Verdict | None, History]:
    """A remediation that could not even be tried is none; None: the daemon starts again."""
    return _by_cause(cause, f"the remediation failed: {problem}", history, limits) or (None, history)


def _by_cause(cause: str, text: str, history: History, limits: Limits) -> tuple[Verdict, History] | None:
    """Causes that no model can mend: a person is needed, or it passes by itself."""
    if cause in _ADVICE:
        return End(Exit.HUMAN, f"only a person can mend this ({cause}): {text}", _ADVICE[cause]), history
    if cause in ("limit", "api"):
        first_s = limits.limit_wait_s if cause == "limit" else limits.api_wait_s
        wait_s = min(MOST_WAIT_S, first_s * 2.0 ** min(history.waits, 10))
        after = replace(history, remediated=False, waits=history.waits + 1)
        return Restart(f"this passes by itself ({cause})", after_s=wait_s), after
    return None


class Note(Struct, frozen=True):
    """A file that asks for a person."""

    path: str
    text: str


def before_start(notes: Sequence[Note]) -> End | None:
    """A remediation that could not mend it says so in a file; then nobody starts the daemon again."""
    if not notes:
        return None
    said = "\n\n".join(f"{note.path}:\n{note.text.strip() or '(it is empty)'}" for note in notes)
    advice = "Mend what it says, remove the file, then start `llmc overseer` again."
    return End(Exit.MANUAL, f"manual intervention is needed\n{said}", advice)


#: a daemon that ends removes its registration a moment before its process is gone
UNREGISTERED_S = 3.0


class HealthLimits(Struct, frozen=True):
    """What the configuration says."""

    heartbeat_s: float
    stall_s: float


class Seen(Struct, frozen=True):
    """One look at the daemon."""

    #: the process that registered lives; a zombie does not
    alive: bool = True
    #: how it ended, where that can be known
    exit_code: int | None = None
    #: why it takes no more tasks, if it ended because of that
    drained: str = ""
    #: what daemon.json says, and for how long it has said nothing
    registered: Identity | None = None
    unregistered_s: float = 0.0
    #: whose the heartbeat is; None: there is none
    beat_of: str | None = None
    #: since it last changed, or since there should have been one
    beat_age_s: float = 0.0
    #: new lines of its log at WARN or above
    records: tuple[Record, ...] = ()
    #: since anything got on, and whether there is something to get on with
    quiet_s: float = 0.0
    has_work: bool = False


def judge(expected: Identity, seen: Seen, limits: HealthLimits) -> Failure | None:
    """What is wrong; None when the daemon is well."""
    return (
        _other_daemon(expected, seen)
        or judge_records(seen.records)
        or _gone(expected, seen)
        or _unregistered(expected, seen)
        or _hung(expected, seen, limits)
        or _stalled(seen, limits)
    )


def is_quiet_for_long(quiet_s: float, limits: HealthLimits) -> bool:
    """Only then it matters whether there is work, which costs a look at every task."""
    return quiet_s > limits.stall_s


def _other_daemon(expected: Identity, seen: Seen) -> Failure | None:
    found = seen.registered
    if found is not None and found != expected:
        what = "its pid was given to another daemon" if found.pid == expected.pid else "another daemon runs"
        text = f"{what}: expected {_name(expected)}, found {_name(found)}"
        return Failure(FailureKind.IDENTITY, text)
    if seen.beat_of is not None and seen.beat_of != expected.instance_id:
        text = f"the heartbeat is that of {seen.beat_of}, expected {expected.instance_id}"
        return Failure(FailureKind.IDENTITY, text)
    return None


def judge_records(records: Sequence[Record]) -> Failure | None:
    """One is enough."""
    if not records:
        return None
    # The first one is what began it; but what only a person can mend must not hide behind another.
    record = next((r for r in records if r.cause in ("auth", "disk")), records[0])
    about = " ".join(text for text in (record.cause, record.worker, _task(record)) if text)
    text = f"{record.level} in its log: {record.message}" + (f" ({about})" if about else "")
    return Failure(FailureKind.LOG, text, record.cause, record)


def _task(record: Record) -> str:
    return f"task {record.task_id}" if record.task_id else ""


def _gone(expected: Identity, seen: Seen) -> Failure | None:
    if seen.alive:
        return None
    if seen.drained:
        return Failure(FailureKind.DRAINED, f"the daemon has ended in order: {seen.drained}")
    how = "" if seen.exit_code is None else f" ({_exit(seen.exit_code)})"
    return Failure(FailureKind.PROCESS, f"the daemon's process {expected.pid} is gone{how}")


def _unregistered(expected: Identity, seen: Seen) -> Failure | None:
    if seen.registered is not None or seen.unregistered_s <= UNREGISTERED_S:
        return None
    return Failure(
        FailureKind.IDENTITY, f"the daemon {expected.pid} lives, but its registration is gone or unreadable"
    )


def _hung(expected: Identity, seen: Seen, limits: HealthLimits) -> Failure | None:
    if seen.beat_age_s <= limits.heartbeat_s:
        return None
    what = "has no heartbeat" if seen.beat_of is None else "gave no sign of life"
    text = f"the daemon {expected.pid} {what} for {seen.beat_age_s:.0f} s"
    return Failure(FailureKind.HEARTBEAT, text)


def _stalled(seen: Seen, limits: HealthLimits) -> Failure | None:
    if not seen.has_work or not is_quiet_for_long(seen.quiet_s, limits):
        return None
    text = f"there is work, and nothing got on for {seen.quiet_s:.0f} s"
    return Failure(FailureKind.STALL, text)


def _name(identity: Identity) -> str:
    return f"pid {identity.pid} of {identity.start_time_unix:.3f} ({identity.instance_id})"


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
