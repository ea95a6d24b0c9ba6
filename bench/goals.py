"""Fifty goals of 245 leaves: the cost of a tick follows what changed, not the total."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from tests.support.goal_workshop import project_in
from tests.support.goal_world import goal, plan

from bench.fleets import pace_ms
from bench.measure import Row, clock_ms, row
from llmc.goals.drive.liveness import Merged
from llmc.goals.drive.words import of_merge
from llmc.goals.goals import open_store
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Dispatch,
    Evidence,
    Mode,
    NodeStatus,
    Result,
)
from llmc.goals.runner import Runner
from llmc.goals.store.goal_store import AnyGoalStore
from llmc.repo.project import Project

NAME = "goals"
GOALS = 50
TARGET_MS = 150.0
ROUNDS, COLD_ROUNDS = 15, 7
AT_WORK = 6


def run() -> list[Row]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="llmc-bench-", dir=memory) as made:
        project = project_in(Path(made) / "root", max_in_progress=AT_WORK)
        project.store.create()
        Path(made, "root", "tasks", "plan").mkdir(parents=True)
        store = open_store(project)
        for number in range(GOALS):
            store.apply(_goal(number))
        _ticked(Runner(project), project)  # starts as many items as are allowed
        pace = [pace_ms() for _ in range(COLD_ROUNDS)]
        cold = [_cold(project) for _ in range(COLD_ROUNDS)]
        runner = Runner(project)
        _ticked(runner, project)
        nothing = [clock_ms(lambda: _ticked(runner, project)) for _ in range(ROUNDS)]
        one = _after(runner, project, lambda: _change(store, 1))
        all_ = _after(runner, project, lambda: _change(store, GOALS))
        pace += [pace_ms() for _ in range(COLD_ROUNDS)]
    judged = partial(_judged, pace)
    return [
        judged("the first tick", cold, "median", "everything is read and decided"),
        judged("nothing changed", nothing, "p95", f"{GOALS} goals x 245 leaves, {AT_WORK} at work"),
        judged("1 assignment changed", one, "p95"),
        judged("50 assignments in 50 goals changed", all_, "p95", "of each goal what is new is read"),
    ]


def _judged(pace: list[float], case: str, times_ms: list[float], by: str, note: str = "") -> Row:
    return row(NAME, case, times_ms, "150 ms", TARGET_MS, target=1.0, judged=by, note=note, pace_ms=pace)


def _ticked(runner: Runner, project: Project) -> None:
    ticked = runner.tick(project, "bench")
    assert ticked.ok, ticked


def _cold(project: Project) -> float:
    runner = Runner(project)  # whose cleanup is not part of the tick
    return clock_ms(lambda: _ticked(runner, project))


def _after(runner: Runner, project: Project, change: Callable[[], None]) -> list[float]:
    times = []
    for _ in range(ROUNDS):
        change()
        times.append(clock_ms(lambda: _ticked(runner, project)))
        _ticked(runner, project)  # reads back its own writes
    return times


def _change(store: AnyGoalStore, count: int) -> None:
    """Change one record in each of several goals, as the user or a worker's report does."""
    for number in range(count):
        view = store.view(f"goal_{number}")
        given = next(iter(view.assignments.values()))
        store.apply(Change(assignments=(replace(given, updated_at=given.updated_at + 1),)))


def _goal(number: int) -> Change:
    """Half of it is done; of the rest, as many items as allowed are in progress."""
    goal_id = f"goal_{number}"
    nodes = {key: replace(node, goal_id=goal_id) for key, node in plan(5, 7, 7).items()}
    leaves = [key for key in nodes if key.startswith("S")]
    assignments, crystals = [], []
    for index, leaf in enumerate(leaves[:120]):
        nodes[leaf] = replace(nodes[leaf], status=NodeStatus.DONE)
        sent = Dispatch(
            dispatch_id=f"D{number}-{index}",
            ts=1.0,
            mode=Mode.SPAWN,
            purpose="work",
            result=Result.ACCEPTED,
            instruction_hash="x",
        )
        assignments.append(
            Assignment(
                assignment_id=f"A{number}-{index}",
                goal_id=goal_id,
                work_node_id=leaf,
                created_at=1.0,
                updated_at=1.0,
                status=AssignmentStatus.DONE,
                last_instruction_text="Write the parser. " * 50,
                dispatch_history=(sent,),
            )
        )
        landed = Merged("c0ffee" * 6, 1.0, Evidence(files_touched=("src/parser.py", "tests/test_parser.py")))
        crystals.append(of_merge(f"C{number}-{index}", assignments[-1], nodes[leaf], landed, None, 1.0))
    return Change(
        goal=goal(goal_id=goal_id),
        nodes=tuple(nodes.values()),
        assignments=tuple(assignments),
        crystallizations=tuple(crystals),
    )
