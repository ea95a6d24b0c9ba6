"""The digest: every attempt has one end, every token counts once, and what unblocks most comes first."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.auto.rules.costs import Prices
from llmc.base.names import TaskId, WorkerName
from llmc.config.model import Price
from llmc.records.events import ACTIONS as KNOWN
from llmc.records.items import Item
from llmc.records.state import AutoState
from llmc.records.task import Task, TaskStatus
from llmc.records.worker import Assignment, RefusedHost, Status
from llmc.reports.digest import of_interest
from llmc.reports.rules.digest_parts import Digest, Facts, as_json, digest
from llmc.reports.rules.history import ACTIONS, lacks_a_start, read
from tests.support.records import worker

Row = dict[str, Any]
NOW = 100_000.0


def row(ts: float, action: str, worker: str | None = "auto-1", reason: str = "", **fields: Any) -> Row:
    return {"ts": ts, "action": action, "worker": worker, "reason": reason, **fields}


def assigned(ts: float, task: str, worker: str = "auto-1", claim: str = "") -> Row:
    claim = claim or f"{task}@{ts}"
    return row(ts, "task_assigned", worker, task_id=task, subject=f"Do {task}", label="", claim=claim)


def landed(ts: float, task: str, commit: str, worker: str = "auto-1") -> list[Row]:
    """As an accept writes it: the task first, then the landing."""
    return [
        row(ts, "task_completed", worker, task_id=task, commit=commit),
        row(ts + 1, "accepted", worker, commit=commit, prompt=f"Do {task}", reviewed="not_reviewed"),
    ]


def used(
    ts: float, task: str | None, tokens: int = 10, cost: float | None = 1.0, worker: str = "auto-1"
) -> Row:
    return row(ts, "usage_recorded", worker, task_id=task, model="opus", input_tokens=tokens, cost=cost)


def task(number: int, hold: str = "", after: tuple[int, ...] = (), status: str = "pending") -> Task:
    waits_for = tuple(TaskId(str(other)) for other in after)
    metadata = {"llmc": {"hold": hold}} if hold else {}
    return Task(
        TaskId(str(number)), f"Do {number}", "", TaskStatus(status), blocked_by=waits_for, metadata=metadata
    )


def held(number: int, hold: str = "quarantined") -> Item:
    """What the attention list says about a task that waits for the user."""
    verb, kind = ("approve" if hold == "proposed" else "requeue"), {"parked": "parked_task"}.get(hold, hold)
    said = f"task {number} waits for you: Do {number}"
    return Item(f"task /{number}", kind, "waiting", str(number), 5.0, said, f"llmc tasks {verb} {number}")


def about(name: str, kind: str, command: str, severity: str = "blocked") -> Item:
    return Item(f"{kind}:{name}", kind, severity, name, 1.0, f"it is in {kind}", command)


def report(rows: list[Row], since: float = 0.0, **facts: Any) -> Digest:
    return digest(rows, since, NOW, Facts(**facts))


def names(found: Digest) -> dict[str, list[str]]:
    """Which tasks have which end."""
    ends = {
        end: getattr(found, end) for end in ("accepted", "undone", "failed", "released", "parked", "open")
    }
    return {end: [str(one.task_id) for one in rows] for end, rows in ends.items() if rows}


def test_the_actions_it_reads_exist() -> None:
    """Break: misspell an action in ACTIONS of reports/rules/history.py."""
    assert KNOWN.keys() >= ACTIONS


def test_a_night() -> None:
    """Break: count a landing twice, by `accepted` and by `task_completed`,
    or lose rows that name only a worker.
    """
    rows = [
        row(100, "auto_started", None, concurrency=2),
        assigned(110, "1"),
        used(120, "1", 30, 2.0),
        row(130, "task_sent_back", task_id="1", round=1, code=1),
        row(140, "rebase_conflicted", files=["a"], base="b"),
        row(150, "rebase_resolved", ahead=1),
        *landed(210, "1", "c1"),
        assigned(220, "2", "auto-2"),
        row(230, "task_failed", "auto-2", "exit code 1", task_id="2", cause="crash", attempt=1, ref="refs/x"),
        assigned(240, "2", "auto-1"),
        used(250, "2", 5, None),
        row(300, "task_completed", task_id="2", commit=None),
        assigned(310, "3"),
        row(320, "task_released", task_id="3", cause="limit", reason="a usage limit"),
        assigned(330, "4", "auto-2"),
        used(340, None, 7, 0.5, "auto-3"),
        row(400, "accepted", "adam", commit="c9", prompt="Mind the gap\n\nBy hand", subject="By hand"),
        row(4000, "auto_stopped", None, "llmc down"),
    ]
    found = report(rows, since=100)
    assert names(found) == {
        "accepted": ["1", "2", "None"],
        "failed": ["2"],
        "released": ["3"],
        "open": ["4"],
    }
    first, second, by_hand = found.accepted
    assert (first.subject, first.worker, first.commit, first.took_s) == ("Do 1", "auto-1", "c1", 100)
    assert (first.attempts, first.conflicts, first.sent_back) == (1, 1, 1)
    assert (first.spend.tokens, first.spend.cost) == (30, 2.0)
    assert (second.commit, second.attempts, second.spend.cost, second.spend.unpriced_tokens) == (
        None,
        2,
        None,
        5,
    )
    assert (by_hand.subject, by_hand.worker, by_hand.task_id) == ("By hand", "adam", None)
    (failed,) = found.failed
    assert (failed.cause, failed.reason, failed.ref) == ("crash", "exit code 1", "refs/x")
    assert found.failed_by_cause == {"crash": 1}
    assert found.spend["accepted"].attempts == 3
    assert found.spend["other"].spend.tokens == 7
    assert (found.total_spend.tokens, found.total_spend.cost) == (42, 2.5)
    assert found.cost_per_accepted == 1.25
    assert (found.runs.how, found.runs.reason, found.runs.total_s) == ("stopped", "llmc down", 3900)
    assert found.runs.tasks_per_hour == pytest.approx(2 / (3900 / 3600))
    assert json.loads(json.dumps(as_json(found)))["accepted"][0]["commit"] == "c1"


def test_what_began_before_the_period_counts_where_it_ended() -> None:
    """Break: use only the rows since then; the time, tokens and failure before it would be lost."""
    rows = [
        assigned(10, "1"),
        row(20, "task_failed", task_id="1", cause="task", attempt=1),
        assigned(30, "1"),
        used(40, "1", 50),
        assigned(45, "2", "auto-2"),
        row(46, "task_failed", "auto-2", task_id="2", cause="git", attempt=1),
        *landed(130, "1", "c1"),
    ]
    found = report(rows, since=100)
    assert names(found) == {"accepted": ["1"]}
    (one,) = found.accepted
    assert (one.took_s, one.attempts, one.spend.tokens) == (100, 2, 50)


@pytest.mark.parametrize(
    "last", [["failed", "quarantined"], ["quarantined", "failed"], ["quarantined"]], ids=str
)
def test_the_last_failure_of_a_quarantined_task_is_one(last: list[str]) -> None:
    """Break: count `task_quarantined` as its own failure, or only `task_failed`."""
    rows = [
        *(assigned(10, "7"), row(20, "task_failed", task_id="7", cause="task", attempt=1)),
        *(assigned(30, "7"), row(40, "task_failed", task_id="7", cause="agent", attempt=2)),
        assigned(50, "7"),
    ]
    ends = {
        "failed": row(60, "task_failed", "auto-1", "no test", task_id="7", cause="task", attempt=3, ref="r3"),
        "quarantined": row(60, "task_quarantined", task_id="7", cause="task", attempt=3),
    }
    found = report(rows + [ends[name] for name in last], items=[held(7)])
    assert names(found) == {"failed": ["7", "7", "7"]}
    assert found.failed_by_cause == {"task": 2, "agent": 1}
    (kept,) = found.held
    assert (kept.hold, kept.attempts, kept.cause) == ("quarantined", 3, "task")
    if "failed" in last:
        assert (kept.reason, kept.ref) == ("no test", "r3")
        (waits,) = found.waiting
        assert (waits.command, waits.ref, waits.why) == ("llmc tasks requeue 7", "r3", "task: no test")


def test_a_held_task_is_named_once_and_not_when_it_landed_since() -> None:
    """Break: name each attempt that ended in quarantine, whatever happened to the task later."""

    def failed(at: float, task: str) -> list[Row]:
        last = row(at + 5, "task_quarantined", task_id=task, cause="task", attempt=3)
        return [assigned(at, task), last]

    rows = [*failed(10, "3"), *failed(20, "3"), *failed(30, "6"), *failed(40, "6")]
    assert [one.task_id for one in report(rows).held] == ["3", "6"]
    rows += [assigned(50, "6"), *landed(60, "6", "c6")]
    assert [one.task_id for one in report(rows).held] == ["3"]
    assert [one.task_id for one in report(rows, completed={"3"}).held] == [], "closed by hand"
    assert names(report(rows))["failed"] == ["3", "3", "6", "6"], "the attempts are still reported"


def test_over_budget_is_parked_whatever_else_is_said() -> None:
    """Break: let the first of several rows about one end decide."""
    parked = row(60, "task_parked", "auto-1", "used $6 of $5", task_id="3", cause="budget")
    for other in ("task_failed", "task_released"):
        said = row(60, other, task_id="3", cause="budget", attempt=1)
        for rows in ([parked, said], [said, parked]):
            found = report([assigned(50, "3"), *rows], items=[held(3, "parked")])
            assert names(found) == {"parked": ["3"]}
            assert found.waiting[0].command == "llmc tasks requeue 3"
            assert found.waiting[0].why == "budget: used $6 of $5"


def test_an_undone_accept_is_no_accept() -> None:
    """Break: leave `undone` out; or revert what landed after it for the same task."""
    rows = [
        *(assigned(10, "1"), *landed(20, "1", "c1")),
        *(assigned(30, "2"), *landed(40, "2", "c2")),
        row(50, "accepted", "adam", commit="c3", prompt="By hand"),
        row(60, "undone", "auto-1", commit="c1", revert="r1"),
        row(61, "undone", "adam", commit="c3", revert="r3"),
    ]
    found = report(rows)
    assert names(found) == {"accepted": ["2"], "undone": ["1", "None"]}
    later = report(rows, since=55)
    assert names(later) == {"undone": ["1", "None"]}
    again = report([*rows, assigned(70, "1"), *landed(80, "1", "c4")])
    assert names(again) == {"accepted": ["2", "1"], "undone": ["1", "None"]}
    assert again.accepted[1].attempts == 1


def test_an_attempt_whose_end_is_not_in_the_log_is_over_when_the_next_begins() -> None:
    """Break: leave it open; or treat a repeated claim as a second attempt."""
    rows = [
        assigned(10, "1", claim="a"),
        assigned(11, "1", claim="a"),
        assigned(20, "2"),
        assigned(30, "2", "auto-2"),
    ]
    assert names(report(rows)) == {"released": ["1", "2"], "open": ["2"]}


def test_the_next_worker_may_be_told_before_the_end_of_the_last() -> None:
    """A task is free in its file before its event is written, and another worker is fast.

    Break: let a row end the latest attempt at its task, whichever worker's it is.
    """
    rows = [
        assigned(10, "3"),
        assigned(12, "3", "auto-2"),
        row(13, "task_failed", "auto-1", "no test", task_id="3", cause="task", attempt=1, ref="r1"),
        assigned(14, "4"),
        *landed(20, "3", "c3", "auto-2"),
    ]
    found = report(rows)
    assert names(found) == {"accepted": ["3"], "failed": ["3"], "open": ["4"]}
    assert (found.accepted[0].worker, found.accepted[0].attempts) == ("auto-2", 2)
    assert (found.failed[0].worker, found.failed[0].ref) == ("auto-1", "r1")


def test_a_log_that_begins_in_the_middle() -> None:
    """Break: require the `task_assigned` of what ends."""
    rows = [
        row(10, "accepted", "auto-1", commit="c1", prompt="Do 1"),
        row(11, "task_completed", "auto-1", task_id="1", commit="c1"),
        row(12, "task_failed", "auto-2", task_id=2, cause="crash", attempt=2),
        row(13, "fleet_resumed", None, cause="limit"),
        row(14, "auto_stopped", None, "done"),
    ]
    found = report(rows, 5, tasks=[task(1, status="completed"), task(2)])
    assert names(found) == {"accepted": ["1"], "failed": ["2"]}
    assert (found.accepted[0].took_s, found.accepted[0].subject) == (None, "Do 1")
    assert (found.runs.how, found.runs.total_s) == ("stopped", 9)


@pytest.mark.parametrize("running", [True, False])
def test_how_a_run_ended(running: bool) -> None:
    """Break: report a killed run as running, or as ended now instead of at its last sign of life."""
    started = row(100, "auto_started", None)
    alive = report([started, assigned(150, "1")], 100, running=running)
    assert alive.runs.how == ("running" if running else "killed")
    assert alive.runs.total_s == (NOW - 100 if running else 50)
    failed = row(200, "auto_failed", "auto-1", "logged out", cause="auth", task_id="1")
    for rows in (
        [failed, row(201, "auto_stopped", None, "failed")],
        [row(199, "auto_stopped", None), failed],
    ):
        found = report([started, assigned(150, "1"), *rows], 100, running=running)
        assert (found.runs.how, found.runs.cause, found.runs.task_id) == ("failed", "auth", "1")
    again = report([started, assigned(150, "1"), row(500, "auto_started", None)], 100, running=True)
    assert (again.runs.times, again.runs.how, again.runs.total_s) == (2, "running", 50 + NOW - 500)


def test_only_its_own_daemon_ends_a_run() -> None:
    """Break: end a killed run with the next daemon that stops, or at an event of the root after it."""
    rows = [row(100, "auto_started", None, instance_id="a"), assigned(150, "1")]
    state = AutoState(run="running", run_unix=100, run_instance="a")
    accepted = row(5000, "accepted", "adam", commit="c9", prompt="By hand")
    plain = [
        row(9000, "daemon_started", None, instance_id="b", killed="a", silent_s=8800.0),
        row(9500, "daemon_stopped", None, instance_id="b", auto=False),
    ]
    for later in ([], [accepted], [accepted, *plain], plain, [*plain, *plain]):
        found = report([*rows, *later], auto=state, beat_unix=200.0)
        runs = found.runs
        assert (runs.times, runs.how, runs.ended_unix, runs.total_s) == (1, "killed", 200, 100), later
        assert [one.at_unix for one in found.interruptions] == [200]
    stopped = row(
        300, "daemon_stopped", None, "the daemon was stopped by SIGTERM", instance_id="a", auto=True
    )
    found = report([*rows, stopped])
    assert (found.runs.how, found.runs.reason, found.runs.ended_unix) == ("stopped", stopped["reason"], 300)
    older = report([*rows, row(300, "daemon_stopped", None)])
    assert (older.runs.how, older.runs.reason) == ("stopped", "the daemon was stopped")


def test_what_is_open_by_the_state_is_known_without_its_events() -> None:
    """Break: know only the runs and parks that began in the rows; a run of three days has no duration and no rate."""
    state = AutoState(
        run="running",
        run_unix=NOW - 90_000,
        run_instance="a",
        parked_until_unix=NOW + 60,
        parked_since_unix=NOW - 70_000,
        parked_cause="limit",
    )
    rows = [assigned(NOW - 900, "1"), *landed(NOW - 800, "1", "c1")]
    found = report(rows, NOW - 7200, auto=state, running=True)
    assert (found.runs.times, found.runs.how, found.runs.total_s) == (1, "running", 7200)
    assert found.parks["limit"].total_s == 7200
    state = replace(state, parked_until_unix=0.0)
    found = report(rows, NOW - 7200, auto=state, running=True)
    assert (found.parks, found.runs.tasks_per_hour) == ({}, 0.5)
    assert report(rows, NOW - 7200, auto=state, beat_unix=NOW - 8000).runs.times == 0, "killed before it"


@pytest.mark.parametrize(
    ("rows", "lacks"),
    [
        ([*landed(130, "1", "c1")], True),
        ([assigned(10, "1"), *landed(130, "1", "c1")], False),
        ([*landed(90, "1", "c1")], False),
        ([*landed(90, "1", "c1"), *landed(130, "2", "c2")], False),
        ([row(130, "auto_stopped", None, "done", instance_id="a")], True),
        ([row(130, "daemon_stopped", None, instance_id="a", auto=True)], True),
        ([row(130, "daemon_stopped", None, instance_id="a", auto=False)], False),
        ([row(130, "daemon_started", None, instance_id="b", killed="a", silent_s=10.0)], True),
        ([row(130, "daemon_started", None, instance_id="b", killed="a", silent_s=60.0)], False),
        ([row(130, "fleet_resumed", None, cause="limit")], True),
        ([row(90, "fleet_parked", None, cause="limit"), row(130, "fleet_resumed", None)], False),
    ],
)
def test_whether_earlier_rows_are_needed(rows: list[Row], lacks: bool) -> None:
    """Break: read a fixed time back; or to the start of the log for a worker whose last task is already known."""
    assert lacks_a_start(read(rows), since=100) is lacks


def test_tokens_without_a_price_at_the_time_cost_what_they_do_now() -> None:
    """As in `llmc usage`. Break: sum the `cost` of the events alone."""
    rows = [
        assigned(10, "1"),
        used(20, "1", 1_000_000, None),
        used(30, None, 1_000_000, 0.5, "auto-3"),
        *landed(40, "1", "c"),
    ]
    found = report(rows, prices=Prices(own={"opus": Price(input=2.0, output=9.0)}))
    assert (found.accepted[0].spend.cost, found.total_spend.cost) == (2.0, 2.5)
    assert found.total_spend.unpriced_tokens == 0


def test_parks_and_throughput() -> None:
    """Break: count a failed probe as a second park, a park outside the runs, or parked time as work."""
    rows = [
        row(0, "auto_started", None),
        row(3600, "fleet_parked", None, cause="limit", until_unix=4000),
        row(4000, "fleet_parked", None, cause="limit", until_unix=7200),
        row(7200, "fleet_resumed", None, cause="limit"),
        *(assigned(7300, "1"), *landed(7400, "1", "c1")),
        *(assigned(7500, "2"), *landed(7600, "2", "c2")),
        row(9000, "fleet_parked", None, cause="api", until_unix=10_000),
        row(10_800, "auto_stopped", None, "llmc down"),
        row(20_000, "auto_started", None),
        row(23_600, "auto_stopped", None, "llmc down"),
    ]
    found = report(rows)
    assert {cause: (row.times, row.total_s) for cause, row in found.parks.items()} == {
        "limit": (1, 3600),
        "api": (1, 1000),
    }
    assert (found.runs.total_s, found.runs.parked_s) == (14_400, 4600)
    assert found.runs.tasks_per_hour == pytest.approx(2 / (9800 / 3600))
    assert report(rows, since=5400).parks["limit"].total_s == 1800


def test_waits_for_a_clean_source_and_the_command_after_it() -> None:
    """Break: add up overlapping waits."""
    rows = [
        row(100, "source_dirty", retry_in_s=60, attempt=1),
        row(130, "source_dirty", retry_in_s=60, attempt=2),
        row(500, "post_accept", task_id="1", code=0, elapsed_s=3.5),
        row(600, "post_accept", task_id="2", code=2, elapsed_s=1.5),
    ]
    found = report(rows)
    assert (found.dirty_source.times, found.dirty_source.total_s) == (2, 90)
    assert (found.post_accept.times, found.post_accept.failed, found.post_accept.total_s) == (2, 1, 5.0)
    dirty = Item("source", "source", "blocked", "/src", 5.0, "it has changes", "git -C /src status")
    (waits,) = report(rows, items=[dirty], tasks=[task(1)]).waiting
    assert (waits.kind, waits.command, waits.unblocks) == ("source", "git -C /src status", 1)


def test_what_unblocks_the_most_comes_first() -> None:
    """Break: rank by number; or count what is already finished."""
    tasks = [
        task(1, "quarantined"),
        task(2, "proposed"),
        *(task(3, after=(2,)), task(4, after=(3,)), task(5, after=(1,), status="completed")),
        task(6, after=(1,)),
        task(7, "parked"),
        *(task(number, after=(9,)) for number in (11, 12, 13)),
        task(9, status="in_progress"),
        task(14, after=(1,)),
        task(15, after=(14,)),
    ]
    stuck = worker(
        Status.NEEDS_INPUT,
        name=WorkerName("auto-2"),
        auto=True,
        reason="question",
        assignment=Assignment(task_id=TaskId("9"), claim="c", since_unix=1.0, subject="Do 9"),
    )
    items = [
        *(held(1), held(2, "proposed"), held(7, "parked")),
        about("auto-2", "question", "llmc attach auto-2"),
        about("adam", "review", "llmc review adam", "waiting"),
        about("auto-4", "error", "llmc reset auto-4"),
        about("adam", "held", "llmc release adam", "notice"),
    ]
    found = report([], tasks=tasks, completed=["14"], items=items, workers=[stuck])
    assert [(item.command, item.unblocks) for item in found.waiting] == [
        ("llmc attach auto-2", 3),
        ("llmc tasks approve 2", 2),
        ("llmc tasks requeue 1", 1),
        ("llmc reset auto-4", 0),
        ("llmc tasks requeue 7", 0),
        ("llmc review adam", 0),
        ("llmc release adam", 0),
    ]
    assert len(found.waits) == 6, "what is merely useful to know does not wait"
    assert (found.waiting[1].since_unix, found.waiting[0].task_id, found.waiting[0].worker) == (
        5,
        "9",
        "auto-2",
    )


def test_the_report_has_the_attention_list_whole_and_without_a_task_list_no_numbers() -> None:
    """Break: drop an item that the digest cannot rank."""
    items = [held(7), about("adam", "error", "llmc reset adam")]
    found = report([], items=items)
    assert {item.key for item in found.waiting} == {item.key for item in items}
    assert {item.unblocks for item in found.waiting} == {None}
    assert as_json(found)["attention"] == [item._asdict() for item in items]


def test_of_a_log_only_what_matters_is_read_and_the_last_signs() -> None:
    """Break: end a killed run at the last relevant row; or take text in a prompt as the action."""
    said = [
        *(row(1, "auto_started"), row(2, "hook_received", hook="Stop"), row(3, "status_changed")),
        *(row(4, "auto_started"), row(5, "held"), row(6, "accepted", prompt='"action": "held"')),
        *(row(7, "held"), row(8, "released")),
    ]
    lines = [json.dumps(one).encode() + b"\n" for one in said]
    odd = [b'{"ts": 6.5, "a":1, "action" : "undone"}\n', b"torn\n", b"[]\n", b"\n"]
    found = [one["ts"] for one in of_interest([*lines[:6], *odd, *lines[6:]])]
    assert found == [1, 3, 4, 6, 6.5, 8]


def test_a_refused_host_is_told_once_with_all_who_tried() -> None:
    """Break: use the refusals of the whole log, not of the period."""
    why = {"reason": "it is not in sandbox.hosts"}
    rows = [
        row(1, "host_refused", "adam", host="old.example:443", allow="old.example", **why),
        row(11, "host_refused", "adam", host="a.example:443", allow="a.example", **why),
        row(12, "host_refused", "eve", host="a.example:443", allow="a.example", **why),
        row(13, "host_refused", "adam", host="other hosts", allow="", reason="too many to list"),
    ]
    tried = RefusedHost(host="a.example:443", why=why["reason"], allow="a.example", tries=3)
    known = [worker(name=WorkerName(name), refused_hosts=(tried,)) for name in ("adam", "eve")]
    found = report(rows, since=10.0, workers=known, hosts=("listed.example",))
    assert [(one.host, one.workers, one.tries) for one in found.refused_hosts] == [
        ("a.example:443", ("adam", "eve"), 6),
        ("other hosts", ("adam",), 0),
    ]
    assert found.allow_hosts == """llmc config set sandbox.hosts '["listed.example", "a.example"]'"""
    assert report([]).allow_hosts == ""


def test_a_night_is_told_with_its_crash_and_what_put_it_right() -> None:
    """Break: report only the last run."""
    rows = [
        row(1, "auto_started"),
        row(2, "task_assigned", worker="w", task_id="1", claim="a", subject="One"),
        row(3, "task_completed", worker="w", task_id="1", commit="c"),
        row(4, "overseer_failure", kind="process", reason="it is gone"),
        row(5, "overseer_remediation", attempt=1),
        row(6, "overseer_remediation", attempt=1, outcome="completed", duration_s=42.2),
        row(7, "auto_started"),
        row(8, "task_assigned", worker="w", task_id="2", claim="b", subject="Two"),
        row(9, "task_completed", worker="w", task_id="2", commit="d"),
        row(10, "overseer_stopped", code=0, reason="Ctrl-C"),
    ]
    found = digest(rows, 0, 20, Facts(running=True))
    assert [one.task_id for one in found.accepted] == ["1", "2"]
    assert [one.text for one in found.interruptions] == [
        "the supervisor found a failure (process): it is gone",
        "remediation 1 started",
        "remediation 1 completed in 42 s",
        "the daemon was killed (time shown: its last activity)",
    ]
    assert digest(rows, 6.5, 20, Facts(running=True)).interruptions == ()


# What follows is true for any night. A life is what happens to one task; lives are mixed, each in order.

ENDS = ["landed", "landed_late", "no_change", "failed", "released", "quarantined", "parked", "undone", "open"]


@st.composite
def lives(draw: st.DrawFn) -> list[list[Row]]:
    clock = count(10)
    found = []
    for number in range(draw(st.integers(0, 5))):
        rows: list[Row] = []
        ends = draw(st.lists(st.sampled_from(ENDS), max_size=4))
        for turn, end in enumerate(ends):
            rows += _attempt(str(number), turn, end, draw(st.integers(0, 3)), clock)
        found.append(rows)
    return found


def _attempt(name: str, turn: int, end: str, usages: int, clock: "count[int]") -> list[Row]:
    """One attempt, on the task's own worker."""
    who, commit = f"auto-{name}", f"c{name}.{turn}"
    about = {"worker": who, "task_id": name}
    rows = [assigned(next(clock), name, who, claim=f"{name}.{turn}")]
    rows += [used(next(clock), name, 10 + turn, None if i else 0.25, who) for i in range(usages)]
    completed = row(next(clock), "task_completed", **about, commit=None if end == "no_change" else commit)
    accepted = row(next(clock), "accepted", who, commit=commit, prompt="")
    gone = {
        "landed": [completed, accepted],
        "landed_late": [accepted, completed],
        "no_change": [completed],
        "undone": [completed, accepted, row(next(clock), "undone", who, commit=commit)],
        "failed": [row(next(clock), "task_failed", **about, cause="task", attempt=turn)],
        "released": [row(next(clock), "task_released", **about, cause="limit")],
        "quarantined": [
            row(next(clock), "task_failed", **about, cause="task", attempt=turn),
            row(next(clock), "task_quarantined", **about, cause="task", attempt=turn),
        ],
        "parked": [row(next(clock), "task_parked", **about, cause="budget")],
        "open": [],
    }
    return rows + gone[end]


def mixed(draw: st.DataObject, streams: list[list[Row]]) -> list[Row]:
    """The rows of all streams, each in its own order."""
    order = [i for i, stream in enumerate(streams) for _ in stream]
    iterators = [iter(stream) for stream in streams]
    return [next(iterators[i]) for i in draw.draw(st.permutations(order))]


def counts(found: Digest) -> dict[str, int]:
    return {end: rows.attempts for end, rows in found.spend.items() if rows.attempts}


@given(lives(), st.data())
def test_every_attempt_has_one_end_and_every_token_counts_once(
    streams: list[list[Row]], data: st.DataObject
) -> None:
    """Break: let `accepted` make a second entry beside `task_completed`; or drop parked tasks' usage."""
    rows = mixed(data, streams)
    found = report(rows)
    attempts = sum(one["action"] == "task_assigned" for one in rows)
    by_list = {end: len(tasks) for end, tasks in names(found).items()}
    assert sum(by_list.values()) == attempts
    assert by_list == counts(found)
    assert sum(found.failed_by_cause.values()) == len(found.failed)
    usage = [one for one in rows if one["action"] == "usage_recorded"]
    assert found.total_spend.tokens == sum(one["input_tokens"] for one in usage)
    assert (found.total_spend.cost or 0) == sum(one["cost"] or 0 for one in usage)
    unpriced = sum(one["input_tokens"] for one in usage if one["cost"] is None)
    assert found.total_spend.unpriced_tokens == unpriced
    assert sum(one.spend.tokens for one in found.accepted) == found.spend["accepted"].spend.tokens
    commits = [one.commit for one in (*found.accepted, *found.undone) if one.commit]
    assert len(commits) == len(set(commits))


@given(lives(), st.data())
def test_how_tasks_are_mixed_does_not_matter(streams: list[list[Row]], data: st.DataObject) -> None:
    """Break: give a row to the attempt that started last, whichever worker's it is."""
    one, other = (report(mixed(data, streams)) for _ in range(2))
    for name in ("failed", "released", "parked", "open", "held"):
        assert sorted(getattr(one, name), key=str) == sorted(getattr(other, name), key=str)
    for name in ("accepted", "undone", "spend", "total_spend", "failed_by_cause", "waiting"):
        assert getattr(one, name) == getattr(other, name)


@given(lives(), st.data())
def test_a_row_that_is_written_twice_says_no_more(streams: list[list[Row]], data: st.DataObject) -> None:
    """Break: end a second attempt with the repeated row of the first."""
    rows = mixed(data, streams)
    once = (
        "task_assigned",
        "task_completed",
        "accepted",
        "undone",
        "task_failed",
        "task_released",
        "task_parked",
        "task_quarantined",
    )
    twice = [copy for one in rows for copy in ([one, one] if one["action"] in once else [one])]
    assert report(twice) == report(rows)


@given(lives(), st.integers(0, 120), st.data())
def test_two_periods_hold_what_one_holds(streams: list[list[Row]], border: int, data: st.DataObject) -> None:
    """Break: show what ended before the period, or leave out what ends exactly at its start."""
    rows = mixed(data, streams)
    whole, later = report(rows), report(rows, since=border)
    assert later.accepted == tuple(one for one in whole.accepted if one.at_unix >= border)
    for name in ("failed", "released", "parked", "open"):
        inside = [one for one in getattr(whole, name) if one.ended_unix is None or one.ended_unix >= border]
        assert list(getattr(later, name)) == inside


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "2"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
FIELDS = [
    *("ts", "worker", "reason", "task_id", "subject", "claim", "commit", "cause", "attempt", "ref", "cost"),
    *("input_tokens", "cache_read_input_tokens", "until_unix", "retry_in_s", "code", "elapsed_s", "prompt"),
]


@given(
    st.lists(
        st.builds(
            lambda action, fields: {"action": action, **fields},
            st.sampled_from([*sorted(ACTIONS), "status_changed", "of_tomorrow"]) | JUNK,
            st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=8),
        ),
        max_size=25,
    ),
    st.booleans(),
)
def test_any_log_can_be_read(rows: list[Row], running: bool) -> None:
    """Break: index a field without checking that it exists, or trust its type."""
    found = report(rows, running=running)
    json.dumps(as_json(found), allow_nan=False)
    assert found.total_spend.tokens >= 0
    assert found.runs.parked_s <= found.runs.total_s + 1e-6
