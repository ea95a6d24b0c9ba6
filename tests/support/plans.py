"""Plans for auto mode: tasks with dependencies, and checks that each was done once and in order."""

import json
import random
from collections.abc import Collection, Mapping
from typing import Any

from tests.support.fleet import Fleet

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"

Plan = dict[int, list[int]]


def auto_config(fleet: Fleet, **more: str) -> dict[str, str]:
    """Only what a test is about takes its time; the rest is as short as possible."""
    own = {"auto.task_list_id": "plan", "auto.tasks_root": str(fleet.dir / "tasks")}
    return {**own, "auto.crash_backoff_secs": "0.2", **more}


def random_plan(count: int, dice: random.Random) -> Plan:
    """Tasks 1..count, each after up to three earlier ones."""
    return {n: sorted(dice.sample(range(1, n), min(n - 1, dice.randint(0, 3)))) for n in range(1, count + 1)}


def add_plan(fleet: Fleet, plan: Plan) -> None:
    """Each task notes that all its dependencies are there, and makes its own commit."""
    folder = fleet.dir / "plan"
    folder.mkdir()
    width = len(str(len(plan)))
    for number, after in plan.items():
        present = " && ".join(["true", *(f"test -e done-{other}" for other in after)])
        script = (
            f"({present}) || echo {number} >> {fleet.marks}/too-early; echo {number} > done-{number}; "
            f"git add done-{number}; {COMMIT} 'Task {number}'"
        )
        names = " ".join(f"{other:0{width}}" for other in after)
        head = f"---\nafter: {names}\n---\n" if after else ""
        (folder / f"{number:0{width}}.md").write_text(f"{head}# Do {number}\n\n@sh {script}\n")
    fleet.llmc("tasks", "import", str(folder))


def tasks_of(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """All tasks, as in their files."""
    if fleet.rows is not None:
        return fleet.rows.tasks()
    folder = fleet.dir / "tasks/plan"
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def ledger(fleet: Fleet) -> list[dict[str, Any]]:
    """The ledger's entries; empty before the first one."""
    if fleet.rows is not None:
        return fleet.rows.ledger()
    path = fleet.root / ".llmc/tasks.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def assert_done_once_in_order(
    fleet: Fleet, plan: Mapping[int, list[int]], unchanged: Collection[int] = ()
) -> None:
    """Every task is one commit, after its dependencies; no claim is left; the trash is accounted for.

    `unchanged` are additional tasks, completed without a commit.
    """
    landed = [
        int(subject.removeprefix("Task ")) for subject in reversed(fleet.log()) if subject.startswith("Task ")
    ]
    assert sorted(landed) == sorted(plan), "each task lands exactly once"
    place = {number: index for index, number in enumerate(landed)}
    early = {n: after for n, after in plan.items() if any(place[other] > place[n] for other in after)}
    assert not early, f"these landed before their dependencies: {early}"
    assert not (fleet.marks / "too-early").exists(), (fleet.marks / "too-early").read_text()
    for name, task in tasks_of(fleet).items():
        ours = (task.get("metadata") or {}).get("llmc", {})
        assert (task["status"], task.get("owner"), ours.get("claim")) == ("completed", None, None), name
    open_claims: set[str] = set()
    for row in ledger(fleet):
        if row["action"] == "claimed":
            open_claims.add(row["claim"])
        elif row["action"] in ("completed", "failed", "released"):
            open_claims.discard(row["claim"])
    assert not open_claims
    completed = [event["task_id"] for event in fleet.events("task_completed")]
    assert sorted(completed, key=int) == [str(number) for number in sorted([*plan, *unchanged])], (
        "counted once"
    )
    refs = set(
        fleet.git("for-each-ref", "--format=%(refname)", "refs/llmc/trash", cwd=fleet.root).splitlines()
    )
    known = {event.get("ref") for event in fleet.events()}
    assert refs <= known, f"in the trash for no known reason: {refs - known}"
