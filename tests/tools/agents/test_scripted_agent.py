"""The scripted agent as llmc meets it: in tmux, with pastes, hooks, status file and transcript."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_pane import Pane
from tests.support.fleet import in_soak
from tests.support.waiting import wait_until


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    pane = Pane(tmp_path)
    yield pane
    pane.stop()


def texts(pane: Pane) -> list[str]:
    """The assistant's text blocks."""
    blocks = [row["message"]["content"][0] for row in pane.rows("assistant")]
    return [block["text"] for block in blocks if block["type"] == "text"]


def interrupts(pane: Pane) -> list[str]:
    contents = [row["message"]["content"] for row in pane.rows("user")]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [block["text"] for block in blocks if block.get("text", "").startswith("[Request interrupted")]


# --- a turn ---------------------------------------------------------------------------------------------------


def test_a_turn_fires_prompt_and_stop_and_keeps_the_transcript(pane: Pane) -> None:
    pane.start()
    assert not pane.rows(), "created at the first input, not at the start"
    pane.send("[llmc task-1]\n@say hello\n@sh echo one two; echo $CLAUDECODE$CLAUDE_CODE_CHILD_SESSION\n")
    stop = pane.wait_hook("Stop")
    prompt = pane.wait_hook("UserPromptSubmit")
    assert stop["prompt_id"] == prompt["prompt_id"]
    assert [h["hook_event_name"] for h in pane.hooks()] == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]  # fmt: skip
    pane.wait_status("idle")
    results = [row["message"]["content"][0] for row in pane.rows("user") if "toolUseResult" in row]
    assert results[0]["content"] == "one two\n11"
    first, second, _ = [row["message"] for row in pane.rows("assistant")]
    assert first["id"] == second["id"]
    assert first["usage"] == second["usage"]
    assert "one two" in pane.screen()
    assert pane.composer() == ""


def test_a_failing_command_does_not_end_the_turn(pane: Pane) -> None:
    pane.start()
    pane.send("@sh echo bad; exit 3\n@sh touch after\n@say end")
    assert pane.wait_hook("Stop")["last_assistant_message"] == "end"
    assert (pane.cwd / "after").exists()
    assert pane.wait_hook("PostToolUseFailure")["error"] == "Exit code 3\nbad"


def test_a_plain_prompt_is_echoed_by_length_and_digest(pane: Pane) -> None:
    pane.start()
    pane.send("hello")
    assert pane.wait_hook("Stop")["last_assistant_message"] == "ECHO n=5 sha=aaf4c61ddcc5"


def test_a_prompt_argument_is_submitted(pane: Pane) -> None:
    pane.start("--allowedTools", "Bash", "--", "@say given\n@sh true")
    assert pane.wait_hook("UserPromptSubmit")["prompt"] == "@say given\n@sh true"
    pane.wait_hook("Stop")


# --- pastes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeat", [2700, *in_soak(1, 2)])
def test_a_paste_arrives_exactly(pane: Pane, repeat: int) -> None:
    text = "[llmc message-7]\n" + 'žluť 🚀 日本語 "q" $X `y`\n\n' * repeat
    pane.start()
    pane.send(text)
    got = pane.wait_hook("UserPromptSubmit")["prompt"]
    assert got.rstrip() == text.rstrip()
    assert len(text.encode()) > 90_000 or repeat < 3
    row = pane.wait_rows("user", lambda row: True)
    assert row["message"]["content"] == got


def test_the_box_shows_a_placeholder_and_a_second_paste_expands_it(pane: Pane) -> None:
    pane.start()
    text = "a\nb\nc\nd"
    pane.paste(text)
    wait_until(lambda: pane.composer() == "[Pasted text #1 +3 lines]")
    pane.paste(text)
    wait_until(lambda: pane.composer() == text)
    pane.keys("Enter")
    assert pane.wait_hook("UserPromptSubmit")["prompt"] == text


def test_an_inline_paste_is_altered_as_the_client_does(pane: Pane) -> None:
    pane.start()
    pane.send("a\tb\r\nc\x1b[31mred\x1b[0m e\u0301  ")
    assert pane.wait_hook("UserPromptSubmit")["prompt"] == "a    b\n\ncred \u00e9"


def test_swallowed_enters_need_another_one(tmp_path: Path) -> None:
    pane = Pane(tmp_path, {"LLMC_SCRIPTED_SWALLOW_ENTER": "2"})
    try:
        pane.start()
        pane.paste("kept")
        pane.keys("Enter", "Enter")
        wait_until(lambda: pane.composer() == "kept")
        assert not pane.hooks("UserPromptSubmit")
        pane.keys("Enter")
        assert pane.wait_hook("UserPromptSubmit")["prompt"] == "kept"
    finally:
        pane.stop()


# --- messages while busy ----------------------------------------------------------------------------------------


def test_a_message_during_a_tool_joins_the_turn(pane: Pane) -> None:
    pane.start()
    pane.send("@sh while [ ! -e go ]; do sleep 0.02; done")
    pane.wait_hook("PreToolUse")
    pane.send("@sh touch second\n@say both")
    queued = pane.wait_hook("UserPromptSubmit", 2)
    assert queued["prompt_id"] == pane.hooks("UserPromptSubmit")[0]["prompt_id"]
    pane.wait_rows("queue-operation", lambda row: row.get("content") == "@sh touch second\n@say both")
    wait_until(lambda: pane.composer() == "Press up to edit queued messages")
    (pane.cwd / "go").touch()
    assert pane.wait_hook("Stop")["last_assistant_message"] == "both"
    pane.wait_status("idle")
    assert (pane.cwd / "second").exists()
    assert len(pane.hooks("Stop")) == 1
    operations = [(row["operation"], row.get("reason")) for row in pane.rows("queue-operation")]
    assert operations == [("enqueue", None), ("remove", "absorbed_mid_turn")]
    assert pane.rows("attachment")[0]["attachment"]["prompt"] == "@sh touch second\n@say both"


def test_a_message_without_a_tool_left_follows_after_the_stop(pane: Pane) -> None:
    pane.start()
    pane.send("@sleep 1.5\n@say first")
    pane.wait_status("busy")
    pane.wait_hook("UserPromptSubmit", 1)  # two receipts at once come in any order
    pane.send("second")
    pane.wait_hook("UserPromptSubmit", 2)
    pane.send("third")
    pane.wait_hook("Stop", 2)
    pane.wait_status("idle")
    prompts, stops = pane.hooks("UserPromptSubmit"), pane.hooks("Stop")
    assert [h["prompt"] for h in prompts] == ["@sleep 1.5\n@say first", "second", "third"]
    assert {h["prompt_id"] for h in prompts} == {stops[0]["prompt_id"]}
    assert stops[1]["prompt_id"] != stops[0]["prompt_id"]
    assert len(stops) == 2
    assert [row["operation"] for row in pane.rows("queue-operation")] == ["enqueue"] * 2 + ["dequeue"] * 2


# --- /clear and other commands ----------------------------------------------------------------------------------


def test_clear_starts_a_new_session(pane: Pane) -> None:
    pane.start()
    pane.send("hello")
    old = pane.wait_hook("Stop")["session_id"]
    pane.keys("/clear", "Enter")
    fresh = pane.wait_hook("SessionStart", 2)
    assert (fresh["source"], "model" in fresh) == ("clear", False)
    assert pane.hooks("SessionEnd")[0] == pane.hooks("SessionEnd")[0] | {"session_id": old, "reason": "clear"}
    assert fresh["session_id"] != old
    assert pane.wait_status("idle")["sessionId"] == fresh["session_id"]
    pane.send("again")
    assert pane.wait_hook("Stop", 2)["transcript_path"] == fresh["transcript_path"]
    assert Path(fresh["transcript_path"]).exists()


def test_a_queued_clear_runs_after_the_stop(pane: Pane) -> None:
    pane.start()
    pane.send("@sleep 1")
    pane.wait_status("busy")
    pane.keys("/clear", "Enter")
    pane.wait_hook("SessionStart", 2)
    names = [h["hook_event_name"] for h in pane.hooks()]
    assert names == ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "SessionStart"]


def test_an_unknown_command_is_no_turn_and_a_path_is_text(pane: Pane) -> None:
    pane.start()
    pane.send("/unknown x\nmore")
    wait_until(lambda: "Unknown command: /unknown" in pane.screen())
    pane.send("/etc/passwd is a file")
    assert pane.wait_hook("UserPromptSubmit")["prompt"] == "/etc/passwd is a file"


def test_a_bang_command_runs_without_a_prompt_event(pane: Pane) -> None:
    pane.start()
    pane.send("!touch banged")
    pane.wait_hook("Stop")
    assert (pane.cwd / "banged").exists()
    assert not pane.hooks("UserPromptSubmit")


def test_a_trailing_backslash_turns_enter_into_a_newline(pane: Pane) -> None:
    pane.start()
    pane.send("ends \\")
    pane.keys("x", "Enter")
    assert pane.wait_hook("UserPromptSubmit")["prompt"] == "ends \nx"


# --- interrupts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_an_interrupt_kills_the_tool_and_fires_no_hook(pane: Pane, key: str) -> None:
    pane.start()
    pane.send("@sh echo $$ >pid; exec sleep 600")
    wait_until(lambda: (pane.cwd / "pid").exists() and (pane.cwd / "pid").read_text().strip())
    pane.keys(key)
    pane.wait_status("idle")
    wait_until(lambda: interrupts(pane) == ["[Request interrupted by user for tool use]"])
    assert not Path(f"/proc/{(pane.cwd / 'pid').read_text().strip()}").exists()
    assert not pane.hooks("Stop")
    assert not pane.hooks("PostToolUseFailure")
    pane.send("next")
    pane.wait_hook("Stop")


def test_an_interrupt_before_any_output_puts_the_prompt_back(pane: Pane) -> None:
    pane.start()
    pane.send("@hang")
    pane.wait_hook("UserPromptSubmit")
    pane.wait_rows("user", lambda row: True)
    pane.keys("Escape")
    pane.wait_status("idle")
    wait_until(lambda: pane.composer() == "@hang")
    assert interrupts(pane) == ["[Request interrupted by user]"]
    pane.keys("Escape", "Escape")
    wait_until(lambda: pane.composer() == "")


def test_escape_twice_clears_the_box_and_opens_a_dialog_on_an_empty_one(pane: Pane) -> None:
    pane.start()
    pane.paste("draft")
    wait_until(lambda: pane.composer() == "draft")
    pane.keys("Escape", "Escape")
    wait_until(lambda: pane.composer() == "")
    pane.keys("Escape", "Escape")
    assert pane.wait_status("waiting")["waitingFor"] == "dialog open"
    pane.keys("Escape")
    pane.wait_status("idle")


def test_a_panel_that_is_asked_for_too_early_opens_when_the_work_ends(pane: Pane, tmp_path: Path) -> None:
    """The agent reports `idle` a moment before its work is over. Break: drop the panel while it is busy."""
    pane.start()
    pane.send(f"@sh while ! test -e {tmp_path}/go; do sleep 0.02; done")
    pane.wait_status("busy")
    pane.keys("/config", "Enter")
    (tmp_path / "go").touch()
    assert pane.wait_status("waiting")["waitingFor"] == "dialog open"


def test_an_interrupted_turn_sends_its_queue(pane: Pane) -> None:
    pane.start()
    pane.send("@say working\n@hang")
    pane.wait_rows("assistant", lambda row: True)
    pane.send("queued")
    pane.wait_hook("UserPromptSubmit", 2)
    pane.keys("Escape")
    assert pane.wait_hook("Stop")["last_assistant_message"].startswith("ECHO n=6 ")


# --- questions --------------------------------------------------------------------------------------------------


def test_a_question_waits_and_takes_a_paste_as_its_answer(pane: Pane) -> None:
    pane.start()
    pane.send("@ask Which colour?\n@say thanks")
    request = pane.wait_hook("PermissionRequest")
    assert request["tool_name"] == "AskUserQuestion"
    assert pane.wait_status("waiting")["waitingFor"] == "input needed"
    wait_until(lambda: "Which colour?" in pane.screen() and pane.composer() is None)
    notice = pane.wait_hook("Notification")
    assert notice["notification_type"] == "permission_prompt"
    pane.send("blue,\nplease")
    assert pane.wait_hook("Stop")["last_assistant_message"] == "thanks"
    assert pane.wait_hook("PostToolUse")["tool_response"]["answers"] == {"Which colour?": "blue,\nplease"}
    assert len(pane.hooks("UserPromptSubmit")) == 1


def test_escape_cancels_a_question(pane: Pane) -> None:
    pane.start()
    pane.send("@ask Sure?\n@sh touch no")
    pane.wait_status("waiting")
    wait_until(lambda: pane.composer() is None)
    pane.keys("Escape")
    pane.wait_status("idle")
    wait_until(lambda: interrupts(pane) == ["[Request interrupted by user for tool use]"])
    assert not pane.hooks("Stop")
    assert not (pane.cwd / "no").exists()


def test_a_disallowed_question_is_a_tool_error(pane: Pane) -> None:
    pane.start("--disallowedTools", "AskUserQuestion,EnterPlanMode")
    pane.send("@ask Sure?\n@say went on")
    assert pane.wait_hook("Stop")["last_assistant_message"] == "went on"
    assert not pane.hooks("PermissionRequest")


def test_a_question_that_cannot_be_asked_is_told(pane: Pane) -> None:
    """Break: count it as done, and end with `DONE 1/1`."""
    pane.start("--disallowedTools", "AskUserQuestion,EnterPlanMode")
    said = "AskUserQuestion is not available; skipped: Which colour?"
    pane.send("@ask Which colour?")
    assert pane.wait_hook("Stop")["last_assistant_message"] == said
    assert f"● {said}" in pane.screen()
    pane.send("@ask Which colour?\n@sh true")
    assert pane.wait_hook("Stop", 2)["last_assistant_message"] == "DONE 1/2"
    assert pane.screen().count(f"● {said}") == 2


# --- failures, background, tasks --------------------------------------------------------------------------------


ERRORS = [
    ("@error 429", "rate_limit"), ("@error 529", "server_error"), ("@error 401", "authentication_failed"),
    ("@error 404", "model_not_found"), ("@error 400", "unknown"), ("@error 413", "invalid_request"),
    ("@limit 90", "rate_limit"),
]  # fmt: skip


def test_api_errors_end_the_turn_with_a_label(pane: Pane) -> None:
    pane.start()
    for count, (directive, label) in enumerate(ERRORS, 1):
        pane.send(f"{directive}\n@sh touch never")
        failure = pane.wait_hook("StopFailure", count)
        assert failure["error"] == label, directive
        assert "permission_mode" not in failure
        pane.wait_status("idle")
    assert failure["last_assistant_message"].startswith("You've hit your usage limit · resets 20")
    assert not pane.hooks("Stop")
    assert not (pane.cwd / "never").exists()


def test_a_background_shell_wakes_the_session_when_it_ends(pane: Pane) -> None:
    pane.start()
    pane.send("@background while [ ! -e go ]; do sleep 0.02; done\n@say started")
    stop = pane.wait_hook("Stop")
    assert [task["status"] for task in stop["background_tasks"]] == ["running"]
    pane.wait_status("shell")
    (pane.cwd / "go").touch()
    pane.wait_hook("Stop", 2)
    assert pane.hooks("UserPromptSubmit")[1]["prompt"].startswith("<task-notification>\n")
    assert pane.hooks("Stop")[1]["background_tasks"] == []
    pane.wait_status("idle")


def test_a_task_is_created_under_the_lists_rules(tmp_path: Path) -> None:
    environ = {"CLAUDE_CODE_TASK_LIST_ID": "demo list/1", "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
    pane = Pane(tmp_path, environ)
    folder = pane.config / "tasks" / "demo-list-1"
    folder.mkdir(parents=True)
    (folder / ".highwatermark").write_text("4")
    try:
        pane.start()
        pane.send("@task Fix it")
        created = pane.wait_hook("TaskCreated")
        assert (created["task_id"], created["task_subject"]) == ("5", "Fix it")
        task = json.loads((folder / "5.json").read_text())
        assert (task["subject"], task["status"], task["blocks"], task["blockedBy"]) == (
            "Fix it",
            "pending",
            [],
            [],
        )
        wait_until(lambda: not (folder / ".lock.lock").exists())
    finally:
        pane.stop()


def test_the_task_tool_is_off_unless_asked_for(pane: Pane) -> None:
    pane.start()
    pane.send("@task Fix it\n@say end")
    pane.wait_hook("Stop")
    assert pane.hooks("PostToolUseFailure")[0]["error"] == "TaskCreate is disabled for this session"


# --- endings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"), [("@crash 17", 17), pytest.param("@crash", 1, marks=pytest.mark.soak)]
)
def test_a_crash_leaves_its_code_and_its_status_file(pane: Pane, text: str, code: int) -> None:
    pane.start()
    pane.send(text)
    assert pane.exit_code() == code
    assert pane.status_files()
    assert not pane.hooks("SessionEnd")


@pytest.mark.parametrize(
    "keys", [["/exit", "Enter"], ["C-d", "C-d"], *in_soak(["exit", "Enter"], [":q", "Enter"], ["C-c", "C-c"])]
)
def test_leaving_by_hand_is_clean(pane: Pane, keys: list[str]) -> None:
    pane.start()
    pane.keys(*keys)
    assert pane.exit_code() == 0
    assert pane.wait_hook("SessionEnd")["reason"] == "prompt_input_exit"
    assert not pane.status_files()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGHUP, 129),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.soak),
    ],
)
def test_a_signal_ends_it_with_the_clients_code(pane: Pane, number: int, code: int) -> None:
    pane.start()
    pane.send("@sh echo $$ >pid; exec sleep 600")
    wait_until(lambda: (pane.cwd / "pid").exists() and (pane.cwd / "pid").read_text().strip())
    os.kill(pane.status()["pid"], number)
    assert pane.exit_code() == code
    assert pane.wait_hook("SessionEnd")["reason"] == "other"
    assert not pane.status_files()
    wait_until(lambda: not Path(f"/proc/{(pane.cwd / 'pid').read_text().strip()}").exists())
