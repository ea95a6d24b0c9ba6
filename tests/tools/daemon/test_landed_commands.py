"""A fleet node and the post-accept commands in the database: an accept's own, and those it takes over."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from llmc.auto import attend
from llmc.auto.auto_run import Run
from llmc.auto.usage import Spending
from llmc.base.names import TaskKey
from llmc.config.edit import set_value
from llmc.daemon.node import Node
from llmc.fleet import nodes
from llmc.landing.accept import accept
from llmc.records.state import due_fields
from llmc.records.transitions import step
from llmc.records.worker import Assignment, Status
from llmc.repo.project import Project
from llmc.sessions.rules.decide import FOUND_COMMITS
from llmc.tasks import queue
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import source_of
from llmc.tasks.task_list import add
from tests.support.remotes import BareRemote
from tests.support.repos import Worktree, add_worker, make_project, project_at, run_git

WORKER = "w1"


class Crash(Exception):
    """The process dies between two steps."""


class AtOnce(ThreadPoolExecutor):
    """What a heartbeat starts is over when it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Machine:
    """A root that is a node, with the part of its daemon that stays in touch with the fleet."""

    def __init__(self, place: Path, database: str, command: bool = True) -> None:
        bare = BareRemote(place / "remote.git")
        run_git(place, "clone", "-q", str(bare.path), "src")
        made = make_project(str(place / "src"), place / "root")
        settings = {"fleet.database": database, "fleet.node": "one", "fleet.remote": str(bare.path)}
        self.ran = place / "ran"
        if command:
            settings["auto.post_accept_command"] = f"echo $LLMC_TASK_ID >> {self.ran}"
        for key, value in {**settings, "auto.task_list_id": "plan"}.items():
            set_value(made.root.config, key, value)
        self.project: Project = project_at(place / "root")
        nodes.init(self.project)
        nodes.join(self.project, str(bare.path), ["0" * 40])
        self.database = database
        _, self.worktree = add_worker(self.project, WORKER)
        self.node = self._node()
        self.node.start()

    def _node(self) -> Node:
        told = {"on_change": lambda: None, "look_again": lambda *_: None, "say": lambda _: None}
        run = Run(queue.open_queue(self.project), (WORKER,), spending=Spending(), **told)

        def run_post_accepts() -> None:
            attend.run_due(self.project)

        of_daemon = (lambda: None, lambda: self.project, run_post_accepts, lambda: True)
        return Node(self.project, run, logging.getLogger("test"), AtOnce(1), *of_daemon)

    def beat(self) -> None:
        self.node._look(self.project.store.read())

    def work(self) -> TaskKey:
        """The worker has a commit for a new task."""
        source = source_of(self.project)
        key = source.key(add(source, Draft("One", "Do one")).id)
        claim = source.claim(key, WORKER, "One")
        assert claim is not None
        commit = Worktree(self.worktree.path).commit("one.txt", "one\n", "One")
        task = Assignment(task_id=key.id, task_list=key.list, claim=claim.id, since_unix=0.0)
        with self.project.store.transaction() as tx:
            tx.move(WORKER, step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=commit))
            tx.update(WORKER, assignment=task)
        return key

    def accept(self, before_step: Callable[[str], None] = lambda _: None) -> None:
        with self.project.worker_lock(WORKER):
            accept(self.project, WORKER, before_step)

    def runs(self) -> list[str]:
        return self.ran.read_text().split() if self.ran.exists() else []

    def listed(self) -> list[tuple[str, bool]]:
        """In the database: the task, and whether its command is wanted."""
        with psycopg.connect(self.database) as db:
            rows = db.execute("select task, wanted from llmc.post_accept order by task").fetchall()
        return [(str(task), bool(wanted)) for task, wanted in rows]

    def status(self) -> str:
        return str(self.project.store.worker(WORKER).status)


@pytest.fixture
def machine(tmp_path: Path, database: str) -> Iterator[Machine]:
    made = Machine(tmp_path, database)
    yield made
    made.node.stop()


def test_a_command_waits_for_the_accept_that_landed_its_task(machine: Machine) -> None:
    """Break: take over each of this node's commands that the state does not list;
    or read the state before the database.
    """
    task, seen = machine.work(), list[tuple[str, list[str]]]()

    def look(at: str) -> None:
        listed = machine.listed()
        machine.beat()
        if listed:
            seen.append((at, machine.runs()))

    machine.accept(look)
    assert seen == [("reset", []), ("finish", [])], "listed, and left to the accept"
    assert machine.status() == "idle"
    machine.beat()
    machine.beat()
    assert (machine.runs(), machine.listed()) == ([task.id], [])


@pytest.mark.parametrize("at", ["reset", "finish"])
def test_after_a_crash_the_resumed_accept_enters_it(machine: Machine, at: str) -> None:
    """Break: run it as soon as the process is gone: its worker still has the work."""
    task = machine.work()

    def die(step: str) -> None:
        if step == at:
            raise Crash

    with pytest.raises(Crash):
        machine.accept(die)
    machine.beat()
    assert (machine.runs(), machine.listed()) == ([], [(task.id, True)])
    machine.accept()
    assert [due.task for due in machine.project.store.read().auto.due] == [task]
    machine.beat()
    assert (machine.runs(), machine.listed()) == ([task.id], [])


@pytest.mark.parametrize("lost", ["entry", "journal"])
def test_a_command_that_neither_state_nor_accept_has_is_taken_over(machine: Machine, lost: str) -> None:
    """Break: leave it to an accept that is over, or to one that has landed nothing yet."""
    task = machine.work()

    def die(step: str) -> None:
        if lost == "journal" and step == "reset":
            raise Crash

    if lost == "journal":
        with pytest.raises(Crash):
            machine.accept(die)
        with machine.project.store.transaction() as tx:
            tx.update(WORKER, accept=None)
    else:
        machine.accept()
        with machine.project.store.transaction() as tx:
            tx.update_auto(**due_fields(()))
    machine.beat()
    assert (machine.runs(), machine.listed()) == ([task.id], [])


def test_the_command_of_a_lost_node_runs_though_its_task_is_about_to_land_again(machine: Machine) -> None:
    """It was undone, and taken by a worker here. Break: leave it to that accept, which waits for it."""
    task, seen = machine.work(), list[list[str]]()
    with psycopg.connect(machine.database) as db:
        row = (task.list, task.id)
        db.execute("insert into llmc.post_accept values (%s, %s, 'far/w', 'far', now(), true)", row)

    def look(at: str) -> None:
        if at == "check":
            machine.beat()
            seen.append(machine.runs())

    machine.accept(look)
    assert seen == [[task.id]]


def test_a_command_that_two_entered_runs_once(machine: Machine) -> None:
    """An accept, and a heartbeat that just saw the row. Break: run each entry without asking the database."""
    task = machine.work()
    machine.accept()
    with machine.project.store.transaction() as tx:
        tx.update_auto(**due_fields((*tx.state.auto.due, *tx.state.auto.due)))
    machine.beat()
    assert (machine.runs(), machine.project.store.read().auto.due) == ([task.id], ())


def test_without_a_command_the_row_of_an_accept_stays_until_it_has_finished(
    tmp_path: Path, database: str
) -> None:
    """Break: end each row that the state does not list."""
    machine, seen = Machine(tmp_path, database, command=False), list[str]()
    machine.work()

    def look(at: str) -> None:
        machine.beat()
        if machine.listed():
            seen.append(at)

    machine.accept(look)
    attend.run_due(machine.project)  # a lane, which forgets it
    assert (seen, machine.listed()) == (["reset", "finish"], [])
    machine.node.stop()
