"""Whether the daemon is well: facts in, at most one failure out. Ages are the watcher's own, by its monotonic clock."""

from collections.abc import Sequence

from msgspec import Struct

from llmc.supervisor.model import Failure, FailureKind, Identity, Record

#: a daemon that ends removes its registration a moment before its process is gone
UNREGISTERED_S = 3.0


class Limits(Struct, frozen=True):
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


def judge(expected: Identity, seen: Seen, limits: Limits) -> Failure | None:
    """What is wrong; None when the daemon is well."""
    return (
        _other_daemon(expected, seen)
        or judge_records(seen.records)
        or _gone(expected, seen)
        or _unregistered(expected, seen)
        or _hung(expected, seen, limits)
        or _stalled(seen, limits)
    )


def is_quiet_for_long(quiet_s: float, limits: Limits) -> bool:
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


def _hung(expected: Identity, seen: Seen, limits: Limits) -> Failure | None:
    if seen.beat_age_s <= limits.heartbeat_s:
        return None
    what = "has no heartbeat" if seen.beat_of is None else "gave no sign of life"
    text = f"the daemon {expected.pid} {what} for {seen.beat_age_s:.0f} s"
    return Failure(FailureKind.HEARTBEAT, text)


def _stalled(seen: Seen, limits: Limits) -> Failure | None:
    if not seen.has_work or not is_quiet_for_long(seen.quiet_s, limits):
        return None
    text = f"there is work, and nothing got on for {seen.quiet_s:.0f} s"
    return Failure(FailureKind.STALL, text)


def _name(identity: Identity) -> str:
    return f"pid {identity.pid} of {identity.start_time_unix:.3f} ({identity.instance_id})"


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
