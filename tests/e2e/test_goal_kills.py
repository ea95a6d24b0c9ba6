"""kill -9 while goals are driven: leaves land once, messages are typed once, no withdrawal is half done."""

import itertools
import json
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from llmc.base.names import header_id
from llmc.goals.drive.intents import WORK
from llmc.goals.model import Assignment, Dispatch, Result
from tests.support import goals
from tests.support.auto import Daemon, at_work, wait_for
from tests.support.fleet import Fleet, in_soak
from tests.support.goal_faults import SENDING
from tests.support.goals import leaf, plan
from tests.support.plans import COMMIT, ledger, tasks_of


def again(number: int) -> str:
    """A commit that is made again if its leaf is done again."""
    return f"@sh echo x >> part-{number}; git add part-{number}; {COMMIT} 'Part {number}'"


def assignments(fleet: Fleet, goal_id: str) -> list[Assignment]:
    return list(goals.store(fleet).view(goal_id).assignments.values())


def unsettled(fleet: Fleet, goal_id: str) -> list[Dispatch]:
    """Intents without a known outcome."""
    sent = [entry for one in assignments(fleet, goal_id) for entry in one.dispatch_history]
    return [entry for entry in sent if entry.result is Result.PENDING]


def assert_each_once(fleet: Fleet, goal_id: str, numbers: range) -> None:
    """In the branch, in the ledger, and in the task files."""
    assert Counter(goals.parts(fleet)) == Counter(numbers), "each leaf lands exactly once"
    rows = ledger(fleet)
    subjects = {row["task"]: row["subject"] for row in rows if row["action"] == "claimed"}
    # After a crash, a claim may be recorded as completed twice; it is still one claim.
    ended = {(row["task"], row["claim"]) for row in rows if row["action"] == "completed"}
    done = Counter(subjects[task] for task, _ in ended)
    assert set(done.values()) == {1}, done
    assert len(done) == len(numbers), done
    assert not unsettled(fleet, goal_id), "no intent is left"
    sent = [entry for one in assignments(fleet, goal_id) for entry in one.dispatch_history]
    taken = {(row["dispatch"], row["task"]) for row in rows if row["action"] == "claimed"}
    assert len({dispatch for dispatch, _ in taken}) == len(taken), "one task per dispatch"
    assert {dispatch for dispatch, _ in taken} <= {entry.dispatch_id for entry in sent}
    assert {task["status"] for task in tasks_of(fleet).values()} <= {"completed"}


def run(fleet: Fleet, seed: int, leaves: int, kills: int, workers: int) -> None:
    """The kills are spread over the leaves, each at a random moment after one has landed."""
    dice = random.Random(seed)
    goals.set_up(fleet, **{"auto.concurrency": str(workers)})
    made = [leaf(number, again(number)) for number in range(1, leaves + 1)]
    middle = leaves // 2
    plans = plan([made[:1], made[1:middle]], [made[middle:]])
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, plans))
    goal = goals.create(fleet)
    fleet.up("--auto", cold=True)
    for landed in sorted(dice.choices(range(leaves), k=kills)):
        wait_for(fleet, lambda landed=landed: len(goals.parts(fleet)) >= landed, 90)
        time.sleep(dice.uniform(0, 1.2))
        fleet.kill_daemon()
        fleet.up("--auto", cold=True)
    goals.wait_status(fleet, goal, timeout_s=120)
    fleet.llmc("down")
    assert_each_once(fleet, goal, range(1, leaves + 1))


@pytest.mark.soak
@pytest.mark.req("3-030", "3-077", "3-022")
def test_random_kills_of_the_daemon_that_drives_a_goal(scripted: Fleet) -> None:
    """Break: do not finish an interrupted accept (`finish_interrupted`); the goal never completes."""
    run(scripted, seed=1, leaves=4, kills=2, workers=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_eight_leaves_three_workers_and_five_kills(scripted: Fleet, seed: int) -> None:
    """Break: as above, with more of both."""
    run(scripted, seed=seed, leaves=8, kills=5, workers=3)


#: each is a user command that withdraws a leaf whose work is just landing, and where its daemon dies
LANDING = [
    ("cancel", "accept.validate:after"),
    ("override", "accept.land:before"),
    ("replan", "accept.land:after"),
]
EVERY_LANDING = [
    (word, fault)
    for word in ("cancel", "override", "replan", "pause")
    for fault in ("accept.validate:after", "accept.land:before", "accept.land:after", "accept.complete:after")
]


@pytest.mark.req("3-X15", "3-X22", "3-122")
@pytest.mark.parametrize("cases", in_soak(LANDING, EVERY_LANDING), ids=["some", "all"])
def test_what_is_taken_back_while_it_lands(scripted: Fleet, cases: list[tuple[str, str]]) -> None:
    """Break: reset a worker whose work is about to land (`_let_go` without its check of `record.accept`)."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "1"})
    for number, (word, fault) in enumerate(cases, 1):
        only = plan([[leaf(number, again(number))]])
        fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, only))
        goal = goals.create(fleet)
        daemon = Daemon(fleet, LLMC_FAULT=f"{fault}:kill")
        assert daemon.ends() == -signal.SIGKILL, daemon.said
        assert at_work(fleet), "its accept has started"
        more = take_back(fleet, goal, word, number + 100)
        assert at_work(fleet), "nothing touches a landing"
        daemon = Daemon(fleet)
        wait_for(fleet, lambda number=number: number in goals.parts(fleet))
        wait_for(fleet, lambda: not at_work(fleet))
        if word != "cancel":  # nothing else is wanted; what had almost landed still lands
            goals.wait_status(fleet, goal)
        goals.wait_for(fleet, lambda goal=goal: not unsettled(fleet, goal))
        assert daemon.stop() == 0
        landed = Counter(goals.parts(fleet))
        assert landed[number] == 1, f"{word}, {fault}: landed, and once"
        assert all(landed[part] == 1 for part in more), "what replaced it is done, too"
    done = {(row["task"], row["claim"]) for row in ledger(fleet) if row["action"] == "completed"}
    assert len(done) == len(goals.parts(fleet))


def take_back(fleet: Fleet, goal: str, word: str, other: int) -> list[int]:
    """What the user does; returns the parts that are done instead."""
    match word:
        case "cancel":
            fleet.llmc("goal", "cancel", goal)
        case "override":
            fleet.llmc(
                "work", "override", "S1.1.1", "--status", "done", "--reason", "good as it is", "--goal", goal
            )
        case "pause":
            fleet.llmc("goal", "pause", goal)
            if (
                goals.status(fleet, goal) == "paused"
            ):  # otherwise it was the last one, and the goal is completed
                fleet.llmc("goal", "resume", goal)
        case _:
            file = fleet.dir / "other.json"
            part = {**leaf(other, again(other)), "id": "S1.1.9"}
            changed = plan([[part]])
            changed["phases"][0]["tasks"][0]["subtasks"][0]["id"] = "S1.1.9"
            file.write_text(json.dumps(changed))
            fleet.llmc("goal", "plan", goal, "--replan", "--why", "otherwise", "--from", str(file))
            return [other]
    return []


def typed(fleet: Fleet, dispatch_id: str) -> int:
    """How often a message was received, as a turn or folded into one."""
    mark = f"goal-{dispatch_id.lower()}"
    turns = Counter(header_id(text) for text in fleet.user_turns())
    return max(
        turns[mark], Counter(header_id(text) for text in fleet.prompts_in_transcripts())[mark] - turns[mark]
    )


@pytest.mark.req("3-095", "3-110", "3-X22", "3-030", "3-031", "3-134")
@pytest.mark.parametrize(
    "faults",
    [
        [
            "submit.paste:after",
            "submit.enter:after",
            "submit.record:before",
            "goals.outcome:before",
            SENDING[-2],
        ],
        pytest.param(list(SENDING), marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_a_word_is_typed_once_for_its_dispatch(scripted: Fleet, faults: list[str]) -> None:
    """The user's own worker gets messages, and the process that types is killed on the way.

    Break: `_send` without its check of what was delivered.
    """
    policy = {
        "overseer.goals.policy.allow_agents": '["auto", "adam"]',
        "overseer.goals.policy.allow_cross_agent": "true",
        "overseer.goals.idle_after": "10m",
    }
    fleet = goals.set_up(scripted, **policy)
    fleet.llmc("add", "adam")
    parts = [
        {**leaf(n, f"@sh echo x >> {fleet.marks}/did-{n}"), "suggestedAgentId": "adam"}
        for n in range(1, len(faults) + 1)
    ]
    tasks = [parts[at : at + 6] for at in range(0, len(parts), 6)]
    ids = [f"S1.{t}.{s}" for t, some in enumerate(tasks, 1) for s in range(1, len(some) + 1)]
    chain = {one: [before] for before, one in itertools.pairwise(ids)}
    made = plan(tasks, deps=chain)
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
    fleet.up()
    fleet.kill_daemon()  # the session stays, and each command ticks by itself
    goal = goals.create(fleet)
    step: tuple[str, ...] = ("overseer", "tick")
    for node, fault in zip(ids, faults, strict=True):
        name, side, *turn = fault.split(":")
        struck = fleet.llmc(*step, code=None, LLMC_FAULT=":".join([name, side, "kill", *turn]))
        assert struck.code == -signal.SIGKILL, (fault, struck)

        def settled(node: str = node) -> Any:
            fleet.llmc("overseer", "tick")
            (one,) = [each for each in assignments(fleet, goal) if each.work_node_id == node]
            return one.dispatch_history if one.dispatch_history[-1].result is not Result.PENDING else ()

        (sent,) = goals.wait_for(fleet, settled)
        did = fleet.marks / f"did-{ids.index(node) + 1}"
        wait_for(fleet, did.exists)
        assert sent.result in (Result.OK, Result.ACCEPTED), (fault, sent)
        step = ("work", "done", node, "--summary", "it was said", "--goal", goal)
    fleet.llmc(*step)
    wait_for(fleet, lambda: fleet.client_status("adam") == "idle")
    assert goals.status(fleet, goal) == "completed"
    sent = {one.work_node_id: one.dispatch_history for one in assignments(fleet, goal)}
    for number, (node, fault) in enumerate(zip(ids, faults, strict=True), 1):
        (dispatch,) = (each for each in sent[node] if each.purpose == WORK)
        assert typed(fleet, dispatch.dispatch_id) == 1, f"{fault}: typed once"
        assert (fleet.marks / f"did-{number}").read_text() == "x\n", f"{fault}: done once"
