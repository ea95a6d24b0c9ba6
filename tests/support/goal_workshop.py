"""Goals below the command line: a real store, task files and ledger, manual ticks, and simulated workers."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.base.names import SessionName, TaskId, WorkerName
from llmc.config.goal_options import Goals
from llmc.config.model import Auto, Config, Overseer, Repo
from llmc.config.paths import Root
from llmc.goals import dispatch, runner, signals, work
from llmc.goals.dispatch import Done
from llmc.goals.drive.intents import REASSIGN, WITHDRAW, WORK, Action
from llmc.goals.goals import open_store
from llmc.goals.model import Assignment, Change, Dispatch, GoalView, Mode
from llmc.goals.runner import Runner
from llmc.goals.ticks import Ticked
from llmc.records.books import Claim
from llmc.records.task import Task
from llmc.records.worker import Assignment as WorkersTask
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import Project, bare_project
from llmc.tasks import claude_files
from llmc.tasks import queue as claiming
from llmc.tasks.claude_files import open_files
from llmc.tasks.queue import TaskQueue
from tests.support.goal_world import START, goal, plan

GOAL = "goal_1"
LEAF = "S1.1.1"


class Clock:
    """The time used by the runner and by what it observes."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def set_up(self, monkeypatch: pytest.MonkeyPatch) -> "Clock":
        for module in (runner, signals, work, claiming, claude_files):
            monkeypatch.setattr(module, "now_unix", self)
        monkeypatch.setattr(runner, "monotonic", self)  # otherwise each step would look like a clock jump
        return self


def project_in(directory: Path, **goals: Any) -> Project:
    """A root with a task list and no worker."""
    directory.mkdir(parents=True, exist_ok=True)
    config = Config(
        repo=Repo(source=str(directory)),
        auto=Auto(task_list_id="plan", tasks_root=str(directory / "tasks")),
        overseer=Overseer(goals=Goals(enabled=True, **goals)),
    )
    return replaced(bare_project(Root(directory)), config=config)


class Workshop:
    """One root, with `leaves` leaves in one task."""

    def __init__(self, directory: Path, leaves: int = 1, **goals: Any) -> None:
        self.project = project_in(directory, **goals)
        self.runner = Runner(self.project)
        self.store = open_store(self.project)
        self.source = open_files(self.project)
        self.files = self.source.files
        self.source.prepare()
        self.project.store.create()
        nodes = plan(1, 1, leaves, chained=False)
        self.store.apply(Change(goal=goal(), nodes=tuple(nodes.values())))

    @property
    def view(self) -> GoalView:
        return self.store.view(GOAL)

    def one(self, leaf: str = LEAF) -> Assignment:
        return next(a for a in self.view.assignments.values() if a.work_node_id == leaf)

    def history(self, leaf: str = LEAF) -> tuple[Dispatch, ...]:
        return self.one(leaf).dispatch_history

    def tick(self) -> Ticked:
        return self.runner.tick(self.project, "test")

    def pass_time(self, clock: Clock, seconds: float) -> list[str]:
        """Ticks as often as a daemon's, and often enough not to look like a sleep."""
        sent: list[str] = []
        until = clock.now + seconds
        while clock.now < until:
            clock.now = min(until, clock.now + min(300.0, self.project.config.overseer.goals.tick_every))
            sent += self.tick().actions
        return sent

    def restarted(self) -> None:
        """Drop everything in memory."""
        self.runner = Runner(self.project)

    def tasks(self) -> dict[str, Task]:
        return {str(task.id): task for task in open_files(self.project).listing().tasks.values()}

    def queue(self) -> TaskQueue:
        return TaskQueue(self.source)

    def take(self, worker: str = "auto-1") -> tuple[Task, Claim] | None:
        """Take the task as auto mode does."""
        return self.queue().take_next(worker, ())

    def complete(self, claim: Claim) -> None:
        self.source.finish(claim, "")

    def perform(self, action: Action) -> Done:
        return dispatch.perform(
            self.project, action, self.view.goal, self.view.nodes.get(action.work_node_id)
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        with self.store.reading() as found:
            return [dict(event.data) for _, event in found.events() if event.type == kind]

    def told(self, action: str) -> list[dict[str, Any]]:
        path = self.project.root.events
        rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        return [row for row in rows if row["action"] == action]


def action(dispatch_id: str = "D1", purpose: str = WORK, **fields: Any) -> Action:
    kept = {
        "goal_id": GOAL,
        "assignment_id": "A1",
        "work_node_id": LEAF,
        "mode": Mode.SPAWN,
        "text": "Do it.",
    }
    return Action(dispatch_id=dispatch_id, purpose=purpose, **{**kept, **fields})


def instead(dispatch_id: str, *others: str) -> Action:
    return action(dispatch_id, REASSIGN, replaces=others)


def withdraw(*others: str, dispatch_id: str = "W1") -> Action:
    return action(dispatch_id, WITHDRAW, replaces=others)


def fail(shop: Workshop, claim: Claim, **more: Any) -> None:
    shop.source.release(claim, "it failed", cause="agent", counts=True, **more)


def set_goal(shop: Workshop, **fields: Any) -> None:
    shop.store.apply(Change(goal=replace(shop.view.goal, **fields)))


def task_id(done: Done) -> TaskId:
    assert done.run_id, done
    return TaskId(done.run_id)


def worker_at(shop: Workshop, claim: Claim, since: float = 1.0, transcript: Path | None = None) -> str:
    """A worker's record with the task, as auto mode writes it."""
    record = WorkerRecord(
        name=WorkerName(claim.worker),
        worktree_path=str(shop.project.root.path / "worktree"),
        branch=claim.worker,
        session_id=SessionName(claim.worker),
        created_at_unix=1.0,
        status=Status.WORKING,
        transcript_path=str(transcript or shop.project.root.path / "transcript.jsonl"),
        assignment=WorkersTask(
            task_id=claim.task.id, task_list=claim.task.list, claim=claim.id, since_unix=since
        ),
    )
    with shop.project.store.transaction() as tx:
        tx.put(record)
    return record.name
