"""What follows a failure: a remediation, a restart, or the end. The first failure is always remediated."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import Exit
from llmc.supervisor.model import Failure, FailureKind

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
