"""`up --auto` gives out tasks or says that it does not; every surface shows when auto mode is not running."""

import json
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support import auto
from tests.support.auto import add, set_up, state, wait_completed
from tests.support.fleet import SANDBOX, Fleet
from tests.support.waiting import wait_until


def footer(fleet: Fleet) -> str:
    return fleet.llmc("status").out.partition("Auto Mode: ")[2]


@pytest.mark.req("0-240")
def test_a_plain_daemon_is_changed_over_and_a_dead_one_is_told(scripted: Fleet) -> None:
    """Break: let `up --auto` return because a daemon is running, let the handover stop the agents,
    or let the footer keep counting.
    """
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    fleet.llmc("add", "adam")
    fleet.up()
    plain, agent, go = fleet.daemon_pid(), fleet.pane_pid("adam"), fleet.marks / "go"
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh {auto.until(go)}; touch {fleet.marks}/went")
    fleet.wait("adam", "working")
    add(fleet, 1)
    changed = fleet.llmc("up", "--auto", "--detach", "--no-canary")
    assert "repo.validate is not set" in changed.err
    assert "in auto mode" in changed.out
    wait_completed(fleet, 1)
    assert auto.landed(fleet) == [1]
    # The user's worker was in the middle of a turn, and still is: the same process.
    assert (fleet.daemon_pid() != plain, fleet.pane_pid("adam")) == (True, agent)
    assert fleet.status("adam")["status"] == "working"
    go.touch()
    wait_until((fleet.marks / "went").exists)
    assert (state(fleet)["auto_mode"], state(fleet)["auto_workers"]) == (True, ["auto-1"])
    assert footer(fleet).startswith("1 worker, 1 task completed")
    # Options that would have no effect are refused.
    refused = fleet.llmc("up", "--auto", "--detach", "--max-tasks", "3", code=3)
    assert "--max-tasks would have no effect" in refused.err

    # It dies. Nothing may look as if it were running, and the plain daemon that follows gives out nothing.
    fleet.kill_daemon()
    assert footer(fleet).startswith("not running; 1 worker, ")
    assert "daemon not running (llmc up --auto --detach)" in fleet.llmc("status").out
    view = fleet.llmc("status", "--json").json
    assert (view["auto"]["wanted"], view["auto"]["running"]) == (True, False)
    assert "does not assign tasks. Next: llmc up --auto --detach\n" in fleet.llmc("up", "--detach").err
    assert "does not assign tasks" in fleet.llmc("up", "--detach").err, "even if it is already running"
    assert footer(fleet).startswith("not running")
    add(fleet, 2)
    fleet.llmc("config", "set", "repo.validate", "true")
    again = fleet.llmc("up", "--auto", "--detach", "--no-canary", "--max-tasks", "1")
    assert "repo.validate" not in again.err
    wait_completed(fleet, 2)
    # A run that ends as requested is not missed, nor is one that the user stops.
    wait_until(lambda: not (fleet.root / ".llmc/daemon.json").exists())
    assert state(fleet)["auto_mode"] is False
    assert "daemon not running (llmc up --detach)" in fleet.llmc("status").out
    fleet.llmc("down")
    assert re.match(r"finished \S+ ago: --max-tasks 1 reached; ", footer(fleet))
    assert "Auto mode ended at " in fleet.llmc("digest").out


def test_only_a_person_ends_auto_mode(scripted: Fleet) -> None:
    """Break: treat a SIGTERM from the system as the user's wish; or do not treat `down` as such."""
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    fleet.up("--auto")
    pid = fleet.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not (fleet.root / ".llmc/daemon.json").exists())
    assert state(fleet)["auto_mode"] is True
    (item,) = (row for row in fleet.llmc("status", "--json").json["attention"] if row["kind"] == "auto")
    assert item["next"] == "llmc up --auto --detach"
    assert item["text"] == "auto mode is not running: the daemon was stopped by SIGTERM", "it was not killed"
    told = fleet.llmc("digest", "--json").json
    assert (told["runs"]["how"], told["runs"]["reason"]) == ("stopped", "the daemon was stopped by SIGTERM")
    # No daemon is left to be told, but the user can still end auto mode.
    fleet.llmc("down")
    assert state(fleet)["auto_mode"] is False
    assert not [row for row in fleet.llmc("status", "--json").json["attention"] if row["kind"] == "auto"]


def test_the_digest_of_a_run_that_the_user_ends(scripted: Fleet) -> None:
    """Break: record the user's `down` only once the daemon is gone; its last digest says that it was killed."""
    news = scripted.marks / "news"
    fleet = set_up(scripted, **{"auto.concurrency": "1", "notify.command": f"cat >> {news}"})
    daemon = auto.Daemon(fleet, "--no-canary")
    wait_until(lambda: "ready; press" in daemon.said, 30)
    fleet.llmc("down")
    assert daemon.ends() == 0
    (told,) = (row for row in map(json.loads, news.read_text().splitlines()) if row["kind"] == "digest")
    assert "waiting for you" not in told["title"]
    assert "not running" not in daemon.said
    assert state(fleet)["auto"]["run"] == "stopped"


def test_a_run_that_was_killed_stays_killed(scripted: Fleet) -> None:
    """Break: let the next daemon's end, or whatever happens before it starts, be the end of a killed run."""
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    fleet.up("--auto", "--no-canary")
    fleet.kill_daemon()
    (begun,) = fleet.events("auto_started")
    alive = max(begun["ts"], (fleet.root / ".llmc/auto.heartbeat").stat().st_mtime)
    killed = time.time()
    wait_until(lambda: time.time() > killed + 0.3)
    fleet.llmc("add", "adam")  # an event of its own
    shown = [fleet.llmc("digest", "--json").json]
    fleet.llmc("up", "--detach")
    shown.append(fleet.llmc("digest", "--json").json)
    fleet.llmc("down")
    shown.append(fleet.llmc("digest", "--json").json)
    for told in shown:
        assert told["runs"]["how"] == "killed"
        assert told["runs"]["ended_unix"] == pytest.approx(alive, abs=0.2), "its last heartbeat"
        assert [row["text"].partition(" (")[0] for row in told["interruptions"]] == ["the daemon was killed"]


def client_that_ends(fleet: Fleet) -> tuple[Path, Path]:
    """A client that exits as soon as it starts, and the file with its output."""
    client = fleet.dir / "client/claude-like"
    client.parent.mkdir()
    client.write_text(
        """#!/bin/sh
        case "$1" in --version) echo '2.1.300 (Claude Code)';; *) cat "$0.says"; exit 1;; esac
        """
    )
    client.chmod(0o755)
    return client, client.with_name("claude-like.says")


def test_up_fails_when_no_agent_starts(scripted: Fleet) -> None:
    """Break: exit 0 for a fleet without agents; print the name twice; hint at `llmc up`, which is no help."""
    client, says = client_that_ends(scripted)
    scripted.set_up("anna", "bert")
    if SANDBOX == "off":
        _is_not_trusted(scripted, client)
    # Its client exits immediately: its last output is the reason, here and in the status.
    says.write_text("Failed to connect to api.example: ENOTFOUND\n\nNote: it may not be available.\n")
    said = "the agent exited immediately: Failed to connect to api.example: ENOTFOUND"
    assert f"anna: not started: {said}" in scripted.llmc("up", "--detach", code=1, LLMC_AGENT=str(client)).out
    before = scripted.status("anna")["since_unix"]
    says.write_text(
        "--dangerously-skip-permissions cannot be used with root/sudo privileges\n(see the docs)\n"
    )
    scripted.llmc("up", "--detach", code=1, LLMC_AGENT=str(client))
    (item,) = [one for one in scripted.llmc("status", "--json").json["attention"] if one["who"] == "anna"]
    assert (item["kind"], item["severity"]) == ("start_failed", "blocked")
    assert item["next"] == "llmc config set defaults.env.IS_SANDBOX 1, then llmc up --detach"
    assert item["since_unix"] > before, "the age of this failure, not of the first one"
    assert "Resting" not in scripted.llmc("status").out
    doctor = scripted.llmc("doctor", code=None, LLMC_AGENT=str(client)).out
    assert "anna did not start" in doctor or "anna: did not start" in doctor


def _is_not_trusted(fleet: Fleet, client: Path) -> None:
    """A contained client has its own home, which trusts its worktree."""
    failed = fleet.llmc("up", "--detach", code=1, LLMC_AGENT=str(client))
    assert "  anna: not started: Claude Code does not trust" in failed.out
    assert "no agent is running" in failed.err
    assert "anna: not started: Claude" in fleet.llmc("up", "--detach", code=1, LLMC_AGENT=str(client)).out
    shown = fleet.llmc("status").out
    assert "next: llmc init --trust && llmc up --detach" in shown
    assert "anna: Claude" not in shown
    fleet.llmc("init", "--trust", LLMC_AGENT=str(client))


def test_up_sees_an_end_that_tmux_did_not_tell(scripted: Fleet) -> None:
    """tmux 3.3a sometimes runs no hook when a program exits. Break: let `wait_ready` rely only on hooks."""
    deaf = scripted.dir / "deaf"
    deaf.mkdir()
    tmux = shlex.quote(str(shutil.which("tmux")))
    (deaf / "tmux").write_text(f'#!/bin/bash\nexec {tmux} "${{@/#pane-died/pane-mode-changed}}"\n')
    (deaf / "tmux").chmod(0o755)
    client, says = client_that_ends(scripted)
    says.write_text("no route to api.example\n")
    scripted.set_up("anna")
    env = {"LLMC_AGENT": str(client), "PATH": f"{deaf}:{scripted.env['PATH']}"}
    if SANDBOX == "off":
        scripted.llmc("init", "--trust", **env)
    failed = scripted.llmc("up", "--detach", code=1, **env)
    assert "anna: not started: the agent exited immediately: no route to api.example" in failed.out


def test_how_to_start_an_agent_follows_from_its_worker(scripted: Fleet) -> None:
    """Break: name `llmc up --detach` for an auto worker, which that command leaves alone."""
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    fleet.llmc("add", "adam")
    fleet.up("--auto", "--no-canary")
    fleet.llmc("down")
    for worker, start in (("adam", "llmc up --detach"), ("auto-1", "llmc up --auto --detach")):
        for command in (["peek", worker], ["attach", worker], ["message", worker, "hello"]):
            assert start in fleet.llmc(*command, code=3).err


def test_auto_mode_is_not_ready_before_its_run_is_recorded(scripted: Fleet) -> None:
    """Break: register as ready before `begin`; a daemon killed in between leaves nothing that says it was to run."""
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    died = fleet.llmc("up", "--auto", "--detach", "--no-canary", code=1, LLMC_FAULT="auto.begin:before:kill")
    assert "the daemon exited before its workers were ready" in died.err
    assert not fleet.events("auto_started")


def test_the_hints_to_start_auto_mode_name_its_options(scripted: Fleet) -> None:
    """Break: name `llmc up --auto --detach` alone: another number of workers, and no limit."""
    fleet = set_up(scripted, **{"auto.concurrency": "1"})
    options = "--concurrency 2 --post-accept-command 'true really' --until 2099-01-01T07:30 --max-tasks 7"
    again = f"llmc up --auto --detach {options}"
    fleet.up("--auto", "--no-canary", *shlex.split(options))
    fleet.kill_daemon()
    view = fleet.llmc("status", "--json").json
    assert view["auto"]["start"] == again
    (item,) = (row for row in view["attention"] if row["kind"] == "auto")
    assert item["next"] == again
    shown = (fleet.llmc(command).out for command in ("status", "digest"))
    status, digest = (" ".join(text.replace("\\\n", " ").split()) for text in shown)
    assert status.count(f"next: {again}") == 2  # of the item, and of auto mode
    assert again in digest
    fleet.llmc("down")
    for command in (["peek", "auto-1"], ["message", "auto-1", "hello"]):
        assert again in fleet.llmc(*command, code=3).err
    # It is accepted, and starts as many workers as before.
    assert "in auto mode" in fleet.llmc(*shlex.split(again)[1:], "--no-canary").out
    assert fleet.llmc("status", "--json").json["auto"]["workers"] == 2
    fleet.llmc("down")
    fleet.up("--auto", "--no-canary", "--max-tasks", "7")
    # While it runs, options would be refused.
    said = fleet.llmc("peek", "auto-2", code=3).err
    assert "`llmc up --auto --detach`" in said
    fleet.llmc("up", "--auto", "--detach")
