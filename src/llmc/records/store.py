"""state.json: changed only in a transaction, by writing a complete, valid, new file.

Events are written into state.json together with the change they describe, and then copied to events.jsonl. After a
crash, the next transaction copies what is missing. So each event is there exactly once.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, Refused, StateError, UnknownWorker
from llmc.base.faults import step as fault_step
from llmc.base.files import append_line, explain, private_dir, read_given, second_name, write_atomic
from llmc.base.locks import Rank, lock
from llmc.base.names import WorkerName
from llmc.base.text import did_you_mean
from llmc.base.urls import scrub, scrub_all
from llmc.config import trust
from llmc.config.paths import Root
from llmc.config.root_layout import WORKTREES
from llmc.records import events, transitions
from llmc.records.items import KINDS, OF_WORKERS, SEVERITIES
from llmc.records.state import VERSION, FailingBase, Raised, State, UndoJournal, keep_unknown
from llmc.records.worker import Status, WorkerRecord

#: what to do without a usable state.json
REBUILD = "run `llmc doctor --rebuild`, which rebuilds state.json from the worktrees and sessions."


#: maximum size of state.json: a thousand workers with prompts of maximum size
MOST_BYTES = 512 << 20


class NewerState(StateError):
    """Written by a newer llmc; this one does not read or change it."""


def accept_key(worker: str) -> str:
    """The key of a failed accept on the attention list."""
    return f"accept:{worker}"


class Transaction:
    """The state being changed; others see nothing until the block ends."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.emitted: list[dict[str, Any]] = []
        self.now = now_unix()

    def worker(self, name: str) -> WorkerRecord:
        return _worker(self.state, name)

    def put(self, record: WorkerRecord) -> WorkerRecord:
        self.state = replace(self.state, workers={**self.state.workers, record.name: record})
        return record

    def update(self, name: str, **fields: Any) -> WorkerRecord:
        """Change fields other than the status."""
        assert "status" not in fields, "a status can be changed only with move()"
        return self.put(replace(self.worker(name), **fields))

    def move(self, name: str, change: transitions.Step, **event: Any) -> WorkerRecord:
        """Apply a transition and record it as an event."""
        before = self.worker(name)
        after = self.put(transitions.apply(before, change, self.now))
        if after.status is not Status.NEEDS_REVIEW:
            # the work that failed to land is gone or has changed
            self.clear_item(accept_key(name))
        if after.status.is_free and self.state.last_reviewed_worker == name:
            # The reviewed work is gone: `accept` or `reject` without a name must not apply to the next one.
            self.state = replace(self.state, last_reviewed_worker=None)
        self.emit(
            "status_changed",
            worker=name,
            reason=change.reason,
            **{"from": before.status, "to": after.status},
            **event,
        )
        return after

    def remember_review(self, name: str) -> None:
        """Record the default worker of `reject` and `accept`."""
        self.state = replace(self.state, last_reviewed_worker=self.worker(name).name)

    def remember_patrol(self) -> None:
        """Record that the daemon has just checked all workers."""
        self.state = replace(self.state, patrol_last_run_unix=self.now)

    def remember_overseer(self, active: bool) -> None:
        """Record whether a supervisor watches the daemon."""
        self.state = replace(self.state, overseer_active=active)

    def remember_auto(self, wanted: bool, reason: str = "") -> None:
        """Record whether auto mode should be running; `reason`: why it ended by itself, as requested."""
        self.state = replace(self.state, auto_mode=wanted)
        if not wanted and self.state.auto.run not in ("", "stopped"):  # the first end has the reason
            self.update_auto(run="stopped", run_unix=self.now, run_cause="", run_reason=reason)

    def interrupt_auto(self, reason: str) -> None:
        """Record that the daemon of the run exits, but that auto mode should still be running."""
        if self.state.auto.run == "running":
            self.update_auto(run="interrupted", run_unix=self.now, run_cause="", run_reason=reason)

    def forget_end_of_auto(self) -> None:
        """Forget why the last run of auto mode ended: a daemon without auto mode has started since."""
        if self.state.auto.run == "stopped" and self.state.auto.run_reason:
            self.update_auto(run_reason="")

    def journal_undo(self, journal: UndoJournal | None) -> None:
        """Record the undo in progress; None: none."""
        self.state = replace(self.state, undo=journal)

    def remember_failing_base(self, failing: FailingBase | None) -> None:
        """Record that the default branch fails its own validation; None: it does not."""
        self.state = replace(self.state, failing_base=failing)

    def update_auto(self, **fields: Any) -> None:
        """Change what auto mode remembers."""
        self.state = replace(self.state, auto=replace(self.state.auto, **fields))

    def raise_item(self, key: str, *, kind: str, severity: str, who: str, text: str, next: str = "") -> None:
        """Raise an attention item; if already raised, it keeps its age."""
        assert kind in KINDS, f"unknown attention kind {kind!r}"
        assert severity in SEVERITIES
        known = self.state.attention.get(key)
        since_unix = known.since_unix if known else self.now
        text, next = scrub(text), scrub(next)
        item = Raised(kind=kind, severity=severity, who=who, text=text, since_unix=since_unix, next=next)
        if item == known:
            return
        self.state = replace(self.state, attention={**self.state.attention, key: item})
        self.emit("attention_raised", worker=who if who in self.state.workers else None, reason=text, key=key)

    def clear_item(self, key: str) -> None:
        """Clear an attention item, if it exists."""
        if key in self.state.attention:
            left = {other: item for other, item in self.state.attention.items() if other != key}
            self.state = replace(self.state, attention=left)
            self.emit("attention_cleared", key=key)

    def sync_items(self, prefixes: tuple[str, ...], wanted: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all items whose key has one of these prefixes."""
        for key in [key for key in self.state.attention if key.startswith(prefixes) and key not in wanted]:
            self.clear_item(key)
        for key, fields in wanted.items():
            self.raise_item(key, **fields)

    def remove(self, name: str) -> None:
        about = [
            key for key, item in self.state.attention.items() if item.who == name and item.kind in OF_WORKERS
        ]
        for key in about:
            self.clear_item(key)
        workers = {key: value for key, value in self.state.workers.items() if key != name}
        self.state = replace(self.state, workers=workers)

    def emit(self, action: str, *, worker: str | None = None, reason: str = "", **fields: Any) -> None:
        events.check_action(action)
        row = {"ts": self.now, "action": action, "worker": worker, "reason": reason, **fields}
        self.emitted.append(scrub_all(row))


class Store:
    """Reads and writes a root's state.json."""

    def __init__(self, root: Root) -> None:
        self.root = root
        #: called after each write with a line for the log
        self.trace: Callable[[str], None] | None = None
        self._last: tuple[tuple[int, int, int], State, dict[str, Any]] | None = None

    def read(self) -> State:
        """The current state; needs no lock, because the file is replaced as a whole."""
        return self._current()[0]

    def read_raw(self) -> dict[str, Any]:
        """The current state as plain data, for code shared with the hot commands."""
        return self._current()[1]

    def _current(self) -> tuple[State, dict[str, Any]]:
        """The state and its JSON; decoded once per version of the file."""
        try:
            found = os.stat(self.root.state)
        except OSError:
            return self._decode(self._bytes())
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        last = self._last
        if last is not None and last[0] == stamp:
            return last[1], last[2]
        # The file may be newer than the stamp; then the next read sees another stamp and reads again.
        state, raw = self._decode(self._bytes())
        self._last = (stamp, state, raw)
        return state, raw

    def backup_is_good(self) -> bool:
        return self._backup() is not None

    def backup_has_workers(self) -> bool:
        backup = self._backup()
        return backup is not None and bool(backup.workers)

    def _backup(self) -> State | None:
        try:
            return self._decode(read_given(self.root.state_backup, MOST_BYTES))[0]
        except (OSError, LlmcError):
            return None

    def worker(self, name: str) -> WorkerRecord:
        return _worker(self.read(), name)

    def elsewhere(self) -> Refused | None:
        """Set in a moved or copied root: its records name worktrees in another place, maybe those of another root."""
        try:
            workers = self.read().workers.values()
        except (NotFound, StateError):
            return None  # without records nothing is named; whoever needs them reads them again
        here = str(self.root.path)
        for there in {_root_in(record) for record in workers} - {here, ""}:
            with contextlib.suppress(OSError):
                if os.path.samefile(here, there):
                    continue  # through a link
            return _elsewhere(here, there)
        return None

    def refuse_elsewhere(self) -> None:
        if (refused := self.elsewhere()) is not None:
            raise refused

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Load, change, validate, write, under the state lock. An exception inside writes nothing."""
        with lock(self.root.lock("state"), Rank.STATE):
            self.refuse_elsewhere()
            old, raw = self._current()
            logged = events.append_missing(self.root.events, old.recent_events)
            tx = Transaction(old)
            yield tx
            if tx.state == old and not tx.emitted:
                return
            # The log is ahead of a state.json restored from its backup: never reuse a number.
            new = _number(_with_derived(tx.state), tx.emitted, max(old.event_seq, logged))
            try:
                data = encode(new, raw)
            except UnicodeEncodeError:  # output or a path with invalid UTF-8
                new = msgspec.convert(_printable(msgspec.to_builtins(new)), State)
                data = encode(new, raw)
            self._write(data, keep=True)
            if self.trace is not None:
                auto = sum(record.auto for record in new.workers.values())
                self.trace(f"state.json written (workers: {len(new.workers)}, auto workers: {auto})")
            # The change is done and must not look failed; the next transaction copies its events, or refuses.
            with contextlib.suppress(LlmcError):
                events.append_missing(self.root.events, new.recent_events)
        for row in tx.emitted:
            if row["action"] == "status_changed":
                self.note(str(row["worker"]), f"{row['from']} -> {row['to']}: {row['reason']}")

    def note(self, worker: str, text: str) -> None:
        """Write a line to the worker's log, for the user; write errors are ignored."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}"
        with contextlib.suppress(LlmcError, OSError):
            log = self.root.log(worker)
            private_dir(log.parent)
            append_line(log, scrub(line).encode(errors="replace"))

    def create(self) -> None:
        """Write the first state.json of a new root."""
        with lock(self.root.lock("state"), Rank.STATE):
            if not self.root.state.exists():
                self._write(encode(State(), {}), keep=False)

    def start_anew(self, records: list[WorkerRecord], kept: Path | None) -> None:
        """Write a new state.json with these workers; an old file stays as `kept`."""
        with lock(self.root.lock("state"), Rank.STATE):
            if kept is not None:
                second_name(self.root.state, kept)
            tx = Transaction(State(workers={record.name: record for record in records}))
            tx.emit(
                "state_rebuilt", workers=[record.name for record in records], kept=str(kept) if kept else None
            )
            new = _number(tx.state, tx.emitted, events.last_seq(self.root.events))
            self._write(encode(new, {}), keep=False)
            with contextlib.suppress(LlmcError):
                events.append_missing(self.root.events, new.recent_events)

    def change(self, act: Callable[[Transaction], None]) -> None:
        with self.transaction() as tx:
            act(tx)

    def _bytes(self) -> bytes:
        try:
            return read_given(self.root.state, MOST_BYTES)
        except FileNotFoundError as error:
            backup = self.root.state_backup
            raise NotFound(
                f"{self.root.state} is missing",
                hint=f"To restore the backup, run `{self._restore()}`. Otherwise, {REBUILD}"
                if backup.exists()
                else f"To recover, {REBUILD} To stop all agents, run `llmc down`.",
            ) from error
        except OSError as error:
            raise explain(error, f"cannot read {self.root.state}") from error

    def _restore(self) -> str:
        import shlex  # saves 1 ms in the hot commands

        return f"cp {shlex.quote(str(self.root.state_backup))} {shlex.quote(str(self.root.state))}"

    def _decode(self, data: bytes) -> tuple[State, dict[str, Any]]:
        try:
            raw = msgspec.json.decode(data, type=dict[str, Any])
            version = raw.get("version", VERSION)
            if isinstance(version, int) and version > VERSION:
                raise NewerState(
                    f"{self.root.state} has version {version}, but this llmc supports only version {VERSION}; nothing was changed",
                    hint="Upgrade llmc to the version that wrote the file.",
                )
            if "workers" not in raw:
                raise msgspec.ValidationError('missing key "workers"')
            return msgspec.convert(raw, State), raw
        except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
            raise StateError(
                f"{self.root.state} cannot be read: {error}",
                hint=f"To restore the backup, run `{self._restore()}`. Otherwise, {REBUILD}",
            ) from error

    def _write(self, data: bytes, *, keep: bool) -> None:
        with fault_step("state.write"):
            if keep:
                self._keep_backup()
            with fault_step("state.replace"):
                write_atomic(self.root.state, data, alone=True)

    def _keep_backup(self) -> None:
        """Give the current file a second name: no copy, and state.json exists at every moment."""
        temp = self.root.state_backup.with_name(f".{self.root.state_backup.name}.tmp")
        try:
            temp.unlink(missing_ok=True)
            second_name(self.root.state, temp)
            os.replace(temp, self.root.state_backup)
            # After a crash both names may be the same file; then rename() does nothing and leaves `temp`.
            temp.unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, f"cannot write {self.root.state_backup}") from error


def encode(state: State, raw: dict[str, Any]) -> bytes:
    """Validated JSON; unknown fields from a newer llmc are carried over from `raw`."""
    found = [text for record in state.workers.values() for text in transitions.problems(record)]
    found += [
        f"{name}: stored under {key}"
        for key, name in ((k, r.name) for k, r in state.workers.items())
        if key != name
    ]
    plain = msgspec.to_builtins(state)
    try:
        msgspec.convert(plain, State)
    except msgspec.ValidationError as error:
        found.append(str(error))
    if found:
        raise StateError("refusing to write an invalid state.json: " + "; ".join(found))
    return msgspec.json.format(msgspec.json.encode(keep_unknown(State, raw, plain)), indent=1)


def _printable(value: Any) -> Any:
    """Plain data with valid Unicode; invalid characters are escaped."""
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _worker(state: State, name: str) -> WorkerRecord:
    record = state.workers.get(WorkerName(name))
    if record is None:
        from llmc.config.options import check_worker_name  # saves time in the hot commands

        can_add = check_worker_name(name) is None
        otherwise = f"Add it with `llmc add {name}`." if can_add else "Run `llmc status` to see all workers."
        raise UnknownWorker(name, hint=did_you_mean(name, state.workers, otherwise))
    return record


def _root_in(record: WorkerRecord) -> str:
    """The root that a record's worktree is in; "" if it is not in any."""
    end = f"/{WORKTREES}/{record.name}"
    return record.worktree_path.removesuffix(end) if record.worktree_path.endswith(end) else ""


def _elsewhere(here: str, there: str) -> Refused:
    import shlex  # saves 1 ms in the hot commands

    if trust.is_same_root(here, there):
        return Refused(
            f"{here} is a copy of the root at {there}; nothing was changed",
            hint=f"Use the original: llmc --root {shlex.quote(there)} ...",
        )
    first = f"move what is at {there} away; then: " if os.path.lexists(there) else ""
    return Refused(
        f"the root at {here} was moved there from {there}; nothing was changed",
        hint=f"To use it, move it back: {first}mv {shlex.quote(here)} {shlex.quote(there)}",
    )


def _with_derived(state: State) -> State:
    """The state with the fields that are copied from the workers' records."""
    active = {name: r.assignment.task_id for name, r in state.workers.items() if r.assignment is not None}
    auto = tuple(sorted(name for name, record in state.workers.items() if record.auto))
    return replace(state, active_task_ids=active, auto_workers=auto)


def _number(state: State, emitted: list[dict[str, Any]], last: int) -> State:
    numbered = [{"seq": last + i, **event} for i, event in enumerate(emitted, 1)]
    if not numbered:
        return state
    return replace(state, event_seq=last + len(numbered), recent_events=numbered)
