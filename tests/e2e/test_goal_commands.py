"""Goals on the command line: create, store, change, report and protect them. Nothing is driven."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.goals.drive.moves import move_assignment
from llmc.goals.model import AssignmentStatus, Change, Event, NodeStatus, Result
from tests.e2e.test_task_commands import completed_words
from tests.support.fleet import Fleet
from tests.support.goal_records import BLOCKED, assignment, dispatch, node
from tests.support.goals import store
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def created(fleet: Fleet, title: str = "Import CSV files", *more: str) -> str:
    return str(fleet.llmc("goal", "create", "--title", title, "--no-plan", "--json", *more).json["goalId"])


def planned(fleet: Fleet, goal_id: str) -> None:
    """What a planner writes."""
    plan = [node(n) for n in ("P1", "T1.1", "S1.1.1", "S1.1.2", "P2", "T2.1")]
    plan[3] = replace(plan[3], depends_on=("S1.1.1",))
    mine = tuple(replace(one, goal_id=goal_id) for one in plan)
    told = Event(ts=2.0, type="plan.generated", goal_id=goal_id)
    store(fleet).apply(Change(nodes=mine, events=(told,)))


def statuses(fleet: Fleet, goal_id: str) -> dict[str, str]:
    return {key: one.status.value for key, one in store(fleet).view(goal_id).nodes.items()}


def types(fleet: Fleet, goal_id: str) -> list[str]:
    lines = fleet.llmc("overseer", "events", "--goal", goal_id, "--json").out.splitlines()
    return [json.loads(line)["type"] for line in lines]


@pytest.mark.req(
    "3-001", "3-116", "3-121", "3-122", "3-123", "3-X17", "3-X25", "3-X26", "3-061", "3-062", "3-064"
)
def test_a_goal_is_made_kept_and_moved(scripted: Fleet) -> None:
    """Break: write the goal after the planning; `--plan` false by default; `unknown_goal` returns None."""
    fleet = scripted.set_up("adam")
    asked = fleet.llmc(
        *("overseer", "goal", "create", "--title", "Import CSV files", "--problem", "by hand today"),
        *("--criterion", "make test passes", "--criterion", "docs say how", "--non-goal", "Excel"),
        *("--constraint", "no new dependency", "--risk", "odd encodings | wrong names | detect"),
        *("--tag", "import", "--priority", "high", "--owner", "ada", "--budget", "12.5"),
        *("--from-session", "adam", "--json"),
        code=1,
    ).json
    # It planned by default, that failed, and the goal still exists.
    assert (asked["planned"], "cannot plan" in asked["problem"]) == (False, True)
    goal_id = asked["goalId"]
    kept = fleet.llmc("goal", "show", goal_id, "--json").json
    assert kept["successCriteria"] == ["make test passes", "docs say how"]
    assert kept["risks"] == [{"risk": "odd encodings", "impact": "wrong names", "mitigation": "detect"}]
    assert (kept["priority"], kept["owner"], kept["budgetUsd"], kept["tags"]) == (
        "high",
        "ada",
        12.5,
        ["import"],
    )
    assert kept["origin"]["sourceSessionKey"] == "agent:adam:worker:adam"
    assert kept["status"] == "active"
    assert types(fleet, goal_id) == ["goal.created", "plan.failed"]
    shown = fleet.llmc("goal", "create", "--title", "Second", code=1)
    assert "created goal_" in shown.out
    assert "goal created, but planning failed" in shown.err
    assert "goals are disabled" in fleet.llmc("overseer", "status").out

    assert fleet.llmc("goal", "pause", goal_id, "--reason", "holidays").out == f"{goal_id}: paused\n"
    assert "is already paused" in fleet.llmc("goal", "pause", goal_id, code=3).err
    assert fleet.llmc("overseer", "goal", "resume", goal_id, "--json").json["status"] == "active"
    assert "it is not paused" in fleet.llmc("goal", "resume", goal_id, code=3).err
    changed = fleet.llmc("goal", "update", goal_id, "--priority", "urgent", "--criterion", "all green")
    assert changed.out == f"{goal_id}: active\n"
    kept = fleet.llmc("goal", "show", goal_id, "--json").json
    assert (kept["priority"], kept["successCriteria"], kept["owner"]) == ("urgent", ["all green"], "ada")
    _a_cancel_asks_on_a_terminal(fleet, goal_id)
    assert fleet.llmc("goal", "cancel", goal_id).out == f"{goal_id}: cancelled\n"
    assert "from cancelled to paused" in fleet.llmc("goal", "pause", goal_id, code=3).err
    fleet.llmc("goal", "archive", goal_id)
    assert [row["title"] for row in fleet.llmc("goal", "list", "--json").json["goals"]] == ["Second"]
    assert len(fleet.llmc("goal", "list", "--all", "--json").json["goals"]) == 2
    moves = ["goal.paused", "goal.resumed", "goal.updated", "goal.cancelled", "goal.archived"]
    assert types(fleet, goal_id)[2:] == moves

    near = goal_id[:-1] + "x"
    for words in (
        ("goal", "show", near),
        ("goal", "pause", near),
        ("goal", "plan", near),
        ("overseer", "events", "--goal", near),
        ("work", "done", "S1.1.1", "--goal", near),
    ):
        gone = fleet.llmc(*words, "--json", code=4)
        assert f'Did you mean "{goal_id}"?' in gone.json["hint"], words
    assert "no plan item 'S9' in any plan" in fleet.llmc("work", "done", "S9", code=4).err
    assert fleet.llmc("overseer", "answer", "A_9", "yes", code=4)

    if fleet.rows is None:
        _a_place_for_the_file(fleet)


def _a_cancel_asks_on_a_terminal(fleet: Fleet, goal_id: str) -> None:
    """Break: cancel without asking."""
    with closing(Terminal(fleet, "goal", "cancel", goal_id)) as terminal:
        terminal.sees(f"Cancel {goal_id} (Import CSV files) and its unfinished work? [y/N]")
        terminal.type("n")
        terminal.press("Enter")
        wait_until(lambda: terminal.exit_code is not None, 20, story=terminal.screen)
    assert fleet.llmc("goal", "show", goal_id, "--json").json["status"] == "active"


def _a_place_for_the_file(fleet: Fleet) -> None:
    """The default, the configuration, the environment."""
    assert (fleet.root / ".llmc/overseer/store.db").exists()
    fleet.llmc("config", "set", "overseer.goals.storage.dir", str(fleet.dir / "elsewhere"))
    assert fleet.llmc("goal", "list").out == "no goals\n"
    created(fleet, "Elsewhere")
    assert (fleet.dir / "elsewhere/store.db").exists()
    by_hand = str(fleet.dir / "by-hand")
    assert fleet.llmc("goal", "list", LLMC_OVERSEER_DIR=by_hand).out == "no goals\n"
    fleet.llmc("goal", "create", "--title", "Third", "--no-plan", LLMC_OVERSEER_DIR=by_hand)
    assert Path(by_hand, "store.db").exists()


@pytest.mark.req(
    "3-120", "3-124", "3-125", "3-127", "3-053", "3-056", "3-058", "3-059", "3-060", "3-129", "3-X24"
)
def test_a_person_says_how_the_work_stands(scripted: Fleet) -> None:
    """Break: `_on_node` writes without `settled`; `done` leaves the assignment open; `find` takes any goal."""
    fleet = scripted.set_up()
    first, second = created(fleet), created(fleet, "Another")
    planned(fleet, first)
    planned(fleet, second)
    both = fleet.llmc("work", "done", "S1.1.1", code=2).err
    assert first in both
    assert second in both
    mine = ("--goal", first)

    # Blocked and unblocked: queued, because nothing else holds it back.
    assert (
        fleet.llmc("work", "block", "S1.1.1", "--reason", "needs the server", *mine).out
        == "S1.1.1: blocked\n"
    )
    assert statuses(fleet, first) == {
        "P1": "blocked",
        "T1.1": "blocked",
        "S1.1.1": "blocked",
        "S1.1.2": "todo",
        "P2": "todo",
        "T2.1": "todo",
    }
    drawn = fleet.llmc("goal", "show", first).out
    assert "S1.1.1 Part S1.1.1  [blocked]  needs the server" in drawn
    assert fleet.llmc("work", "unblock", "S1.1.1", *mine, "--json").json["status"] == "queued"
    assert "not blocked" in fleet.llmc("work", "unblock", "S1.1.1", *mine, code=3).err
    fleet.llmc("work", "block", "S1.1.2", "--reason", "later", *mine)
    assert fleet.llmc("work", "unblock", "S1.1.2", *mine, "--json").json["status"] == "todo", (
        "it waits for S1.1.1"
    )

    # A plan item with children is blocked and unblocked with them.
    assert fleet.llmc("work", "block", "P2", "--reason", "not now", *mine).out == "P2: blocked\n"
    assert statuses(fleet, first)["T2.1"] == "blocked"
    assert fleet.llmc("work", "unblock", "P2", *mine).out == "P2: queued\n"

    # A worker has it, and stalls: status shows why, what was sent last, and until when nothing is sent.
    given = assignment(
        goal_id=first,
        dispatch_history=(dispatch(purpose="nudge", result=Result.ACCEPTED),),
        last_dispatch_at=5.0,
        backoff_until=4e9,
        session_key="agent:auto:worker:auto-2",
        status=AssignmentStatus.ACTIVE,
    )
    stalled, told = move_assignment(given, AssignmentStatus.STALLED, 6.0, reason="silent for 20m")
    store(fleet).apply(Change(assignments=(stalled,), events=(told,)))
    (row,) = fleet.llmc("overseer", "status", "--json").json["assignments"]
    assert (row["workNodeId"], row["status"], row["why"]) == ("S1.1.1", "stalled", "silent for 20m")
    assert (row["lastDispatch"]["result"], row["backoffUntil"]) == ("accepted", 4e9)
    text = fleet.llmc("overseer", "status").out
    assert "S1.1.1 of " in text
    assert "silent for 20m; last message (nudge)" in text
    assert "auto-2 (stalled)" in fleet.llmc("goal", "show", first).out

    # Done by hand: the parents and the percentage follow, and there is a handoff.
    assert "its status is derived from its children" in fleet.llmc("work", "done", "T1.1", *mine, code=3).err
    fleet.llmc("work", "done", "S1.1.1", *mine, "--summary", "did it myself", "--commit", "1a2b3c4")
    view = store(fleet).view(first)
    assert view.assignments["A_1"].status is AssignmentStatus.STALLED, "the next tick withdraws it"
    assert view.nodes["T1.1"].status is NodeStatus.IN_PROGRESS
    assert fleet.llmc("goal", "list", "--json").json["goals"][0]["percent"] == 33
    assert fleet.llmc("goal", "show", first, "--json").json["percent"] == 33
    whole = fleet.llmc("overseer", "export").json
    assert whole["goals"][first]["percent"] == 33
    (proof,) = whole["crystallizations"].values()
    assert (proof["summary"], proof["evidence"]["commits"]) == ("did it myself", ["1a2b3c4"])
    assert "done" in fleet.llmc("work", "done", "S1.1.1", *mine, code=3).err

    # An override needs a reason, names its author, wins over the children, and can be cleared.
    fleet.llmc("work", "override", "P2", "--status", "done", *mine, code=2)
    fleet.llmc("work", "override", "P2", "--status", "done", "--reason", "not worth it", *mine)
    fleet.llmc("work", "done", "S1.1.2", *mine)
    assert fleet.llmc("goal", "show", first, "--json").json["status"] == "completed"
    assert "P2" in (drawn := fleet.llmc("goal", "show", first).out)
    assert "(set by the user)" in drawn
    fleet.llmc("work", "override", "P2", "--clear", "--reason", "it is after all", *mine)
    assert (statuses(fleet, first)["P2"], statuses(fleet, first)["T2.1"]) == ("queued", "queued")
    assert fleet.llmc("goal", "show", first, "--json").json["status"] == "active"
    fleet.llmc("work", "done", "T2.1", *mine)
    assert fleet.llmc("goal", "show", first, "--json").json["status"] == "completed"
    assert (
        fleet.llmc("work", "reopen", "S1.1.2", "--reason", "it fails", *mine, "--json").json["status"]
        == "queued"
    )
    shown = fleet.llmc("goal", "show", first, "--json").json
    assert (shown["status"], shown["percent"], shown["phases"][0]["status"]) == ("active", 66, "in_progress")
    rows = [json.loads(line) for line in fleet.llmc("overseer", "events", "--json").out.splitlines()]
    (override,) = [row for row in rows if row["type"] == "work.overridden"]
    assert (override["data"]["reason"], override["data"]["actor"]) == ("not worth it", "human")
    for kind in ("work.blocked", "work.queued", "assignment.stalled", "work.done"):
        assert kind in [row["type"] for row in rows], kind
    assert [row["type"] for row in rows if row["type"] in ("goal.completed", "goal.reopened")] == [
        "goal.completed",
        "goal.reopened",
    ] * 2

    # Cancelled: everything open is cancelled with it, what is done stays.
    fleet.llmc("goal", "cancel", first, "--reason", "no time")
    assert statuses(fleet, first)["S1.1.1"] == "done"
    assert statuses(fleet, first)["S1.1.2"] == "cancelled"
    assert "is cancelled" in fleet.llmc("work", "block", "S1.1.2", "--reason", "x", *mine, code=3).err


def with_item(state: str, kind: str = "bug") -> str:
    """The attention list has an item that is not a goal's question."""
    row = {"kind": kind, "severity": "blocked", "who": "adam", "since_unix": 1.0, "text": "x", "next": "y"}
    return json.dumps({**json.loads(state), "attention": {f"{kind}:adam": row}})


@pytest.mark.req("3-016", "3-018", "3-007", "3-X21", "3-002")
def test_questions_secrets_and_a_damaged_store(scripted: Fleet) -> None:
    """Break: `answer` leaves the assignment blocked; `create` with typed=False; a reader that renames the file."""
    fleet = scripted.set_up()
    goal_id = created(fleet)
    planned(fleet, goal_id)
    assert fleet.llmc("overseer", "inbox").out == "no open questions\n"
    (fleet.root / "state.json").write_text(with_item((fleet.root / "state.json").read_text()))
    other = fleet.llmc("inbox")
    assert (other.out, other.err) == (
        "no open questions\n",
        "1 other item needs you; see `llmc status`\n",
    )
    given = assignment(AssignmentStatus.ACTIVE, goal_id=goal_id, last_dispatch_at=5.0, retry_count=2)
    waiting, told = move_assignment(given, AssignmentStatus.BLOCKED, 6.0, blocked=BLOCKED)
    store(fleet).apply(Change(assignments=(waiting,), events=(told,)))
    fleet.llmc("work", "block", "T2.1", "--reason", "which colour?")
    (fleet.root / "state.json").write_text(with_item((fleet.root / "state.json").read_text(), "question"))
    both = fleet.llmc("inbox")
    assert [line.split()[0] for line in both.out.splitlines() if line[0] != " "] == ["adam,", "A_1", "T2.1"]
    assert both.err == ""
    (fleet.root / "state.json").write_text(with_item((fleet.root / "state.json").read_text()))
    asked = fleet.llmc("overseer", "inbox", "--json").json["questions"]
    assert [one["id"] for one in asked] == ["A_1", "T2.1"]
    assert (asked[0]["question"], asked[0]["options"]) == ("CSV or TSV?", ["CSV", "TSV"])
    assert (asked[0]["worker"], asked[0]["next"]) == ("", "llmc answer A_1")
    assert "2. TSV" in fleet.llmc("overseer", "inbox").out
    fleet.llmc("overseer", "answer", "A_1", "2")
    fleet.llmc("overseer", "answer", "T2.1", "blue", "--json")
    assert fleet.llmc("overseer", "inbox", "--json").json["questions"] == []
    freed = store(fleet).view(goal_id).assignments["A_1"]
    assert (freed.status, freed.retry_count, freed.blocked_reason) == (AssignmentStatus.QUEUED, 0, None)
    assert statuses(fleet, goal_id)["T2.1"] == "queued"
    rows = [json.loads(line) for line in fleet.llmc("overseer", "events", "--json").out.splitlines()]
    answers = {row["type"]: row["data"]["answer"] for row in rows if row["type"].endswith(".answered")}
    assert answers == {"assignment.answered": "TSV", "work.answered": "blue"}
    assert "no open question" in fleet.llmc("overseer", "answer", "A_1", "again", code=4).err

    # A secret is refused wherever the user can type, and is in no file afterwards.
    attempts: list[tuple[Any, ...]] = [
        ("goal", "create", "--title", "x", "--no-plan", "--problem", f"use {TOKEN}"),
        ("goal", "update", goal_id, "--owner", "+49 170 1234567"),
        ("goal", "pause", goal_id, "--reason", TOKEN),
        ("work", "block", "T2.1", "--reason", f"PASSWORD={TOKEN}"),
        ("overseer", "answer", "T2.1", TOKEN),
    ]
    for words in attempts:
        said = fleet.llmc(*words, code=3)
        assert "found a secret in " in said.err, words
        assert TOKEN not in said.err
    for path in (fleet.root / ".llmc/overseer").glob("*"):
        assert TOKEN.encode() not in (path.read_bytes() if path.is_file() else b"")
    assert len(fleet.llmc("goal", "list", "--json").json["goals"]) == 1

    if fleet.rows is None:
        _a_damaged_file(fleet, goal_id)

    # Completion offers what exists, and agents are refused.
    goal_id = created(fleet, "Third")
    planned(fleet, goal_id)
    assert goal_id in completed_words(fleet, "goal", "show", "")
    assert completed_words(fleet, "work", "done", "S1.1.") == ["S1.1.1", "S1.1.2"]
    assert "not available to agents" in fleet.llmc("goal", "list", code=3, LLMC_WORKER="auto-1").err
    assert "not available to agents" in fleet.llmc("work", "done", "S1", code=3, LLMC_WORKER="auto-1").err
    assert "not available to agents" in fleet.llmc("overseer", "inbox", code=3, LLMC_WORKER="auto-1").err


def _a_damaged_file(fleet: Fleet, goal_id: str) -> None:
    """Readers see the damage and change nothing; writers continue in safe mode."""
    path = fleet.root / ".llmc/overseer/store.db"
    path.write_bytes(b"no database " * 1000)
    for args in ((), ("--json",)):
        looked = fleet.llmc("goal", "list", *args, code=1)
        assert "damaged" in looked.err
        assert "no goals" not in looked.out
        assert '"goals"' not in looked.out
    assert fleet.llmc("overseer", "status", "--json").json["damage"]
    assert fleet.llmc("status", "--json").code == 0
    assert "damaged" in fleet.llmc("goal", "show", goal_id, code=1).err, "not that there is none"
    target = fleet.dir / "copy.json"
    target.write_text("a good copy")
    assert "moves the file aside" in fleet.llmc("overseer", "export", "--output", str(target), code=1).err
    assert target.read_text() == "a good copy"
    assert [name for name in os.listdir(path.parent) if "corrupt" in name] == []
    created(fleet, "After the damage")
    (kept,) = path.parent.glob("store.corrupt-*.db")
    assert kept.read_bytes() == b"no database " * 1000
    safe = fleet.llmc("overseer", "status", "--json").json["safeMode"]
    assert safe["file"] == kept.name
    assert "safe mode" in fleet.llmc("goal", "list").err
    fleet.llmc("overseer", "export", "--output", str(target))
    assert json.loads(target.read_text())["events"][0]["type"] == "overseer.store.corrupt"
    assert fleet.llmc("overseer", "safe-mode", "--clear", "--json").json["cleared"]
    assert fleet.llmc("overseer", "status", "--json").json["safeMode"] is None
    assert fleet.llmc("overseer", "safe-mode").out == "safe mode is off\n"
