"""The attention list: one list, most urgent first; what was raised stays until it is cleared."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmc.api.status_view import status_view
from llmc.attention.rules import ABORTED, attention, finished_reason, next_command, without_auto, worker_view
from llmc.auto.auto_run import Run
from llmc.cli.overview import attention_lines, render
from llmc.config.paths import Root
from llmc.records.items import KINDS, Facts, Item, Registration, Seen, command_in, up_auto
from llmc.records.store import Store
from llmc.reports.rules import digest_parts as digest_waits
from llmc.reports.rules.digest_parts import digest
from llmc.reports.rules.digest_text import ended_notice
from llmc.reports.rules.digest_text import render as render_digest


def plain(text: str, style: str) -> str:
    return text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(Root(tmp_path))
    store.create()
    return store


def raised(severity: str, since: float) -> dict[str, object]:
    return {"kind": "person", "severity": severity, "who": "adam", "since_unix": since, "text": "a draft"}


def test_the_most_urgent_and_then_the_oldest_comes_first() -> None:
    """Break: sort by key only."""
    state = {"attention": {"a": raised("notice", 1), "b": raised("blocked", 9), "c": raised("blocked", 5)}}
    assert [item.key for item in attention(state, Facts(0.0))] == ["c", "b", "a"]


@pytest.mark.parametrize("row", [{}, {"severity": "dreadful", "since_unix": None}, {"who": 3, "text": ["x"]}])
def test_a_row_that_a_newer_llmc_wrote_is_shown_all_the_same(row: dict[str, object]) -> None:
    (item,) = attention({"attention": {"k": row}}, Facts(0.0))
    assert (item.key, item.severity) == ("k", "waiting")


def test_what_is_raised_again_keeps_its_age_and_is_told_once(store: Store) -> None:
    """Break: let raise_item use `now` each time."""
    for text in ("a draft", "a draft", "another draft"):
        with store.transaction() as tx:
            tx.raise_item("person:adam", kind="person", severity="blocked", who="adam", text=text)
    state = store.read()
    assert state.recent_events[-1]["action"] == "attention_raised"
    assert state.attention["person:adam"].text == "another draft"
    assert store.read().event_seq == 2
    with store.transaction() as tx:
        tx.clear_item("person:adam")
        tx.clear_item("person:adam")
    assert store.read().attention == {}
    assert store.read().event_seq == 3


def test_every_surface_of_status_has_it() -> None:
    state = {"attention": {"person:adam": {**raised("blocked", 100), "next": "llmc attach adam"}}}
    view = status_view("/root", state, Facts(0.0))
    assert view["attention"][0]["key"] == "person:adam"
    text = "\n".join(attention_lines(view["attention"], 160, 80, plain))
    assert "blocked  1m" in text
    assert "adam: a draft" in text
    assert "next: llmc attach adam" in text


def test_what_needs_you_is_counted_by_one_rule() -> None:
    """Break: count workers in `status`, or failed attempts twice in the notification."""
    rows: dict[str, object] = {
        "person:adam": raised("blocked", 1),
        "accept:adam": {**raised("waiting", 2), "kind": "accept_failed"},
        "task plan/7": {**raised("waiting", 3), "kind": "quarantined", "who": "7"},
        "goal": {**raised("notice", 4), "kind": "goal_stalled", "who": "goal_1"},
    }
    state = {"workers": {"adam": record("working")}, "attention": rows}
    facts = Facts(0.0, running=True, daemon=Registration(auto=False), workers={"adam": Seen(False)})
    view = status_view("/root", state, facts)
    view["workers"] = [{**worker, "subject": "", "next": ""} for worker in view["workers"]]
    assert "3 need you" in render(view, 0.0, 80, plain).splitlines()[0]
    failed = [
        {
            "ts": 1.0,
            "action": "task_assigned",
            "worker": "auto-1",
            "task_id": "7",
            "subject": "x",
            "claim": "c",
        },
        {
            "ts": 2.0,
            "action": "task_failed",
            "worker": "auto-1",
            "task_id": "7",
            "cause": "task",
            "attempt": 3,
        },
        {"ts": 2.0, "action": "task_quarantined", "worker": "auto-1", "task_id": "7", "attempt": 3},
        {"ts": 3.0, "action": "accepted", "worker": "adam", "commit": "c" * 40, "prompt": "By hand"},
    ]
    found = digest(failed, 0.0, 9.0, digest_waits.Facts(items=attention(state, facts)))
    text = render_digest(found, 80, plain, str)
    assert "Waiting for you (3)" in text
    assert "1 accepted by hand, 3 items waiting for you." in text
    assert ended_notice(found, text).title == "Auto mode ended: 1 accepted by hand, 3 items waiting for you"


def test_hostile_text_draws_nothing() -> None:
    row = {**raised("blocked", 100), "text": "\x1b]0;owned\x07\u2028x", "next": "\x1b[2J"}
    lines = attention_lines(
        status_view("/root", {"attention": {"k": row}}, Facts(0.0))["attention"], 0, 80, plain
    )
    assert not any("\x1b" in line or "\u2028" in line for line in lines)


NOW = 10_000.0


def record(status: str = "idle", **fields: object) -> dict[str, object]:
    return {"name": "adam", "status": status, "since_unix": 5.0, **fields}


def found(
    *records: dict[str, object], auto: dict[str, object] | None = None, raised: object = None, **facts: object
) -> dict[str, Item]:
    """The items by key; a plain daemon is running unless the test says otherwise."""
    state = {
        "workers": {str(one["name"]): one for one in records},
        "auto": auto or {},
        "attention": raised or {},
    }
    known = {"running": True, "daemon": Registration(7, auto=False), "holder": 7, **facts}
    return {item.key: item for item in attention(state, Facts(NOW, **known))}


@pytest.mark.parametrize(
    ("fields", "seen", "key", "severity", "command"),
    [
        ({"status": "needs_review"}, Seen(False), "review:adam", "waiting", "llmc review adam"),
        ({"status": "needs_input", "reason": "stopped_clean"}, Seen(False), "input:adam", "waiting", "llmc message adam"),
        ({"status": "needs_input", "reason": "permission"}, Seen(False), "question:adam", "blocked", "llmc attach adam"),
        ({"status": "needs_input", "reason": "blocked"}, Seen(False), "question:adam", "blocked", "llmc answer adam"),
        ({"status": "working"}, Seen(False, "dialog open"), "dialog:adam", "blocked", "llmc attach adam"),
        ({"status": "idle"}, Seen(False, "dialog open"), "dialog:adam", "waiting", "llmc attach adam"),
        ({"status": "offline", "reason": "crashed", "current_prompt": "x"}, Seen(), "crash:adam", "blocked", "llmc up --detach"),
        ({"status": "offline", "reason": "crashed"}, Seen(), "crash:adam", "waiting", "llmc up --detach"),
        ({"status": "offline", "reason": "exited", "current_prompt": "x"}, Seen(), "offline:adam", "waiting", "llmc up --detach"),
        ({"status": "offline", "reason": "down"}, Seen(), "", "", ""),
        ({"status": "error", "cause": "agent", "error_reason": "x"}, Seen(), "error:adam", "blocked", "llmc message adam, or llmc reset adam"),
        ({"status": "error", "cause": "auth", "error_reason": "x"}, Seen(), "login:adam", "blocked", "llmc claude auth login, then llmc message adam, or llmc reset adam"),
        ({"status": "error", "reason": "conflicts not resolved"}, Seen(), "conflict:adam", "blocked", "llmc message adam, or llmc reset adam"),
        ({"status": "needs_review", "reason": ABORTED}, Seen(False), "conflict:adam", "blocked", "llmc rebase adam, or llmc console adam (resolve the conflicts there), or llmc reject adam"),
        ({"status": "idle", "delivery": {"outcome": "unconfirmed"}}, Seen(False), "unconfirmed:adam", "waiting", "llmc peek adam"),
        ({"status": "idle", "held": True, "held_since_unix": NOW - 3599}, Seen(False), "held:adam", "notice", "llmc release adam"),
        ({"status": "idle", "held": True, "held_since_unix": NOW - 3600}, Seen(False), "held:adam", "waiting", "llmc release adam"),
        ({"status": "working", "assignment": {"told_of_budget": True}}, Seen(False), "budget:adam", "notice", "llmc usage --by task"),
        ({"status": "working"}, Seen(False), "", "", ""),
        ({"status": "idle"}, Seen(False), "", "", ""),
    ],
)  # fmt: skip
def test_what_a_worker_needs(
    fields: dict[str, object], seen: Seen, key: str, severity: str, command: str
) -> None:
    """Break: leave a case out of `_most_urgent`."""
    items = found(record(**fields), workers={"adam": seen})
    assert set(items) == ({key} if key else set())
    for item in items.values():
        assert (item.severity, item.next, item.who) == (severity, command, "adam")
        assert item.kind in KINDS
        assert item.text


def test_accept_is_not_offered_for_work_that_it_refuses() -> None:
    """Break: offer `accept` after a review that found uncommitted files."""
    reviewed = {"commit_sha": "c0ffee", "reviewed_sha": "c0ffee"}
    clean = found(record("needs_review", **reviewed), workers={"adam": Seen(False)})
    assert clean["review:adam"].next == "llmc accept adam, or llmc reject adam"
    dirty = found(record("needs_review", uncommitted=True, **reviewed), workers={"adam": Seen(False)})
    assert (
        dirty["review:adam"].next
        == "llmc reject adam, or llmc console adam (commit or discard the changes there)"
    )
    assert "uncommitted changes" in dirty["review:adam"].text


def test_a_question_is_shown_with_its_words_and_options() -> None:
    """Break: say only that there is a question; or offer `answer` where it would be refused."""
    asked = {"text": "Which colour?", "options": ["Red", "Blue"], "answerable": True}
    asks = record("needs_input", reason="question", asked=asked)
    (item,) = found(asks, workers={"adam": Seen(False, "input needed")}).values()
    assert (item.text, item.next) == ("Which colour? [1] Red [2] Blue", "llmc answer adam")
    for in_the_way in (
        found(asks, workers={"adam": Seen(True, "input needed")}),
        found(
            {**asks, "asked": {**asked, "answerable": False}}, workers={"adam": Seen(False, "input needed")}
        ),
    ):
        assert in_the_way["question:adam"].next == "llmc attach adam"
    other = found(asks, workers={"adam": Seen(False, "dialog open")})
    assert set(other) == {"dialog:adam"}, "the user opened another dialog in the meantime"
    assert set(found(asks, workers={"adam": Seen(False, rests=True)})) == {"input:adam"}, "it was escaped"
    for at, key, verb in ((6.0, "question:adam", "answer"), (4.0, "dialog:adam", "attach")):
        resolving = record("rebasing", asked={**asked, "at_unix": at})
        (item,) = found(resolving, workers={"adam": Seen(False, "input needed")}).values()
        assert (item.key, item.next) == (key, f"llmc {verb} adam"), (
            "a question of this status, not an earlier one"
        )
    failed = record("error", error_reason="it fails", asked={**asked, "at_unix": 4.0})
    for dialog, verb in (("input needed", "answer"), ("dialog open", "attach")):
        (item,) = found(failed, workers={"adam": Seen(False, dialog)}).values()
        assert (item.text, item.next) == ("it fails", f"llmc {verb} adam")


@pytest.mark.parametrize("status", ["needs_review", "needs_input", "error", "offline", "working"])
def test_auto_mode_looks_after_its_own(status: str) -> None:
    """Break: list what resolves itself; or hide what the user holds."""
    worker = record(status, auto=True, reason="crashed", error_reason="x", current_prompt="x")
    running = {"daemon": Registration(7, auto=True, agent="scripted")}
    assert found(worker, **running) == {}
    held = found({**worker, "held": True}, **running)
    assert "held:adam" in held


@pytest.mark.parametrize("reason", ["down", "crashed", "added"])
def test_an_agent_that_does_not_start_needs_you(reason: str) -> None:
    """Break: list an offline worker only if it has a task; or name only `llmc up`, which has just failed."""
    why = (
        "the agent exited immediately: cannot be used with root/sudo. In a container: `llmc config set a.b 1`"
    )
    failed = record("offline", reason=reason, error_reason=why, cause="config", since_unix=77.0)
    (item,) = found(failed).values()
    assert (item.key, item.severity, item.text, item.since_unix) == (
        "start_failed:adam",
        "blocked",
        why,
        77.0,
    )
    assert item.next == "llmc config set a.b 1, then llmc up --detach"
    auto = {"run": "failed", "run_cause": "config", "run_reason": why, "run_unix": 9.0}
    (item,) = found(auto=auto, running=False, daemon=None).values()
    assert item.next == "llmc config set a.b 1, then llmc up --auto --detach"


def test_an_auto_worker_that_auto_mode_has_needs_no_command() -> None:
    """It restarts by itself, or is not used. Break: `llmc up --detach` for every offline worker."""
    for name, drives in (("auto-1", True), ("auto-2", False)):
        row = worker_view({"name": name, "status": "offline", "auto": True}, False)
        facts = Facts(NOW, running=True, daemon=AUTO._replace(concurrency=1))
        assert (next_command(row, Seen(), facts), facts.drives(name)) == ("", drives)
        assert next_command(row, Seen(), Facts(NOW)) == "llmc up --auto --detach"
        task = {"task_id": "7", "claim": "c1", "since_unix": 3.0, "subject": "Do 7"}
        with_task = record("offline", name=name, auto=True, reason="restarted", assignment=task)
        items = found(with_task, running=True, daemon=AUTO._replace(concurrency=1))
        assert list(items) == ([] if drives else [f"offline:{name}"]), "nothing goes on with that task"
    state = {"workers": {name: {"name": name, "auto": True} for name in ("auto-1", "auto-2")}}
    running = Facts(NOW, running=True, daemon=AUTO._replace(concurrency=1))
    assert status_view("/root", state, running)["auto"]["workers"] == 1
    assert status_view("/root", state, Facts(NOW))["auto"]["workers"] == 2
    assert Registration.read({"pid": 1, "concurrency": 3}) == Registration(1, concurrency=3)


@pytest.mark.parametrize(
    ("facts", "since"),
    [
        ({"running": False, "daemon": None, "beat_unix": NOW - 2}, NOW - 2),
        ({"running": False, "daemon": None, "beat_unix": NOW + 60}, NOW),
        ({"running": False, "daemon": None}, 9.0),
        ({"daemon": Registration(7, auto=False, start_time_unix=NOW - 5), "beat_unix": NOW - 600}, NOW - 5),
    ],
)
def test_since_when_auto_mode_does_not_run(facts: dict[str, object], since: float) -> None:
    """Not since it started. Break: leave the heartbeat out."""
    assert found(auto=RUN, **facts)["auto"].since_unix == since


RUN: dict[str, object] = {"run": "running", "run_unix": 9.0}
FAILED: dict[str, object] = {
    "run": "failed",
    "run_cause": "auth",
    "run_reason": "logged out",
    "run_unix": 9.0,
}
AUTO = Registration(7, auto=True, agent="scripted", version="1")


@pytest.mark.parametrize(
    ("auto", "facts", "keys", "command"),
    [
        (RUN, {"daemon": AUTO}, set(), ""),
        (RUN, {"running": False, "daemon": AUTO}, {"auto"}, "llmc up --auto --detach"),
        (RUN, {"running": False, "daemon": None}, {"auto"}, "llmc up --auto --detach"),
        (RUN, {}, {"auto"}, "llmc up --auto --detach"),
        (RUN, {"running": False, "daemon": AUTO, "supervised": True, "overseer": {}}, set(), ""),
        ({"run": "stopped"}, {"running": False, "daemon": None}, {"daemon"}, "llmc up --detach"),
        ({}, {}, set(), ""),
        (FAILED, {"running": False, "daemon": None}, {"auto"}, "llmc claude auth login, then llmc up --auto --detach"),
        (FAILED, {}, {"auto"}, "llmc claude auth login, then llmc up --auto --detach"),
        ({}, {"holder": 8}, {"other_daemon"}, "llmc doctor"),
        ({"parked_until_unix": NOW + 60, "parked_cause": "limit"}, {"daemon": AUTO}, {"parked"}, "llmc digest"),
        ({"parked_until_unix": NOW + 60, "parked_cause": "budget"}, {"daemon": AUTO}, {"budget:day"}, "llmc usage --by day"),
        ({}, {"daemon": AUTO._replace(agent="claude")}, {"canary"}, "llmc down && llmc up --auto --detach --canary"),
        ({}, {"daemon": AUTO._replace(agent="claude"), "canary": {"client": "1", "passed": True}}, set(), ""),
        ({}, {"daemon": AUTO._replace(agent="claude"), "canary": {"client": "0", "passed": True}}, {"canary"}, "llmc down && llmc up --auto --detach --canary"),
        ({}, {"overseer": {"state": "terminated", "code": 0, "why": "stopped on request"}}, set(), ""),
        ({}, {"overseer": {"state": "terminated", "code": 5, "why": "spiral"}}, {"supervisor"}, "llmc overseer"),
        ({}, {"overseer": {"state": "running"}}, {"supervisor"}, "llmc overseer"),
        ({}, {"overseer": {"state": "running"}, "supervised": True}, set(), ""),
        ({}, {"overseer": {"state": "running"}, "daemon": AUTO}, set(), ""),
        ({}, {"disk_free_bytes": 1 << 20}, {"disk"}, "llmc trash prune"),
        ({}, {"disk_free_bytes": 1 << 40}, set(), ""),
    ],
)  # fmt: skip
def test_what_the_fleet_needs(
    auto: dict[str, object], facts: dict[str, object], keys: set[str], command: str
) -> None:
    """Break: leave a function out of `fleet_items`; or treat a plain daemon as auto mode."""
    items = found(record(), auto=auto, workers={"adam": Seen(False)}, **facts)
    assert set(items) == keys
    assert {item.next for item in items.values()} == ({command} if keys else set())


@pytest.mark.parametrize(
    ("days", "form"), [(0.0, "until %H:%M "), (3, "until %a %H:%M "), (30, "until %Y-%m-%d %H:%M ")]
)
def test_until_when_a_fleet_is_parked_names_the_day(days: float, form: str) -> None:
    """Break: show only the time of day; a fleet that is parked for days seems to continue soon."""
    until = NOW + days * 86400 + 1
    items = found(record(), auto={"parked_until_unix": until, "parked_cause": "limit"}, daemon=AUTO)
    assert time.strftime(form, time.localtime(until)) in items["parked"].text


OPTIONS = {
    "--concurrency": "3",
    "--post-accept-command": "'make deploy'",
    "--until": "2026-11-16T07:30",
}


@pytest.mark.parametrize(
    ("auto", "command"),
    [
        ({}, "llmc up --auto --detach"),
        ({"run_options": {"--concurrency": "3", "--max-tasks": "5"}}, "llmc up --auto --detach --concurrency 3 --max-tasks 5"),
        (
            {"run_options": OPTIONS, "run_until_unix": NOW + 3600},
            "llmc up --auto --detach --concurrency 3 --post-accept-command 'make deploy' --until 2026-11-16T07:30",
        ),
        (
            {"run_options": OPTIONS, "run_until_unix": NOW + 30},
            "llmc up --auto --detach --concurrency 3 --post-accept-command 'make deploy'",
        ),
        ({"run_options": {"--until": "2026-11-16T07:30"}}, "llmc up --auto --detach"),
        ({"run_options": ["--concurrency"]}, "llmc up --auto --detach"),
        ({"run_options": {"--concurrency": 3}}, "llmc up --auto --detach"),
    ],
)  # fmt: skip
def test_auto_mode_is_started_again_with_its_options(auto: dict[str, object], command: str) -> None:
    """Break: leave out the options; or keep an --until that is over, which `up` refuses."""
    assert up_auto(auto, NOW) == command
    assert command_in(f"llmc logs daemon, then {command}") == f"llmc logs daemon && {command}"


def test_the_status_says_why_a_run_ended_as_requested() -> None:
    """Break: take the reason of a failure; or keep it while the next run is running."""
    auto: dict[str, object] = {"tasks_completed": 1, "run_unix": 9.0, "run_reason": "--max-tasks 1 reached"}
    for run, said in (
        ("stopped", (9.0, "--max-tasks 1 reached")),
        ("failed", (None, None)),
        ("running", (None, None)),
    ):
        view = status_view("/root", {"auto": {**auto, "run": run}}, Facts(NOW))["auto"]
        assert (view["finished_unix"], view["finished_reason"]) == said
    view = status_view("/root", {"auto": {**auto, "run": "stopped", "run_reason": ""}}, Facts(NOW))["auto"]
    assert (view["finished_unix"], view["finished_reason"]) == (None, None)


def test_every_item_names_the_options_of_the_last_run() -> None:
    """Break: name UP_AUTO in one of them."""
    again = "llmc up --auto --detach --concurrency 3"
    gone = {"running": False, "daemon": None, "up_auto": again}
    assert found(auto=RUN, **gone)["auto"].next == again
    assert found(auto=FAILED, **gone)["auto"].next == f"llmc claude auth login, then {again}"
    runs = {"daemon": AUTO._replace(agent="claude"), "up_auto": again}
    assert found(auto=RUN, **runs)["canary"].next == f"llmc down && {again} --canary"
    missed = without_auto({}, Facts(NOW, up_auto=again))
    assert missed is not None
    assert missed.next == again
    for status, delivery in (("offline", None), ("idle", None), ("working", {"outcome": "pending"})):
        record = {"name": "auto-1", "status": status, "auto": True, "delivery": delivery}
        assert next_command(worker_view(record, False), Seen(), Facts(NOW, up_auto=again)) == again
    assert (
        status_view("/root", {"workers": {"auto-1": record}}, Facts(NOW, up_auto=again))["auto"]["start"]
        == again
    )


@pytest.mark.parametrize("facts", [{"running": False, "daemon": None}, {}])
def test_why_auto_mode_failed_is_said_until_it_runs_again(facts: dict[str, object]) -> None:
    """Break: under a plain daemon, say only that auto mode is not running; the reason would be lost."""
    (item,) = found(record(), auto=FAILED, workers={"adam": Seen(False)}, **facts).values()
    assert (item.kind, item.text) == ("auto", "auto mode failed (auth): logged out")


GONE: dict[str, object] = {"running": False, "daemon": None}


@pytest.mark.parametrize(
    ("auto", "facts", "why"),
    [
        (FAILED, GONE, "auto mode failed (auth): logged out"),
        (FAILED, {"running": True, "daemon": Registration(7, auto=False), "holder": 7}, "auto mode failed (auth): logged out"),
        (RUN, GONE, "auto mode is not running: its daemon was killed"),
        ({"run": "interrupted", "run_reason": "the daemon was stopped by SIGTERM"}, GONE, "auto mode is not running: the daemon was stopped by SIGTERM"),
        ({"run": "stopped"}, GONE, "auto mode is not running"),
        ({"run": "stopped", "run_reason": "--max-tasks 1 reached"}, GONE, "auto mode finished: --max-tasks 1 reached"),
        ({}, GONE, "auto mode is not running"),
        ({"run": "stopped"}, {**GONE, "overseer": {"state": "terminated", "code": 5, "why": "spiral"}}, "the supervisor stopped: spiral"),
        ({"run": "stopped", "parked_until_unix": NOW + 60}, {"running": True, "daemon": AUTO}, None),
        (FAILED, {"running": True, "daemon": AUTO, "holder": 7}, None),
        (FAILED, {**GONE, "supervised": True, "overseer": {}}, None),
        (FAILED, {"running": True, "daemon": None}, None),
        (FAILED, {"running": True, "daemon": Registration(7, auto=False), "holder": 8}, None),
    ],
)  # fmt: skip
def test_whether_auto_mode_will_finish_tasks(
    auto: dict[str, object], facts: dict[str, object], why: str | None
) -> None:
    """A starting daemon has the lock before its registration.

    Break: leave out the supervisor, or that daemon.
    """
    found = without_auto({"auto": auto}, Facts(NOW, **facts))
    assert (found and found.text) == why
    assert found is None or found.next.endswith(("llmc up --auto --detach", "llmc overseer"))


def test_the_next_question_is_another_one() -> None:
    """No hook reports the answer, so its status stays.

    Break: date a question by the status alone: the next one sends no notification.
    """
    asks = record("needs_input", reason="question", asked={"tool": "x", "text": "Which?", "at_unix": 7.0})
    assert found(asks, workers={"adam": Seen(False)})["question:adam"].since_unix == 7.0


def test_the_same_thing_is_listed_once() -> None:
    """Break: leave out `_once`."""
    person = {
        "kind": "person",
        "severity": "blocked",
        "who": "adam",
        "since_unix": 1,
        "text": "a draft",
        "next": "x",
    }
    accept = {"kind": "accept_failed", "severity": "waiting", "who": "adam", "since_unix": 1, "text": "why"}
    held = record("needs_review", held=True)
    assert set(found(held, raised={"person:adam": person})) == {"person:adam", "review:adam"}
    failed = found(record("needs_review"), raised={"accept:adam": accept})
    assert {key: item.next for key, item in failed.items()} == {"accept:adam": "llmc review adam"}
    trust = {
        "kind": "trust",
        "severity": "blocked",
        "who": "adam",
        "since_unix": 1,
        "text": "no trust",
        "next": "x",
    }
    down = record("offline", current_prompt="x")
    assert set(found(down, raised={"trust:adam": trust})) == {"trust:adam"}


@pytest.mark.parametrize("key", ["budget:day", "budget:run"])
def test_a_nearly_used_up_budget_is_listed_only_while_auto_mode_runs(key: str) -> None:
    """Break: list what was raised whether or not auto mode runs; "today" stays for days after a run."""
    near = {
        "kind": "budget",
        "severity": "notice",
        "who": "budget",
        "since_unix": 1,
        "text": "today",
        "next": "x",
    }
    spent = {**near, "severity": "waiting"}
    runs: dict[str, object] = {"running": True, "daemon": AUTO}
    for raised, facts, count in ((near, runs, 1), (near, GONE, 0), (spent, runs, 1), (spent, GONE, 1)):
        assert len(found(raised={key: raised}, **facts)) == count


def test_a_source_that_is_free_again_or_blocks_nothing_is_not_listed() -> None:
    """Break: list it on a node whose work another node has landed; nothing there would ever clear it."""
    source = {
        "kind": "source",
        "severity": "blocked",
        "who": "/src",
        "since_unix": 1,
        "text": "changes",
        "next": "x",
    }
    waits = record("needs_review")
    assert "source" in found(waits, raised={"source": source})
    assert "source" not in found(waits, raised={"source": source}, source_is_free=True)
    assert found(record("idle"), raised={"source": source}) == {}


def test_a_source_that_is_missing_is_listed_until_it_is_there_and_no_command_needs_it() -> None:
    """Break: offer `llmc accept` or `llmc start` in the meantime; keep it listed once the source is back."""
    fix = "llmc config set repo.default_branch trunk"
    gone = {
        "kind": "no_source",
        "severity": "blocked",
        "who": "/src",
        "since_unix": 1,
        "text": "gone",
        "next": fix,
    }
    raised = {"no_source:main": gone}
    reviewed = record("needs_review", commit_sha="a", reviewed_sha="a")
    listed = found(reviewed, raised=raised, source_fix=fix)
    assert {key: item.next for key, item in listed.items()} == {"no_source:main": fix, "review:adam": fix}
    assert [*found(record("idle"), raised=raised, source_fix=fix)] == ["no_source:main"]
    listed = found(reviewed, raised=raised)
    assert {key: item.next for key, item in listed.items()} == {
        "review:adam": "llmc accept adam, or llmc reject adam"
    }


@pytest.mark.parametrize(
    ("reasons", "finished"),
    [
        ([("--max-tasks 3 reached", True)], "--max-tasks 3 reached"),
        ([("node laptop was removed from the fleet or is running elsewhere", False)], ""),
        ([("every auto worker was removed", False), ("time limit reached", True)], ""),
        ([("time limit reached", True), ("node laptop is draining", False)], "time limit reached"),
    ],
)
def test_only_an_end_that_was_asked_for_is_a_normal_one(
    reasons: list[tuple[str, bool]], finished: str
) -> None:
    """Break: count every end of a run as requested: a node that lost its place would look well."""
    run = SimpleNamespace(draining="", ends_as_asked=False)
    for why, asked in reasons:
        Run.drain(run, why, asked=asked)
    ended = {"run": "stopped", "run_reason": run.draining if run.ends_as_asked else ""}
    assert finished_reason(ended) == finished
