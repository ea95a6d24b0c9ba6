"""Goals in the end-to-end tests: plans that the scripted agent can follow, and the fleet that runs them."""

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.goals.store.goal_store import AnyGoalStore, GoalStore
from tests.support import auto
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT

LOOK_S = 0.2

#: as short as a busy machine allows
QUICK = {
    "overseer.goals.enabled": "true",
    "overseer.goals.tick_every": "1s",
    "overseer.goals.idle_after": "60s",
    "overseer.goals.min_resend_interval": "1s",
    "overseer.goals.backoff.base": "1s",
    "overseer.goals.backoff.max": "2s",
}


def set_up(fleet: Fleet, **config: str) -> Fleet:
    return auto.set_up(fleet, **{**QUICK, **config})


def leaf(number: int, *lines: str) -> dict[str, Any]:
    """A subtask that makes one commit, or does what the lines say."""
    return {
        "name": f"Part {number}",
        "objective": "\n".join(lines) or commit(number),
        "acceptance": ["it is there"],
    }


def commit(number: int, more: str = "true") -> str:
    return f"@sh {more}; echo {number} > part-{number}; git add part-{number}; {COMMIT} 'Part {number}'"


def plan(
    *phases: list[list[Mapping[str, Any]]], deps: Mapping[str, list[str]] | None = None
) -> dict[str, Any]:
    """Phases of tasks of subtasks, numbered by position; each phase waits for the previous one."""
    made = []
    for p, tasks in enumerate(phases, 1):
        phase: dict[str, Any] = {"id": f"P{p}", "name": f"Phase {p}", "objective": "o", "acceptance": ["a"]}
        phase["deps"] = [f"P{p - 1}"] if p > 1 else []
        phase["tasks"] = []
        for t, parts in enumerate(tasks, 1):
            task: dict[str, Any] = {
                "id": f"T{p}.{t}",
                "name": f"Task {p}.{t}",
                "outcome": "o",
                "acceptance": ["a"],
            }
            task["deps"] = []
            task["subtasks"] = [{"id": f"S{p}.{t}.{s}", **part} for s, part in enumerate(parts, 1)]
            phase["tasks"].append(task)
        made.append(phase)
    for node_id, needed in (deps or {}).items():
        _find(made, node_id)["deps"] = needed
    goal = {"title": "The goal", "successCriteria": ["all parts"], "constraints": []}
    return {"planVersion": 1, "goal": goal, "phases": made}


def _find(phases: list[dict[str, Any]], node_id: str) -> dict[str, Any]:
    nodes = [n for p in phases for n in (p, *(m for t in p["tasks"] for m in (t, *t["subtasks"])))]
    return next(node for node in nodes if node["id"] == node_id)


def planner(fleet: Fleet, made: Mapping[str, Any]) -> str:
    """A planner command that prints this."""
    path = fleet.dir / "plan.json"
    path.write_text(json.dumps(made))
    return f"cat > {shlex.quote(str(fleet.dir / 'planner.in'))}; cat {shlex.quote(str(path))}"


def create(fleet: Fleet, title: str = "The goal", *more: str) -> str:
    made = fleet.llmc("goal", "create", "--title", title, "--json", *more).json
    assert made["planned"], made
    return str(made["goalId"])


def shown(fleet: Fleet, goal_id: str) -> dict[str, Any]:
    return dict(fleet.llmc("goal", "show", goal_id, "--json").json)


def status(fleet: Fleet, goal_id: str) -> str:
    return str(shown(fleet, goal_id)["status"])


def wait_for(fleet: Fleet, probe: Any, timeout_s: float = 60) -> Any:
    """Like auto mode's, but each check costs a process: a few per second are enough."""

    def look() -> Any:
        found = probe()
        if not found:
            time.sleep(LOOK_S)
        return found

    try:
        return auto.wait_for(fleet, look, timeout_s)
    except AssertionError as error:
        log = fleet.root / "logs/goals.log"
        said = log.read_text() if log.exists() else ""
        events = fleet.llmc("overseer", "events", code=None).out
        raise AssertionError(f"{error}\n--- goals.log\n{said}\n--- events\n{events}") from error


def store(fleet: Fleet) -> AnyGoalStore:
    """The goals of a root."""
    return fleet.rows.goals if fleet.rows is not None else GoalStore(fleet.root / ".llmc/overseer")


def wait_status(fleet: Fleet, goal_id: str, wanted: str = "completed", timeout_s: float = 60) -> None:
    """Read from the store, without a process for each check; the command says the same in the end."""
    goals = store(fleet)
    wait_for(fleet, lambda: goals.view(goal_id).goal.status == wanted, timeout_s)
    assert status(fleet, goal_id) == wanted


def wait_questions(fleet: Fleet, timeout_s: float = 60) -> list[dict[str, Any]]:
    """What is in the inbox, once the user was asked."""

    def asked() -> Any:
        return fleet.events("goal_asked") and fleet.llmc("overseer", "inbox", "--json").json["questions"]

    return list(wait_for(fleet, asked, timeout_s))


def events(fleet: Fleet, kind: str) -> list[dict[str, Any]]:
    lines = fleet.llmc("overseer", "events", "--json").out.splitlines()
    return [row for row in map(json.loads, lines) if row["type"] == kind]


def parts(fleet: Fleet) -> list[int]:
    """The parts on the default branch, in order."""
    return [int(text.removeprefix("Part ")) for text in reversed(fleet.log()) if text.startswith("Part ")]


def log_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""
