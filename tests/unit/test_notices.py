"""What a person is told of: from events alone."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.auto.notices import KINDS, Notice, Over, failing_after, judge, payload, scrubbed
from llmc.config.model import NoticeKind, Notify


def told(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    return [(word.kind, word.key) for word in judge(rows) if isinstance(word, Notice)]


def ended(*rows: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(word.kind, word.key) for word in judge(rows) if isinstance(word, Over)]


def event(action: str, **fields: Any) -> dict[str, Any]:
    return {"seq": 7, "ts": 1.0, "action": action, "worker": None, "reason": "why", **fields}


def moved(before: str, after: str, worker: str = "adam", reason: str = "why") -> dict[str, Any]:
    return event("status_changed", worker=worker, reason=reason, **{"from": before, "to": after})


def test_the_kinds_are_those_of_the_configuration() -> None:
    """Break: a kind in one of the two places only."""
    assert tuple(KINDS) == get_args(NoticeKind)
    assert set(KINDS) - set(Notify().on) == {"needs_input", "needs_review"}


@pytest.mark.req("7-011", "7-012")
@pytest.mark.parametrize(
    ("row", "kind", "key"),
    [
        (event("auto_failed", cause="auth", worker="auto-1", task_id="3"), "auto_failed", "auth"),
        (event("fleet_parked", cause="limit", until_unix=9.0), "fleet_parked", "limit"),
        (event("fleet_parked", cause="budget", until_unix=9.0), "budget_reached", "day 9.0"),
        (event("budget_reached"), "budget_reached", "run 7"),
        (event("task_parked", task_id="3", cause="budget"), "budget_reached", "task 3"),
        (event("task_quarantined", task_id="3", cause="task", attempt=3), "task_quarantined", "3"),
        (event("goal_asked", goal_id="goal_1", work_node_id="S1.1.1", dispatch_id="D1"), "goal_asked", "D1"),
        (
            event("goal_asked", goal_id="goal_1", work_node_id="", dispatch_id="budget-1"),
            "goal_asked",
            "budget-1",
        ),
        (moved("working", "error"), "worker_error", "adam"),
        (moved("working", "offline", reason="crashed"), "worker_error", "adam"),
        (moved("working", "needs_input"), "needs_input", "adam"),
        (moved("working", "needs_review"), "needs_review", "adam"),
    ],
)
def test_each_kind_comes_from_its_event(row: dict[str, Any], kind: str, key: str) -> None:
    """Break: leave out a case of of_event."""
    assert told(row) == [(kind, key)]
    [notice] = [word for word in judge([row]) if isinstance(word, Notice)]
    assert row["reason"] in notice.body
    assert notice.title
    assert not notice.title.endswith((" ", "None")), "it names what it is about"


@pytest.mark.parametrize(
    ("row", "over"),
    [
        (event("auto_stopped"), ("auto_failed", None)),
        (event("task_completed", task_id="3"), ("auto_failed", None)),
        (event("task_completed", task_id="3"), ("task_quarantined", "3")),
        (event("task_requeued", task_id="3"), ("task_quarantined", "3")),
        (event("task_requeued", task_id="3"), ("budget_reached", "task 3")),
        (event("fleet_resumed"), ("fleet_parked", None)),
        (moved("error", "idle"), ("worker_error", "adam")),
        (moved("offline", "idle"), ("worker_error", "adam")),
        (moved("needs_input", "working"), ("needs_input", "adam")),
        (moved("needs_review", "rejected"), ("needs_review", "adam")),
        (event("worker_removed", worker="adam"), ("worker_error", "adam")),
    ],
)
def test_each_incident_has_an_end(row: dict[str, Any], over: tuple[str, str | None]) -> None:
    """Break: leave out a case of of_event."""
    assert over in ended(row)


def test_what_nobody_has_to_do_anything_about_is_not_told() -> None:
    """Break: tell of auto workers, or of work that was only rebased."""
    assert told(moved("working", "error", worker="auto-1"), moved("working", "needs_review", "auto-12")) == []
    assert told(moved("rebasing", "needs_review", reason="rebased")) == []
    assert told(moved("idle", "working"), event("accepted"), event("daemon_stopped")) == []
    assert told(moved("working", "offline", reason="stopped"), moved("error", "error")) == []
    assert told({"action": "status_changed"}, {}) == []


def test_what_is_over_by_now_is_not_told_and_what_came_back_is() -> None:
    """Break: `found.append(word)` alone in judge."""
    fell, rose = moved("working", "error"), moved("error", "idle")
    assert told(fell, rose) == []
    assert told(fell, rose, fell) == [("worker_error", "adam")]
    assert told(fell, moved("error", "idle", worker="eve")) == [("worker_error", "adam")]


def test_what_a_failed_run_still_completes_does_not_make_it_well() -> None:
    """Its workers finish what had landed while it ends. Break: leave out `failing`."""
    failed, done = event("auto_failed", cause="command"), event("task_completed", task_id="3")
    assert told(done, failed, done) == [("auto_failed", "command")]
    assert told(failed, event("auto_started"), done) == []
    assert ("auto_failed", None) not in [(w.kind, w.key) for w in judge([done], failing=True)]
    assert failing_after([failed, done], False)
    assert not failing_after([failed, event("auto_started")], True)


@given(st.lists(st.sampled_from([("working", "error"), ("error", "idle")]), max_size=12))
def test_the_last_word_counts(steps: list[tuple[str, str]]) -> None:
    """Break: end every kind with any Over."""
    rows = [moved(before, after) for before, after in steps]
    assert bool(told(*rows)) == bool(steps and steps[-1][1] == "error")


def test_a_payload_has_what_a_script_and_a_chat_need() -> None:
    """Break: let facts overwrite what llmc says."""
    notice = Notice("digest", "k", "Title", "Body", {"task_id": "3", "kind": "another"})
    body = payload(notice, root="/r", host="h", now=2.0)
    assert body == {
        "kind": "digest",
        "key": "k",
        "title": "Title",
        "body": "Body",
        "text": "Title\nBody",
        "task_id": "3",
        "root": "/r",
        "host": "h",
        "ts": 2.0,
    }


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/T0/B0/s3cret", "ntfys://user:pw@host/topic", "x+y://a"]
)
def test_an_address_never_gets_into_a_message(url: str) -> None:
    """Break: return the text as it is."""
    assert scrubbed(f"curl: cannot reach {url} today") == "curl: cannot reach ... today"
    assert scrubbed("token s3cret", "s3cret", "") == "token ..."
