"""The canary: a client that is new to a root is tested in a scratch session before auto mode trusts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmc.base import locks
from llmc.config.root_layout import tmux_server
from tests.support.attention import TOLD_OF_ALL, is_told, on_every_surface
from tests.support.fleet import REAL_IN_SOAK, Fleet, Result, in_soak
from tests.support.odd_client import OddClient
from tests.support.plans import auto_config
from tests.support.supervise import QUICK, Overseer
from tests.support.waiting import wait_until
from tests.support.webhook import Webhook

HOOKS = [
    "SessionStart (startup)",
    "UserPromptSubmit",
    "Stop",
    "SessionEnd (clear)",
    "SessionStart (clear)",
    "SessionEnd (prompt_input_exit)",
]


def verdict(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / ".llmc/canary.json").read_text()))


def kinds_of(hooks: list[str]) -> list[str]:
    """The client's own hooks, each once: a busy client gets a second message.
    tmux reports the dead pane, in its own time.
    """
    return [hook for hook in dict.fromkeys(hooks) if hook != "PaneDied"]


def scratch(fleet: Fleet) -> list[Path]:
    return sorted((fleet.root / ".llmc/canary").iterdir())


def sessions_of(folder: Path) -> str:
    argv = ["tmux", "-L", tmux_server(str(folder)), "list-sessions"]
    return subprocess.run(argv, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}).stdout


def running(fleet: Fleet) -> Path | None:
    """The directory of a canary that is running."""
    found = (fleet.root / ".llmc/canary").glob("*")
    return next((path for path in found if "canary" in sessions_of(path)), None)


def up(fleet: Fleet, *args: str, code: int = 0) -> Result:
    return fleet.llmc("up", "--auto", "--detach", *args, code=code, timeout=200)


def set_up(fleet: Fleet, **config: str) -> Fleet:
    return fleet.set_up(config=auto_config(fleet, **{"defaults.ready_timeout_s": "60", **config}))


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_client_that_works_passes(fleet: Fleet) -> None:
    """Break: launch it where the root's trust does not apply; send no /exit; leave the session behind."""
    set_up(fleet)
    done = up(fleet, "--canary")
    said = [line for line in done.err.splitlines() if line.startswith("canary: ")]
    assert "has not been tested in this root" in said[0], "it says why, and keeps reporting progress"
    assert "canary: submit: passed" in said
    found = verdict(fleet)
    assert found["passed"], found
    assert set(found["probes"].values()) <= {"passed", "not_tried"}, json.dumps(found)
    assert (found["cannot_see"], kinds_of(found["hooks"])) == ([], HOOKS)
    assert scratch(fleet) == []
    assert list(fleet.llmc("status", "--json").json["workers"][0]["name"]) == list("auto-1")
    doctor = fleet.llmc("doctor").out
    assert f"canary: {found['client']} with {found['tmux']}: passed" in doctor.splitlines()[0]


@pytest.mark.soak
def test_it_is_tried_when_its_version_is_new(scripted: Fleet, hook: Webhook) -> None:
    """Break: forget what was tested; treat a failure as a pass; delay a manual `up`; ignore --no-canary."""
    fleet = scripted
    client = OddClient(fleet, "slow:Stop")
    set_up(fleet, **{"notify.webhook": hook.url, **TOLD_OF_ALL})
    assert "requires --auto" in fleet.llmc("up", "--no-canary", code=2).err
    first = up(fleet)
    assert "canary: queue: passed" in first.err, "the message to a busy agent is in its transcript"
    assert set(verdict(fleet)["probes"].values()) == {"passed"}
    fleet.llmc("down")
    client.is_broken("exit")
    assert "canary" not in up(fleet).err, "nothing has changed, so nothing is tested"
    fleet.llmc("down")

    client.has_version("3.0.1 (odd)")
    refused = up(fleet, "--json", code=3)
    assert "the client changed from 3.0.0 (odd) to 3.0.1 (odd)" in refused.err
    assert "cannot start auto mode: the client exited with code 3 after /exit" in refused.err
    assert "--no-canary" in refused.json["hint"]
    assert refused.json["canary"]["probes"]["exit"] == "failed"
    assert kinds_of(refused.json["canary"]["hooks"]) == HOOKS
    assert f"hooks received: {HOOKS[0]}, {HOOKS[1]}" in refused.err
    assert "  | ❯" in refused.err, "the end of the screen is shown as evidence"
    assert not (fleet.root / ".llmc/daemon.json").exists()
    assert sessions_of(*scratch(fleet)) == "", "its directory is kept, not its session"

    view = fleet.llmc("doctor", "--json", code=1).json
    assert [row["kind"] for row in view["findings"]] == ["canary"]
    assert "code 3" in view["findings"][0]["text"]
    assert "the last test of" in up(fleet, code=3).err, "a failure is tested again"
    assert "canary" not in fleet.llmc("up", "--detach").err
    fleet.llmc("down")
    assert "canary" not in up(fleet, "--no-canary").err
    items = on_every_surface(fleet, "canary")
    assert (
        "canary failed for 3.0.1 (odd): the client exited with code 3 after /exit" in items["canary"]["text"]
    )
    assert items["canary"]["next"] == "llmc down && llmc up --auto --detach --canary"
    is_told(hook, "canary")
    fleet.llmc("down")
    client.is_broken()
    up(fleet)
    assert [path for path in scratch(fleet) if path.exists()] == [], (
        "the next try clears the failed ones away"
    )


@pytest.mark.parametrize(
    ("broken", "probe", "words"),
    [
        ("hook:SessionStart", "ready", "did not run the SessionStart hook"),
        pytest.param(
            *("enter", "submit", "did not confirm a prompt: the agent did not accept the prompt"),
            marks=pytest.mark.soak,
        ),
        ("hook:Stop", "stop", "did not run the Stop hook at the end of its turn"),
        pytest.param("clear", "clear", "/clear did not start a new conversation", marks=pytest.mark.soak),
    ],
)
def test_a_client_that_llmc_cannot_drive_is_refused(
    scripted: Fleet, broken: str, probe: str, words: str
) -> None:
    """Break: pass the probe without a check, or continue with auto mode after a failure."""
    OddClient(scripted, broken)
    set_up(scripted, **({"defaults.ready_timeout_s": "3"} if probe == "ready" else {}))
    assert words in up(scripted, code=3).err
    results = verdict(scripted)["probes"]
    assert [name for name, result in results.items() if result == "failed"] == [probe]
    later = list(results)[list(results).index(probe) + 1 :]
    assert {results[name] for name in later} <= {"not_tried"}, "nothing is claimed that was not seen"
    assert not (scripted.root / ".llmc/daemon.json").exists()


@pytest.mark.soak
def test_what_llmc_cannot_see_is_said(scripted: Fleet) -> None:
    """Break: refuse a client for a missing feature that llmc does not need, or do not report it."""
    OddClient(scripted, "status", "hook:UserPromptSubmit")
    set_up(scripted)
    said = up(scripted).err
    assert "warning: the canary could not observe the client's status file" in said
    assert "warning: the canary could not observe the UserPromptSubmit hook" in said
    found = verdict(scripted)
    assert (found["passed"], len(found["cannot_see"])) == (True, 2)
    assert "cannot observe the client's status file" in scripted.llmc("doctor").out


@pytest.mark.soak
def test_a_try_that_is_cut_short_leaves_no_session(scripted: Fleet) -> None:
    """Break: let SIGTERM end the process immediately; do not find the session of a killed test."""
    OddClient(scripted, "hook:SessionStart")
    set_up(scripted)
    for number in (signal.SIGTERM, signal.SIGKILL):
        begun = subprocess.Popen(
            [sys.executable, "-m", "llmc", "up", "--auto"],
            cwd=scripted.source,
            env=scripted.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        folder = wait_until(lambda: running(scripted), 60)
        os.kill(begun.pid, number)
        begun.wait(60)
        assert ("canary" in sessions_of(folder)) is (number is signal.SIGKILL)
    kinds = [row["kind"] for row in scripted.llmc("doctor", "--json", code=1).json["findings"]]
    assert kinds == ["canary_left"]
    scripted.llmc("doctor", "--repair", "--yes")
    assert sessions_of(folder) == ""


@pytest.mark.req("0-163")
@pytest.mark.parametrize("number", [signal.SIGTERM, *in_soak(signal.SIGINT)])
def test_a_supervisor_that_is_stopped_during_the_canary(scripted: Fleet, number: signal.Signals) -> None:
    """Break: let the interruption of the canary end the supervisor, or start a daemon after it."""
    OddClient(scripted, "hook:SessionStart")
    set_up(scripted, **QUICK)
    supervisor = Overseer(scripted, "true")
    try:
        folder = wait_until(lambda: running(scripted), 60, story=lambda: supervisor.said)
        assert supervisor.stop(number) == 0, supervisor.said
    finally:
        supervisor.close()
    assert (supervisor.row["state"], supervisor.row["why"]) == ("terminated", "stopped on request")
    assert "daemon" not in [event["action"].split("_")[1] for event in scripted.events()]
    assert sessions_of(folder) == ""


@pytest.mark.req("0-152")
def test_a_supervisor_waits_while_the_canary_has_no_result(scripted: Fleet) -> None:
    """Break: end the supervisor because of another canary, or of an API that does not answer."""
    client = OddClient(scripted, "silent")
    set_up(scripted, **{**QUICK, "auto.api_backoff_secs": "0.2"})
    lock = scripted.root / ".llmc/locks/canary.lock"
    claim = locks.hold_forever(lock)
    assert claim is not None
    supervisor = Overseer(scripted, "true", TURN_S="3")
    try:
        wait_until(lambda: "another canary is running" in supervisor.said, 60, lambda: supervisor.said)
        os.close(claim)
        wait_until(lambda: "did not finish" in supervisor.said, 60, lambda: supervisor.said)
        assert not (scripted.root / ".llmc/canary.json").exists(), "nothing is known about this client"
        client.is_broken()
        wait_until(supervisor.daemon, 90, lambda: supervisor.said)
        assert verdict(scripted)["passed"]
        first = scripted.events("overseer_failure")[0]
        assert (first["kind"], first["cause"]) == ("start", "canary")
        assert supervisor.stop() == 0
    finally:
        supervisor.close()
