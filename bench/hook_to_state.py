"""From the agent's Stop to the new status, driven by hooks alone: in state.json, and from `status --json`.

The time of the Stop is in the name of its event file: the sender reads the clock as soon as it runs.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import AGENTS, TURN_LIMIT_S, fleet, llmc, pace_ms, wait_for_rest
from bench.measure import Row, interleave, row
from llmc.base.processes import wait_until
from llmc.records.event_log import rows_of
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.workers.start import send_message

NAME = "hook_to_state"
LIMIT_MS = 300
#: the requirements check a worker every 60 s
PATROL_MS = 60_000
ROUNDS = 30
#: long enough that submit has left the worker's lock when the turn ends
TURN = "@sleep 0.5"
#: on a slow machine the turn may be over before the first check
TRIES = 10


def run() -> list[Row]:
    return [found for agent in AGENTS for found in _run(agent)]


def _run(agent: str) -> list[Row]:
    with fleet(agent, "adam", up=("--no-patrol",)) as (made, project):
        made.git("commit", "-q", "--allow-empty", "-m", "Work", cwd=made.worktree("adam"))
        _turn(
            made, project, lambda: _in_state(project)
        )  # from idle; from now on it goes back to needs_review
        times = interleave(
            {
                "state.json": lambda: _turn(made, project, lambda: _in_state(project)),
                "status --json": lambda: _turn(made, project, _in_command),
                "pace": pace_ms,
            },
            ROUNDS,
            warm_up=1,
        )
    pace = times.pop("pace")
    target = LIMIT_MS / PATROL_MS
    return [
        row(
            *(NAME, f"{agent}, {case}", values, "60 s patrol", PATROL_MS),
            target=target,
            judged="p95",
            pace_ms=pace,
        )
        for case, values in times.items()
    ]


def _turn(made: Fleet, project: Project, current: Callable[[], str]) -> float:
    """One turn; milliseconds from its Stop until `current` returned the new status."""
    log = made.root / "logs/events.jsonl"
    for _ in range(TRIES):
        offset = log.stat().st_size
        with project.worker_lock("adam"):
            receipt = send_message(project, "adam", TURN)
        assert receipt.outcome.arrived, receipt
        is_in_time = project.store.worker("adam").status is Status.WORKING
        seen_ns = _watch(current)
        stopped_ns = _stop_ns(log, offset)
        wait_for_rest(project, "adam", Status.NEEDS_REVIEW)
        if is_in_time:
            return (seen_ns - stopped_ns) / 1e6
    raise RuntimeError(f"the turn was over before it could be measured, {TRIES} times")


def _watch(current: Callable[[], str]) -> int:
    deadline = time.monotonic() + TURN_LIMIT_S
    while current() != Status.NEEDS_REVIEW:
        if time.monotonic() > deadline:
            raise RuntimeError("the end of the turn was not detected")
        time.sleep(0.001)
    return time.time_ns()


def _in_state(project: Project) -> str:
    state = json.loads(project.root.state.read_bytes())
    return str(state["workers"]["adam"]["status"])


def _in_command() -> str:
    done = subprocess.run([llmc(), "status", "--json"], capture_output=True, check=True)
    return str(json.loads(done.stdout)["workers"][0]["status"])


def _stop_ns(log: Path, offset: int) -> int:
    """When the agent stopped; the log gets the event right after the state."""
    found: list[str] = []

    def written() -> bool:
        with log.open("rb") as file:
            file.seek(offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may still be written
        found.extend(row["event"] for row in rows_of(whole.splitlines()) if row["action"] == "agent_stopped")
        return bool(found)

    if not wait_until(written, TURN_LIMIT_S):
        raise RuntimeError("no agent_stopped in the event log")
    return int(found[0].partition("-")[0])
