"""Goals as somebody meets them who has only read the guide: on a terminal, with slips, and with nobody at work yet."""

import json
import re
import sqlite3

from tests.e2e.test_goal_commands import created, planned, store
from tests.support.fleet import Fleet

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_goal_on_a_narrow_terminal(scripted: Fleet) -> None:
    """Break: hand an empty colour to click in `paint`."""
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
    """Break: `view` in place of `readable` in Reader.views, no `except` in Desk.read, or let `clean` pass a float."""
    config = {"overseer.goals.enabled": "true", "auto.task_list_id": "t"}
    fleet = scripted.set_up(config=config)
    for odd in ("nan", "inf", "-1"):
        assert odd in fleet.llmc("goal", "create", "--title", "x", "--no-plan", "--budget", odd, code=2).err
    broken, sound = created(fleet, "Broken"), created(fleet, "Sound")
    planned(fleet, sound)
    with sqlite3.connect(store(fleet).path) as db:
        db.execute(
            "UPDATE goals SET payload = json_set(payload, '$.budgetUsd', 'x') WHERE goal_id = ?", (broken,)
        )
    listed = fleet.llmc("goal", "list", "--json")
    assert [one["goalId"] for one in listed.json["goals"]] == [sound]
    assert f"{broken}: a goal in the goals' store cannot be read" in listed.err
    ticked = fleet.llmc("overseer", "tick", "--json", code=1).json
    assert broken in ticked["problem"]
    assert [one.split(":")[0] for one in ticked["actions"]] == ["work S1.1.1", "work T2.1"], ticked
    assert list(fleet.llmc("overseer", "status", "--json").json["unreadable"]) == [broken]
    fleet.llmc("overseer", "why", "S1.1.1")
    fleet.llmc("overseer", "inbox")
    exported = json.loads(fleet.llmc("overseer", "export").out)
    assert exported["unreadable"][broken]["goals"][0]["title"] == "Broken"
    assert list(exported["goals"]) == [sound]
