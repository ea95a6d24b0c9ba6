"""Drills: failures of goals, from the plan to the landed plan item."""

import json
import shlex
from pathlib import Path

from llmc.goals.goals import goal_file, open_store
from llmc.rehearsal.drills.scratch import Scratch, overwrite

#: as short as a busy machine allows
IDLE_AFTER_S = 4.0
TICK_S = 1.0
SETTINGS = {
    "overseer.goals.enabled": "true",
    "overseer.goals.tick_every": f"{TICK_S:g}s",
    "overseer.goals.idle_after": f"{IDLE_AFTER_S:g}s",
    "overseer.goals.max_retries": "1",
    "overseer.goals.min_resend_interval": "1s",
    "overseer.goals.backoff.base": "1s",
    "overseer.goals.backoff.max": "2s",
}


def worker_silent(scratch: Scratch) -> None:
    """A worker starts a plan item and goes silent."""
    _create(scratch)
    _goal(scratch, _lines(scratch.half(1, scratch.gate("never")), scratch.commit(1)))
    scratch.supervise_to("never")
    scratch.breaks_now()
    _stalled(scratch)
    _completed(scratch)


def enter_swallowed(scratch: Scratch) -> None:
    _create(scratch)
    scratch.variables.write_text("export LLMC_SCRIPTED_SWALLOW_ENTER=1\n")
    _goal(scratch, scratch.commit(1))
    scratch.supervise()
    scratch.breaks_now()
    _completed(scratch)


def task_fails(scratch: Scratch) -> None:
    """A task fails so often that auto mode gives up on it."""
    crashes = scratch.marks / "crashes"
    crash = f"@sh test $(cat {crashes} | wc -l) -ge 3 || {{ echo x >> {crashes}; kill -9 $PPID; sleep 9; }}"
    _create(scratch)
    _goal(scratch, _lines(crash, scratch.commit(1)))
    scratch.breaks_now()
    scratch.supervise()
    _stalled(scratch)
    _completed(scratch)


def daemon_killed(scratch: Scratch) -> None:
    """Kill the daemon between writing a task file and recording it."""
    _create(scratch)
    scratch.remedy(f"rm -f {scratch.variables}")
    scratch.variables.write_text("export LLMC_FAULT=goals.spawn:after:kill\n")
    scratch.breaks_now()
    scratch.supervise(ready=False)
    _goal(scratch, scratch.commit(1))
    scratch.noticed("failure:")
    _completed(scratch)
    scratch.require(len(scratch.task_files()) == 1, "there is exactly one task file")


def question(scratch: Scratch) -> None:
    """A question that only the user can answer is answered later."""
    asked = scratch.marks / "asked"
    asks = f"@sh test -e {asked} || {{ touch {asked}; llmc report blocked 'Which color?'; exit 1; }}"
    _create(scratch)
    _goal(scratch, asks)
    scratch.supervise()
    scratch.until(asked.exists, "the agent asks a question")
    scratch.breaks_now()
    scratch.seen(lambda: _event(scratch, "assignment.escalated"), "llmc forwards the question to the user")
    (row,) = json.loads(scratch.llmc("overseer", "inbox", "--json"))["questions"]
    scratch.llmc("overseer", "answer", row["id"], _lines("Blue", scratch.commit(1)))
    _completed(scratch)


def store_damaged(scratch: Scratch) -> None:
    """The damaged file is set aside together with the goal; tasks in progress still land."""
    _create(scratch)
    _goal(scratch, _lines(f"@sh {scratch.gate('go')}", scratch.commit(1)))
    scratch.supervise_to("go")
    store = goal_file(scratch.project()).path
    scratch.breaks_now()
    overwrite(store, "no database " * 500)
    log = scratch.root / "logs" / "goals.log"
    scratch.seen(lambda: "is damaged" in log.read_text(errors="replace"), "goals.log reports the damage")
    scratch.open("go")
    scratch.until(lambda: 1 in scratch.landed(), "tasks in progress landed")
    scratch.llmc("goal", "create", "--title", "Once more", "--no-plan")  # the next writer sets it aside
    kept = [path for path in store.parent.glob("store.corrupt-*.db") if "no database" in path.read_text()]
    scratch.require(len(kept) == 1, "the damaged file is kept unchanged")
    scratch.llmc("overseer", "safe-mode", "--clear")
    _goal(scratch, scratch.commit(2), title="What is left", first=2)
    _completed(scratch)


def planner_hangs(scratch: Scratch) -> None:
    """The planner hangs, then prints garbage; then it is fixed."""
    _create(scratch, **{"overseer.goals.planner.timeout": "2s"})
    scratch.llmc("config", "set", "overseer.goals.planner.command", "sleep 100")
    scratch.supervise()
    scratch.breaks_now()
    made = json.loads(scratch.llmc("goal", "create", "--title", "A goal", "--json", check=False))
    scratch.seen(lambda: not made["planned"] and _event(scratch, "plan.failed"), "planning failed")
    scratch.llmc("config", "set", "overseer.goals.planner.command", "echo a fine plan indeed")
    scratch.llmc("goal", "plan", made["goalId"], check=False)
    _plan(scratch, scratch.commit(1))
    scratch.llmc("goal", "plan", made["goalId"])
    _completed(scratch)


def task_deleted(scratch: Scratch) -> None:
    """Delete a task file by hand, before a worker claims the task."""
    _create(scratch, **{"overseer.goals.max_in_progress": "2"})
    _goal(scratch, _lines(f"@sh {scratch.gate('go')}", scratch.commit(1)), scratch.commit(2))
    scratch.supervise_to("go")
    waiting = scratch.until(lambda: _file_of(scratch, "S1.1.2"), "the second plan item is waiting")
    scratch.breaks_now()
    waiting[0].unlink()
    _stalled(scratch, "S1.1.2")
    scratch.open("go")
    _completed(scratch)


def session_killed(scratch: Scratch) -> None:
    _create(scratch)
    _goal(scratch, _lines(scratch.half(1, scratch.gate("go")), scratch.commit(1)))
    scratch.supervise_to("go")
    scratch.kill_agent()
    _completed(scratch)


def _create(scratch: Scratch, **settings: str) -> None:
    scratch.create(**{**SETTINGS, **settings})


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def _plan(scratch: Scratch, *leaves: str, first: int = 1) -> None:
    """The planner's answer: one task with these subtasks, numbered from `first`."""
    parts = [
        {"id": f"S1.1.{n}", "name": f"Part {n}", "objective": text, "acceptance": ["it is there"]}
        for n, text in enumerate(leaves, first)
    ]
    task = {"id": "T1.1", "name": "Task", "outcome": "o", "acceptance": ["a"], "deps": [], "subtasks": parts}
    phase = {"id": "P1", "name": "Phase", "objective": "o", "acceptance": ["a"], "deps": [], "tasks": [task]}
    whole = {"title": "A goal", "successCriteria": ["all parts"], "constraints": []}
    file = scratch.directory / "plan.json"
    file.write_text(json.dumps({"planVersion": 1, "goal": whole, "phases": [phase]}))
    scratch.llmc("config", "set", "overseer.goals.planner.command", f"cat {shlex.quote(str(file))}")
    scratch.expected.update(range(first, first + len(leaves)))


def _goal(scratch: Scratch, *leaves: str, title: str = "A goal", first: int = 1) -> str:
    _plan(scratch, *leaves, first=first)
    made = json.loads(scratch.llmc("goal", "create", "--title", title, "--json"))
    scratch.require(bool(made["planned"]), "the goal is planned")
    return str(made["goalId"])


def _event(scratch: Scratch, kind: str, node: str = "") -> float:
    """When the first such event since the fault happened; 0 if none has yet."""
    with open_store(scratch.project()).reading() as found:
        rows = [event for _, event in found.events(since=scratch.fault_unix) if event.type == kind]
    return next((event.ts for event in rows if not node or event.work_node_id == node), 0.0)


def _stalled(scratch: Scratch, node: str = "") -> None:
    scratch.until(lambda: _event(scratch, "assignment.stalled", node), "the stall is detected")
    scratch.detected_unix = _event(scratch, "assignment.stalled", node)


def _completed(scratch: Scratch) -> None:
    scratch.all_landed(120)
    scratch.until(lambda: _event(scratch, "goal.completed"), "the goal is completed")


def _file_of(scratch: Scratch, node: str) -> list[Path]:
    return [path for path in scratch.task_files() if f'"{node}: ' in path.read_text()]
