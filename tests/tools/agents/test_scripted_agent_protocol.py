"""The scripted agent's files and payloads have the real client's keys (sampled from 2.1.197 and 2.1.325)."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_pane import Pane
from tests.support.waiting import wait_until

COMMON = {"session_id", "transcript_path", "cwd", "hook_event_name"}
TURN = COMMON | {"prompt_id"}
PAYLOADS = {
    "SessionStart": COMMON | {"source", "model"},
    "UserPromptSubmit": TURN | {"permission_mode", "prompt"},
    "PreToolUse": TURN | {"permission_mode", "effort", "tool_name", "tool_input", "tool_use_id"},
    "PostToolUse": TURN | {"permission_mode", "effort", "tool_name", "tool_input", "tool_use_id", "tool_response", "duration_ms"},
    "PermissionRequest": TURN | {"permission_mode", "effort", "tool_name", "tool_input"},
    "Stop": TURN | {"permission_mode", "effort", "stop_hook_active", "last_assistant_message", "background_tasks", "session_crons"},
    "StopFailure": TURN | {"effort", "error", "last_assistant_message"},
    "SessionEnd": TURN | {"reason"},
    "Notification": TURN | {"message", "notification_type"},
}  # fmt: skip

ROW = {
    "parentUuid",
    "isSidechain",
    "type",
    "uuid",
    "timestamp",
    "userType",
    "entrypoint",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
}
ROWS = {
    "prompt": ROW | {"session_id", "promptId", "message", "permissionMode", "origin", "promptSource"},
    "result": ROW | {"session_id", "promptId", "message", "toolUseResult", "sourceToolAssistantUUID"},
    "assistant": ROW | {"session_id", "message", "requestId"},
    "attachment": ROW | {"session_id", "attachment"},
    "turn_duration": ROW | {"session_id", "subtype", "durationMs", "messageCount", "isMeta"},
    "enqueue": {"type", "operation", "timestamp", "sessionId", "content"},
    "remove": {
        "type",
        "operation",
        "timestamp",
        "sessionId",
        "content",
        "reason",
        "commandUuid",
        "deliveryId",
    },
}
USAGE = {
    "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use", "service_tier",
    "cache_creation", "inference_geo", "iterations", "speed",
}  # fmt: skip
STATUS = {
    "pid", "sessionId", "cwd", "startedAt", "procStart", "version", "peerProtocol", "kind", "entrypoint", "name", "nameSource",
    "status", "updatedAt", "statusUpdatedAt",
}  # fmt: skip


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    pane = Pane(tmp_path)
    yield pane
    pane.stop()


def agent(pane: Pane, *flags: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The agent without a terminal, to test its refusals."""
    command = [sys.executable, "-P", "-m", "llmc.agents.scripted", *flags]
    return subprocess.run(
        command,
        cwd=pane.cwd,
        env=pane.env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_payloads_and_rows_have_the_clients_keys(pane: Pane) -> None:
    (pane.config).mkdir()
    (pane.config / ".claude.json").write_text('{"messageIdleNotifThresholdMs": 300}')
    pane.start()
    pane.send("@sh while [ ! -e go ]; do sleep 0.02; done\n@ask Sure?")
    pane.wait_hook("PreToolUse")
    pane.send("@say joined")
    pane.wait_hook("UserPromptSubmit", 2)
    (pane.cwd / "go").touch()
    pane.wait_status("waiting")
    wait_until(lambda: pane.composer() is None)
    pane.keys("Enter")
    pane.wait_hook("Stop")
    pane.wait_hook("Notification")
    pane.send("@error 529")
    pane.wait_hook("StopFailure")
    assert set(pane.wait_status("idle")) >= STATUS
    pane.keys("/exit", "Enter")
    pane.wait_hook("SessionEnd")
    for event, keys in PAYLOADS.items():
        assert set(pane.hooks(event)[0]) == keys, event

    rows = pane.rows()
    prompts = [row for row in rows if "promptSource" in row]
    results = [row for row in rows if "toolUseResult" in row]
    kinds = {"prompt": prompts[0], "result": results[0]}
    for row in rows:
        kinds.setdefault(row.get("operation") or row.get("subtype") or row["type"], row)
    for kind, keys in ROWS.items():
        assert set(kinds[kind]) == keys, kind
    assert set(kinds["assistant"]["message"]["usage"]) == USAGE
    chain = [row for row in rows if "uuid" in row]
    assert [row["parentUuid"] for row in chain] == [None, *(row["uuid"] for row in chain[:-1])]


def test_the_status_file_names_the_process(pane: Pane) -> None:
    pane.start()
    status = pane.status()
    stat = Path(f"/proc/{status['pid']}/stat").read_text()
    assert status["procStart"] == stat.rpartition(")")[2].split()[19]
    assert status["cwd"] == str(pane.cwd)
    assert pane.status_files()[0].name == f"{status['pid']}.json"


def test_resume_goes_on_in_the_same_transcript(pane: Pane) -> None:
    session = "11111111-2222-4333-8444-555555555555"
    pane.start("--session-id", session)
    pane.send("[llmc task-1]\n@on-conflict touch resolved\n@say a")
    first = pane.wait_hook("Stop")
    assert first["session_id"] == session
    pane.keys("/exit", "Enter")
    assert pane.exit_code() == 0
    pane.tmux("kill-session", "-t", "=a")
    pane.start("--resume", session, ready=False)
    assert pane.wait_hook("SessionStart", 2)["source"] == "resume"
    pane.wait_status("idle")
    pane.send("[llmc conflict-2]\nplease")
    assert pane.wait_hook("Stop", 2)["transcript_path"] == first["transcript_path"]
    assert (pane.cwd / "resolved").exists()
    pane.wait_status("idle")
    chain = [row for row in pane.rows() if "uuid" in row]
    assert [row["parentUuid"] for row in chain] == [None, *(row["uuid"] for row in chain[:-1])]
    assert "is already in use" in agent(pane, "--session-id", session).stderr


def test_what_the_command_line_refuses(pane: Pane) -> None:
    assert agent(pane, "--version").stdout == "2.1.325 (llmc scripted agent)\n"
    for flags in (
        ["--nope"],
        ["--resume", "no-such"],
        ["--continue"],
        ["--session-id", "x"],
        ["--settings", "/no/file"],
    ):
        refused = agent(pane, *flags)
        assert (refused.returncode, bool(refused.stderr)) == (1, True), flags


def test_an_inherited_child_mark_silences_transcript_and_status(tmp_path: Path) -> None:
    pane = Pane(tmp_path, {"CLAUDE_CODE_CHILD_SESSION": "1"})
    try:
        pane.start(ready=False)
        pane.wait_hook("SessionStart")
        pane.send("hello")
        pane.wait_hook("Stop")
        assert not pane.rows()
        assert not pane.status_files()
    finally:
        pane.stop()


def test_the_knobs_for_status_and_delay(tmp_path: Path) -> None:
    pane = Pane(tmp_path, {"LLMC_SCRIPTED_NO_STATUS": "1", "LLMC_SCRIPTED_START_DELAY": "1"})
    try:
        pane.start(ready=False)
        wait_until(lambda: pane.composer() == "")
        pane.send("early")
        wait_until(lambda: pane.composer() == "early")
        assert not pane.hooks()
        pane.wait_hook("SessionStart")
        assert pane.composer() == "early", "Enter was lost before the start"
        assert not pane.status_files()
    finally:
        pane.stop()


def test_hooks_that_fail_or_hang_do_not_stop_the_turn(pane: Pane) -> None:
    failing = {"type": "command", "command": "exit 3"}
    hanging = {"type": "command", "command": "sleep 60", "timeout": 0.2}
    pane.settings.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [failing]}], "UserPromptSubmit": [{"hooks": [hanging]}]}})
    )
    pane.start(ready=False)
    pane.wait_status("idle")
    pane.send("hello")
    wait_until(lambda: "Stop hook error: Failed with non-blocking status code" in pane.screen())
    pane.wait_status("idle")


def test_hooks_get_the_clients_environment_and_the_payload_on_a_pipe(pane: Pane) -> None:
    command = 'env >"$HOOKS/env"; test -p /dev/stdin && touch "$HOOKS/pipe"'
    settings = json.dumps(
        {
            "hooks": {
                "SessionStart": [{"matcher": "startup", "hooks": [{"type": "command", "command": command}]}]
            }
        }
    )
    pane.start("--settings", settings, ready=False)
    status = pane.wait_status("idle")
    env = dict(line.partition("=")[::2] for line in (pane.hook_dir / "env").read_text().splitlines())
    assert env["CLAUDE_PROJECT_DIR"] == str(pane.cwd)
    assert env["CLAUDE_CODE_SESSION_ID"] == status["sessionId"]
    assert (env["CLAUDECODE"], env["CLAUDE_CODE_CHILD_SESSION"]) == ("1", "1")
    assert (pane.hook_dir / "pipe").exists()


def test_a_resize_keeps_the_composer_readable(pane: Pane) -> None:
    pane.start()
    pane.send("hello")
    pane.wait_hook("Stop")
    pane.paste("one\ntwo words")
    wait_until(lambda: pane.composer() == "one\ntwo words")
    pane.tmux("resize-window", "-t", "=a:", "-x", "60", "-y", "20")
    wait_until(
        lambda: pane.screen().count("─" * 60) >= 2 and pane.composer() == "one\ntwo words", story=pane.story
    )
    pane.tmux("resize-window", "-t", "=a:", "-x", "500", "-y", "100")
    wait_until(lambda: pane.screen().count("─" * 500) == 2 and pane.composer() == "one\ntwo words")


def test_an_idle_agent_uses_no_cpu(pane: Pane) -> None:
    pane.start()
    stat = Path(f"/proc/{pane.status()['pid']}/status")

    def switches() -> int:
        return sum(int(line.split()[1]) for line in stat.read_text().splitlines() if "ctxt_switches" in line)

    wait_until(lambda: (before := switches()) and (time.sleep(0.5) or switches()) == before)
