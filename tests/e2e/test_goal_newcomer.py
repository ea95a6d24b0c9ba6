"""Goals for a user who has only read the guide: on a terminal, with mistakes, and with no workers yet."""

import json
import re

import pytest

from tests.e2e.test_goal_commands import created, planned
from tests.support import goals
from tests.support.auto import Daemon
from tests.support.fleet import Fleet
from tests.support.goals import leaf, plan, store
from tests.support.plans import tasks_of

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_goal_on_a_narrow_terminal(scripted: Fleet) -> None:
    """Break: pass an empty color to click in `paint`."""
    fleet = scripted.set_up()
    goal_id = created(fleet, "Import CSV files", "--budget", "20")
    planned(fleet, goal_id)
    for words in (("goal", "list"), ("overseer", "status"), ("overseer", "why", goal_id), ("status",)):
        shown = fleet.on_terminal(*words, columns=40)
        assert "bug in llmc" not in shown, (words, shown)
    shown = fleet.on_terminal("goal", "show", goal_id, columns=40)
    assert COLOUR.search(shown), shown
    tree = COLOUR.sub("", shown).splitlines()
    assert tree[0].startswith("Import CSV"), tree
    drawn = tree[: next(at for at, line in enumerate(tree) if line.startswith("work:"))]
    assert max(map(len, drawn)) <= 40, drawn


def test_a_goal_that_cannot_be_read_keeps_nobody_from_the_others(scripted: Fleet) -> None:
    """Break: `view` for `readable` in Reader.views, no `except` in Desk.read, or let `clean` pass a float."""
    fleet = goals.set_up(scripted)
    for odd in ("nan", "inf", "-1"):
        assert odd in fleet.llmc("goal", "create", "--title", "x", "--no-plan", "--budget", odd, code=2).err
    broken, sound = created(fleet, "Broken"), created(fleet, "Sound")
    planned(fleet, sound)
    with store(fleet).writing() as records:
        (payload,) = records.db.execute("SELECT payload FROM goals WHERE goal_id = ?", (broken,)).fetchone()
        spoilt = json.dumps({**json.loads(payload), "budgetUsd": "x"})
        records.db.execute("UPDATE goals SET payload = ? WHERE goal_id = ?", (spoilt, broken))
    listed = fleet.llmc("goal", "list", "--json")
    assert [one["goalId"] for one in listed.json["goals"]] == [sound]
    assert f"{broken}: cannot read a record of type goal in the goal database" in listed.err
    ticked = fleet.llmc("overseer", "tick", "--json", code=1).json
    assert broken in ticked["problem"]
    assert [one.split(":")[0] for one in ticked["actions"]] == ["work S1.1.1", "work T2.1"], ticked
    assert list(fleet.llmc("overseer", "status", "--json").json["unreadable"]) == [broken]
    fleet.llmc("goal", "why", "S1.1.1")
    fleet.llmc("inbox")
    exported = json.loads(fleet.llmc("overseer", "export").out)
    assert exported["unreadable"][broken]["goals"][0]["title"] == "Broken"
    assert list(exported["goals"]) == [sound]


def test_what_a_person_says_of_a_part_reaches_who_does_it(scripted: Fleet) -> None:
    """Break: leave `word` out of `reopen`, of `answered`, of `freed`, or of `Round.work_text`."""
    fleet = goals.set_up(scripted)
    goal_id = created(fleet)
    planned(fleet, goal_id)

    def told(node_id: str) -> str:
        fleet.llmc("overseer", "tick")
        found = [one for one in tasks_of(fleet).values() if one["subject"].startswith(node_id)]
        return str(found[-1]["description"])

    fleet.llmc("work", "block", "T2.1", "--reason", "which colour?")
    assert "no worker" in fleet.llmc("answer", "adm", "make it blue", code=4).err
    assert 'Did you mean "T2.1"' in fleet.llmc("answer", "T9.9", "make it blue", code=4).err
    fleet.llmc("answer", "T2.1", "make it blue")
    assert "From the user:\nmake it blue\n" in told("T2.1")
    fleet.llmc("work", "block", "T2.1", "--reason", "no server")
    fleet.llmc("work", "unblock", "T2.1", "--reason", "the server is called mango")
    assert "the server is called mango" in told("T2.1")
    fleet.llmc("work", "done", "S1.1.1")
    fleet.llmc("work", "reopen", "S1.1.1", "--reason", "empty files fail")
    assert "has been reopened: empty files fail" in told("S1.1.1")


@pytest.mark.req("0-054")
@pytest.mark.soak
def test_one_part_that_always_fails_ends_with_a_question_and_not_with_auto_mode(scripted: Fleet) -> None:
    """Break: count tasks in `_pieces`, or leave `task.part` out of `take_next`; `str` in place of `in_a_line`."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "1", "overseer.goals.max_retries": "1"})
    made = fleet.dir / "plan.json"
    made.write_text(json.dumps(plan([[leaf(1, "@say nothing to commit")]], [[leaf(2)]])))
    goal_id = goals.create(fleet, "The goal", "--from", str(made))
    daemon = Daemon(fleet)
    asked = goals.wait_questions(fleet)
    assert [one["workNodeId"] for one in asked] == ["S1.1.1"]
    assert len({row["task_id"] for row in fleet.events("task_failed")}) > 1, "it was retried"
    assert fleet.events("auto_failed") == []
    fleet.llmc("work", "done", "S1.1.1", "--goal", goal_id)
    goals.wait_status(fleet, goal_id)
    lines = fleet.llmc("events").out.splitlines()
    assert [line for line in lines if not re.match(r"\d\d:\d\d:\d\d  ", line)] == [], "an event is one line"
    assert daemon.stop() == 0


def test_that_nothing_will_be_done_is_said_where_somebody_waits_for_it(scripted: Fleet) -> None:
    """Break: `undriven` returns "" for goals that are switched off, without a daemon, or need auto mode."""
    fleet = goals.set_up(scripted, **{"overseer.goals.enabled": "false"})
    made = fleet.dir / "plan.json"
    made.write_text(json.dumps(plan([[leaf(1)]])))
    words = ("goal", "create", "--title", "The goal", "--from", str(made), "--budget", "20", "--json")
    asked = fleet.llmc(*words)
    goal_id = asked.json["goalId"]
    off = "goals are disabled; to enable them: llmc config set overseer.goals.enabled true"
    assert off in asked.err
    assert "budget" not in asked.err, "prices are known without any in config.toml"
    looks = (("goal", "list"), ("goal", "show"), ("goal", "show", goal_id), ("overseer", "why", goal_id))
    assert fleet.llmc("goal", "show").out == fleet.llmc("goal", "show", goal_id).out, "the only goal"
    for look in looks:
        assert off in fleet.llmc(*look).err
    assert off in fleet.llmc("up", "--auto", "--detach").err
    assert off in fleet.llmc("overseer", "why", "S1.1.1", "--json").json["undriven"]
    fleet.llmc("down")
    fleet.llmc("config", "set", "overseer.goals.enabled", "true")
    for look in looks:
        assert "goals are not running; start them with `llmc up --auto --detach`" in fleet.llmc(*look).err
    fleet.llmc("up", "--detach")
    assert "need auto mode" in fleet.llmc("overseer", "status").out
    fleet.llmc("down")
    fleet.llmc("goal", "pause", goal_id)
    assert fleet.llmc("goal", "list").err == "", "no goal is waiting"


def test_slips_of_somebody_new(scripted: Fleet) -> None:
    """Break: see each line; without `over` in `view_with`, a completed goal is in the way of the next one."""
    fleet = goals.set_up(scripted, **{"overseer.goals.enabled": "false"})
    made = fleet.dir / "plan.json"
    made.write_text(json.dumps(plan([[leaf(1), leaf(2)]])))
    first = goals.create(fleet, "First", "--from", str(made))
    for part in ("S1.1.1", "S1.1.2"):
        fleet.llmc("work", "done", part, "--commit", f"c-{part}")
    assert goals.status(fleet, first) == "completed"
    # What the user finished counts on every level, with its evidence.
    text = fleet.llmc("goal", "handoff", first).out
    assert re.search(r"### The goal as a whole\n[^#]*`c-S1.1.1`, `c-S1.1.2`", text), text
    assert "Planned by hand.\n" in text
    # Plans share such ids: one that is open in the second goal does not mean the first, except to reopen it.
    second = goals.create(fleet, "Second", "--from", str(made))
    assert fleet.llmc("work", "done", "S1.1.1", "--json").json["goalId"] == second
    assert "is in the plans of 2 goals" in fleet.llmc("work", "reopen", "S1.1.1", "--reason", "x", code=2).err
    # The same plan again changes nothing.
    again = fleet.llmc("goal", "plan", second, "--replan", "--from", str(made)).out
    assert "the plan did not change" in again
    assert "added" not in again
    # A cancelled goal is not a completed goal.
    fleet.llmc("goal", "cancel", second)
    row = next(one for one in fleet.llmc("goal", "list", "--json").json["goals"] if one["goalId"] == second)
    assert (row["percent"], row["done"], row["total"]) == (50, 1, 2)
    # What cannot be stored is refused, and an invalid plan is reported as such.
    fleet.llmc("goal", "update", first, "--title", " ", code=2)
    assert "not valid UTF-8" in fleet.llmc("goal", "create", "--no-plan", "--title", "\udcff", code=2).err
    made.write_text("[]")
    before = fleet.llmc("goal", "list", "--all", "--json").json
    refused = fleet.llmc("goal", "create", "--title", "x", "--from", str(made), code=2).err
    assert "is not a valid plan" in refused
    assert "must be an object" in refused
    assert "run `llmc goal plan --help`" in refused
    assert fleet.llmc("goal", "list", "--all", "--json").json == before, "an empty goal was left"
    fleet.llmc("config", "set", "overseer.goals.planner.command", "exit 1")
    assert "To try again: llmc goal plan goal_" in fleet.llmc("goal", "create", "--title", "x", code=1).err
    if fleet.rows is None:
        _a_damaged_file(fleet)


def _a_damaged_file(fleet: Fleet) -> None:
    """The next writer is told that it was set aside."""
    (fleet.root / ".llmc/overseer/store.db").write_bytes(b"no database " * 1000)
    assert "is damaged" in fleet.llmc("doctor", code=None).out
    assert "safe mode" in fleet.llmc("goal", "create", "--title", "x", "--no-plan").err
    assert "`llmc goal safe-mode --clear`" in fleet.llmc("doctor", code=None).out
