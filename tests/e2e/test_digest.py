"""`llmc digest` on a root whose log was written by its own store; no daemon, no agent."""

import json
import time
from typing import Any

import pytest

from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo.project import open_project
from llmc.reports.digest import report, text_of
from tests.support.fleet import Fleet

HOUR = 3600.0


def log(fleet: Fleet, *events: tuple[float, str, dict[str, Any]]) -> None:
    """Events that happened the given number of hours ago."""
    store = Store(Root(fleet.root))
    now = time.time()
    for hours, action, fields in events:
        with store.transaction() as tx:
            tx.now = now - hours * HOUR
            tx.emit(action, **fields)


def night(fleet: Fleet) -> None:
    one, two = {"worker": "auto-1", "task_id": "1"}, {"worker": "auto-2", "task_id": "2"}
    log(
        fleet,
        (30, "task_assigned", {**one, "subject": "Before", "label": "", "claim": "a"}),
        (29, "task_completed", {**one, "commit": "b" * 40}),
        (29, "accepted", {"worker": "auto-1", "commit": "b" * 40, "prompt": ""}),
        (20, "accepted", {"worker": "adam", "commit": "c" * 40, "prompt": "By hand"}),
        (9, "auto_started", {"concurrency": 2}),
        (8, "task_assigned", {**two, "subject": "Add the model", "label": "", "claim": "b"}),
        (7, "usage_recorded", {**two, "model": "opus", "output_tokens": 5000, "cost": 0.5}),
        (6, "task_failed", {**two, "reason": "2 tests fail", "cause": "task", "attempt": 3, "ref": "r"}),
        (6, "task_quarantined", {**two, "cause": "task", "attempt": 3}),
        (5, "auto_stopped", {"reason": "llmc down"}),
    )


def test_the_morning_after(scripted: Fleet) -> None:
    """The default is a day; --since takes a time or a duration; the task list ranks what waits.

    Break: read the list without its holds, or count durations from 1970.
    """
    scripted.set_up()
    assert "No tasks were started" in scripted.llmc("digest").out
    night(scripted)
    told = scripted.llmc("digest").out
    assert "0 tasks landed" in told.splitlines()[1]
    assert ", 1 accepted by hand, $0.50." in told.splitlines()[1], (
        "without a list, `tasks requeue` is refused"
    )
    assert "quarantined: 2 (task, 3 attempts)" in told
    assert "\033" not in told
    in_the_daemon = text_of(report(open_project(str(scripted.root))))
    assert in_the_daemon.partition("Did not land")[2] == told.rstrip("\n").partition("Did not land")[2]
    assert all(len(line) <= 80 for line in told.splitlines())
    for since, count in (("36h", 2), ("1d", 1), (str(time.time() - 10 * HOUR), 0), ("2001-01-01", 2)):
        found = scripted.llmc("digest", "--since", since, "--json").json
        assert len(found["accepted"]) == count, since
        assert found["waiting"] == found["attention"] == []
    assert found["runs"]["how"] == "stopped"
    assert found["spend"]["failed"]["spend"]["cost"] == 0.5
    refused = scripted.llmc("digest", "--since", "yesterday", code=2).err
    assert "invalid time 'yesterday'" in refused
    assert "not available to agents" in scripted.llmc("digest", code=3, LLMC_WORKER="auto-1").err

    for key, value in {"auto.task_list_id": "ours", "auto.tasks_root": str(scripted.dir / "tasks")}.items():
        scripted.llmc("config", "set", key, value)
    for subject, more in (("One", ()), ("Add the model", ()), ("Next", ("--after", "2")), ("Idea", ())):
        scripted.llmc("tasks", "add", subject, *more)
    for number, hold in (("2", "quarantined"), ("4", "proposed")):
        path = scripted.dir / f"tasks/ours/{number}.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "metadata": {"llmc": {"hold": hold}}}) + "\n"
        )
    assert "llmc tasks requeue 2   blocks 1 task\n" in scripted.llmc("digest").out
    ranked = scripted.llmc("digest", "--json").json["waiting"]
    assert ranked[0]["why"] == "task: 2 tests fail"
    assert [(item["command"], item["unblocks"]) for item in ranked] == [
        ("llmc tasks requeue 2", 1),
        ("llmc tasks approve 4", 0),
    ]


def test_the_default_is_since_a_person_last_looked(scripted: Fleet) -> None:
    """A second digest shows the same; a day later it continues where that one ended,
    whatever was restarted since.

    Break: start at the latest start of auto mode; show an empty second digest within the hour;
    or restart the hour with it.
    """
    scripted.set_up()
    night(scripted)
    looked = scripted.root / ".llmc/looked.json"
    scripted.llmc("digest", "--json")
    assert not looked.exists(), "a script is not a user"
    first, second = scripted.llmc("digest").out, scripted.llmc("digest").out
    assert "1 accepted by hand" in first
    assert "1 accepted by hand" in second
    assert "(1d)" in first.splitlines()[0]
    for age_h, begins_h in ((0.9, 40), (1.1, 1.1)):
        now = time.time()
        looked.write_text(json.dumps({"at_unix": now - age_h * HOUR, "since_unix": now - 40 * HOUR}))
        scripted.llmc("digest")
        kept = json.loads(looked.read_text())
        assert abs(kept["since_unix"] - (now - begins_h * HOUR)) < 60
        assert abs(kept["at_unix"] - (now - 0.9 * HOUR if age_h < 1 else now)) < 60, "frequent runs move on"
    now = time.time()
    looked.write_text(json.dumps({"at_unix": now - 7 * HOUR, "since_unix": now - 40 * HOUR}))
    found = scripted.llmc("digest", "--json").json
    assert abs(found["since_unix"] - (now - 7 * HOUR)) < 60
    assert [row["task_id"] for row in found["failed"]] == ["2"], "it failed six hours ago"
    assert found["failed"][0]["spend"]["cost"] == 0.5, "usage before the period belongs to the attempt"
    for damaged in ("{", json.dumps({"at_unix": now + 9e6, "since_unix": now})):
        looked.write_text(damaged)
        assert abs(scripted.llmc("digest", "--json").json["since_unix"] - (now - 24 * HOUR)) < 60


def test_a_report_needs_neither_a_good_state_nor_a_whole_log(scripted: Fleet) -> None:
    """The last events are only in the state, a line is torn, then the state itself is broken.

    Break: read only the log; or let a broken state end the report.
    """
    scripted.set_up()
    night(scripted)
    events = scripted.root / "logs/events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:-1]) + '{"seq": 8, "ts": 1, "action": "task_compl\n')
    whole = scripted.llmc("digest", "--json").json
    assert whole["runs"]["how"] == "stopped"
    (scripted.root / "state.json").write_text("{")
    cut = scripted.llmc("digest", "--json").json
    assert cut["runs"]["how"] == "killed"
    assert "state.json cannot be read" in cut["problems"][0]
    assert "incomplete: workers" in scripted.llmc("digest").out
    events.unlink()
    assert "No tasks were started" in scripted.llmc("digest").out


def test_what_ended_in_the_period_counts_from_its_beginning(scripted: Fleet) -> None:
    """A run of three days, and an attempt that was parked for most of one.

    Break: read the log from `auto.task_timeout_secs` before the period.
    """
    scripted.set_up()
    one = {"worker": "auto-1", "task_id": "1"}
    log(
        scripted,
        (99, "task_assigned", {**one, "subject": "Another", "label": "", "claim": "a"}),
        (98, "task_completed", {**one, "commit": "b" * 40}),
        (72, "auto_started", {"concurrency": 1, "instance_id": "x"}),
        (20, "task_assigned", {**one, "task_id": "2", "subject": "Long", "label": "", "claim": "b"}),
        (19, "usage_recorded", {**one, "task_id": "2", "model": "opus", "output_tokens": 5000, "cost": 0.5}),
        (18.5, "fleet_parked", {"cause": "limit", "until_unix": time.time()}),
        (0.75, "fleet_resumed", {"cause": "limit"}),
        (0.5, "task_completed", {**one, "task_id": "2", "commit": "c" * 40}),
        (0.25, "daemon_stopped", {"instance_id": "x", "auto": True}),
    )
    found = scripted.llmc("digest", "--since", "1h", "--json").json
    (landed,) = found["accepted"]
    assert (round(landed["took_s"]), landed["spend"]["cost"]) == (19.5 * HOUR, 0.5)
    assert found["parks"]["limit"]["total_s"] == pytest.approx(0.25 * HOUR, abs=60)
    assert (found["runs"]["how"], found["runs"]["times"]) == ("stopped", 1)
    assert found["runs"]["total_s"] == pytest.approx(0.75 * HOUR, abs=60)
    assert found["runs"]["tasks_per_hour"] == pytest.approx(2, abs=0.1)
    assert found["released"] == []


def test_what_had_no_price_costs_the_same_as_in_usage(scripted: Fleet) -> None:
    """Break: sum the `cost` of the events alone, where `llmc usage` and the budgets use the prices of now."""
    scripted.set_up()
    used = {"worker": "auto-1", "task_id": None, "model": "claude-new-9", "cost": None}
    log(scripted, (1, "usage_recorded", {**used, "output_tokens": 1000}))
    for kind in ("input", "output"):
        scripted.llmc("config", "set", f"prices.claude-new-9.{kind}", "100")
    assert "$0.10" in scripted.llmc("usage").out
    assert scripted.llmc("digest", "--json").json["total_spend"]["cost"] == 0.1
