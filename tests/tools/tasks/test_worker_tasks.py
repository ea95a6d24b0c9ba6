"""A task created by a worker's session cannot be taken at any moment before the user has approved it."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from llmc.agents.kinds import waiting
from llmc.base import faults
from llmc.base.errors import Refused
from llmc.base.names import OVERSEER, TaskId
from llmc.records.worker import Assignment
from llmc.repo.project import Project, for_overseer, open_project
from llmc.sessions.intake import apply_pending
from llmc.supervisor.remediation import own_session
from llmc.tasks import queue as task_queue
from llmc.tasks import task_list, task_orders, worker_tasks
from llmc.tasks.queue import TaskQueue
from llmc.tasks.rules.claims import ANNOUNCED_S, GRACE_S, MOST_ACCEPTED
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import source_of
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

WORKER = "adam"


class Session:
    """What a worker's client does when its agent creates a task, step by step."""

    def __init__(self, fleet: Fleet, config: Path) -> None:
        self.project: Project = open_project(str(fleet.root))
        self.folder = config / "tasks/plan"
        self.folder.mkdir(parents=True)
        self.inbox = fleet.root / f".llmc/inbox/{WORKER}"
        self.inbox.mkdir(parents=True, exist_ok=True)
        at = Assignment(task_id=TaskId("1"), claim="c1", since_unix=time.time())
        with self.project.store.transaction() as tx:
            tx.put(replace(tx.worker(WORKER), instance="i1", assignment=at))

    def hook(self, name: str, ago_s: float = 0.0, worker: str = WORKER, **payload: str) -> None:
        payload["hook_event_name"] = name
        envelope = {"worker": worker, "instance": "i1", "payload": payload}
        event = self.inbox / f"{time.time_ns() - int(ago_s * 1e9)}-{os.getpid()}.json"
        event.with_suffix(".part").write_text(json.dumps(envelope))
        event.with_suffix(".part").rename(event)

    def unreadable(self, ago_s: float = 0.0) -> None:
        """A hook that cannot be read, as one that is longer than the sender reads."""
        event = self.inbox / f"{time.time_ns() - int(ago_s * 1e9)}-{os.getpid()}.json"
        event.write_text(f'{{"worker":"{WORKER}","instance":"i1","payload":{{"hook_event_name":"PreToo')

    def write(self, number: int, **more: Any) -> None:
        task = {"id": str(number), "subject": f"Task {number}", "description": "", "status": "pending"}
        path = self.folder / f"{number}.json"
        path.write_text(json.dumps({**task, "blocks": [], "blockedBy": [], **more}))

    def make(self, number: int) -> None:
        self.hook("PreToolUse", tool_name="TaskCreate")
        self.write(number)
        self.hook("TaskCreated", task_id=str(number), task_subject=f"Task {number}")

    def apply(self) -> None:
        with self.project.worker_lock(WORKER):
            apply_pending(self.project, WORKER)

    def hold(self, number: int) -> str | None:
        task = json.loads((self.folder / f"{number}.json").read_text())
        return task.get("metadata", {}).get("llmc", {}).get("hold")


@pytest.fixture
def session(scripted: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    return Session(scripted.set_up(WORKER, config={"auto.task_list_id": "plan"}), tmp_path / "client")


def ready(queue: TaskQueue) -> int:
    return queue.count_ready()


def older(session: Session, number: int, ago_s: float = 2 * GRACE_S) -> None:
    """Make it old enough that an unknown file's grace period is over."""
    past = time.time() - ago_s
    os.utime(session.folder / f"{number}.json", (past, past))


def test_at_no_moment(session: Session) -> None:
    """Break: leave the announced out of Origins, `named` out of is_undecided,
    or the hold out of claims.taken.
    """
    queue = task_queue.open_queue(session.project)
    session.hook("PreToolUse", ago_s=3 * GRACE_S, tool_name="TaskCreate")
    session.write(2)
    older(session, 2)
    assert ready(queue) == 0, "its hook is in the inbox"
    session.apply()
    assert ready(queue) == 0, "its hook was applied; the task has no name yet"
    assert queue.unsettled
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    assert ready(queue) == 0, "it has a name, and is not marked yet"

    # A reader from before the mark, that checks the announcements afterwards, is stopped by the file.
    seen = queue.source.listing().tasks[TaskId("2")]
    session.apply()
    assert queue.source.claim(queue.source.key(seen.id), "auto-1") is None

    assert (ready(queue), session.hold(2)) == (0, "proposed")
    assert json.loads((session.folder / "2.json").read_text())["metadata"]["llmc"]["by"] == {
        "worker": WORKER,
        "task": "1",
        "root": str(session.project.root.path),
    }
    assert not session.project.store.worker(WORKER).announced_tasks
    task_orders.approve(session.project, "2")
    assert ready(queue) == 1


def test_a_name_that_waited_for_hours(session: Session) -> None:
    """Break: leave `named` out of is_undecided. No daemon ran;
    the first worker must not be faster than the inbox.
    """
    session.make(2)
    for event in session.inbox.iterdir():
        if "PreToolUse" in event.read_text():
            event.unlink()
    older(session, 2, ago_s=3600)
    queue = task_queue.open_queue(session.project)
    assert ready(queue) == 0
    session.apply()
    assert (ready(queue), session.hold(2)) == (0, "proposed")
    left = session.inbox.with_name("gone")
    left.mkdir()
    session.write(3)
    older(session, 3)
    envelope = {
        "worker": "gone",
        "instance": "",
        "payload": {"hook_event_name": "TaskCreated", "task_id": "3"},
    }
    (left / "1-1.json").write_text(json.dumps(envelope))
    assert ready(queue) == 1, "what a removed worker left is never applied"


def test_a_crash_after_the_mark(session: Session) -> None:
    """Break: mark again what is marked; a task that the user has approved since would be proposed again."""
    for number in (2, 3):
        session.make(number)
    record, events = session.project.store.worker(WORKER), waiting(session.project.root, WORKER, "claude")
    worker_tasks.mark(session.project, record, events)
    assert (session.hold(2), session.hold(3)) == ("proposed", "proposed")
    task_orders.approve(session.project, "2")
    session.apply()
    assert (session.hold(2), session.hold(3)) == (None, "proposed")
    rows = map(json.loads, session.project.root.events.read_text().splitlines())
    assert [row["task_id"] for row in rows if row["action"] == "task_proposed"] == ["3"]


def test_files_that_nobody_announced(session: Session) -> None:
    """Break: make GRACE_S a minute; a user's hand-written task would wait that long."""
    queue = task_queue.open_queue(session.project)
    session.write(2)
    task_list.add(queue.source, Draft("Task 3"))
    found = queue.take_next("auto-1", ())
    assert found is not None
    assert found[0].id == "3", "llmc's own files need no grace period"
    wait_until(lambda: ready(queue) == 1)
    assert time.time() - (session.folder / "2.json").stat().st_mtime >= GRACE_S
    assert session.hold(2) is None


def test_accepted_up_to_a_number_and_off_is_no_way_around(session: Session) -> None:
    """Break: let hold_for ignore `made`; or forget to count in intake."""
    for setting, accepted in {"accept": MOST_ACCEPTED, "off": 0}.items():
        with session.project.store.transaction() as tx:
            at = tx.worker(WORKER).assignment
            assert at is not None
            tx.update(WORKER, assignment=replace(at, made=0))
        config = session.project.config
        session.project = changed(
            session.project, config=replace(config, auto=replace(config.auto, worker_tasks=setting))
        )
        numbers = range(10, 10 + MOST_ACCEPTED + 2)
        for number in numbers:
            session.make(number)
            if number % 3 == 0:
                session.apply()
        session.apply()
        held = [number for number in numbers if session.hold(number) == "proposed"]
        assert held == list(numbers)[accepted:]


def test_a_list_that_is_not_the_agents_own_is_left_alone(session: Session, tmp_path: Path) -> None:
    """Break: mark by number alone; the task of the same number in another list would be held."""
    other = tmp_path / "elsewhere/plan"
    other.mkdir(parents=True)
    session.write(2)
    (session.folder / "2.json").rename(other / "2.json")
    config = session.project.config
    session.project = changed(
        session.project, config=replace(config, auto=replace(config.auto, tasks_root=str(other.parent)))
    )
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.apply()
    assert "metadata" not in json.loads((other / "2.json").read_text())


FORGED: dict[str, Any] = {
    "by": "person",
    "claim": "c9",
    "verify": "touch /tmp/never",
    "budget": {"max_cost": 1},
    "goal": {"goalId": "g", "workNodeId": "n", "assignmentId": "a", "dispatchId": "D1"},
    "key": "pool-1",
}


def test_metadata_of_the_agents_own(session: Session) -> None:
    """Break: let `made_by_worker` trust the file's `by` or `claim`, as before;
    or `is_undecided` trust `task.ours`.
    """
    queue = task_queue.open_queue(session.project)
    session.hook("PreToolUse", ago_s=3 * GRACE_S, tool_name="TaskCreate")
    session.write(2, metadata={"llmc": FORGED})
    older(session, 2)
    assert ready(queue) == 0, "its hook is in the inbox"
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    assert ready(queue) == 0
    session.apply()
    assert (ready(queue), session.hold(2)) == (0, "proposed")
    (task,) = task_list.believed_tasks(queue.source)
    assert (task.verify, task.budget, task.dispatch, task.pool_key) == ("", None, "", "")
    # Removed by the agent: no worker takes it, and the file says so again.
    session.write(2)
    older(session, 2)
    assert (ready(queue), queue.take_next("auto-1", ())) == (0, None)
    assert session.hold(2) == "proposed"
    (session.folder / "2.json").unlink()
    session.write(2, metadata={"llmc": {"by": "person"}})
    older(session, 2)
    again = task_queue.open_queue(open_project(str(session.project.root.path)))
    assert again.take_next("auto-1", ()) is None, "nor does a daemon that starts now"


def test_what_a_person_approved_is_what_counts(session: Session) -> None:
    """Break: trust the file of an approved task; the agent changes `verify` after the user's approval."""
    session.write(2, metadata={"llmc": {"verify": "make test"}})
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.apply()
    older(session, 2)
    task_orders.approve(session.project, "2")
    queue = task_queue.open_queue(session.project)
    session.write(2, metadata={"llmc": {**FORGED, "claim": ""}})
    older(session, 2)
    found = queue.take_next("auto-1", ())
    assert found is not None
    assert (found[0].verify, found[0].budget, found[0].dispatch) == ("make test", None, "")
    assert queue.source.books().dispatches == {}


def test_an_accepted_one_is_not_believed_either(session: Session) -> None:
    """Break: use `believed` only for proposed tasks: `accept` lets tasks through, not their commands."""
    config = session.project.config
    session.project = changed(
        session.project, config=replace(config, auto=replace(config.auto, worker_tasks="accept"))
    )
    session.write(2, metadata={"llmc": FORGED})
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.apply()
    older(session, 2)
    found = task_queue.open_queue(session.project).take_next("auto-1", ())
    assert found is not None
    assert (found[0].verify, found[0].budget, found[0].dispatch, found[0].part) == ("", None, "", "")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_hook_that_was_lost(session: Session, restarted: bool) -> None:
    """Break: release unnamed tasks once ANNOUNCED_S is over; one could be taken 15 s after it was created."""
    queue = task_queue.open_queue(session.project)
    session.hook("PreToolUse", ago_s=ANNOUNCED_S + 5, tool_name="TaskCreate")
    session.apply()
    session.write(2, metadata={"llmc": FORGED})
    older(session, 2, ago_s=ANNOUNCED_S + 4)
    session.write(3)
    older(session, 3, ago_s=3600)
    if restarted:
        queue = task_queue.open_queue(open_project(str(session.project.root.path)))
    assert ready(queue) == 1
    found = queue.take_next("auto-1", ())
    assert found is not None
    assert found[0].id == "3", "a user's own, from long ago"
    assert (queue.take_next("auto-2", ()), session.hold(2)) == (None, "proposed")
    # The hook finally comes, after the user has approved it.
    task_orders.approve(session.project, "2")
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.apply()
    assert session.hold(2) is None


def test_half_a_character_in_what_an_agent_proposes(session: Session) -> None:
    """JavaScript writes it as an escape. Break: decode hooks with msgspec alone: the task counts as the user's own."""
    queue = task_queue.open_queue(session.project)
    half = "cut \ud83d"
    session.hook("PreToolUse", ago_s=3 * GRACE_S, tool_name="TaskCreate", tool_input=half)
    session.write(2, description=half)
    older(session, 2)
    assert ready(queue) == 0, "its hook is in the inbox"
    session.apply()
    assert ready(queue) == 0, "its hook was applied"
    session.hook("TaskCreated", task_id="2", task_subject="Task 2", task_description=half)
    session.apply()
    assert (ready(queue), session.hold(2)) == (0, "proposed")


@pytest.mark.parametrize("applied", [False, True])
def test_a_hook_that_cannot_be_read_may_have_announced_a_task(session: Session, applied: bool) -> None:
    """Break: leave Malformed out of `Origins._announced` (False), or `decide.unreadable` out of intake (True);
    or put it into `announced_tasks`, from which the next task's name takes it away.
    """
    queue = task_queue.open_queue(session.project)
    session.unreadable(ago_s=3 * GRACE_S)
    if applied:
        session.apply()
    session.write(2)
    older(session, 2)
    assert (ready(queue), queue.unsettled) == (0, True), "a hook may still name it"
    for event in session.inbox.iterdir():
        event.unlink()
    with session.project.store.transaction() as tx:
        tx.update(WORKER, announced_tasks=(), unread_hooks=())
    session.unreadable(ago_s=ANNOUNCED_S + 5)
    older(session, 2, ago_s=ANNOUNCED_S + 4)
    session.make(4)  # its hooks say nothing about the other
    if applied:
        session.apply()
    session.write(3)
    older(session, 3, ago_s=3600)
    found = queue.take_next("auto-1", ())
    assert found is not None
    assert found[0].id == "3", "a user's own, from long ago"
    assert (queue.take_next("auto-2", ()), session.hold(2)) == (None, "proposed")


def test_a_crash_between_the_approval_and_the_file(session: Session) -> None:
    """Break: trust only the file in the queue: an approved task would wait forever."""
    session.make(2)
    session.apply()
    older(session, 2)
    before = (session.folder / "2.json").read_bytes()
    task_orders.approve(session.project, "2")
    (session.folder / "2.json").write_bytes(before)
    queue = task_queue.open_queue(session.project)
    assert queue.take_next("auto-1", ()) is not None


def test_it_is_approved_in_the_root_whose_worker_made_it(session: Session, tmp_path: Path) -> None:
    """Break: let any root approve it: the first one does not know, and holds it again."""
    session.make(2)
    session.apply()
    path = session.folder / "2.json"
    path.write_text(path.read_text().replace(str(session.project.root.path), "/elsewhere"))
    session.project.root.tasks_ledger.unlink()
    with pytest.raises(Refused, match="a worker in another root") as raised:
        task_orders.approve(session.project, "2")
    assert "llmc --root /elsewhere tasks approve 2" in raised.value.hint


def test_in_a_list_of_its_own_nothing_is_an_agents(session: Session, tmp_path: Path) -> None:
    """Break: use announcements even where agents create tasks elsewhere: a user's task would be proposed."""
    other = tmp_path / "elsewhere/plan"
    other.mkdir(parents=True)
    config = session.project.config
    session.project = changed(
        session.project, config=replace(config, auto=replace(config.auto, tasks_root=str(other.parent)))
    )
    session.hook("PreToolUse", ago_s=ANNOUNCED_S + 5, tool_name="TaskCreate")
    session.apply()
    session.write(2)
    older(session, 2, ago_s=ANNOUNCED_S + 4)
    (session.folder / "2.json").rename(other / "2.json")
    assert task_queue.open_queue(session.project).take_next("auto-1", ()) is not None


def test_what_was_given_out_is_nobodys_new_task(session: Session) -> None:
    """A hook may name any number. Break: trust it for a task that a worker has."""
    session.write(2)
    older(session, 2)
    queue = task_queue.open_queue(session.project)
    assert queue.take_next("auto-1", ()) is not None
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.hook("TaskCreated", task_id="../../x", task_subject="x")
    session.apply()
    assert queue.source.books().made == {}


def test_a_session_that_tries_the_client_has_a_list_of_its_own(session: Session) -> None:
    """Its tasks have the numbers of other tasks. Break: leave `shares_the_list` out of intake."""
    with session.project.store.transaction() as tx:
        tx.update(WORKER, branch="", assignment=None)
    session.write(2)
    session.hook("TaskCreated", task_id="2", task_subject="Task 2")
    session.apply()
    assert session.hold(2) is None
    assert task_queue.open_queue(session.project).source.books().made == {}


@pytest.mark.req("4-005")
def test_what_the_supervisors_agent_makes_is_proposed_to_the_fleet(session: Session) -> None:
    """Even while the fleet's state cannot be written.

    Break: leave of_fleet, or the suppress, out of worker_tasks.mark.
    """
    own = for_overseer(session.project)
    with own_session(session.project):
        own.store.change(lambda tx: tx.put(replace(tx.worker(OVERSEER), instance="i1")))
    overseers = own.root.inbox / OVERSEER
    overseers.mkdir(parents=True)
    for number in (2, 3):
        session.write(number)
        session.hook("TaskCreated", worker=OVERSEER, task_id=str(number), task_subject=f"Task {number}")
        (event,) = session.inbox.iterdir()
        event.rename(overseers / event.name)
        if number == 3:
            session.project.root.state.write_text("{ broken")
        apply_pending(own, OVERSEER)
        assert session.hold(number) == "proposed"
    made = source_of(session.project).books().made
    assert [(key.id, one.worker, one.hold) for key, one in made.items()] == [
        ("2", OVERSEER, "proposed"),
        ("3", OVERSEER, "proposed"),
    ]


@pytest.fixture
def contained(session: Session) -> Session:
    """Its client has its own home, and none of its files is in the list."""
    with session.project.store.transaction() as tx:
        tx.update(WORKER, contained=True)
    return session


def told(session: Session, subject: str, **more: str) -> None:
    session.hook("TaskCreated", task_id="1", task_subject=subject, task_description="words", **more)


def listed(session: Session) -> dict[str, str]:
    return {
        task.subject: task.waits_for_a_person for task in source_of(session.project).listing().tasks.values()
    }


def test_the_task_of_a_contained_agent_is_taken_from_its_hook(contained: Session) -> None:
    """It has its own number, whatever number the agent says.

    Break: `_mark` for a contained worker: it would turn the user's task of that number into a proposal.
    """
    contained.write(1, metadata={"llmc": {}})
    for subject in ("Mine", "  ", "Second"):
        told(contained, subject)
        contained.apply()
    assert listed(contained) == {"Task 1": "", "Mine": "proposed", "Second": "proposed"}
    queue = task_queue.open_queue(contained.project)
    older(contained, 1)
    assert ready(queue) == 1, "what it announces concerns no file of the list"
    made = source_of(contained.project).books().made
    assert {(task.id, one.worker, one.hold) for task, one in made.items()} == {
        ("2", WORKER, "proposed"),
        ("3", WORKER, "proposed"),
    }


def test_what_a_contained_agent_makes_up_holds_up_no_task(contained: Session) -> None:
    """Break: count its announcements in Origins: it could hold back, or claim as its own, what a user writes.
    Or do not compare instances in worker_tasks.mark.
    """
    contained.hook("PreToolUse", ago_s=3 * GRACE_S, tool_name="TaskCreate")
    contained.write(2)
    older(contained, 2)
    queue = task_queue.open_queue(contained.project)
    assert ready(queue) == 1
    contained.apply()
    assert ready(queue) == 1
    with contained.project.store.transaction() as tx:
        tx.update(WORKER, instance="i2")
    told(contained, "Of another launch")
    contained.apply()
    assert listed(contained) == {"Task 2": ""}
    with contained.project.store.transaction() as tx:
        tx.update(WORKER, instance="i1")
    config = contained.project.config
    contained.project = replace(
        contained.project, config=replace(config, auto=replace(config.auto, worker_tasks="off"))
    )
    told(contained, "Without tools")
    contained.apply()
    assert listed(contained) == {"Task 2": ""}


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_a_told_task_is_added_adds_it_once(
    contained: Session, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Break: look for the event only in the books: the file was written first."""
    told(contained, "Mine")
    monkeypatch.setenv("LLMC_FAULT", f"task.made:{when}:fail")
    monkeypatch.setattr(faults, "_passed", Counter())
    with pytest.raises(faults.FaultInjected):
        contained.apply()
    monkeypatch.delenv("LLMC_FAULT")
    contained.apply()
    assert listed(contained) == {"Mine": "proposed"}
    assert [task.id for task in source_of(contained.project).books().made] == ["1"]


@pytest.mark.soak
def test_a_contained_agent_proposes_only_so_many(contained: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no limit: an agent can write hooks by the thousand."""
    monkeypatch.setattr(worker_tasks, "MOST_PROPOSED", 3)
    for number in range(6):
        told(contained, f"Task {number}")
    contained.apply()
    assert len(listed(contained)) == 3
