"""Auto mode in the end-to-end tests: tasks, and the daemon that works on them."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.support import zygote
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, auto_config, tasks_of
from tests.support.waiting import wait_until

#: only what a test is about; the rest is as short as possible
QUICK = {"auto.limit_backoff_secs": "0.5", "auto.api_backoff_secs": "0.5"}


def set_up(fleet: Fleet, **config: str) -> Fleet:
    fleet.set_up(config=auto_config(fleet, **{**QUICK, **config}))
    task_dir(fleet).mkdir(parents=True)
    return fleet


def task_dir(fleet: Fleet) -> Path:
    return fleet.dir / "tasks/plan"


def add(fleet: Fleet, number: int, *lines: str, after: tuple[int, ...] = (), **metadata: Any) -> None:
    """A task as a client writes it; `lines` are the agent's instructions."""
    task = {
        "id": str(number),
        "subject": f"Do {number}",
        "description": "\n".join(lines) or commit(number),
        "status": "pending",
        "blocks": [],
        "blockedBy": [str(other) for other in after],
        **({"metadata": metadata} if metadata else {}),
    }
    put(fleet, task)


def put(fleet: Fleet, task: dict[str, Any]) -> None:
    """Write a task as it is, new or changed."""
    if fleet.rows is not None:
        fleet.rows.put(task)
        return
    temp = task_dir(fleet) / f".{task['id']}.new"
    temp.write_text(json.dumps(task))
    # Written a while ago: a new file may turn out to be a worker's, and would come after the others.
    then = time.time() - 60
    os.utime(temp, (then, then))
    temp.rename(task_dir(fleet) / f"{task['id']}.json")


def remove(fleet: Fleet, number: int) -> None:
    """The user removes a task from the list."""
    if fleet.rows is not None:
        fleet.rows.remove(str(number))
    else:
        (task_dir(fleet) / f"{number}.json").unlink()


def commit(number: int, more: str = "true") -> str:
    """One commit of the task's own file."""
    return f"@sh {more}; echo {number} > file-{number}; git add file-{number}; {COMMIT} 'Task {number}'"


def until(path: Path) -> str:
    """For an agent: wait for a file."""
    return f"while ! test -e {path}; do sleep 0.1; done"


def state(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text()))


def auto(fleet: Fleet) -> dict[str, Any]:
    return dict(state(fleet).get("auto", {}))


def landed(fleet: Fleet) -> list[int]:
    """The tasks on the default branch, in order."""
    return [int(text.removeprefix("Task ")) for text in reversed(fleet.log()) if text.startswith("Task ")]


def at_work(fleet: Fleet) -> dict[str, str]:
    """Which task each worker has."""
    workers = state(fleet)["workers"]
    return {
        name: row["assignment"]["task_id"]
        for name, row in workers.items()
        if row.get("assignment") is not None
    }


def wait_for(fleet: Fleet, probe: Any, timeout_s: float = 40) -> Any:
    """Like wait_until; a failure tells the story."""
    try:
        return wait_until(probe, timeout_s)
    except AssertionError as error:
        log = fleet.root / "logs/auto.log"
        said = log.read_text() if log.exists() else ""
        daemon = (fleet.root / "logs/daemon.jsonl").read_text()[-3000:]
        tasks = fleet.llmc("tasks", "list", code=None).out
        raise AssertionError(f"{error}\n{said}\n{daemon}\n{tasks}\n{fleet.story()}") from error


def wait_completed(fleet: Fleet, count: int, timeout_s: float = 40) -> None:
    wait_for(fleet, lambda: auto(fleet).get("tasks_completed", 0) >= count, timeout_s)


def statuses(fleet: Fleet) -> dict[str, str]:
    return {name: task["status"] for name, task in tasks_of(fleet).items()}


class Daemon:
    """`llmc up --auto` in the foreground; its output is in `said`."""

    def __init__(self, fleet: Fleet, *args: str, **env: str) -> None:
        self.fleet = fleet
        self.out = fleet.dir / "daemon.out"
        self.out.write_bytes(b"")
        self.process = zygote.spawn(
            ["up", "--auto", *args], cwd=fleet.source, env={**fleet.env, **env}, output=self.out
        )

    @property
    def said(self) -> str:
        return self.out.read_text()

    def ends(self, timeout_s: float = 40) -> int:
        """Its exit code, once it has exited by itself."""
        try:
            return self.process.wait(timeout_s)
        except TimeoutError as error:
            raise AssertionError(f"the daemon is still running\n{self.said}\n{self.fleet.story()}") from error

    def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(self.process.pid, number)
        return self.ends()
