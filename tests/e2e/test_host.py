"""Two roots in one daemon process: each has its own work, records, failures and end."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc.config.root_layout import HEARTBEAT
from tests.support.auto import add, commit, set_up, statuses, until
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2]


@pytest.fixture
def other() -> Iterator[Fleet]:
    made = Fleet("scripted")
    yield made
    made.close()


def registration(fleet: Fleet) -> dict[str, Any]:
    path = fleet.root / ".llmc/daemon.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def log(fleet: Fleet) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (fleet.root / "logs/daemon.jsonl").read_text().splitlines()]


@contextmanager
def host_of(*fleets: Fleet) -> "Iterator[subprocess.Popen[str]]":
    argv = [sys.executable, "-m", "tests.support.two_roots", *(str(fleet.root) for fleet in fleets)]
    with (
        (fleets[0].dir / "host.out").open("w") as out,
        subprocess.Popen(
            argv, cwd=HOME, env=fleets[0].env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
        ) as host,
    ):
        try:
            yield host
        finally:
            if host.poll() is None:
                host.kill()


def test_two_roots_in_one_process(scripted: Fleet, other: Fleet) -> None:
    """Break: use one logger for the process; share a lane's rounds between roots; use one lock for all
    post-accept commands; or let `down` signal the root's process.
    """
    one, two = set_up(scripted), set_up(other)
    # The first root's post-accept command hangs: a thread of its lane blocks until the test lets it continue.
    gate, hangs = one.dir / "go", one.dir / "hangs"
    one.configure({"auto.post_accept_command": f"touch {hangs}; {until(gate)}"})
    two.configure({"auto.post_accept_command": "true"})
    for fleet in (one, two):
        add(fleet, 1)
    with host_of(one, two) as host:
        wait_until(lambda: all(registration(fleet).get("ready") for fleet in (one, two)))
        assert {registration(fleet)["pid"] for fleet in (one, two)} == {host.pid}
        assert registration(one)["instance_id"] != registration(two)["instance_id"]
        wait_until(hangs.exists)
        wait_until(lambda: bool(two.events("task_completed")))
        # It hangs; the other root takes the next task, and lands it.
        add(two, 2, commit(2))
        wait_until(lambda: statuses(two)["2"] == "completed")
        beats = [json.loads((f.root / HEARTBEAT).read_text()) for f in (one, two)]
        assert [beat["instance_id"] for beat in beats] == [registration(f)["instance_id"] for f in (one, two)]
        # One stops cleanly; the other continues, in the same process.
        gate.touch()
        one.llmc("down")
        assert not one.has_daemon()
        assert host.poll() is None
        assert not registration(one)
        assert not (one.root / ".llmc/stop.json").exists()
        assert [row["action"] for row in one.events() if row["action"] == "daemon_stopped"] == [
            "daemon_stopped"
        ]
        assert two.events("daemon_stopped") == []
        assert two.has_daemon()
        add(two, 3, commit(3))
        wait_until(lambda: statuses(two)["3"] == "completed")
        for fleet, stranger in ((one, two), (two, one)):
            assert str(stranger.root) not in json.dumps(log(fleet))
        # The root is free: a daemon of its own can take it over.
        one.up()
        assert registration(one)["pid"] != host.pid
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0
        assert not two.has_daemon()
        assert one.has_daemon()
        assert [row["pid"] for row in log(two) if row["action"] == "daemon_started"] == [host.pid]


def test_a_daemon_that_accepts_no_request_gets_a_signal(scripted: Fleet) -> None:
    """Break: only send a request; or obey a request that names another daemon."""
    fleet = scripted.set_up("adam")
    fleet.up()
    request = fleet.root / ".llmc/stop.json"
    request.write_text(json.dumps({"instance_id": "a former daemon", "signal": "SIGTERM"}))
    fleet.llmc("add", "bert")
    wait_until(lambda: "bert: " in (fleet.root / "logs/daemon.out").read_text())
    assert request.exists(), "the daemon was woken, and did not accept it"
    (fleet.root / ".llmc/run/wake.sock").unlink()
    fleet.llmc("down")
    assert not fleet.has_daemon()
    assert not request.exists()
