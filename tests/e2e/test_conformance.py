"""One script on both agents: the scripted agent must do what the real client does, not what tests want."""

import json
import os
import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmc.agents.claude.layout import HOOKS
from llmc.base.locks import Rank, lock
from llmc.base.names import header_id
from tests.support.agent_pane import SCRIPTED, Pane
from tests.support.loopback_api import LoopbackApi
from tests.support.real_client import client_env, find_client, seed_config
from tests.support.waiting import answer_dialog, wait_until

#: rows that llmc reads; the client writes others for itself
ROWS = ("user", "assistant", "queue-operation")
#: keys for the client's own bookkeeping: nothing here reads them, and the scripted agent does not write them
INTERNAL = {
    *(
        "apiBlockIndex",
        "apiErrorIsTransient",
        "apiErrorStatus",
        "apiErrorType",
        "effort",
        "perTurnEffort",
        "madeBy",
    ),
    *(
        "failedResponseHadNoToolCall",
        "promptCacheRequested",
        "requestRef",
        "requestedModel",
        "toolInputStreamMs",
    ),
    *("interruptedMessageId", "permissionDecision", "queueSkipAttachments", "sandboxed", "toolDenialKind"),
    *("turnOrigin", "turnPosition", "isMeta"),
}
#: events that may come at any time
UNTIMED = ("Notification",)


@dataclass
class Trace:
    """What one agent did at each step of the script."""

    hooks: dict[str, list[str]] = field(default_factory=dict)
    payload_keys: dict[str, set[str]] = field(default_factory=dict)
    statuses: set[str] = field(default_factory=set)
    rows: list[str] = field(default_factory=list)
    row_keys: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def play(pane: Pane) -> Trace:
    """The script; every step ends with an idle agent."""
    trace = Trace()
    seen = 0

    def step(name: str, act: Callable[[], None], until: Callable[[], object]) -> list[dict[str, Any]]:
        nonlocal seen
        act()
        wait_until(until, 30)
        fresh = [hook for hook in pane.hooks() if hook["hook_event_name"] in HOOKS][seen:]
        seen += len(fresh)
        trace.hooks[name] = [_label(hook) for hook in fresh if hook["hook_event_name"] not in UNTIMED]
        for hook in fresh:
            trace.payload_keys.setdefault(_label(hook), set()).update(hook)
        return fresh

    def ended(count: int) -> Callable[[], bool]:
        return lambda: len(pane.hooks("Stop") + pane.hooks("StopFailure")) >= count and rests()

    def rests() -> bool:
        return pane.status().get("status") == "idle"

    step("start", lambda: pane.start(ready=False), lambda: pane.hooks("SessionStart") and rests())
    step("plain", lambda: pane.send("[llmc message-a1]\nhello\n"), ended(1))
    step("tool", lambda: pane.send("[llmc message-a2]\n@sh echo made > made.txt\n@say done\n"), ended(2))

    def queue() -> None:
        pane.send(
            "[llmc message-a3]\n@say first\n@sh python3 -c 'import time; time.sleep(2)'\n@sh true\n@say done\n"
        )
        wait_until(lambda: pane.status().get("status") == "busy" and len(pane.hooks("PreToolUse")) >= 2)
        pane.send("[llmc message-a4]\n@say second\n")

    step("queued", queue, ended(3))
    trace.values["queued prompts"] = [hook["prompt"] for hook in pane.hooks("UserPromptSubmit")][2:4]

    def interrupt() -> None:
        pane.send("[llmc message-a5]\n@say begun\n@sh python3 -c 'import time; time.sleep(60)'\n")
        wait_until(lambda: len(pane.hooks("PreToolUse")) >= 4)
        pane.keys("Escape")

    step(
        "interrupt", interrupt, lambda: rests() and pane.hooks("UserPromptSubmit")[4:] and _interrupted(pane)
    )
    step(
        "clear",
        lambda: pane.keys("/clear", "Enter"),
        lambda: len(pane.hooks("SessionStart")) >= 2 and rests(),
    )

    def ask() -> None:
        pane.send("[llmc message-a6]\n@ask Which colour?\n")
        wait_until(lambda: pane.status().get("status") == "waiting")
        trace.values["waitingFor"] = pane.status().get("waitingFor")
        answer_dialog(
            lambda: pane.keys("Escape"), screen=pane.screen, status=lambda: pane.status().get("status", "")
        )

    step("ask", ask, rests)
    before = len(pane.hooks("Stop"))
    step(
        "overloaded",
        lambda: pane.send("[llmc message-a7]\n@error 529\n"),
        lambda: pane.hooks("StopFailure") and rests(),
    )
    step(
        "limit",
        lambda: pane.send("[llmc message-a8]\n@limit 60\n"),
        lambda: len(pane.hooks("StopFailure")) >= 2 and rests(),
    )
    trace.values["errors"] = [hook["error"] for hook in pane.hooks("StopFailure")]

    def background() -> None:
        pane.send("[llmc message-a9]\n@background python3 -c 'import time; time.sleep(2)'\n@say left it\n")
        wait_until(lambda: len(pane.hooks("Stop")) > before)
        trace.values["background"] = [
            task["status"] for task in pane.hooks("Stop")[before]["background_tasks"]
        ]
        wait_until(lambda: pane.status().get("status") == "shell")

    step("background", background, lambda: len(pane.hooks("Stop")) > before + 1 and rests())
    step(
        "task",
        lambda: pane.send("[llmc message-b1]\n@task Write the docs\n"),
        lambda: pane.hooks("TaskCreated") and len(pane.hooks("Stop")) > before + 2 and rests(),
    )
    trace.values["task files"] = {name: (pane.hook_dir / name).read_text() for name in ("announced", "named")}
    step("exit", lambda: pane.keys("/exit", "Enter"), lambda: pane.hooks("SessionEnd")[1:])
    trace.values["exit code"] = pane.exit_code()
    for row in pane.rows():
        if row["type"] in ROWS and not _is_local(row):
            trace.rows.append(_row_label(row))
            trace.row_keys.setdefault(_row_label(row).partition(":")[0], set()).update(row)
    trace.rows.sort()  # the files' names are random, so the order between files cannot be compared
    return trace


def _label(hook: dict[str, Any]) -> str:
    """The event with the field that tells its kinds apart."""
    kind = hook.get("source") or hook.get("reason") or hook.get("error") or hook.get("tool_name") or ""
    return f"{hook['hook_event_name']} {kind}".strip()


def _row_label(row: dict[str, Any]) -> str:
    """What a row says, without its random parts."""
    if row["type"] == "queue-operation":
        return f"queue-operation {row['operation']}: {header_id(row.get('content', ''))}"
    content = row["message"]["content"]
    if isinstance(content, str):
        return f"{row['type']}: {header_id(content) or content[:19]}"
    kinds = ", ".join(part["type"] for part in content)
    if row["type"] == "user" and kinds == "text":
        kinds = content[0]["text"]
    return f"{row['type']}: {kinds}"


def _is_local(row: dict[str, Any]) -> bool:
    """Rows about the client's own slash commands."""
    return "<command-name>" in str(row) or "<local-command" in str(row)


def _interrupted(pane: Pane) -> bool:
    return any("[Request interrupted by user" in str(row["message"]["content"]) for row in pane.rows("user"))


def _pane(root: Path, program: tuple[str, ...], api: LoopbackApi | None) -> Pane:
    environ = {"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1", "CLAUDE_CODE_TASK_LIST_ID": "conformance"}
    if api is not None:
        seed_config(root / "config", [root / "work.tree"])
        environ = client_env(root / "config", root / "home", api.url) | environ
    pane = Pane(root, environ, program)
    _note_task_files(pane)
    subprocess.run(["git", "init", "-q", str(pane.cwd)], check=True, env=pane.env)
    return pane


def _note_task_files(pane: Pane) -> None:
    """Which task files exist when a task is announced (slowly), and when it has its name."""
    settings = json.loads(pane.settings.read_text())
    look = 'sleep 0.3; ls "$CLAUDE_CONFIG_DIR/tasks/conformance" 2>/dev/null | grep json >"$HOOKS/{}"; true'
    for event, matcher, name in (("PreToolUse", "TaskCreate", "announced"), ("TaskCreated", "", "named")):
        hook = {"type": "command", "command": look.format(name), "timeout": 5}
        settings["hooks"][event].append({"matcher": matcher, "hooks": [hook]})
    pane.settings.write_text(json.dumps(settings))


@contextmanager
def _watched_status(pane: Pane) -> Iterator[set[str]]:
    """Every status the agent shows; the script stays in each for at least half a second."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            if status := pane.status().get("status"):
                seen.add(status)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, api: LoopbackApi) -> dict[str, Trace]:
    """Both agents, recorded once; the workers of one pytest run share it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return record(tmp_path_factory, api)
    shared = tmp_path_factory.getbasetemp().parent / f"conformance-{run}"
    with lock(shared.with_suffix(".lock"), Rank.WORKER, timeout_s=120):
        if not shared.exists():
            shared.write_bytes(pickle.dumps(record(tmp_path_factory, api)))
        found: dict[str, Trace] = pickle.loads(shared.read_bytes())
        return found


def record(tmp_path_factory: pytest.TempPathFactory, api: LoopbackApi) -> dict[str, Trace]:
    found = {}
    for name, program, server in (("real", (str(find_client()),), api), ("scripted", SCRIPTED, None)):
        pane = _pane(tmp_path_factory.mktemp(name), program, server)
        try:
            with _watched_status(pane) as statuses:
                found[name] = play(pane)
            found[name].statuses |= statuses
        finally:
            pane.stop()
    return found


pytestmark = pytest.mark.real_client


@pytest.mark.soak
def test_same_hooks_in_the_same_order(traces: dict[str, Trace]) -> None:
    """Break: let the scripted agent send Stop on Esc."""
    assert traces["scripted"].hooks == traces["real"].hooks


def test_same_payload_keys(traces: dict[str, Trace]) -> None:
    assert traces["scripted"].payload_keys == traces["real"].payload_keys


@pytest.mark.parametrize("agent", ["real", "scripted"])
def test_a_task_is_announced_before_its_file_exists(traces: dict[str, Trace], agent: str) -> None:
    """Break: run TaskCreate before its PreToolUse in the scripted agent: others could take the new task."""
    assert traces[agent].values["task files"] == {"announced": "", "named": "1.json\n"}


def test_same_status_values(traces: dict[str, Trace]) -> None:
    assert traces["scripted"].statuses == traces["real"].statuses


def test_same_transcript_rows(traces: dict[str, Trace]) -> None:
    assert traces["scripted"].rows == traces["real"].rows


def test_same_row_keys(traces: dict[str, Trace]) -> None:
    """Nothing invented, and nothing missing except the client's internals; a new key shows up here."""
    for label, keys in traces["real"].row_keys.items():
        assert traces["scripted"].row_keys[label] <= keys, label
        assert keys - traces["scripted"].row_keys[label] <= INTERNAL, label


def test_same_values(traces: dict[str, Trace]) -> None:
    assert traces["scripted"].values == traces["real"].values
