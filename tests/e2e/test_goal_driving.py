"""Driving goals from the command line: ticks, questions, reports, the user's decisions, and the cost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from llmc.goals.model import AssignmentStatus
from tests.support import goals
from tests.support.auto import Daemon, state, until
from tests.support.fleet import Fleet
from tests.support.goals import leaf, plan, store
from tests.support.plans import tasks_of

PLAN = """# Goal: The goal

## P1: First
### T1.1: One
objective: the first thing
- [ ] S1.1.1: Part one
  accept: it is there
- [ ] S1.1.2: Part two
  deps: S1.1.1
  accept: it is there

## P2: Second
deps: P1
### T2.1: Two
objective: the last thing
accept: it is there
"""


def assignment(fleet: Fleet, goal_id: str, node_id: str) -> Any:
    found = store(fleet).view(goal_id).assignments.values()
    return next(one for one in found if one.work_node_id == node_id)


@pytest.mark.req("3-114", "3-122", "3-126", "3-128", "3-131")
def test_goals_without_a_daemon(scripted: Fleet) -> None:
    """Break: `tick_now` without its Runner; `settle` that does nothing; `resume` that knows no budget."""
    fleet = goals.set_up(
        scripted, **{"overseer.goals.enabled": "false", "overseer.goals.min_resend_interval": "0s"}
    )
    made = fleet.dir / "plan.md"
    made.write_text(PLAN)
    goal = goals.create(fleet, "The goal", "--from", str(made), "--budget", "5")
    refused = fleet.llmc("overseer", "tick", code=3)
    assert "llmc config set overseer.goals.enabled true" in refused.err
    assert "Goals:" not in fleet.llmc("status").out
    fleet.llmc("config", "set", "overseer.goals.enabled", "true")
    assert "Goals: not checked yet (llmc up --auto --detach)" in fleet.llmc("status").out

    # One tick by this command: the only ready leaf becomes a task.
    done = fleet.llmc("overseer", "tick", "--now", "--reason", "to see it", "--json").json
    assert set(done) == {"ok", "didWork", "actions", "problem", "nextDue"}
    assert (done["ok"], done["didWork"], done["problem"]) == (True, True, "")
    assert len(done["actions"]) == 1
    assert done["actions"][0].startswith("work S1.1.1: accepted (task ")
    assert [task["subject"] for task in tasks_of(fleet).values()] == ["S1.1.1: Part one"]
    again = fleet.llmc("overseer", "tick")
    assert again.out.startswith("nothing to do\n")
    log = (fleet.root / "logs/goals.log").read_text()
    for word in (
        "started",
        "next step for S1.1.1: instruction as a new task (",
        "outcome of ",
        "ended: work S1.1.1: accepted",
    ):
        assert f"tick (to see it) {word}" in log
    assert fleet.llmc("logs", "goals").out == log
    (acted,) = fleet.events("goal_acted")
    assert (acted["work_node_id"], acted["purpose"], acted["result"]) == ("S1.1.1", "work", "accepted")
    assert [row["reason"] for row in fleet.events("goal_ticked")] == ["to see it"]
    assert "Goals: 1 active; 0 of 3 plan items done (0%) (" in fleet.llmc("status").out

    # Why: for an assigned item, a waiting item, and the goal; from the store alone.
    found = fleet.llmc("overseer", "why", "S1.1.1", "--json").json
    assert (found["kind"], found["status"], found["accepted"]) == ("assignment", "dispatched", True)
    assert "marks the work as stalled" in found["next"]["what"]
    assert fleet.llmc("overseer", "why", found["assignmentId"], "--json").json["workNodeId"] == "S1.1.1"
    waits = fleet.llmc("overseer", "why", "T2.1").out
    assert "waits for P1" in waits
    whole = fleet.llmc("overseer", "why", goal, "--json").json
    assert (whole["waiting"], whole["holdsUp"]) == (
        {"S1.1.2": ["S1.1.1"], "T2.1": ["P1"]},
        {"S1.1.1": 2, "S1.1.2": 1},
    )
    assert 'Did you mean "S1.1.' in fleet.llmc("overseer", "why", "S1.1.9", code=4).err

    # Paused: items that no worker has taken are withdrawn immediately. Resumed: they are sent again, once.
    fleet.llmc("goal", "pause", goal, "--reason", "holidays")
    assert tasks_of(fleet) == {}
    fleet.llmc("overseer", "tick")
    assert tasks_of(fleet) == {}
    assert "nothing while the goal is paused" in fleet.llmc("overseer", "why", "S1.1.1").out
    resumed = fleet.llmc("goal", "resume", goal)
    assert "to continue the work: llmc up --auto --detach" in resumed.err
    assert [task["subject"] for task in tasks_of(fleet).values()] == ["S1.1.1: Part one"]
    # Blocked and done by the user: withdrawn, and the items that waited for it are sent.
    fleet.llmc("work", "done", "S1.1.1", "--summary", "by hand", "--commit", "1a2b3c4")
    assert [task["subject"] for task in tasks_of(fleet).values()] == ["S1.1.2: Part two"]
    assert assignment(fleet, goal, "S1.1.1").status is AssignmentStatus.CANCELLED
    fleet.llmc("work", "block", "S1.1.2", "--reason", "which colour?")
    assert "S1.1.2 Part two (The goal) asks: which colour?" in _flat(fleet.llmc("digest").out)
    (item,) = [
        row for row in fleet.llmc("digest", "--json").json["waiting"] if row["kind"] == "goal_question"
    ]
    assert item["unblocks"] == 1
    assert item["command"].startswith("llmc answer ")
    assert "1 open question (llmc inbox)" in fleet.llmc("status").out

    # As a tree, a diagram and a handoff; its cost, with the overseer's share listed separately.
    drawn = fleet.llmc("goal", "show", goal).out
    assert "✓ S1.1.1 Part one  [done]" in drawn
    assert "which colour?" in drawn
    assert re.search(r"^planning: +\$0.00$", drawn, re.MULTILINE)
    assert re.search(r"^budget: +\$5.00, \$5.00 left$", drawn, re.MULTILINE)
    assert fleet.llmc("goal", "show", goal, "--mermaid").out.startswith("flowchart LR\n")
    handoff = fleet.llmc("goal", "handoff", goal).out
    assert handoff.startswith("# Handoff: The goal\n")
    assert "`1a2b3c4`" in handoff
    out = fleet.dir / "HANDOFF.md"
    fleet.llmc("goal", "handoff", goal, "--output", str(out))
    assert out.read_text() == handoff

    # Another plan: what is done stays, and the differences are shown.
    made.write_text(
        PLAN.replace("### T2.1: Two", "### T2.2: Other").replace("S1.1.1: Part one", "S1.1.1: Part one")
    )
    assert "has a plan" in fleet.llmc("goal", "plan", goal, code=3).err
    revised = fleet.llmc(
        "goal", "plan", goal, "--replan", "--why", "not two", "--from", str(made), "--json"
    ).json
    assert (revised["revision"]["added"], revised["revision"]["removed"]) == (["T2.2"], ["T2.1"])
    assert revised["revision"]["why"] == "not two"
    assert revised["phases"][0]["tasks"][0]["subtasks"][0]["status"] == "done"
    assert "cannot plan" in fleet.llmc("goal", "plan", goal, "--replan", code=1).err

    # Its budget is used up: the tick pauses it, and it cannot resume until the budget is raised.
    _spend(fleet, goal, 6.0)
    assert "of its $5.00 budget" in fleet.llmc("overseer", "tick").out
    assert "planning:    $6.00" in fleet.llmc("goal", "show", goal).out
    hint = fleet.llmc("goal", "resume", goal, "--json", code=3).json["hint"]
    assert f"llmc goal update {goal} --budget 10" in hint
    (item,) = [one for one in fleet.llmc("status", "--json").json["attention"] if one["kind"] == "budget"]
    assert item["next"] == f"llmc goal update {goal} --budget 10 && llmc goal resume {goal}"
    fleet.llmc("goal", "update", goal, "--budget", "10")
    fleet.llmc("goal", "resume", goal)
    assert not [one for one in fleet.llmc("status", "--json").json["attention"] if one["kind"] == "budget"]
    fleet.llmc("goal", "cancel", goal)
    assert tasks_of(fleet) == {}

    # Goal recovery must come before the supervisor's.
    assert fleet.llmc("config", "check", "--json").json["warnings"] == []
    fleet.llmc("config", "set", "overseer.goals.idle_after", "15m")
    assert fleet.llmc("config", "check", "--json").json["warnings"] == []
    fleet.llmc("config", "set", "overseer.stall_timeout_secs", "3600")
    assert "llmc config set overseer.stall_timeout_secs 7200" in fleet.llmc("config", "check").err
    assert "overseer.stall_timeout_secs (1h)" in _flat(fleet.llmc("doctor", code=None).err)

    if fleet.rows is None:
        _a_damaged_file(fleet)


def _a_damaged_file(fleet: Fleet) -> None:
    """Nothing is done before the user's review; the tick says so."""
    (fleet.root / ".llmc/overseer/store.db").write_bytes(b"no database " * 1000)
    fleet.llmc("goal", "create", "--title", "Next", "--no-plan")
    broken = fleet.llmc("overseer", "tick", "--json", code=1).json
    assert (broken["ok"], "safe mode" in broken["problem"]) == (False, True)
    assert "the last check failed: goals are stopped in safe mode" in fleet.llmc("status").out


def _flat(text: str) -> str:
    return " ".join(text.split())


def _spend(fleet: Fleet, goal_id: str, cost: float) -> None:
    """As a planner's run is recorded."""
    tokens = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 1
    )
    row = {
        "seq": 10**6,
        "ts": 1.0,
        "action": "usage_recorded",
        "worker": "planner",
        "task_id": None,
        "model": "m",
    }
    about = {"goal_id": goal_id, "cost": cost, "claude_session_id": ""}
    with (fleet.root / "logs/events.jsonl").open("a") as log:
        log.write(json.dumps({**row, **tokens, **about}) + "\n")


@pytest.mark.req(
    "3-023", "3-075", "3-044", "3-045", "3-097", "3-098", "3-114", "3-126", "3-136", "3-X1", "3-X11", "3-X29"
)
@pytest.mark.soak
def test_a_silent_worker_is_asked_and_goes_on(scripted: Fleet) -> None:
    """Break: leave GoalsLane out of the daemon; FOR_AGENTS with `work`; notices without `goal_asked`."""
    told = scripted.dir / "told"
    fleet = goals.set_up(
        scripted,
        **{
            "auto.concurrency": "1",
            "overseer.goals.idle_after": "4s",
            "overseer.goals.max_retries": "20",
            "notify.command": f"cat >> {told}",
        },
    )
    calls = ("goal list", "work done S1.1.1", "overseer inbox", "overseer answer S1.1.1 yes", "overseer tick")
    tries = "; ".join(f"llmc {call}; echo $? >> {fleet.marks}/codes" for call in calls)
    report = (
        "llmc report progress halfway --decision 'by hand | two formats' --question 'Tabs too?' --next 'docs'"
        " --progress 'half of it' --evidence 'test:make = passed' --evidence pr:12"
    )
    first = leaf(1, f"@sh {report}; {report}; {tries}", f"@sh {until(fleet.marks / 'go')}", goals.commit(1))
    asks = f"test -e {fleet.marks}/asked || {{ touch {fleet.marks}/asked; llmc report blocked 'Which colour?'; exit 1; }}"
    second = leaf(
        2,
        f"@sh {asks}",
        goals.commit(2, f"test -e {fleet.marks}/ok || {{ touch {fleet.marks}/ok; exit 0; }}"),
    )
    made = goals.planner(fleet, plan([[first]], [[second]]))
    fleet.llmc("config", "set", "overseer.goals.planner.command", made)
    goal = goals.create(fleet, "The goal", "--verify", "test -e part-1 && echo reached")
    daemon = Daemon(fleet)
    # The daemon ticks by itself, and on request, in which case the command waits for it.
    goals.wait_for(fleet, lambda: goals.events(fleet, "assignment.active"))
    asked = fleet.llmc("overseer", "tick", "--now", "--reason", "look", "--json").json
    assert asked["ok"]
    record = json.loads((fleet.root / ".llmc/overseer/tick.json").read_text())
    assert record["pid"] == fleet.daemon_pid(), "the daemon's own tick"

    # No sign of life: it is stalled, nudged, and that is in the history; the user is not notified.
    goals.wait_for(fleet, lambda: len(goals.log_of(fleet.marks / "codes").split()) == len(calls))
    goals.wait_for(fleet, lambda: goals.events(fleet, "work.reported"))
    # It may have been nudged once while its commands ran; the nudge after its last sign of life counts.
    nudge = goals.wait_for(fleet, lambda: _unheeded_nudge(fleet, goal))
    given = assignment(fleet, goal, "S1.1.1")
    assert re.fullmatch(r"agent:auto:worker:auto-\d+", given.session_key)
    row = state(fleet)["workers"][given.session_key.rpartition(":")[2]]
    assert (given.session_id, given.run_id) == (row["claude_session_id"], row["assignment"]["task_id"])
    began = row["assignment"]["since_unix"]
    assert began <= given.last_observed_activity_at < nudge.ts, "its own activity, none of ours"
    assert (nudge.mode, nudge.session_key) == ("sessions_send", given.session_key)
    # A tick writes to the event log at its end.
    assert goals.wait_for(fleet, lambda: fleet.events("goal_stalled"))[0]["work_node_id"] == "S1.1.1"
    why = fleet.llmc("overseer", "why", "S1.1.1").out
    assert re.search(r"^  sent +status check to the worker .* ago", why, re.MULTILINE)
    assert "evidence" in why
    assert "halfway" in why
    assert not told.exists(), "an agent was asked, not the user"
    assert not fleet.events("goal_asked")
    reported = [row for row in goals.events(fleet, "work.reported") if row["workNodeId"] == "S1.1.1"]
    assert len(reported) == 1, "a repeated report counts once, and our nudge is not a report"
    _is_told_whole(fleet, goal)
    codes = (fleet.marks / "codes").read_text().split()
    assert codes == ["3"] * len(calls), "none of these commands is available to agents"

    # It continues by itself, and lands; the next one asks, and the user is notified as configured.
    (fleet.marks / "go").touch()
    (question,) = goals.wait_questions(fleet)
    assert goals.shown(fleet, goal)["phases"][0]["status"] == "done"
    goals.wait_for(fleet, lambda: told.exists() and "Which colour?" in told.read_text())
    assert f"llmc answer {question['id']}" in fleet.llmc("overseer", "why", "S2.1.1").out
    fleet.llmc("overseer", "answer", question["id"], f"Blue\n{goals.commit(2)}")
    goals.wait_status(fleet, goal)
    assert sorted(goals.parts(fleet)) == [1, 2]
    done = assignment(fleet, goal, "S1.1.1")
    assert (done.status, done.retry_count) == (AssignmentStatus.DONE, 0)
    (checked,) = goals.events(fleet, "goal.checked")
    assert (checked["data"]["passed"], checked["data"]["commit"]) == (True, fleet.git("rev-parse", "main"))
    assert "reached" in (fleet.root / "logs/criteria.log").read_text()
    handoff = fleet.llmc("goal", "handoff", goal).out
    assert "by hand; why: two formats (S1.1.1)" in handoff, "its decisions survive the merge"
    assert daemon.stop() == 0


def _is_told_whole(fleet: Fleet, goal_id: str) -> None:
    """What a report's options say is in the goal's record, and can be traced to its message."""
    shown = goals.shown(fleet, goal_id)
    about = {"workNodeId": "S1.1.1"}
    assert shown["decisions"] == [{**about, "decision": "by hand", "rationale": "two formats"}]
    assert shown["openQuestions"] == [{**about, "question": "Tabs too?"}]
    assert shown["nextActions"] == [{**about, "action": "docs"}]
    text = fleet.llmc("goal", "show", goal_id).out
    assert re.search(r"^decision: +S1.1.1: by hand \(two formats\)$", text, re.MULTILINE)
    with store(fleet).reading() as found:
        (said,) = [one for one in found.crystallizations(goal_id) if one.work_node_id == "S1.1.1"]
    assert (said.current_state, said.evidence.prs) == ("half of it", ("12",))
    assert [(one.command, one.result) for one in said.evidence.tests_run] == [("make", "passed")]
    (message,) = said.anchors[0].message_ids
    transcript = state(fleet)["workers"][said.anchors[0].session_key.rpartition(":")[2]]["transcript_path"]
    assert f'"{message}"' in Path(transcript).read_text()


def _unheeded_nudge(fleet: Fleet, goal_id: str) -> Any:
    """A nudge that was sent, with no sign of life from the agent since."""
    for one in store(fleet).view(goal_id).assignments.values():
        for sent in one.dispatch_history:
            if (
                sent.purpose == "nudge"
                and sent.result != "pending"
                and sent.ts > one.last_observed_activity_at
            ):
                return sent
    return None
