"""Hook events become state: in order, each exactly once, whichever process applies them and dies doing so."""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc import hook_client
from llmc.agents.agent_events import REPORT
from llmc.config.paths import Root
from llmc.records.hook_events import Malformed
from llmc.records.store import Store
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import open_project
from llmc.sessions import intake
from llmc.workers.patrol import catch_up
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

#: Python 3.12 warns of threads (the test runner has some); the children only apply events
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
INSTANCE = "i1"


class Still:
    """A worker of a fleet without a daemon, with an inbox that the test fills."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.store = Store(Root(fleet.root))
        self.inbox = fleet.root / ".llmc/inbox/adam"
        self.first_seq = 0

    def reset(self) -> None:
        """In error, no event changes the status, and each death of the agent is counted, as an effect."""
        self.inbox.mkdir(parents=True, exist_ok=True)
        for path in self.inbox.iterdir():
            path.unlink()
        with self.store.transaction() as tx:
            fields = {"status": Status.ERROR, "error_reason": "for this test", "instance": INSTANCE}
            plain = {"crash_count": 0, "applied_events": (), "commit_sha": None}
            tx.put(replace(tx.worker("adam"), **fields, **plain))
        self.first_seq = self.store.read().event_seq

    def write(self, *names: str, instance: str = INSTANCE, **payload: str) -> list[str]:
        """One file per event, named as by the sender."""
        ids = []
        for name in names:
            event_id = f"{time.time_ns()}-{os.getpid()}.json"
            envelope = {
                "worker": "adam",
                "instance": instance,
                "payload": {"hook_event_name": name, **payload},
            }
            (self.inbox / event_id).write_text(json.dumps(envelope))
            ids.append(event_id)
        return ids

    def status(self, **env: str) -> int:
        return self.fleet.llmc("--root", str(self.fleet.root), "status", "--json", code=None, **env).code

    def applied(self) -> list[str]:
        """The ids of the events in the log since the reset, in order."""
        return [row["event"] for row in self.rows() if "event" in row]

    def rows(self) -> list[dict[str, Any]]:
        lines = (self.fleet.root / "logs/events.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["seq"] > self.first_seq]

    def worker(self) -> WorkerRecord:
        return self.store.worker("adam")


@pytest.fixture(scope="module")
def still_fleet() -> Iterator[Still]:
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    yield Still(fleet)
    fleet.close()


@pytest.fixture
def still(still_fleet: Still) -> Still:
    still_fleet.reset()
    return still_fleet


def test_a_command_applies_what_waits_when_no_daemon_runs(still: Still) -> None:
    """Break: no catch_up in seeing.current."""
    ids = still.write("PaneDied", "Notification", "PaneDied", "PostCompact", "PaneDied")
    assert still.status() == 0
    assert still.applied() == ids
    assert still.worker().crash_count == 3
    assert os.listdir(still.inbox) == []


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        ("intake.apply:before", False),
        ("state.replace:before", False),
        ("state.replace:after", True),
        ("intake.apply:after", True),
        ("intake.forget:before", True),
        ("intake.forget:after", True),
    ],
)
def test_a_kill_anywhere_applies_each_event_once(still: Still, fault: str, done: bool) -> None:
    """Break: do not record the ids in the transaction (`applied_events`) in intake._apply."""
    ids = still.write("PaneDied", "Notification", "PaneDied")
    assert still.status(LLMC_FAULT=f"{fault}:kill") == -signal.SIGKILL
    assert still.worker().crash_count == (2 if done else 0)
    ids += still.write("PaneDied")
    assert still.status() == 0
    assert still.worker().crash_count == 3
    assert still.applied() == ids
    assert os.listdir(still.inbox) == []


def test_kill_after_kill_still_applies_each_event_once(still: Still) -> None:
    ids = still.write("PaneDied", "PaneDied")
    for fault in ("intake.apply:after", "intake.forget:before", "intake.forget:before"):
        assert still.status(LLMC_FAULT=f"{fault}:kill") == -signal.SIGKILL
        ids += still.write("PaneDied")
    assert still.status() == 0
    assert still.worker().crash_count == len(ids) == 5
    assert still.applied() == ids


def test_commands_at_the_same_time_apply_each_event_once(still: Still) -> None:
    """Break: no worker lock in catch_up."""
    start = FORK.Barrier(4)

    def apply() -> None:
        start.wait(20)
        catch_up(open_project(str(still.fleet.root)))

    ids = []
    for _ in range(5):
        ids += still.write("PaneDied", "PaneDied")
        readers = [FORK.Process(target=apply, daemon=True) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        assert [reader.exitcode for reader in readers] == [0] * 4
    assert still.worker().crash_count == 10
    assert still.applied() == ids


def test_malformed_files_are_ignored_with_an_event(still: Still) -> None:
    """Break: `continue` without tx.emit for a Malformed in intake._apply."""
    first = still.write("PaneDied")
    (still.inbox / f"{time.time_ns()}-1.json").write_bytes(b'{"worker":"adam","payload":{"a":"\xff"}}')
    (still.inbox / f"{time.time_ns()}-2.json").write_bytes(b"[" * 50_000)
    last = still.write("PaneDied")
    assert still.status() == 0
    assert [row["action"] for row in still.rows()] == [
        "agent_exited",
        "hook_ignored",
        "hook_ignored",
        "agent_exited",
    ]
    assert all(row["why"] for row in still.rows() if row["action"] == "hook_ignored")
    assert still.applied() == first + last
    assert still.worker().crash_count == 2
    assert os.listdir(still.inbox) == []
    assert still.status() == 0
    assert len(still.rows()) == 4


def test_a_report_names_the_message_it_was_made_in(still: Still, tmp_path: Path) -> None:
    """Its conversation may have begun with an event that waits too. Break: look in the former conversation, as the
    record has it; or take what the agent wrote after its report.
    """
    former, now = tmp_path / "former.jsonl", tmp_path / "now.jsonl"

    def reply(uuid: str) -> str:
        at = datetime.now(UTC).isoformat()
        return (
            json.dumps({"type": "assistant", "uuid": uuid, "timestamp": at, "message": {"content": "x"}})
            + "\n"
        )

    former.write_text(reply("former"))
    with still.store.transaction() as tx:
        tx.update("adam", transcript_path=str(former))
    still.write("SessionStart", source="clear", session_id="s2", transcript_path=str(now))
    now.write_text(reply("before"))
    still.write(REPORT, kind="progress", text="half")
    with now.open("a") as file:
        file.write(reply("after"))
    assert still.status() == 0
    (told,) = [row for row in still.rows() if row["action"] == "agent_reported"]
    assert told["message_id"] == "before"


@pytest.mark.parametrize("instance", ["older", ""])
def test_events_of_another_launch_mean_nothing(still: Still, instance: str) -> None:
    """Break: no comparison of instances in decide.judge."""
    (event_id,) = still.write("PaneDied", instance=instance)
    assert still.status() == 0
    assert still.worker().crash_count == 0
    (row,) = still.rows()
    assert (row["action"], row["event"]) == ("hook_ignored", event_id)
    assert os.listdir(still.inbox) == []


def test_an_unmarked_event_does_not_start_a_worker_that_has_no_agent(still: Still) -> None:
    """Break: compare "" with "" in decide.judge: the worker would be idle without an agent."""
    with still.store.transaction() as tx:
        tx.put(replace(tx.worker("adam"), status=Status.OFFLINE, instance="", error_reason=""))
    still.write("SessionStart", instance="")
    assert still.status() == 0
    assert still.worker().status is Status.OFFLINE
    assert [row["action"] for row in still.rows()] == ["hook_ignored"]


def test_an_agent_that_never_stops_writing_events_holds_up_nobody(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `while True` in apply_pending; no limit in `_is_told`; or no `_look_for_others`."""
    numbers = itertools.count()
    project = open_project(str(still.fleet.root))

    def endless(*_: object) -> list[Malformed]:
        return [Malformed(id=f"{next(numbers)}-1.json", problem="no event") for _ in range(100)]

    monkeypatch.setattr(intake.kinds, "waiting", endless)
    intake.apply_pending(project, "adam")
    whys = [row["why"] for row in still.rows()]
    assert whys[: intake.MOST_TOLD_ALIKE + 1] == ["no event"] * intake.MOST_TOLD_ALIKE + ["95 more events"]
    assert len(whys) == (intake.MOST_TOLD_ALIKE + 1) * intake.MOST_ROUNDS
    monkeypatch.undo()
    with still.store.transaction() as tx:
        tx.update("adam", contained=True)
    (still.inbox / "notes.txt").touch()
    intake.apply_pending(project, "adam")
    assert "ignored it: 1 file (notes.txt)" in still.store.read().attention["forged:adam"].text


def test_with_a_daemon_and_after_its_death(scripted: Fleet) -> None:
    """Hooks, a daemon and commands at once. Break: no worker lock in the daemon's lane or in catch_up."""
    scripted.set_up("adam")
    scripted.up()
    store = Store(Root(scripted.root))
    inbox = scripted.root / ".llmc/inbox/adam"
    wait_until(lambda: not os.listdir(inbox))
    known = {row.get("event") for row in scripted.events()}

    def send(count: int) -> None:
        env = {"LLMC_WORKER": "adam", "LLMC_INSTANCE": store.worker("adam").instance}
        argv = [sys.executable, "-I", "-S", hook_client.__file__, str(inbox)]
        argv.append(str(Root(scripted.root).wake_socket()))
        for _ in range(count):
            payload = b'{"hook_event_name":"PostCompact"}'
            subprocess.run(argv, input=payload, env=env, check=True, timeout=30)

    def ours() -> list[str]:
        rows = [row for row in scripted.events() if row.get("hook") == "PostCompact"]
        return [row["event"] for row in rows if row["event"] not in known]

    send(8)
    wait_until(lambda: not os.listdir(inbox))
    with_daemon = ours()
    assert len(with_daemon) == 8
    assert with_daemon == sorted(set(with_daemon))
    scripted.kill_daemon()
    send(4)
    assert len(os.listdir(inbox)) == 4
    scripted.status("adam")
    everything = ours()
    assert everything[:8] == with_daemon
    assert len(everything) == 12
    assert everything == sorted(set(everything))
    assert os.listdir(inbox) == []
