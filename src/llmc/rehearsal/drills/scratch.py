"""A fleet to break: a sample repository, a root, tasks for the scripted agent, and a supervisor."""

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from llmc.base import locks, proc, processes
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError
from llmc.base.locks import Rank
from llmc.base.names import OVERSEER, TaskKey
from llmc.config import root_layout
from llmc.records.event_log import EventLog
from llmc.records.sight import registration
from llmc.records.task_ledger import TaskLedger
from llmc.rehearsal import sample
from llmc.rehearsal.drills.model import DrillFailed, Terms
from llmc.repo import git
from llmc.repo.project import Project, for_overseer, open_project

T = TypeVar("T")

#: as short as a busy machine allows
SETTINGS = {
    "auto.task_list_id": "drill",
    "defaults.patrol_interval_secs": "2",
    "overseer.check_interval_secs": "0.5",
    "overseer.heartbeat_timeout_secs": "8",
    "overseer.restart_cooldown_secs": "600",
    "overseer.remediation_timeout_secs": "60",
    "auto.crash_backoff_secs": "0.5",
    "auto.limit_backoff_secs": "1",
    "auto.api_backoff_secs": "1",
}
#: for anything that a healthy fleet does in seconds
PATIENCE_S = 60.0
POLL_S = 0.05
_LEAF = re.compile(r"S1\.1\.(\d+):")
#: for git: the user, not an agent
PERSON = "-c user.name=Person -c user.email=person@example.com"
#: the first part of a mark's name; the rest is the file
_PERSON_CHANGES = "person-changes-"
_COMMIT = "git -c user.name=Drill -c user.email=drill@example.com commit -q -m"


class Scratch:
    """A scratch fleet in one directory; records times for the report."""

    def __init__(self, directory: Path, terms: Terms) -> None:
        self.directory = directory
        self.terms = terms
        self.source = directory / "source"
        self.root = directory / "root"
        self.tasks = directory / "tasks" / "drill"
        #: marks that agents leave for the drill or wait for; a contained agent sees nothing else of the drill
        self.marks = directory / "marks"
        #: sourced by the `llmc` that the supervisor runs: faults for its next daemon
        self.variables = directory / "variables"
        #: exists until the drill ends, and then ends all waits of agents
        self.running = self.marks / "running"
        self.fault_unix = 0.0
        self.detected_unix = 0.0
        self.recovered_unix = 0.0
        #: uncommitted work, and the file that proves that it was written and must be found at the end
        self.precious: dict[str, Path] = {}
        self._supervisor: proc.Child | None = None
        #: the tasks that must land
        self.expected: set[int] = set()
        #: other information
        self.notes: list[str] = []
        self._said_before = 0
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {
            **proc.clean_env(),
            **kept,
            "PATH": f"{directory / 'bin'}:{kept.get('PATH', os.defpath)}",
            "LLMC_AGENT": "scripted",
            "LLMC_ROOT": str(self.root),
        }

    # -- setup

    def create(self, **settings: str) -> None:
        self.marks.mkdir()
        self.running.touch()
        sample.create(self.source)
        self._put_llmc_on_path()
        self.llmc("init", "--target", str(self.root), "--agent", "scripted")
        own = {
            "auto.tasks_root": str(self.tasks.parent),
            "defaults.sandbox": self.terms.sandbox,
            "sandbox.write": json.dumps([str(self.marks)]),
        }
        for key, value in {**SETTINGS, **own, **settings}.items():
            self.llmc("config", "set", key, value)
        self.remedy("true")
        self.tasks.mkdir(parents=True)

    def _put_llmc_on_path(self) -> None:
        program = self.directory / "bin" / "llmc"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\ntest ! -e "{self.variables}" || . "{self.variables}"\n'
            f'exec "{sys.executable}" -P -m llmc "$@"\n'
        )
        program.chmod(0o755)

    def remedy(self, *commands: str) -> None:
        """Set the remediation prompt, with the fix: the scripted agent cannot find the cause itself."""
        lines = ["Fix the failure described below.", *(f"@sh {command}" for command in commands)]
        self.llmc("config", "set", "overseer.remediation_prompt", "\n".join(lines))

    def task(self, number: int, *lines: str, after: tuple[int, ...] = (), expected: bool = True) -> None:
        """Write a task file as a client does; without lines, the task is one commit."""
        body = {
            "id": str(number),
            "subject": f"Do {number}",
            "description": "\n".join(lines) or self.commit(number),
            "status": "pending",
            "blocks": [],
            "blockedBy": [str(other) for other in after],
        }
        part = self.tasks / f".{number}.new"
        part.write_text(json.dumps(body))
        then = time.time() - 60  # a new file might be an agent's, and would wait
        os.utime(part, (then, then))
        part.rename(self.tasks / f"{number}.json")
        if expected:
            self.expected.add(number)

    def task_files(self) -> list[Path]:
        return list(self.tasks.glob("*.json"))

    def commit(self, number: int, *, before: str = "true", file: str = "") -> str:
        """For an agent: make a commit and record it, to detect its loss; report if the work is already there."""
        name = file or f"file-{number}"
        return (
            f"@sh {before}; echo {number} > {name}; git add --all; "
            f"if git diff --cached --quiet; then llmc report done --no-changes 'already done'; "
            f"else {_COMMIT} 'Task {number}' && git rev-parse HEAD >> {self.marks}/made; fi"
        )

    def person(self, file: str) -> str:
        """For an agent: wait until the user has changed the same file on the default branch."""
        asked = self.marks / f"{_PERSON_CHANGES}{file}"
        return f"touch {asked}; while test -e {self.running} && test -e {asked}; do sleep 0.05; done"

    def _play_person(self) -> None:
        """Change the files that agents wait for; tries again at the next call if git was busy."""
        for asked in self.marks.glob(f"{_PERSON_CHANGES}*"):
            file = asked.name.removeprefix(_PERSON_CHANGES)
            (self.source / file).write_text(f"by a person {time.time_ns()}\n")
            git.git(self.source, "add", file, check=False)
            commit = [*PERSON.split(), "commit", "--quiet", "-m", "By a person", "--", file]
            if git.git(self.source, *commit, check=False).ok:
                asked.unlink()

    def half(self, number: int, then: str) -> str:
        """For an agent, once: uncommitted work that must not be lost, then `then`."""
        words = f"half of task {number}, in {self.directory.name}"
        tried = self.marks / f"tried-{number}"
        self.precious[words] = written = self.marks / f"wrote-{number}"
        write = f"touch {tried}; echo {words} > half-{number}; touch {written}"
        return f"@sh test -e {tried} || {{ {write}; {then}; }}"

    def gate(self, name: str) -> str:
        """For an agent: wait until the drill opens the gate."""
        path = self.marks / name
        return f"touch {path}.reached; while test -e {self.running} && ! test -e {path}; do sleep 0.05; done"

    def open(self, name: str) -> None:
        (self.marks / name).touch()

    def reached(self, name: str) -> None:
        self.until(lambda: (self.marks / f"{name}.reached").exists(), f"an agent reached {name}")

    # -- running

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise DrillFailed(f"expected: {what}")

    def llmc(self, *args: str, check: bool = True) -> str:
        argv = [sys.executable, "-P", "-m", "llmc", *args]
        done = proc.run(argv, cwd=self.source, env=self.env, timeout_s=120, check=False)
        if check and not done.ok:
            raise DrillFailed(
                f"`llmc {' '.join(args)}` exited with code {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def supervise(self, *, ready: bool = True) -> None:
        """Run `llmc overseer`; with `ready`, wait until its first daemon is ready."""
        argv = [sys.executable, "-P", "-m", "llmc", "overseer"]
        self._supervisor = proc.spawn_detached(argv, self.directory / "overseer.out", self.env)
        if ready:
            self.daemon()

    @property
    def supervisor_pid(self) -> int:
        assert self._supervisor is not None
        return self._supervisor.pid

    def said(self) -> str:
        """The supervisor's output."""
        path = self.directory / "overseer.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def daemon(self, other_than: int = 0) -> int:
        """The pid of a ready daemon."""
        return self.until(lambda: self.ready_daemon(other_than), "a daemon is ready")

    def ready_daemon(self, other_than: int = 0) -> int:
        """The pid of a ready daemon, without waiting; 0 if there is none."""
        found = registration(self.root)
        if found is None or not found.ready or found.pid in (None, other_than):
            return 0
        return found.pid if processes.is_alive(found.pid) else 0

    def project(self) -> Project:
        return open_project(str(self.root))

    def agent_pid(self, worker: str) -> int:
        """The pid of an agent."""
        project = self.project()
        of = for_overseer(project) if worker == OVERSEER else project
        pane = of.pane(of.store.worker(worker))
        pid = getattr(pane, "pid", 0)
        if not pid:
            raise DrillFailed(f"{worker} has no session")
        return int(pid)

    def at_work(self, *remedy: str, **settings: str) -> int:
        """Start a fleet whose agent has uncommitted work and waits at the gate `go`; returns the daemon's pid."""
        self.create(**settings)
        if remedy:
            self.remedy(*remedy)
        self.task(1, self.half(1, self.gate("go")), self.commit(1))
        return self.supervise_to("go")

    def supervise_to(self, gate: str) -> int:
        """Run the supervisor until an agent reaches the gate; returns the daemon's pid."""
        self.supervise()
        self.reached(gate)
        return self.daemon()

    def kill_agent(self) -> None:
        """Kill the only agent while it waits at the gate `go`, then open the gate."""
        self.breaks_now()
        os.kill(self.agent_pid("auto-1"), signal.SIGKILL)
        self.detected("agent_exited")
        self.open("go")

    def state_is_mine(self) -> AbstractContextManager[None]:
        """Lock the state, so that no other process writes it and undoes the damage."""
        return locks.lock(self.project().root.lock("state"), Rank.STATE)

    def end(self) -> None:
        """Stop everything."""
        self.running.unlink(missing_ok=True)
        if self._supervisor is not None:
            stop(self._supervisor, 60)
        self.llmc("down", "--force", check=False)
        with contextlib.suppress(LlmcError, OSError):
            self.project().tmux.kill_server()

    # -- watching

    def until(self, probe: Callable[[], T], what: str, limit_s: float = PATIENCE_S) -> T:
        """Wait until the probe returns something, and return that; play the user in the meantime."""
        deadline = monotonic() + limit_s
        while not (found := probe()):
            self._play_person()
            if monotonic() > deadline:
                raise DrillFailed(f"timed out after {limit_s:g} s; expected: {what}")
            time.sleep(POLL_S)
        return found

    def events(self, action: str, since: float = 0.0) -> list[dict[str, Any]]:
        rows = EventLog(str(self.root / root_layout.EVENTS)).since(since)
        return [row for row in rows if row.get("action") == action]

    def breaks_now(self) -> None:
        """Start the drill's clock."""
        self.fault_unix = now_unix()
        self._said_before = len(self.said())

    def detected(self, action: str, limit_s: float = PATIENCE_S, **fields: str) -> dict[str, Any]:
        """Wait for the event that shows that the fault was detected."""

        def found() -> dict[str, Any]:
            rows = self.events(action, self.fault_unix)
            return next((row for row in rows if all(row.get(k) == v for k, v in fields.items())), {})

        row = self.until(found, f"event {action} {fields or ''}", limit_s)
        self.detected_unix = float(row["ts"])
        return row

    def noticed(self, *words: str, limit_s: float = PATIENCE_S) -> None:
        """Wait for the supervisor's output about the fault."""
        before = self._said_before
        self.seen(
            lambda: any(all(word in line for word in words) for line in self.said()[before:].splitlines()),
            f"the supervisor says: {' '.join(words)}",
            limit_s,
        )

    def seen(self, probe: Callable[[], object], what: str, limit_s: float = PATIENCE_S) -> None:
        """Wait for a probe, and record that the fault was detected; for faults that no event shows."""
        self.until(lambda: bool(probe()), what, limit_s)
        self.detected_unix = now_unix()

    def all_landed(self, limit_s: float = PATIENCE_S) -> None:
        """Wait until every task landed and is completed; then the fleet has recovered."""
        self.until(lambda: set(self.landed()) >= self.expected, "every task landed", limit_s)
        self.until(lambda: self.completed() >= self.expected, "every task is completed")
        self.recovered_unix = now_unix()

    def ended(self, limit_s: float = PATIENCE_S) -> int:
        """Wait until the supervisor exits; returns its exit code."""
        assert self._supervisor is not None
        child = self._supervisor
        self.until(lambda: child.poll() is not None, "the supervisor exits", limit_s)
        return int(child.poll() or 0)

    def is_supervised(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is None

    def completed(self) -> set[int]:
        """Completed tasks by the ledger, because an overwritten state loses events.

        The task of a plan item counts under the number of the plan item.
        """
        books = TaskLedger(self.root / root_layout.TASKS_LEDGER).books()
        tasks = [TaskKey(name, task) for name, ids in books.completed.items() for task in ids]
        leaves = {task: _LEAF.match(books.subjects.get(task, "")) for task in tasks}
        return {int(leaf[1] if leaf else task.id) for task, leaf in leaves.items()}

    def landed(self) -> list[int]:
        """The tasks on the default branch, each as often as it landed."""
        done = git.git(self.source, "log", "-z", "--format=%s", "main", "--", check=False)
        return [int(s.removeprefix("Task ")) for s in git.rows(done.stdout) if s.startswith("Task ")]


def stop(child: proc.Child, limit_s: float) -> None:
    """Ask a process to stop, so that it stops its fleet first; kill it if it hangs."""
    if child.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGCONT)
        os.kill(child.pid, signal.SIGTERM)
    with contextlib.suppress(Exception):
        child.wait(limit_s)
    if child.poll() is None:
        child.kill()
        child.wait()


def overwrite(path: Path, text: str) -> None:
    """Replace the file atomically, as an editor does."""
    part = path.with_name(f".{path.name}.drill")
    part.write_text(text)
    part.rename(path)
