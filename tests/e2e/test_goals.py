"""Goals with a real daemon: planned, sent to workers, watched, and completed."""

import json

import pytest

from tests.support import goals
from tests.support.auto import Daemon
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.goals import leaf, plan


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_both_agents_do_a_goal(fleet: Fleet) -> None:
    """The real client plans it, too. Break: leave GoalsLane out of the daemon, or drop an answer."""
    goals.set_up(fleet)
    asked = fleet.marks / "asked"
    question = f"@sh test -e {asked} || {{ touch {asked}; llmc report blocked 'Which colour?'; exit 1; }}"
    colour = goals.commit(1, f"test -e {asked}.again || {{ touch {asked}.again; exit 0; }}")
    made = plan([[leaf(1, question, colour)]], [[leaf(2)]])
    if fleet.agent == "claude":
        more = ["--problem", f"There is none.\n@json {json.dumps(made)}"]
    else:
        fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
        more = []
    goal = goals.create(fleet, "The goal", *more)
    daemon = Daemon(fleet)
    (one,) = goals.wait_questions(fleet, timeout_s=100)
    assert "Which colour?" in json.dumps(one)
    # Its worker keeps its conversation and its work so far, and continues.
    (at,) = fleet.events("task_assigned")
    fleet.wait(at["worker"], "needs_input")
    assert fleet.status(at["worker"])["task_id"] == at["task_id"]
    fleet.llmc("overseer", "answer", one["id"], f"Blue, like the sky\n{goals.commit(1)}")
    goals.wait_status(fleet, goal, timeout_s=100)
    assert goals.parts(fleet) == [1, 2], "the second phase waits for the first"
    assert any("Blue, like the sky" in text for text in fleet.user_turns())
    assert len(fleet.events("task_assigned")) == 2, "it was not started over"
    assert not fleet.events("task_released")
    assert fleet.llmc("overseer", "inbox", "--json").json["questions"] == []
    assert daemon.stop() == 0


#: tasks per phase, by number of subtasks; the large plan has 20
SMALL = [[1, 1, 1], [1]]
LARGE = [[2, 2, 3], [2, 2, 2], [3, 2, 2]]


@pytest.mark.soak
@pytest.mark.parametrize("sizes", [pytest.param(SMALL, id="small"), pytest.param(LARGE, id="large")])
def test_everything_goes_wrong_on_the_way(scripted: Fleet, sizes: list[list[int]]) -> None:
    """A silent worker, swallowed Enters, a task that fails twice, a daemon that is killed between a task file
    and its record, a question that is answered late.

    Break: leave out a step of the ladder, the search for a task file of the same dispatch, or the answer.
    """
    fleet = goals.set_up(scripted, **{"auto.concurrency": "3", "overseer.goals.idle_after": "6s"})
    here = fleet.marks
    silent = f"@sh test -e {here}/silent || {{ touch {here}/silent; while test -e {here}/hang; do sleep 0.1; done; }}"
    (here / "hang").touch()
    crash = f"@sh test -e {here}/crashed-2 || {{ test -e {here}/crashed && touch {here}/crashed-2; touch {here}/crashed; kill -9 $PPID; sleep 9; }}"
    asks = (
        f"@sh test -e {here}/asked || {{ touch {here}/asked; llmc report blocked 'Which colour?'; exit 1; }}"
    )
    count = sum(map(sum, sizes))
    numbers = iter(range(1, count + 1))
    phases = [[[leaf(next(numbers)) for _ in range(size)] for size in tasks] for tasks in sizes]
    again = f"test -e {here}/asked-twice || {{ touch {here}/asked-twice; exit 0; }}"
    for task, (line, more) in enumerate(((silent, "true"), (crash, "true"), (asks, again))):
        number = int(phases[0][task][0]["name"].removeprefix("Part "))
        phases[0][task][0] = leaf(number, line, goals.commit(number, more))
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, plan(*phases)))
    goal = goals.create(fleet)
    daemon = Daemon(fleet, LLMC_FAULT="goals.spawn:after:kill:3", LLMC_SCRIPTED_SWALLOW_ENTER="1")
    daemon.ends()
    daemon = Daemon(fleet, LLMC_SCRIPTED_SWALLOW_ENTER="1")
    (question,) = goals.wait_questions(fleet)
    fleet.llmc("overseer", "answer", question["id"], f"Blue, like the sky\n{goals.commit(number)}")
    goals.wait_status(fleet, goal, timeout_s=150)
    purposes = [row["data"]["purpose"] for row in goals.events(fleet, "dispatch.intended")]
    assert "reassign" in purposes, "the silent one was replaced"
    asked = goals.events(fleet, "assignment.escalated")
    assert [row["workNodeId"] for row in asked] == [question["workNodeId"]], "one question, asked once"
    assert sorted(goals.parts(fleet)) == list(range(1, count + 1))
    assert daemon.stop() == 0
