"""What notifications are about: the attention list, and one-time events."""

from typing import Any, get_args

import pytest

from llmc.config.model import NoticeKind, Notify
from llmc.notifications.rules import (
    KINDS,
    LASTING,
    Notice,
    Over,
    failing_after,
    judge,
    of_items,
    payload,
    scrubbed,
)
from llmc.records.items import KINDS as ITEM_KINDS
from llmc.records.items import SEVERITIES, Item


def told(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    return [(word.kind, word.key) for word in judge(rows) if isinstance(word, Notice)]


def ended(*rows: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(word.kind, word.key) for word in judge(rows) if isinstance(word, Over)]


def event(action: str, **fields: Any) -> dict[str, Any]:
    return {"seq": 7, "ts": 1.0, "action": action, "worker": None, "reason": "why", **fields}


def test_the_kinds_are_those_of_the_configuration() -> None:
    """Break: add a kind in only one of the two places."""
    assert tuple(KINDS) == get_args(NoticeKind)
    assert set(KINDS) - set(Notify().on) == {"needs_input", "needs_review", "waiting", "notice"}


def item(kind: str, severity: str = "blocked", who: str = "adam", next: str = "llmc attach adam") -> Item:
    return Item(f"{kind}:{who}", kind, severity, who, 1.0, f"it is in {kind}", next)


def told_of(*items: Item, on: tuple[str, ...] = Notify().on) -> list[tuple[str, str]]:
    return [(one.kind, one.key) for one in of_items(items, on, ["adam"])]


@pytest.mark.req("7-011", "7-012")
@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (item("crash"), "worker_error"),
        (item("error"), "worker_error"),
        (item("question"), "blocked"),
        (item("dialog"), "blocked"),
        (item("source", who="/src"), "blocked"),
        (item("parked", "notice", "fleet"), "fleet_parked"),
        (item("budget", "waiting", "budget"), "budget_reached"),
        (item("parked_task", "waiting", "3"), "budget_reached"),
        (item("quarantined", "waiting", "3"), "task_quarantined"),
        (item("review", "waiting"), ""),
        (item("input", "waiting"), ""),
        (item("proposed", "waiting", "3"), ""),
        (item("held", "notice"), ""),
        (item("budget", "notice", "budget"), ""),
        (item("goal_question", who="goal_1")._replace(key="goal-question 1"), ""),
        (item("budget", "waiting", "goal_1")._replace(key="goal-budget goal_1"), ""),
    ],
    ids=str,
)
def test_by_default_whatever_is_blocked_is_told_and_what_can_wait_is_not(found: Item, kind: str) -> None:
    """Break: no `blocked` in the default of notify.on; or notify of what is merely useful to know."""
    assert told_of(found) == ([(kind, found.key)] if kind else [])


def test_what_is_told_says_what_and_the_next_command() -> None:
    [notice] = of_items([item("question")], Notify().on, ["adam"])
    assert (notice.title, notice.facts["worker"]) == ("adam: it is in question", "adam")
    assert "Next: llmc attach adam" in notice.body


def test_who_selects_kinds_is_told_of_those() -> None:
    """Break: send a blocked item as `blocked` although its own kind was selected; or unselected."""
    assert told_of(item("question"), on=("needs_input",)) == [("needs_input", "question:adam")]
    assert told_of(item("review", "waiting"), on=("needs_review",)) == [("needs_review", "review:adam")]
    assert told_of(item("question"), item("crash"), on=("digest",)) == []


@pytest.mark.parametrize("kind", ITEM_KINDS)
def test_whoever_wants_to_hear_everything_does(kind: str) -> None:
    """Each kind of the list, at each severity. Break: send only `blocked` items, or leave a severity out."""
    for severity in SEVERITIES:
        assert told_of(item(kind, severity), on=SEVERITIES) == [(severity, f"{kind}:adam")]
        assert severity in LASTING, "it is sent again after it was over"


@pytest.mark.parametrize(
    ("row", "kind", "key"),
    [
        (event("auto_failed", cause="auth", worker="auto-1", task_id="3"), "auto_failed", "auth"),
        (event("goal_asked", goal_id="goal_1", work_node_id="S1.1.1", dispatch_id="D1"), "goal_asked", "D1"),
        (
            event("goal_asked", goal_id="goal_1", work_node_id="", dispatch_id="budget-1"),
            "goal_asked",
            "budget-1",
        ),
    ],
)
def test_what_happens_once_comes_from_its_event(row: dict[str, Any], kind: str, key: str) -> None:
    """Break: leave out a case of of_event."""
    assert told(row) == [(kind, key)]
    [notice] = [word for word in judge([row]) if isinstance(word, Notice)]
    assert row["reason"] in notice.body
    assert notice.title
    assert not notice.title.endswith((" ", "None")), "it names its subject"


@pytest.mark.parametrize("action", ["auto_stopped", "task_completed"])
def test_a_failure_is_over_when_auto_mode_is_well(action: str) -> None:
    """Break: leave out a case of of_event."""
    assert ("auto_failed", None) in ended(event(action, task_id="3"))


def test_what_a_failed_run_still_completes_does_not_make_it_well() -> None:
    """Its workers finish what had landed while it ends. Break: leave out `failing`."""
    failed, done = event("auto_failed", cause="command"), event("task_completed", task_id="3")
    assert told(done, failed, done) == [("auto_failed", "command")]
    assert told(failed, event("auto_started"), done) == []
    assert ("auto_failed", None) not in [(w.kind, w.key) for w in judge([done], failing=True)]
    assert failing_after([failed, done], False)
    assert not failing_after([failed, event("auto_started")], True)


def test_a_payload_has_what_a_script_and_a_chat_need() -> None:
    """Break: let facts overwrite llmc's own fields."""
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
