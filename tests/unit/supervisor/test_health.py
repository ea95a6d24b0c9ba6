"""Whether the daemon is healthy, from facts alone."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.config.model import Overseer
from llmc.supervisor.model import Failure, FailureKind, Identity, Record, failures
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.decide import Seen, judge

DAEMON = Identity(100, 5.0, "i-1")
SETTINGS = Overseer(heartbeat_timeout_secs=30, stall_timeout_secs=3600)
WELL = Seen(registered=DAEMON, beat_of="i-1")
LATE = SETTINGS.heartbeat_timeout_secs + 1


def kind(seen: Seen) -> FailureKind | None:
    found = judge(DAEMON, seen, SETTINGS)
    return found.kind if found else None


@pytest.mark.req("0-110", "0-111", "0-112", "0-113", "0-115", "0-116", "0-117")
@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (WELL, None),
        (replace(WELL, registered=replace(DAEMON, pid=101)), FailureKind.IDENTITY),
        (replace(WELL, registered=replace(DAEMON, start_time_unix=6.0)), FailureKind.IDENTITY),
        (replace(WELL, registered=replace(DAEMON, instance_id="i-2")), FailureKind.IDENTITY),
        (replace(WELL, beat_of="i-2"), FailureKind.IDENTITY),
        (replace(WELL, beat_age_s=30), None),
        (replace(WELL, beat_age_s=LATE), FailureKind.HEARTBEAT),
        (replace(WELL, beat_of=None, beat_age_s=LATE), FailureKind.HEARTBEAT),
        (replace(WELL, records=(Record("WARNING", "odd"),)), FailureKind.LOG),
        (replace(WELL, alive=False, exit_code=-9), FailureKind.PROCESS),
        (replace(WELL, alive=False, exit_code=0), FailureKind.PROCESS),
        (replace(WELL, alive=False, exit_code=0, drained="time limit reached"), FailureKind.DRAINED),
        # What it reported about its exit says more than that it is gone.
        (replace(WELL, alive=False, records=(Record("ERROR", "x", cause="git"),)), FailureKind.LOG),
        (replace(WELL, registered=None, unregistered_s=1), None),
        (replace(WELL, registered=None, unregistered_s=4), FailureKind.IDENTITY),
        (replace(WELL, quiet_s=3601, has_work=True), FailureKind.STALL),
        (replace(WELL, quiet_s=3601, has_work=False), None),
        (replace(WELL, quiet_s=3599, has_work=True), None),
    ],
)
def test_what_is_found(seen: Seen, wanted: FailureKind | None) -> None:
    """Break: compare only the pid in `_other_daemon`, or leave any of the rules out of `judge`."""
    assert kind(seen) == wanted


identities = st.builds(
    Identity,
    pid=st.integers(1, 3),
    start_time_unix=st.sampled_from([1.0, 5.0]),
    instance_id=st.sampled_from("ab"),
)


@pytest.mark.req("0-110", "0-117")
@given(expected=identities, found=identities)
def test_only_the_very_daemon_is_well(expected: Identity, found: Identity) -> None:
    """Break: leave `start_time_unix` out of the comparison (compare=False)."""
    seen = Seen(registered=found, beat_of=expected.instance_id)
    assert (judge(expected, seen, SETTINGS) is None) == (expected == found)


def test_what_only_a_person_can_fix_does_not_hide() -> None:
    """Break: use the first record, whatever its cause."""
    records = (Record("WARNING", "first", cause="bug"), Record("ERROR", "login", cause="auth"))
    found = decide.judge_records(records)
    assert found is not None
    assert (found.cause, found.record) == ("auth", records[1])
    assert decide.judge_records(()) is None


def line(level: str, message: str = "m", **more: object) -> bytes:
    return json.dumps({"level": level, "message": message, **more}).encode() + b"\n"


@pytest.mark.req("0-113", "0-114")
def test_which_lines_count() -> None:
    """Break: compare only with "ERROR", or let a torn line raise."""
    data = b"".join(
        [
            line("INFO"),
            line("WARNING", "a", cause="git", worker="auto-1", task_id="7"),
            b"{torn\n",
            b"[" * 5000 + b"\n",
            b'"text"\n',
            line("ERROR", "b", traceback="Traceback"),
            line("DEBUG"),
            line("CRITICAL", "c"),
        ]
    )
    records = failures(data.split(b"\n"))
    assert [(r.level, r.message) for r in records] == [("WARNING", "a"), ("ERROR", "b"), ("CRITICAL", "c")]
    assert (records[0].cause, records[0].worker, records[0].task_id) == ("git", "auto-1", "7")
    assert records[1].output == "Traceback"


_IDENTITY = {"pid": 1, "start_time_unix": 2, "instance_id": "x"}
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda t: st.dictionaries(st.text(), t) | st.lists(t),
)


@given(_ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(_IDENTITY, _ANYTHING)))
@example({**_IDENTITY, "start_time_unix": 10**400})
@example({**_IDENTITY, "start_time_unix": float("nan")})
@example({**_IDENTITY, "pid": True})
def test_any_registration_can_be_read(row: object) -> None:
    """Break: read the pid without checking that there is one, or accept something that is not a number."""
    found = Identity.read(row)
    if found is not None:
        assert isinstance(row, dict)
        assert (type(found.pid), type(found.instance_id)) == (int, str)
        assert math.isfinite(found.start_time_unix)
        assert (row["pid"], row["instance_id"]) == (found.pid, found.instance_id)
    assert Identity.read(_IDENTITY) == Identity(1, 2.0, "x")
    for key in _IDENTITY:
        assert Identity.read({**_IDENTITY, key: None}) is None


def test_failures_say_what_they_found() -> None:
    """Break: leave the pid, the cause or the task out of the text."""
    record = Record("ERROR", "post-accept failed", cause="command", worker="auto-1", task_id="3")
    found = judge(DAEMON, replace(WELL, records=(record,)), SETTINGS)
    assert found == Failure(
        FailureKind.LOG,
        "ERROR in the daemon's log: post-accept failed (command auto-1 task 3)",
        "command",
        record,
    )
    gone = judge(DAEMON, replace(WELL, alive=False, exit_code=-9), SETTINGS)
    assert gone is not None
    assert gone.text == "the daemon (pid 100) is gone (killed by signal 9)"
