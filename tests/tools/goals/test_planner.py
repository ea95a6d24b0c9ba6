"""Planners of every kind: the real client, commands that answer, and commands that fail in every way."""

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from llmc.agents.claude.client import ClaudeCode
from llmc.base import proc
from llmc.goals.model import Change, Goal, GoalView
from llmc.goals.plan.diagnosis import Diagnosis, Nudge
from llmc.goals.plan.plan import Limits, Plan, Split
from llmc.goals.plan.plan_check import check_plan
from llmc.goals.plan.plan_prompt import PLAN
from llmc.goals.plan.replan import merge_plan
from llmc.goals.planner import (
    Failure,
    PlanFailed,
    Planned,
    PlannerSetup,
    diagnose,
    plan_goal,
    replan_goal,
    split_work,
)
from llmc.records.worker import Spent
from tests.support.goal_plans import Json, node, plan, small_plan
from tests.support.loopback_api import STRUCTURED, LoopbackApi
from tests.support.real_client import client_env, find_client, seed_config
from tests.support.waiting import wait_until


def goal(problem: str = "") -> GoalView:
    made = Goal(goal_id="goal_1", title="Ship it", created_at=1, updated_at=1, problem_statement=problem)
    return GoalView(made)


def planned(value: Json) -> GoalView:
    checked = check_plan(json.dumps(value), Limits())
    assert isinstance(checked, Plan)
    change = merge_plan(goal(), checked, 1.0, "first plan")
    assert isinstance(change, Change)
    return GoalView(change.goal or goal().goal, {found.node_id: found for found in change.nodes})


def with_circle() -> Json:
    value = small_plan()
    value["phases"][0]["deps"] = ["P2"]
    return value


def saying(folder: Path, *answers: Any) -> str:
    """A command that gives these answers, one at a time; it keeps the prompts and its environment."""
    for number, answer in enumerate(answers, start=1):
        text = answer if isinstance(answer, str) else json.dumps(answer)
        (folder / f"answer-{number}").write_text(text)
    at = shlex.quote(str(folder))
    return f"cat > {at}/prompt-$LLMC_PLAN_ATTEMPT; env > {at}/env-$LLMC_PLAN_ATTEMPT; cat {at}/answer-$LLMC_PLAN_ATTEMPT"


@pytest.mark.real_client
@pytest.mark.req("3-065", "3-078", "3-083")
@pytest.mark.soak
def test_the_real_client_plans_is_sent_back_and_fails_politely(api: LoopbackApi, tmp_path: Path) -> None:
    """A plan of the right shape with a dependency cycle, then the corrected one; its cost and author are
    known, it could only read, and it left no conversation behind. An API that refuses is a result.

    Break: give the client no schema, give it all its tools, or let it keep its session.
    """
    config = tmp_path / "config"
    seed_config(config, [tmp_path])
    env = client_env(config, tmp_path, api.url)
    setup = PlannerSetup(
        cwd=tmp_path, agent=ClaudeCode(str(find_client())), model="claude-sonnet-5-5", env=env, timeout_s=120
    )
    asked = len(api.requests)
    told = f"@json {json.dumps(with_circle())}\n@json-repaired {json.dumps(small_plan())}"
    made = plan_goal(setup, goal(told))
    assert isinstance(made, Planned), made
    assert made.made == check_plan(json.dumps(small_plan()), Limits())
    origin = made.provenance
    assert origin.planner == PLAN.ref("claude-sonnet-5-5")
    assert json.loads(origin.raw_json) == small_plan()
    assert origin.inputs["problem"] == told
    (error,) = origin.validation_errors
    assert error.startswith("attempt 1: $.phases[1].deps: dependency cycle: S1.1.1 ->")
    assert len(made.attempts) == 2
    assert made.spent.tokens.input_tokens > 1000
    assert made.spent.cost > 0
    requests = [request for request in api.requests[asked:] if request.tools]
    assert [request.reply for request in requests] == [STRUCTURED, STRUCTURED]
    assert {"Read", "Grep", "Glob", STRUCTURED} <= set(requests[0].tools)
    assert not {"Bash", "Edit", "Write"} & set(requests[0].tools)
    assert not list(config.glob("projects/**/*.jsonl"))

    for status, failure in ((401, Failure.AUTH), (429, Failure.LIMIT), (529, Failure.API)):
        failed = plan_goal(setup, goal(f"@json-status {status}"))
        assert isinstance(failed, PlanFailed)
        assert (failed.failure, len(failed.attempts)) == (failure, 1), failed
    unwilling = plan_goal(replace(setup, max_repair_attempts=0), goal("No plan in here."))
    assert isinstance(unwilling, PlanFailed)
    assert unwilling.failure is Failure.INVALID
    assert api.failures == []


@pytest.mark.req("3-083", "3-084", "3-085")
def test_a_command_is_sent_back_with_everything_that_was_wrong(tmp_path: Path) -> None:
    """Break: repair with only the first problem, or without the answer; or call a planner a worker."""
    first = small_plan()
    first["phases"][0]["tasks"][0]["acceptance"] = []
    first["colour"] = "red"
    command = saying(tmp_path, first, f"```json\n{json.dumps(small_plan())}\n```", small_plan())
    command = f"A_KEY=secret {command}"
    env = {"LLMC_WORKER": "adam", "OF_MINE": "yes"}
    made = plan_goal(PlannerSetup(cwd=tmp_path, command=command, env=env), goal("Customers ask for it"))
    assert isinstance(made, Planned), made
    assert [attempt.problems for attempt in made.attempts] == [
        ("$.phases[0].tasks[0].acceptance: must not be empty", '$: unknown key "colour"'),
        ("$: the text is wrapped in a Markdown fence; expected only JSON",),
        (),
    ]
    assert made.provenance.validation_errors == (
        "attempt 1: $.phases[0].tasks[0].acceptance: must not be empty",
        'attempt 1: $: unknown key "colour"',
        "attempt 2: $: the text is wrapped in a Markdown fence; expected only JSON",
    )
    assert made.provenance.planner == PLAN.ref("command:cat")
    prompts = [(tmp_path / f"prompt-{number}").read_text() for number in (1, 2, 3)]
    assert "    Customers ask for it\n" in prompts[0]
    assert prompts[1].startswith(prompts[0].rstrip())
    assert "- $.phases[0].tasks[0].acceptance: must not be empty\n- $: unknown key" in prompts[1]
    assert json.dumps(first) in prompts[1]
    assert "    ```json\n" in prompts[2]
    assert "colour" not in prompts[2]
    told = dict(line.split("=", 1) for line in (tmp_path / "env-2").read_text().splitlines() if "=" in line)
    assert (told["LLMC_GOAL_ID"], told["LLMC_PLAN_KIND"], told["OF_MINE"]) == ("goal_1", "plan", "yes")
    assert json.loads(told["LLMC_PLAN_SCHEMA"])["properties"]["phases"]["maxItems"] == 5
    assert "LLMC_WORKER" not in told


@pytest.mark.req("3-084", "3-135")
def test_repairs_end_and_nothing_is_guessed(tmp_path: Path) -> None:
    """Break: count attempts from 0, or take the last answer although it is wrong."""
    command = saying(tmp_path, *["no plan"] * 9)
    failed = plan_goal(PlannerSetup(cwd=tmp_path, command=command), goal())
    assert isinstance(failed, PlanFailed)
    assert failed.failure is Failure.INVALID
    assert failed.text == (
        "the planner did not return a valid answer in 3 attempts; last problem: $: the text does not start with JSON; expected only JSON"
    )
    assert [one.problems for one in failed.attempts] == [
        ("$: the text does not start with JSON; expected only JSON",)
    ] * 3
    assert not (tmp_path / "prompt-4").exists()
    once = plan_goal(PlannerSetup(cwd=tmp_path, command=command, max_repair_attempts=0), goal())
    assert isinstance(once, PlanFailed)
    assert len(once.attempts) == 1
    huge = plan_goal(PlannerSetup(cwd=tmp_path, command=command, max_repair_attempts=99), goal())
    assert isinstance(huge, PlanFailed)
    assert len(huge.attempts) == 6


FAILING = {
    "no such program": ("no-such-planner --please", Failure.MISSING, "exited with code 127"),
    "exits": ("echo it broke >&2; exit 3", Failure.FAILED, "exited with code 3: it broke"),
    "says nothing and fails": ("exit 1", Failure.FAILED, "exited with code 1 without any output"),
    "prints without end": ("yes", Failure.OVERRAN, "printed more than 100000 bytes"),
    "complains without end": ("yes >&2", Failure.OVERRAN, "printed more than 100000 bytes"),
    "is killed": ("kill -9 $$", Failure.FAILED, "exited with code -9"),
    "prints no text": (
        "head -c 5000 /dev/urandom",
        Failure.INVALID,
        "the planner did not return a valid answer in",
    ),
    "prints nothing": ("true", Failure.INVALID, "the text is empty; expected JSON"),
    "nests": ("printf '[%.0s' $(seq 50000)", Failure.INVALID, "not valid JSON"),
}


@pytest.mark.req("3-085", "3-X17")
@pytest.mark.parametrize("case", FAILING)
def test_a_planner_that_fails_is_a_result(case: str, tmp_path: Path) -> None:
    """Break: let any exception from running a program out of `ask`."""
    command, failure, text = FAILING[case]
    setup = PlannerSetup(
        cwd=tmp_path, command=command, most_bytes=100_000, timeout_s=60, max_repair_attempts=1
    )
    failed = plan_goal(setup, goal())
    assert isinstance(failed, PlanFailed)
    assert failed.failure is failure
    assert text in failed.text
    assert "`/bin/sh`" not in failed.text


@pytest.mark.req("3-085", "3-X17")
def test_a_client_or_a_folder_that_is_not_there_is_a_result(tmp_path: Path) -> None:
    """Break: call `client.program()` outside the try."""
    gone = plan_goal(PlannerSetup(cwd=tmp_path, agent=ClaudeCode(str(tmp_path / "claude"))), goal())
    assert isinstance(gone, PlanFailed)
    assert (gone.failure, gone.hint) == (
        Failure.MISSING,
        "To use another `claude` program, run `llmc config set defaults.agent_command PATH`.",
    )
    nowhere = plan_goal(PlannerSetup(cwd=tmp_path / "gone", command="true"), goal())
    assert isinstance(nowhere, PlanFailed)
    assert nowhere.failure is Failure.MISSING
    odd = tmp_path / "odd"
    odd.write_text('#!/bin/sh\necho \'{"type": "result", "usage": 7, "subtype": "success"}\'\n')
    odd.chmod(0o755)
    strange = plan_goal(PlannerSetup(cwd=tmp_path, agent=ClaudeCode(str(odd)), max_repair_attempts=0), goal())
    assert isinstance(strange, PlanFailed)
    assert (strange.failure, strange.spent) == (Failure.INVALID, Spent())


@pytest.mark.req("3-085")
def test_a_planner_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """Break: kill the process instead of its group."""
    pids = tmp_path / "pids"
    command = f"sleep 300 & echo $! > {pids}; wait"
    failed = plan_goal(PlannerSetup(cwd=tmp_path, command=command, timeout_s=1.0), goal())
    assert isinstance(failed, PlanFailed)
    assert failed.failure is Failure.OVERRAN
    assert failed.text.endswith("timed out after 1 s")
    assert len(failed.attempts) == 1
    child = int(pids.read_text())
    wait_until(lambda: not alive(child), 10)


def test_what_a_planner_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    """Break: read until the pipe is closed, or leave the group alone once its leader has exited."""
    (tmp_path / "plan").write_text(json.dumps(small_plan()))
    command = f"sleep 300 & echo $! > {tmp_path}/pid; cat {tmp_path}/plan"
    begun = time.monotonic()
    made = plan_goal(PlannerSetup(cwd=tmp_path, command=command, timeout_s=100), goal("x" * 500_000))
    assert isinstance(made, Planned), made
    assert time.monotonic() - begun < 60
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(child), 10)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_planner_ends_when_we_are_to_end(tmp_path: Path) -> None:
    """Break: do not check `stopping` while it runs."""
    setup = PlannerSetup(cwd=tmp_path, command="sleep 300", stopping=lambda: True)
    with pytest.raises(proc.ShuttingDown):
        plan_goal(setup, goal())


@pytest.mark.req("3-086")
def test_nobody_is_asked_for_what_needs_no_planner(tmp_path: Path) -> None:
    """Break: leave out the first check of `plan_goal` or `split_work`."""
    asked = tmp_path / "asked"
    setup = PlannerSetup(cwd=tmp_path, command=f"touch {asked}")
    view = planned(small_plan())
    parts = [node(f"S{n}") for n in range(7)]
    full = planned(plan(node("P1", tasks=[node("T1", subtasks=parts)])))
    for answer in (
        plan_goal(setup, view),
        split_work(setup, full, "S0", "too large"),
        split_work(setup, view, "T1.1", "it is a group"),
        split_work(setup, view, "nobody", "who?"),
        diagnose(setup, view, "nobody", "silence"),
    ):
        assert isinstance(answer, PlanFailed)
        assert answer.failure is Failure.NOT_NEEDED
    assert not asked.exists()


@pytest.mark.req("3-083", "3-087", "3-X15")
def test_other_questions_are_repaired_by_the_same_rules(tmp_path: Path) -> None:
    """A plan that gives an id another meaning, a split that reuses an id, a diagnosis with an unknown action:
    each is sent back, and the second answer is taken.

    Break: check a new plan without merging it.
    """
    view = planned(small_plan())
    folders = [tmp_path / name for name in ("replan", "split", "diagnose")]
    for folder in folders:
        folder.mkdir()
    other = plan(node("T1.2", tasks=[node("X1")]))
    again = replan_goal(PlannerSetup(tmp_path, saying(folders[0], other, small_plan())), view, "it stalled")
    assert isinstance(again, Planned)
    assert isinstance(again.made, Plan)
    assert again.provenance.validation_errors == (
        "attempt 1: $.phases[0].id: T1.2 is already a task in the plan",
    )
    assert "    T1.2 (in P1): task, todo: Name of T1.2" in (folders[0] / "prompt-1").read_text()

    bad, good = ({"planVersion": 1, "subtasks": [node(a), node("B1")]} for a in ("T1.1", "A1"))
    parts = split_work(PlannerSetup(tmp_path, saying(folders[1], bad, good)), view, "T1.2", "too large")
    assert isinstance(parts, Planned)
    assert isinstance(parts.made, Split)
    assert [part.id for part in parts.made.subtasks] == ["A1", "B1"]
    assert parts.provenance.planner.prompt_template_id == "llmc.split.v1"

    wrong, right = ({"actions": [{"type": kind, "message": "How far?"}]} for kind in ("kill", "nudge"))
    found = diagnose(
        PlannerSetup(tmp_path, saying(folders[2], wrong, right)), view, "T1.2", "silent for an hour"
    )
    assert isinstance(found, Planned)
    assert found.made == Diagnosis((Nudge("How far?"),))
    assert os.listdir(folders[2]).count("prompt-3") == 0
