"""Tasks in the fleet's database: rows with their claims, and the ledger of all nodes.

A task's change and its ledger entry are one transaction, so nothing is ever half done. A claim has a token and a lease;
a node with an older token can no longer change the task.
"""

import contextlib
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.clock import monotonic
from llmc.base.errors import ClaimLost, NotFound, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskId, TaskKey
from llmc.fleet import statements
from llmc.fleet.database import DatabaseGone, Listening, fetched
from llmc.fleet.nodes import Membership, membership
from llmc.fleet.rules import Reading, books_of, full_name, own_name, split_name, storable, storable_json
from llmc.records.books import Action, Books, Claim, Made, fold
from llmc.records.task import Changes, Edit, Listing, Task, TaskStatus, Unreadable, in_order, is_id
from llmc.records.task_ledger import write_note
from llmc.repo.project import Project
from llmc.tasks.rules import claims
from llmc.tasks.source import TaskSource

if TYPE_CHECKING:
    from llmc.fleet.database import Rows

#: the hold of a task in the database while only the ledger has the task as completed
_COMPLETED = "completed"


def open_shared(project: Project) -> "SharedTasks":
    """The tasks of this root's fleet; one object for all callers in this process, because the books are long."""
    own, auto = membership(project), project.config.auto
    log = project.root.log("task_pool")
    settings = (auto.task_list_id, auto.crash_backoff_secs, log, bool(auto.post_accept_command))
    key = (own.database.address, own.node, own.lease_s, *settings)
    with _opening:
        if key not in _opened:
            _opened[key] = SharedTasks(own, *settings)
        return _opened[key]


_opened: dict[tuple[object, ...], "SharedTasks"] = {}
_opening = threading.Lock()


class Look(Struct, frozen=True):
    """What a node finds when it looks for tasks."""

    ready: int
    #: if none is ready: seconds until one whose agent crashed can start; 0: there is none
    after_crash_s: float


class SharedTasks(TaskSource):
    def __init__(
        self,
        own: Membership,
        list_name: str,
        crash_backoff_s: float = 0.0,
        log: Path | None = None,
        post_accept: bool = False,
    ) -> None:
        """`post_accept`: this node runs a command after each landing."""
        self._own = own
        self._db = own.database
        self._name = list_name
        self._backoff_s = crash_backoff_s
        self._log = log
        self._post_accept = post_accept
        self._lease = timedelta(seconds=own.lease_s)
        #: how far the ledger was read into the books; changed only inside `Database.do`
        self._read = Reading()
        #: the books of all nodes, with the full names of workers
        self._books = Books()
        #: the same books, as this node sees them
        self._shown = Books()
        #: tasks that new entries named since the last `changes`; None: any
        self._touched: set[TaskId] | None = None
        self._written: dict[str, float] = {}
        #: gets the reason when another node calls this one
        self.on_call: Callable[[str], None] = lambda reason: None
        self.newest_watch: Listening | None = None

    @property
    def list_name(self) -> str:
        return self._name

    def _values(self, task: TaskKey | None = None, **more: Any) -> dict[str, Any]:
        values = {"node": self._own.node, "lease": self._lease, "list": self._name, **more}
        if task is not None:
            values |= {"list": task.list or self._list(), "id": task.id}
        return values

    def _list(self) -> str:
        if not self._name:
            raise UsageError(
                "this root has no task list", hint="Set one: llmc config set auto.task_list_id my-project"
            )
        return self._name

    # Read

    def listing(self, list_name: str = "") -> Listing:
        rows = self._db.rows(statements.TASKS, {"list": list_name or self._list()})
        found = {row["id"]: self._task(row) for row in rows}
        return Listing({task_id: found[task_id] for task_id in sorted(found, key=in_order)})

    def changes(self) -> Changes:
        def work(rows: "Rows") -> set[TaskId] | None:
            self._catch_up(rows)
            touched, self._touched = self._touched, set()
            return touched

        touched = self._db.do(work, alone=True)
        try:
            if touched is None:
                return Changes(dict(self.listing().tasks))
            if not touched:
                return Changes()
            values = {"list": self._list(), "ids": list(touched)}
            found = {row["id"]: self._task(row) for row in self._db.rows(statements.SOME_TASKS, values)}
            return Changes({task_id: found.get(task_id) for task_id in touched})
        except BaseException:
            self._touched = None
            raise

    @property
    def unsettled(self) -> bool:
        return False

    @property
    def unreadable(self) -> list[Unreadable]:
        return []

    def one(self, task: TaskKey) -> Task:
        rows = self._db.rows(statements.TASK, self._values(task)) if is_id(task.id) else []
        if not rows or rows[0]["removed"]:
            raise _no_task(task)
        return self._task(rows[0])

    def written_unix(self, task_id: str) -> float:
        return self._written.get(task_id, 0.0)

    def _task(self, row: dict[str, Any]) -> Task:
        """The task in a row."""
        if row["list"] == self._name:
            self._written[row["id"]] = row["written_unix"]
        task = Task(
            id=TaskId(row["id"]),
            subject=row["subject"],
            description=row["description"],
            status=TaskStatus(row["status"]),
            blocked_by=tuple(sorted(map(TaskId, row["needs"]), key=in_order)),
            owner=own_name(self._own.node, row["owner"]),
            metadata=row["metadata"],
        )
        return task.with_ours(claim=str(row["claim"])) if row["claim"] is not None else task

    def prepare(self) -> None:
        self._list()
        self._db.rows("select")

    def watch(self) -> Listening:
        self.newest_watch = Listening(self._db, self._own.node, self.on_call)
        return self.newest_watch

    # Change

    def add(self, new: Task, by: str) -> Task:
        def work(rows: "Rows") -> tuple[Task, bool]:
            task = self._numbered(rows, new)
            return task, self._insert(rows, self.key(task.id), task, by)

        self._list()
        task, is_ready = self._db.do(work)
        self._tell_of_new(is_ready)
        return task

    def add_made(self, new: Task, made: Made) -> Task:
        """Add a task that an agent made, and its maker in the same transaction, so that it is not claimed before."""

        def work(rows: "Rows") -> Task:
            task = self._numbered(rows, new)
            key = self.key(task.id)
            self._insert(rows, key, task, made.worker)
            self._enter(rows, "made", Claim("", key, made.worker), made.told)
            self._notify(rows, key)
            return task

        self._list()
        return self._db.do(work)

    def _numbered(self, rows: "Rows", new: Task) -> Task:
        (row,) = fetched(rows.execute(statements.NEXT_NUMBER, self._values()))
        return replace(new, id=TaskId(str(row["highest"])))

    def _insert(self, rows: "Rows", key: TaskKey, task: Task, by: str) -> bool:
        """Insert a task; whether it is ready. If not, notify all nodes: it may be stuck, or wait for the user."""
        given = {"by": by, **_given(dispatch=task.dispatch, part=task.part, key=task.pool_key)}
        self._need(rows, key, task.blocked_by)
        kind, number, _ = in_order(task.id)
        rows.execute(
            statements.INSERT_TASK,
            {**self._columns(key, task, self._books), "number": number if kind == 0 else _AFTER_NUMBERS},
        )
        rows.execute(statements.ADD_NEEDS, self._values(key, ids=list(task.blocked_by)))
        self._block(rows, key, task.blocks)
        (counted,) = fetched(rows.execute(statements.COUNT_WAITS, self._values(key, ids=[key.id])))
        self._enter(rows, "created", Claim("", key, ""), given)
        is_ready = bool(counted["is_ready"]) and not task.blocks
        if not is_ready:
            self._notify(rows, key)
        return is_ready

    def _need(self, rows: "Rows", key: TaskKey, needed: Collection[str]) -> None:
        """Lock the tasks that a task needs: either their completion sees it, or it sees them completed."""
        if needed:
            rows.execute(statements.LOCK_NEEDED, self._values(key, ids=sorted(needed)))

    def _block(self, rows: "Rows", key: TaskKey, blocked: Collection[TaskId]) -> None:
        """Make other tasks wait for this one. A dependency is stored once, at the task that waits."""
        for other in sorted(blocked):
            rows.execute(statements.ADD_NEEDS, self._values(TaskKey(key.list, other), ids=[key.id]))
        if blocked:
            rows.execute(statements.COUNT_WAITS, self._values(key, ids=sorted(blocked)))

    def edit(self, task: TaskKey, edit: Edit) -> Task:
        def work(rows: "Rows") -> Task:
            before = self._locked(rows, task)
            if before is None:
                raise _no_task(task)
            after = self._edit(rows, task, before, edit)
            if after is not None:
                self._notify(rows, task)
            return after or before

        if not is_id(task.id):
            raise _no_task(task)
        return self._db.do(work)

    def _locked(self, rows: "Rows", task: TaskKey) -> Task | None:
        found = fetched(rows.execute(statements.LOCK_TASK, self._values(task)))
        return self._task(found[0]) if found and not found[0]["removed"] else None

    def _edit(
        self, rows: "Rows", task: TaskKey, before: Task, edit: Edit, wait_s: float | None = None
    ) -> Task | None:
        """Apply an edit. While claimed, a task keeps status and owner: what an agent calls completed has not landed."""
        after = edit(before)
        if after is None or after == before:
            return None
        if before.claim and after.claim == before.claim:
            after = replace(after, status=before.status, owner=before.owner)
        key = TaskKey(task.list or self._list(), task.id)
        needs = sorted({*after.blocked_by})
        if set(needs) != set(before.blocked_by):
            self._need(rows, key, needs)
            rows.execute(statements.DROP_NEEDS, self._values(key, ids=needs))
            rows.execute(statements.ADD_NEEDS, self._values(key, ids=needs))
            rows.execute(statements.COUNT_WAITS, self._values(key, ids=[key.id]))
        self._block(rows, key, after.blocks)
        self._enter(rows, "edited", Claim(after.claim, key, ""), {})
        self._write(rows, key, after, self._so_far(rows), wait_s=wait_s)
        was, is_now = (one.status is TaskStatus.COMPLETED for one in (before, after))
        if was != is_now:
            self._dependents_wait(rows, key, was - is_now)
        return replace(after, blocks=(), blocked_by=tuple(sorted(map(TaskId, needs), key=in_order)))

    def _write(
        self,
        rows: "Rows",
        key: TaskKey,
        task: Task,
        books: Books,
        *,
        removed: bool = False,
        wait_s: float | None = None,
    ) -> None:
        wait = timedelta(seconds=wait_s) if wait_s else None
        claim = int(task.claim) if task.claim.isdigit() else None
        rows.execute(
            statements.UPDATE_TASK,
            {**self._columns(key, task, books), "claim": claim, "wait": wait, "removed": removed},
        )

    def _dependents_wait(self, rows: "Rows", key: TaskKey, change: int) -> int:
        """Count a completed or reopened task in its dependents; returns how many of them are ready now."""
        found = fetched(rows.execute(statements.DEPENDENTS_WAIT, self._values(key, change=change)))
        return sum(row["is_ready"] for row in found)

    def remove(self, task: TaskKey, may: Callable[[Task], bool]) -> bool:
        def work(rows: "Rows") -> bool:
            found = self._locked(rows, task)
            if found is None:
                return True
            if not may(found):
                return False
            self._enter(rows, "edited", Claim("", task, ""), {})
            self._write(
                rows, TaskKey(task.list or self._list(), task.id), found, self._so_far(rows), removed=True
            )
            self._notify(rows, task)
            return True

        return self._db.do(work) if is_id(task.id) else True

    def _columns(self, key: TaskKey, task: Task, books: Books) -> dict[str, Any]:
        others = task.with_ours(claim=None)
        return {
            "list": key.list,
            "id": task.id,
            "subject": storable(task.subject),
            "description": storable(task.description),
            "status": str(task.status),
            "priority": task.priority,
            "label": storable(task.label),
            "metadata": storable_json(others.metadata),
            "owner": storable(full_name(self._own.node, task.owner) if task.claim else task.owner),
            "held": self._held(key, task, books),
        }

    def _held(self, key: TaskKey, task: Task, books: Books) -> str:
        """Why no worker may claim the task, by the task itself or by the ledger."""
        only_ledger = books.is_completed(key) and task.status is not TaskStatus.COMPLETED
        return task.waits_for_a_person or books.kept_back(key) or (_COMPLETED if only_ledger else "")

    # Claim

    def claim(
        self, task: TaskKey, worker: str, subject: str = "", dispatch: str = "", part: str = ""
    ) -> Claim | None:
        if not is_id(task.id):
            return None
        taken = self._take(statements.CLAIM_ONE, self._values(task, worker=worker))
        return taken[1] if taken else None

    def take_next(self, worker: str, labels_in_use: Collection[str]) -> tuple[Task, Claim] | None:
        """Claim the next ready task for a worker; labels that are in progress come last."""
        values = self._values(worker=worker, labels=list(labels_in_use))
        beside = self._take(statements.CLAIM_NEXT_BESIDE, values) if labels_in_use else None
        return beside or self._take(statements.CLAIM_NEXT, values)

    def _take(self, statement: str, values: dict[str, Any]) -> tuple[Task, Claim] | None:
        with fault_step("claim.ledger"):
            rows = self._db.rows(statement, values)
        if not rows:
            return None
        key = TaskKey(rows[0]["list"], TaskId(rows[0]["id"]))
        claim = Claim(str(rows[0]["claim"]), key, values["worker"])
        self.note("claimed", worker=claim.worker, task=key.id)
        return self._task(rows[0]), claim

    def renew(self, claim_id: str) -> bool:
        return bool(claim_id.isdigit() and self._db.rows(statements.RENEW, self._values(claim=int(claim_id))))

    def about_to_land(self, claim: Claim, commit: str) -> None:
        def work(rows: "Rows") -> None:
            if not fetched(rows.execute(statements.RENEW, self._values(claim=_token(claim)))):
                raise self._stale(claim)
            self._enter(rows, "landing", claim, {"commit": commit})

        self._db.do(work)

    def _stale(self, claim: Claim) -> ClaimLost:
        return ClaimLost(
            f"{claim.worker} no longer has task {claim.task.id}: this node was out of contact with the fleet's database for too long",
            hint=f"To see which node has it: llmc tasks show {shlex.quote(claim.task.id)}",
        )

    def finish(self, claim: Claim, commit: str) -> None:
        def work(rows: "Rows") -> int:
            row, ready = self._row(rows, claim.task), 0
            if row is None or row["claim"] != _token(claim):
                landed = self._so_far(rows).landed.get(claim.task)
                if landed is not None and landed.commit == commit:
                    return 0  # reported twice, or by the node that took the task over
                if row is not None:
                    raise self._stale(claim)
            self._enter(rows, "completed", claim, {"commit": commit})
            if commit:
                about = {"worker": full_name(self._own.node, claim.worker), "wanted": self._post_accept}
                rows.execute(statements.ADD_POST_ACCEPT, self._values(claim.task, **about))
            if row is not None:
                before = self._task(row)
                task = replace(before.with_ours(claim=None), status=TaskStatus.COMPLETED, owner="")
                self._write(rows, claim.task, task, self._so_far(rows), removed=row["removed"])
                ready = self._dependents_wait(rows, claim.task, -1)
                if self._held(claim.task, before, self._books):  # each node lists it
                    self._notify(rows, claim.task)
            return ready

        with fault_step("claim.complete"):
            ready = self._db.do(work)
        self.call_waiting(ready, claim.task.list)
        self.note("completed", worker=claim.worker, task=claim.task.id)

    def _row(self, rows: "Rows", task: TaskKey) -> dict[str, Any] | None:
        found = fetched(rows.execute(statements.LOCK_TASK, self._values(task)))
        return found[0] if found else None

    def release(
        self, claim: Claim, reason: str, *, cause: str = "", counts: bool = False, hold: str = ""
    ) -> Books:
        def work(rows: "Rows") -> bool:
            row = self._row(rows, claim.task)
            if row is None or row["claim"] != _token(claim):
                return False  # another claim is on the task: it is no longer ours
            details = {"reason": reason, "cause": cause, **_given(hold=hold)}
            self._enter(rows, "failed" if counts else "released", claim, details)
            books = self._so_far(rows)
            held = books.kept_back(claim.task)
            edit = partial(claims.released, claim=claim, hold=held)
            wait_s = books.pause_s(claim.task, self._backoff_s) if counts else None
            self._edit(rows, claim.task, self._task(row), edit, wait_s)
            if held:  # each node lists it
                self._notify(rows, claim.task)
            return not held and not wait_s

        with fault_step("claim.release"):
            is_free = self._db.do(work)
        self.call_waiting(is_free, claim.task.list)
        self.note(f"released: {reason}", worker=claim.worker, task=claim.task.id)
        return self.books()

    def settle(self) -> list[TaskKey]:
        """Complete tasks that only the ledger has as completed, after a crash in the middle of `tasks done`."""
        put_right = []
        for task in self.held():
            key = self.key(task.id)
            if self.books().is_completed(key):
                self.edit(key, partial(claims.set_by_user, seen=task, status=TaskStatus.COMPLETED))
                put_right.append(key)
        return put_right

    # What a queue asks

    def held(self) -> list[Task]:
        """Open tasks that wait for the user."""
        return [self._task(row) for row in self._db.rows(statements.HELD, self._values())]

    def look(self, most: int, free: int = 0) -> "Look":
        """How many tasks could start now, up to `most`. A node with more free workers is called for the next one."""
        values = self._values(most=most, free=free)
        row = self._db.rows(statements.LOOK, values)[0]
        if row["began"]:  # no node was called for a task that became ready in between
            row = self._db.rows(statements.LOOK, values)[0]
        return Look(row["ready"], max(0.0, row["after_crash_s"] or 0.0))

    def wait_of(self, tasks: Collection[TaskKey]) -> float | None:
        """Seconds until the first of these tasks can start; None: none of them can."""
        whole = [(task.list or self._list(), task.id) for task in tasks]
        values = {"lists": [of for of, _ in whole], "ids": [task_id for _, task_id in whole]}
        wait_s: float | None = self._db.rows(statements.WAIT_OF, values)[0]["wait_s"]
        return wait_s

    def call_waiting(self, count: int = 1, list_name: str = "") -> int:
        """Call up to `count` nodes that wait for a task; how many were called. Heartbeats find the other tasks."""
        values = {"list": list_name or self._name, "most": int(count), "lease": self._lease}
        try:
            return len(self._db.rows(statements.CALL_WAITING, values)) if count else 0
        except DatabaseGone:  # the change that made the tasks ready is done
            return 0

    def _tell_of_new(self, is_ready: bool) -> None:
        """Call a node for a new task; if none waits, none has a free worker, and all nodes are notified."""
        if is_ready and not self.call_waiting():
            with contextlib.suppress(DatabaseGone):
                self._db.rows(statements.NOTIFY, {"list": self._name})

    def counts(self) -> dict[str, int]:
        """How many tasks of the list are in each state."""
        return {row["state"]: row["count"] for row in self._db.rows(statements.COUNTS, self._values())}

    def open_needs(self) -> list[dict[str, Any]]:
        """The open dependencies of open tasks, and whether they are missing."""
        return self._db.rows(statements.OPEN_NEEDS, self._values())

    def expire(self) -> list[tuple[TaskKey, str]]:
        """Release the claims of nodes that did not renew them; returns each task, and the node that had it."""

        def work(rows: "Rows") -> list[tuple[TaskKey, str]]:
            gone = fetched(rows.execute(statements.EXPIRE))
            return [(TaskKey(row["list"], TaskId(row["task"])), row["node"]) for row in gone]

        freed = self._db.do(work)
        for list_name, count in Counter(task.list for task, _ in freed).items():
            self.call_waiting(count, list_name)
        return freed

    # Books

    def books(self) -> Books:
        self._db.do(self._catch_up, alone=True)
        return self._shown

    @property
    def lost_its_books(self) -> bool:
        return False

    def _catch_up(self, rows: "Rows") -> None:
        """Read the new entries of all nodes into the books."""
        new = self._new_entries(rows)
        self._read.took([row["seq"] for row in new], monotonic())
        if not new:
            return
        self._books = fold(self._books.copy(), map(self._entry, new))
        self._shown = books_of(self._own.node, self._books)
        if self._touched is not None:
            self._touched |= {TaskId(row["task"]) for row in new if row["list"] == self._name}

    def _new_entries(self, rows: "Rows") -> list[dict[str, Any]]:
        values = {"after": self._read.after, "missing": list(self._read.missing)}
        return fetched(rows.execute(statements.ENTRIES, values))

    def _so_far(self, rows: "Rows") -> Books:
        """The books with this transaction's own entries, which are kept only after the transaction has ended."""
        return fold(self._books.copy(), map(self._entry, self._new_entries(rows)))

    def _entry(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the ledger, as the books read it."""
        given = {name: row[name] for name in ("ts", "list", "task", "action", "claim")}
        return {**row["details"], **given, "worker": full_name(row["node"], row["worker"])}

    def write(self, action: Action, claim: Claim, **details: Any) -> None:
        def work(rows: "Rows") -> None:
            row = self._row(rows, claim.task) if is_id(claim.task.id) else None
            self._enter(rows, action, claim, details)
            if row is not None:
                self._write(rows, claim.task, self._task(row), self._so_far(rows), removed=row["removed"])
                self._notify(rows, claim.task)

        self._db.do(work)
        why = ": ".join(str(details[key]) for key in ("cause", "reason") if details.get(key))
        self.note(f"{action}: {why}" if why else action, worker=claim.worker, task=claim.task.id)

    def _enter(self, rows: "Rows", action: str, claim: Claim, details: dict[str, Any]) -> None:
        node, worker = split_name(self._own.node, claim.worker)
        about = {"list": claim.task.list or self._list(), "task": claim.task.id, "claim": claim.id}
        entry = {"node": node, "worker": worker, "action": action, "details": storable_json(details)}
        rows.execute(statements.ENTER, {**about, **entry})

    def _notify(self, rows: "Rows", task: TaskKey) -> None:
        rows.execute(statements.NOTIFY, {"list": task.list or self._name})

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        if self._log is not None:
            write_note(self._log, text, worker=worker, task=task)

    # Show

    def where(self, task: TaskKey | None = None) -> str:
        what = f"task {task.id} in list {task.list}" if task else f"list {self._name}"
        return f"{what} in {self._db.address}"

    @property
    def how_to_unblock(self) -> str:
        return "mark the missing task, or one task in the cycle, as done: llmc tasks done ID"

    @property
    def agents_write_here(self) -> bool:
        return False


#: the number of a task whose id is a name
_AFTER_NUMBERS = 1 << 62


def _no_task(task: TaskKey) -> NotFound:
    return NotFound(f"no task {task.id[:80]!r}", hint="Run `llmc tasks list` to see all tasks.")


def _token(claim: Claim) -> int:
    return int(claim.id) if claim.id.isdigit() else 0


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
