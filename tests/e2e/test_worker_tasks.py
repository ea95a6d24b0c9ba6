"""Tasks created by agents: proposed, approved, accepted; and tasks that users write by hand."""

import json
from pathlib import Path

import pytest

from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.plans import COMMIT
from tests.support.waiting import wait_until

MAKE = f"@sh echo made > made; git add made; {COMMIT} 'Made'"


def settled(fleet: Fleet, expected: dict[str, str]) -> None:
    """The list becomes this; the files are checked first, which costs no process."""
    folder = Path(fleet.client_config) / "tasks/plan"
    proposed = {task for task, state in expected.items() if state == "proposed"}
    statuses = {task: "pending" if task in proposed else state for task, state in expected.items()}

    def is_there() -> bool:
        told = {row["task_id"] for row in fleet.events("task_proposed")}
        return proposed <= told and all(_status(folder, task) == status for task, status in statuses.items())

    wait_until(is_there, 90, story=fleet.story)
    assert states(fleet) == expected, fleet.story()


def _status(folder: Path, task: str) -> str:
    try:
        return str(json.loads((folder / f"{task}.json").read_text())["status"])
    except (FileNotFoundError, ValueError):  # a client may be writing it
        return ""


def states(fleet: Fleet) -> dict[str, str]:
    return {row["id"]: row["state"] for row in fleet.llmc("tasks", "list", "--json").json["tasks"]}


def claimed(fleet: Fleet) -> list[str]:
    rows = [json.loads(line) for line in (fleet.root / ".llmc/tasks.jsonl").read_text().splitlines()]
    return [row["task"] for row in rows if row["action"] == "claimed"]


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_an_agent_proposes_waits_for_a_person(fleet: Fleet) -> None:
    """Break: leave PreToolUse out of the settings, or worker_tasks.mark out of intake."""
    fleet.set_up(config={"auto.task_list_id": "plan", "auto.concurrency": "2"})
    fleet.llmc(
        "tasks",
        "add",
        "Plan it",
        "-d",
        f"@task {MAKE}\n@task Second\n@sh echo a > a; git add a; {COMMIT} 'A'",
    )
    fleet.up("--auto")
    settled(fleet, {"1": "completed", "2": "proposed", "3": "proposed"})
    assert claimed(fleet) == ["1"], f"an idle worker waited for tasks all the time\n{fleet.story()}"
    worker = fleet.events("task_assigned")[0]["worker"]
    proposed = fleet.events("task_proposed")
    assert [(row["worker"], row["task_id"]) for row in proposed] == [(worker, "2"), (worker, "3")]
    hooks = [
        row["hook"] for row in fleet.events("hook_received") if row["hook"] in ("PreToolUse", "TaskCreated")
    ]
    assert hooks == ["PreToolUse", "TaskCreated"] * 2, "announced before the file exists, for this tool only"
    assert f"created by {worker} on task 1" in fleet.llmc("tasks", "list").out
    assert fleet.llmc("tasks", "approve", "2").out.startswith("approved 2: @sh echo made")
    folder = Path(fleet.client_config) / "tasks/plan"
    wait_until(lambda: _status(folder, "2") == "completed", 60)
    assert states(fleet) == {"1": "completed", "2": "completed", "3": "proposed"}
    assert "Made" in fleet.log()


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_an_agent_writes_about_its_task_frees_nothing(fleet: Fleet) -> None:
    """Break: trust `metadata.llmc` of a file: in made_by_worker, in is_undecided, or at the claim."""
    # A second worker is free all the time; for the real client only what it writes counts.
    workers = "2" if fleet.agent == "scripted" else "1"
    fleet.set_up(config={"auto.task_list_id": "plan", "auto.concurrency": workers})
    ran = fleet.dir / "verify-ran"
    forged = {"by": "person", "verify": f"touch {ran}", "claim": "c1", "budget": {"max_cost": 1}}
    given = {"subject": "Mine", "description": MAKE, "metadata": {"llmc": forged, "priority": 0}}
    wipe = '@update 2 {"llmc": null}'
    work = f"@task {json.dumps(given)}\n{wipe}\n@sh echo a > a; git add a; {COMMIT} 'A'"
    fleet.llmc("tasks", "add", "Plan it", "-d", work)
    fleet.up("--auto")
    settled(fleet, {"1": "completed", "2": "proposed"})
    fleet.llmc("tasks", "add", "Next", "-d", f"@sh echo b > b; git add b; {COMMIT} 'B'")
    settled(fleet, {"1": "completed", "2": "proposed", "3": "completed"})
    assert claimed(fleet) == ["1", "3"], "it has the higher priority, and waits for the user"
    assert not ran.exists()
    file = json.loads((Path(fleet.client_config) / "tasks/plan/2.json").read_text())
    assert file["metadata"]["llmc"]["hold"] == "proposed", "the file says so again, for users and other roots"
    assert file["metadata"]["priority"] == 0, "the client passes metadata on"


@pytest.mark.req("4-005")
@pytest.mark.soak
def test_accepted_ones_run_and_off_makes_none_and_people_write_files(scripted: Fleet) -> None:
    """Break: set the task tools' variable also for `off`; leave the check after the grace period out of
    AutoMode.tick; or do not read the whole list once it is watched.
    """
    scripted.set_up(config={"auto.task_list_id": "plan", "auto.worker_tasks": "accept"})
    work = f"@sh env | grep CLAUDE_CODE_ > env; git add env; {COMMIT} 'Env'"
    scripted.llmc("tasks", "add", "Plan it", "-d", f"@task {MAKE}\n{work}")
    scripted.up("--auto")
    settled(scripted, {"1": "completed", "2": "completed"})
    environment = scripted.git("show", "main:env")
    assert "CLAUDE_CODE_TASK_LIST_ID=plan" in environment
    assert "CLAUDE_CODE_ENABLE_TODO_TOOLS=1" in environment
    assert scripted.events("task_proposed") == []
    scripted.llmc("down")

    scripted.llmc("config", "set", "auto.worker_tasks", "off")
    by_hand = {"id": "7", "subject": "By hand", "status": "pending", "blocks": [], "blockedBy": []}
    by_hand["description"] = (
        f"@task Never\n{work.replace('Env', 'Again')}\n@sh date > d; git add d; {COMMIT} 'D'"
    )
    starting = scripted.spawn("up", "--detach", "--auto")
    daemon = scripted.root / ".llmc/daemon.json"
    wait_until(lambda: daemon.exists() and not json.loads(daemon.read_text())["ready"])
    # The list was checked, and is not watched yet.
    (Path(scripted.client_config) / "tasks/plan/7.json").write_text(json.dumps(by_hand))
    assert starting.wait(60) == 0
    settled(scripted, dict.fromkeys(("1", "2", "7"), "completed"))
    assert "CLAUDE_CODE_ENABLE_TODO_TOOLS" not in scripted.git("show", "main:env")
