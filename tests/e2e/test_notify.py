"""Notifications and rotated logs through the public command line."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.auto import Daemon, add, set_up, wait_for
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.webhook import SECRET, Webhook

Follow = Callable[..., Path]


@pytest.fixture
def follow(scripted: Fleet) -> Iterator[Follow]:
    """Start a command that follows; returns where its output goes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> Path:
        out = scripted.dir / f"follow-{len(started)}"
        argv = [sys.executable, "-m", "llmc", *args]
        with out.open("wb") as sink:
            started.append(subprocess.Popen(argv, cwd=scripted.source, env=scripted.env, stdout=sink))
        return out

    yield start
    for process in started:
        process.kill()
        process.wait()


def written(fleet: Fleet) -> str:
    """Everything llmc wrote, except config.toml."""
    files = [
        *(fleet.root / "logs").rglob("*"),
        *(fleet.root / ".llmc").glob("*.json*"),
        fleet.root / "state.json",
    ]
    return "\n".join(path.read_text(errors="replace") for path in files if path.is_file())


@pytest.mark.req("7-001", "7-002", "7-011")
def test_auto_mode_tells_what_a_person_should_know(scripted: Fleet, hook: Webhook) -> None:
    """A park, a hard failure and the report: each once, even across a daemon restart.

    Break: leave `_tell` out of the daemon's loop, `post` out of `report`, `flush` out of the end,
    or let task_completed end a failure.
    """
    set_up(scripted, **{"notify.webhook": hook.url, "auto.post_accept_command": "exit 7"})
    add(scripted, 1, "@sh test -e limited || { touch limited; exit 0; }", "@limit 1")
    daemon = Daemon(scripted)
    wait_for(scripted, lambda: "fleet_parked" in hook.kinds())
    daemon.stop()
    wait_until(lambda: "digest" in hook.kinds())
    (scripted.dir / "tasks/plan/1.json").unlink()
    add(scripted, 2)
    assert Daemon(scripted).ends() == 1
    failed = [body for body in hook.got if body["kind"] == "auto_failed"]
    assert [(body["cause"], body["key"]) for body in failed] == [("command", "command")]
    assert "Auto mode stopped: command" in failed[0]["title"]
    assert "llmc up --auto" in failed[0]["body"]
    digests = [body for body in hook.got if body["kind"] == "digest"]
    assert "1 task landed" in digests[-1]["title"]
    daemon = Daemon(scripted)
    wait_for(scripted, lambda: len(scripted.events("auto_started")) == 3)
    daemon.stop()
    assert hook.kinds().count("auto_failed") == 1
    listed = scripted.llmc("notify", "list", "--json").json
    assert {one["kind"] for one in listed["incidents"]} >= {"fleet_parked", "auto_failed", "digest"}
    assert listed["channels"] == ["webhook"]
    assert all(one["told"] == ["webhook"] for one in listed["incidents"])
    assert {row["kind"] for row in scripted.events("notified")} >= {"fleet_parked", "auto_failed", "digest"}
    assert SECRET not in written(scripted)


@pytest.mark.req("7-011")
def test_the_budget_of_a_run_is_told(scripted: Fleet, hook: Webhook) -> None:
    """Break: no event `budget_reached` in _drain_over_budget."""
    config = {"notify.webhook": hook.url, "auto.budget.run_tokens": "1"}
    set_up(scripted, **config)
    add(scripted, 1)
    daemon = Daemon(scripted)
    wait_for(scripted, lambda: "budget_reached" in hook.kinds())
    daemon.ends()
    keys = [body["key"] for body in hook.got if body["kind"] == "budget_reached"]
    assert "budget:run" in keys
    assert len(keys) == len(set(keys))


@pytest.mark.req("7-006", "7-007", "7-012", "7-013")
@pytest.mark.soak
def test_a_worker_in_error_is_told_and_test_tries_each_channel(scripted: Fleet, hook: Webhook) -> None:
    """Break: notify of needs_review by default; or exit 0 when a channel failed."""
    assert "llmc config set" in scripted.set_up("adam", "eve").llmc("notify", "test", code=3).err
    out = scripted.dir / "told.jsonl"
    scripted.llmc("config", "set", "notify.command", f"cat >> {out}")
    scripted.llmc("config", "set", "notify.webhook", hook.url)
    said = scripted.llmc("notify", "test").out
    assert (said, hook.kinds()) == ("command: sent\nwebhook: sent\n", ["test"])
    hook.status = 404
    rows = scripted.llmc("notify", "test", "--json", code=1).json
    assert rows[1] == {"channel": "webhook", "result": "failed", "reason": "HTTP status 404"}
    scripted.up()
    scripted.llmc(
        "start",
        "--worker",
        "eve",
        "--prompt",
        "@sh echo x > x; git add x; git -c user.name=a -c user.email=a@b commit -qm x",
    )
    scripted.wait("eve", "needs_review")
    scripted.llmc("start", "--worker", "adam", "--prompt", "@crash 3")

    def told() -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in out.read_text().splitlines() if line]
        return [row for row in rows if row["kind"] != "test"]

    wait_until(told, 30)
    wait_until(lambda: scripted.events("notify_failed"), 30)
    assert [(row["kind"], row["worker"]) for row in told()] == [("worker_error", "adam")]
    found = scripted.llmc("doctor", code=None).out
    assert "notify: the last notification to webhook failed: HTTP status 404" in found
    assert "worker_error: adam: agent crashed" in scripted.llmc("notify", "list").out
    assert SECRET not in found + written(scripted)


@pytest.mark.req("7-030", "7-032", "7-033", "7-034")
@pytest.mark.soak
def test_logs_rotate_while_everything_goes_on(scripted: Fleet, follow: Follow) -> None:
    """Followers see every line; sums and undo read rotated events. Break: no `rotate_logs` in the daemon."""
    record = scripted.root / "logs/remediation_20261115T000000.txt"
    scripted.set_up("adam", config={"logs.max_mb": "0.001", "logs.keep": "2"})
    logs = scripted.root / "logs"
    logs.mkdir(exist_ok=True)
    record.write_text("x" * 5000)
    scripted.up()
    followed = follow("events", "--json", "--follow")
    commit = "@sh echo x > x; git add x; git -c user.name=a -c user.email=a@b commit -qm x"
    scripted.llmc("start", "--worker", "adam", "--prompt", commit)
    scripted.wait("adam", "needs_review")
    scripted.llmc("accept", "adam")
    for _ in range(6):
        scripted.llmc("hold", "adam")
        scripted.llmc("release", "adam")
    wait_until(lambda: (logs / "events.jsonl.000001").exists(), 30)
    for _ in range(6):
        scripted.llmc("hold", "adam")
        scripted.llmc("release", "adam")
    wait_until(lambda: (logs / "events.jsonl.000002").exists(), 30)
    scripted.llmc("hold", "adam")
    scripted.llmc("release", "adam")
    seqs = [row["seq"] for row in scripted.printed_events()]
    assert seqs == list(range(1, len(seqs) + 1))
    wait_until(lambda: lines(followed)[-1:] and json.loads(lines(followed)[-1])["seq"] == seqs[-1])
    assert [json.loads(line)["seq"] for line in lines(followed)] == seqs
    assert scripted.llmc("undo", "--yes", "--json").json["worker"] == "adam"
    assert record.stat().st_size == 5000


def lines(path: Path) -> list[str]:
    return path.read_text().rpartition("\n")[0].splitlines()
