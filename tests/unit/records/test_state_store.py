"""state.json: whole or not at all, nothing unknown lost, every event exactly once."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from llmc.base.errors import NotFound, StateError
from llmc.base.faults import FaultInjected
from llmc.base.files import DiskFull
from llmc.base.names import SessionName, WorkerName
from llmc.config.paths import Root
from llmc.records import events
from llmc.records.store import Store, Transaction
from llmc.records.transitions import NOT_REVIEWED, step
from llmc.records.worker import AcceptJournal, Delivery, Outcome, PromptId, Seen, Status, WorkerRecord


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(Root(tmp_path))
    made.create()
    return made


def record(name: str = "adam", **fields: Any) -> WorkerRecord:
    return WorkerRecord(
        name=WorkerName(name),
        worktree_path=f"/w/{name}",
        branch=f"llmc/{name}",
        session_id=SessionName(f"llmc-{name}"),
        created_at_unix=1.0,
        **fields,
    )


def put(store: Store, worker: WorkerRecord) -> None:
    with store.transaction() as tx:
        tx.put(worker)


def raw(store: Store) -> dict[str, Any]:
    return dict(json.loads(store.root.state.read_bytes()))


def edit(store: Store, change: dict[str, Any]) -> None:
    store.root.state.write_text(json.dumps({**raw(store), **change}))


def log(store: Store) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.root.events.read_text().splitlines()]


def hold(store: Store, name: str = "adam") -> None:
    with store.transaction() as tx:
        tx.update(name, held=True)
        tx.emit("held", worker=name)


def release(store: Store, name: str = "adam") -> None:
    with store.transaction() as tx:
        tx.update(name, held=False)
        tx.emit("released", worker=name)


def hidden(store: Store) -> list[str]:
    return [name for name in os.listdir(store.root.path) if name.startswith(".") and name != ".llmc"]


def test_a_transaction_is_visible_when_it_ends(store: Store) -> None:
    with store.transaction() as tx:
        tx.put(record())
        assert store.read().workers == {}
    assert store.worker("adam").status is Status.OFFLINE


def test_an_exception_writes_nothing(store: Store) -> None:
    """Break: write in a `finally` of Store.transaction."""
    put(store, record())
    before = store.root.state.read_bytes()

    def fail(tx: Transaction) -> None:
        tx.update("adam", held=True)
        tx.emit("held", worker="adam")
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        store.change(fail)
    assert store.root.state.read_bytes() == before
    assert not store.root.events.exists()


def test_a_transaction_that_changes_nothing_writes_nothing(store: Store) -> None:
    """Break: drop the comparison with the old state in Store.transaction."""
    put(store, record())
    before = store.root.state.stat().st_ino
    with store.transaction() as tx:
        tx.update("adam", held=False)
    assert store.root.state.stat().st_ino == before


@pytest.mark.req("1-045")
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (record(commit_sha="abc"), "commit_sha"),
        (record(status=Status.NEEDS_REVIEW), "commit_sha"),
        (record(status=Status.ERROR), "error without a reason"),
        (record(held="perhaps"), "held"),
        (record("eve", crash_count=None), "crash_count"),
    ],
)
def test_an_invalid_state_is_refused_and_says_why(store: Store, bad: WorkerRecord, words: str) -> None:
    """Break: do not raise on `found` in store.encode."""
    before = store.root.state.read_bytes()

    def add(tx: Transaction) -> None:
        tx.put(bad)
        tx.emit("worker_added", worker=bad.name)

    with pytest.raises(StateError, match=words):
        store.change(add)
    assert store.root.state.read_bytes() == before
    assert not store.root.events.exists()


@pytest.mark.req("1-045")
def test_a_relative_worktree_and_a_misfiled_worker_are_refused(store: Store) -> None:
    from msgspec.structs import replace

    with pytest.raises(StateError, match="not absolute"):
        put(store, replace(record(), worktree_path="w/adam"))
    with pytest.raises(StateError, match="stored under eve"), store.transaction() as tx:
        tx.state = replace(tx.state, workers={WorkerName("eve"): record("adam")})


def test_text_that_is_not_unicode_is_written_readably(store: Store) -> None:
    """A program's output may contain bytes that are not text. Break: no _printable in store.encode."""
    with store.transaction() as tx:
        tx.put(record(error_reason="git said \udcff"))
        tx.emit("worker_added", worker="adam", why="\udcfe")
    assert store.worker("adam").error_reason == "git said \\udcff"
    assert log(store)[0]["why"] == "\\udcfe"


def test_unknown_fields_survive_at_every_level(store: Store) -> None:
    """Break: return `new` for an optional struct in keep_unknown."""
    delivery = Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.TYPED, at_unix=1.0)
    journal = AcceptJournal(step="land", started_unix=1.0, tip="a")
    review = {"status": Status.NEEDS_REVIEW, "commit_sha": "a"}
    put(store, record(delivery=delivery, accept=journal, **review))
    put(store, record("eve"))
    data = raw(store)
    data["future"] = {"top": [1]}
    data["workers"]["adam"]["future"] = "worker"
    data["workers"]["adam"]["delivery"]["future"] = "delivery"
    data["workers"]["adam"]["accept"]["future"] = "accept"
    store.root.state.write_text(json.dumps(data))
    hold(store)
    with store.transaction() as tx:
        tx.update("adam", accept=AcceptJournal(step="verify", started_unix=1.0, tip="a"))
    after = raw(store)
    assert after["future"] == {"top": [1]}
    adam = after["workers"]["adam"]
    assert adam["held"]
    assert adam["accept"]["step"] == "verify"
    assert (adam["future"], adam["delivery"]["future"], adam["accept"]["future"]) == (
        "worker",
        "delivery",
        "accept",
    )


def test_unknown_fields_of_one_prompt_do_not_move_to_the_next(store: Store) -> None:
    """Break: no comparison of identities in keep_unknown."""
    put(
        store,
        record(delivery=Delivery(prompt_id=PromptId("task-1"), outcome=Outcome.TYPED, at_unix=1.0)),
    )
    data = raw(store)
    data["workers"]["adam"]["delivery"]["future"] = "of the first"
    store.root.state.write_text(json.dumps(data))
    with store.transaction() as tx:
        tx.update(
            "adam", delivery=Delivery(prompt_id=PromptId("task-2"), outcome=Outcome.PENDING, at_unix=2.0)
        )
    assert "future" not in raw(store)["workers"]["adam"]["delivery"]


def test_a_removed_worker_does_not_come_back(store: Store) -> None:
    put(store, record())
    with store.transaction() as tx:
        tx.remove("adam")
    assert raw(store)["workers"] == {}


def test_a_newer_version_is_refused_and_left_alone(store: Store) -> None:
    """Break: reverse the `>=` in Store._decode."""
    edit(store, {"version": 2})
    before = store.root.state.read_bytes()
    with pytest.raises(StateError, match="version 2") as caught:
        store.read()
    assert "Upgrade llmc" in caught.value.hint
    with pytest.raises(StateError), store.transaction() as tx:
        tx.emit("daemon_stopped")
    assert store.root.state.read_bytes() == before
    assert not store.root.state_backup.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"version": 1,',
        b"[]",
        b'{"workers": []}',
        b'{"workers": {"adam": {}}}',
        b'{"version": "one"}',
        b'{"future": "\xff"}',
        b'{"workers":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\0" * 200,
    ],
    ids=["empty", "cut", "list", "workers", "record", "version", "utf8", "deep", "zeros"],
)
def test_a_corrupt_file_is_a_clear_error_that_names_the_backup(store: Store, content: bytes) -> None:
    """Break: catch only msgspec's errors (not ValueError, RecursionError) in Store._decode."""
    put(store, record())
    store.root.state.write_bytes(content)
    with pytest.raises(StateError, match="cannot be read") as caught:
        store.read()
    assert str(store.root.state_backup) in caught.value.hint
    assert store.root.state.read_bytes() == content


def test_a_missing_state_is_not_an_empty_one(store: Store) -> None:
    store.root.state.unlink()
    with pytest.raises(NotFound, match="missing"), store.transaction() as tx:
        tx.emit("daemon_stopped")
    assert not store.root.state.exists()


@pytest.mark.req("1-046")
def test_the_backup_is_the_content_before(store: Store) -> None:
    """Break: make the backup after write_atomic in Store._write."""
    put(store, record())
    before = store.root.state.read_bytes()
    hold(store)
    assert store.root.state_backup.read_bytes() == before
    assert store.root.state.read_bytes() != before
    assert hidden(store) == []


def test_a_write_that_failed_leaves_nothing_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Link and file are then one inode, and rename() of one onto the other does nothing.

    Break: do not unlink the temporary link at the end of Store._keep_backup.
    """
    put(store, record())
    monkeypatch.setenv("LLMC_FAULT", "state.replace:before:fail")
    with pytest.raises(FaultInjected):
        hold(store)
    monkeypatch.delenv("LLMC_FAULT")
    before = store.root.state.read_bytes()
    assert store.root.state_backup.read_bytes() == before
    hold(store)
    assert store.root.state_backup.read_bytes() == before
    assert hidden(store) == []


def test_files_are_private(store: Store) -> None:
    put(store, record())
    hold(store)
    for path in (store.root.state, store.root.state_backup, store.root.events, store.root.lock("state")):
        assert path.stat().st_mode & 0o777 == 0o600, path
    for path in (store.root.private, store.root.locks, store.root.logs):
        assert path.stat().st_mode & 0o777 == 0o700, path


def test_events_are_numbered_in_order(store: Store) -> None:
    put(store, record())
    hold(store)
    with store.transaction() as tx:
        tx.move("adam", step(Status.IDLE, "ready"))
        tx.emit("released", worker="adam")
    assert [(row["seq"], row["action"]) for row in log(store)] == [
        (1, "held"),
        (2, "status_changed"),
        (3, "released"),
    ]
    assert log(store)[1] | {"ts": 0} == {
        "seq": 2,
        "ts": 0,
        "action": "status_changed",
        "worker": "adam",
        "reason": "ready",
        "from": "offline",
        "to": "idle",
    }


def test_an_unknown_action_is_a_bug(store: Store) -> None:
    with pytest.raises(AssertionError, match="unknown event action"), store.transaction() as tx:
        tx.emit("surprise")


def test_events_lost_in_a_crash_are_copied_by_the_next_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no append_missing at the start of Store.transaction."""
    put(store, record())
    hold(store)
    monkeypatch.setenv("LLMC_FAULT", "state.replace:after:fail")
    with pytest.raises(FaultInjected):
        release(store)
    monkeypatch.delenv("LLMC_FAULT")
    assert [row["seq"] for row in log(store)] == [1]
    with store.transaction():
        pass
    assert [(row["seq"], row["action"]) for row in log(store)] == [(1, "held"), (2, "released")]
    hold(store)
    assert [row["seq"] for row in log(store)] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_written_again_whole(store: Store, cut: int) -> None:
    """Break: `ends_torn` always False: the next event is appended to the torn one."""
    put(store, record())
    hold(store)
    release(store)
    with store.root.events.open("r+b") as file:
        file.truncate(store.root.events.stat().st_size - cut)
    hold(store)
    good = []
    for line in store.root.events.read_bytes().splitlines():
        try:
            good.append(json.loads(line)["seq"])
        except ValueError:
            continue
    assert good == [1, 2, 3]


def test_a_log_with_long_lines_is_read_from_its_end(store: Store) -> None:
    """Break: stop after the first block in _lines_backwards of records/event_log.py."""
    put(store, record())
    with store.transaction() as tx:
        tx.emit("held", worker="adam", text="x" * 10_000)
    hold(store)
    with store.transaction() as tx:
        tx.emit("released", worker="adam", text="y" * 40_000)
    assert events.last_seq(store.root.events) == 3
    hold(store)
    assert [row["seq"] for row in log(store)] == [1, 2, 3, 4]


def test_no_event_is_lost_after_the_backup_was_put_back(store: Store) -> None:
    """As the error message advises. Break: number from state.event_seq alone in Store.transaction."""
    put(store, record())
    hold(store)
    release(store)
    os.replace(store.root.state_backup, store.root.state)
    hold(store)
    with store.transaction() as tx:
        tx.emit("daemon_stopped")
    assert [row["action"] for row in log(store)] == ["held", "released", "held", "daemon_stopped"]
    numbers = [row["seq"] for row in log(store)]
    assert numbers == sorted(set(numbers))


def test_a_full_disk_at_the_log_does_not_undo_the_change(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events are in state.json; the next transaction copies them, or refuses before it changes anything.

    Break: let the error of the append after the write out of Store.transaction.
    """
    put(store, record())
    hold(store)

    def full(path: Path, line: bytes) -> None:
        raise DiskFull("full")

    with monkeypatch.context() as patch:
        patch.setattr(events, "append_line", full)
        release(store)
        assert not store.worker("adam").held
        with pytest.raises(DiskFull):
            hold(store)
        assert not store.worker("adam").held
    hold(store)
    assert [row["action"] for row in log(store)] == ["held", "released", "held"]


def test_an_unknown_worker_names_the_nearest(store: Store) -> None:
    put(store, record())
    with pytest.raises(NotFound, match="no worker 'adm'") as caught:
        store.worker("adm")
    assert caught.value.hint == 'Did you mean "adam"?'
    with pytest.raises(NotFound), store.transaction() as tx:
        tx.update("zed", held=True)


@pytest.mark.parametrize(
    ("name", "can_add"), [("zed", True), ("foo bar", False), ("auto-9", False), ("$(x)", False)]
)
def test_only_a_name_that_can_be_added_gets_the_command_for_it(
    store: Store, name: str, can_add: bool
) -> None:
    """Break: `llmc add` for every unknown name, which needs quotes and would be refused."""
    with pytest.raises(NotFound) as caught:
        store.worker(name)
    assert caught.value.hint == (
        f"Add it with `llmc add {name}`." if can_add else "Run `llmc status` to see all workers."
    )


def test_a_status_changes_by_move_only(store: Store) -> None:
    put(store, record())
    with pytest.raises(AssertionError, match="move"), store.transaction() as tx:
        tx.update("adam", status=Status.IDLE)


def test_the_worker_reviewed_last_is_remembered_as_long_as_its_work(store: Store) -> None:
    """Break: keep last_reviewed_worker when the work is gone. A bare `accept` would land new work unseen.

    Or forget a review with a status that an agent can cause: its next commit would land without a question.
    """
    lands = Seen(base="b", tree="t", message="m", author="a")
    seen = {"seen": lands, "reviewed_patch": "p", "reviewed_sha": "c0ffee", "reviewed_unix": 5.0}
    put(store, record("adam", status=Status.NEEDS_REVIEW, commit_sha="c0ffee", **seen))
    with store.transaction() as tx:
        tx.remember_review("adam")
        tx.move("adam", step(Status.REJECTED, "reject"))
    assert store.read().last_reviewed_worker == "adam"
    assert store.worker("adam").seen == lands, "accept still compares with it"
    with store.transaction() as tx:
        tx.move("adam", step(Status.IDLE, "reset"))
    assert store.read().last_reviewed_worker is None
    for status in (Status.WORKING, Status.NO_CHANGES, Status.WORKING, Status.OFFLINE, Status.IDLE):
        with store.transaction() as tx:
            tx.move("adam", step(status))
        assert store.worker("adam").seen == lands, status
    with store.transaction() as tx:
        tx.update("adam", **NOT_REVIEWED)
    after = store.worker("adam")
    assert (after.seen, after.reviewed_patch, after.reviewed_sha, after.reviewed_unix) == (
        None,
        None,
        None,
        0.0,
    )


@pytest.mark.req("0-073")
def test_each_write_tells_how_many_workers_there_are(store: Store) -> None:
    """Break: notify before the write, or about reads, too."""
    told: list[str] = []
    store.trace = told.append
    with store.transaction() as tx:
        tx.put(record("auto-1", auto=True))
        tx.put(record("adam"))
    store.read()
    assert told == ["state.json written (workers: 2, auto workers: 1)"]
