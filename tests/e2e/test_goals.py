"""Goals with a real daemon: planned, given out, watched, driven to their end."""

import json

from tests.support import goals
from tests.support.auto import Daemon
from tests.support.fleet import Fleet
from tests.support.goals import leaf, plan


def test_both_agents_do_a_goal(fleet: Fleet) -> None:
    """The real client plans it, too. Break: leave GoalsLane out of the daemon, or give an answer to nobody."""
    goals.set_up(fleet, **{"auto.concurrency": "2"})
    asked = fleet.dir / "asked"
    question = f"@sh test -e {asked} || {{ touch {asked}; llmc report blocked 'Which colour?'; exit 1; }}"
    colour = goals.commit(2, f"test -e {asked}.again || {{ touch {asked}.again; exit 0; }}")
    made = plan([[leaf(1), leaf(2, question, colour)]], [[leaf(3)]])
    if fleet.agent == "claude":
        more = ["--problem", f"There is none.\n@json {json.dumps(made)}"]
    else:
        fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
        more = []
    goal = goals.create(fleet, "The goal", *more)
    daemon = Daemon(fleet)
    (one,) = goals.wait_for(fleet, lambda: fleet.llmc("overseer", "inbox", "--json").json["questions"], 100)
    assert "Which colour?" in json.dumps(one)
    fleet.llmc("overseer", "answer", one["id"], "Blue, like the sky")
    goals.wait_for(fleet, lambda: goals.status(fleet, goal) == "completed", 100)
    assert sorted(goals.parts(fleet)) == [1, 2, 3]
    assert goals.parts(fleet)[-1] == 3, "the second phase waits for the first"
    assert any("Blue, like the sky" in text for text in fleet.user_turns())
    assert fleet.llmc("overseer", "inbox", "--json").json["questions"] == []
    assert daemon.stop() == 0


def test_a_goal_is_driven_to_its_end(scripted: Fleet) -> None:
    """Break: leave GoalsLane out of the daemon."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "2"})
    fleet.llmc(
        "config",
        "set",
        "overseer.goals.planner.command",
        goals.planner(fleet, plan([[leaf(1), leaf(2)]], [[leaf(3)]])),
    )
    goal = goals.create(fleet)
    daemon = Daemon(fleet)
    goals.wait_for(fleet, lambda: goals.status(fleet, goal) == "completed")
    assert sorted(goals.parts(fleet)) == [1, 2, 3]
    assert daemon.stop() == 0


def test_a_large_goal_with_everything_that_goes_wrong(scripted: Fleet) -> None:
    """Break: any of the steps that find or mend it."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "3", "overseer.goals.idle_after": "6s"})
    here = fleet.dir
    silent = f"@sh test -e {here}/silent || {{ touch {here}/silent; while test -e {here}/hang; do sleep 0.1; done; }}"
    (here / "hang").touch()
    crash = f"@sh test -e {here}/crashed-2 || {{ test -e {here}/crashed && touch {here}/crashed-2; touch {here}/crashed; kill -9 $PPID; sleep 9; }}"
    asks = (
        f"@sh test -e {here}/asked || {{ touch {here}/asked; llmc report blocked 'Which colour?'; exit 1; }}"
    )
    numbers = iter(range(1, 21))
    sizes = [[2, 2, 3], [2, 2, 2], [3, 2, 2]]
    phases = [[[leaf(next(numbers)) for _ in range(count)] for count in sizes_] for sizes_ in sizes]
    phases[0][0][0] = leaf(1, silent, goals.commit(1))
    phases[0][1][0] = leaf(3, crash, goals.commit(3))
    phases[0][2][1] = leaf(
        6, asks, goals.commit(6, f"test -e {here}/asked-twice || {{ touch {here}/asked-twice; exit 0; }}")
    )
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, plan(*phases)))
    goal = goals.create(fleet)
    daemon = Daemon(fleet, LLMC_FAULT="goals.spawn:after:kill:4", LLMC_SCRIPTED_SWALLOW_ENTER="1")
    daemon.ends()
    daemon = Daemon(fleet, LLMC_SCRIPTED_SWALLOW_ENTER="1")
    (question,) = goals.wait_for(fleet, lambda: fleet.llmc("overseer", "inbox", "--json").json["questions"])
    fleet.llmc("overseer", "answer", question["id"], "Blue, like the sky")
    goals.wait_for(fleet, lambda: goals.status(fleet, goal) == "completed", 150)
    assert sorted(goals.parts(fleet)) == list(range(1, 21))
    assert daemon.stop() == 0
