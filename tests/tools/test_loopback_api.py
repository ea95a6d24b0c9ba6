"""The loopback Messages API, by itself and called by the real client."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback_api import LoopbackApi, Reply, current_turn, next_reply
from tests.support.real_client import client_env, find_client, seed_config
from tests.support.waiting import answer_dialog, wait_until

Json = dict[str, Any]

EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "StopFailure", "PermissionRequest", "TaskCreated")
# One file per event, renamed when complete, so that a reader never sees half of one.
HOOK = 'f=$(mktemp "$TEST_EVENTS/tmp.XXXXXX") && cat >"$f" && mv "$f" "$TEST_EVENTS/$(date +%s%N).json"'


class Client:
    """The real client in its own tmux server."""

    def __init__(self, folder: Path, api: LoopbackApi) -> None:
        self.repo, self.config, self.events = folder / "repo", folder / "config", folder / "events"
        for path in (self.repo, self.events, folder / "home"):
            path.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True)
        seed_config(self.config, [self.repo])
        hooks = {event: [{"hooks": [{"type": "command", "command": HOOK}]}] for event in EVENTS}
        settings = folder / "settings.json"
        settings.write_text(json.dumps({"hooks": hooks}))
        env = client_env(self.config, folder / "home", api.url) | {"TEST_EVENTS": str(self.events)}
        argv = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), str(find_client())]
        argv += ["--dangerously-skip-permissions", "--settings", str(settings)]
        # Not below pytest's folder: a socket's path has at most 107 characters.
        self.sockets = tempfile.mkdtemp(prefix="llmc-test-")
        self.socket = f"llmc-test-{uuid.uuid4().hex[:12]}"
        self.tmux(
            "new-session", "-d", "-s", "c", "-x", "500", "-y", "100", "-c", str(self.repo), shlex.join(argv)
        )
        self.tmux("set-option", "-w", "-t", "c", "remain-on-exit", "on")
        self.pid = int(self.tmux("display-message", "-p", "-t", "c", "#{pane_pid}"))
        wait_until(lambda: self.seen("SessionStart") and self.status() == "idle", 30)

    def tmux(self, *args: str, stdin: str | None = None) -> str:
        argv = ["tmux", "-L", self.socket, "-f", "/dev/null", *args]
        env = os.environ | {"TMUX_TMPDIR": self.sockets}
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, check=True, timeout=10, env=env
        )
        return done.stdout

    def close(self) -> None:
        self.tmux("kill-server")
        wait_until(lambda: not Path(f"/proc/{self.pid}").exists())
        shutil.rmtree(self.sockets)

    def status(self) -> str:
        try:
            value: str = json.loads((self.config / f"sessions/{self.pid}.json").read_text()).get("status", "")
            return value
        except (FileNotFoundError, ValueError):  # rewritten in place: half a file may be read
            return ""

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "c")

    def seen(self, *names: str) -> list[Json]:
        events = [json.loads(path.read_text()) for path in sorted(self.events.glob("*.json"))]
        return [event for event in events if event["hook_event_name"] in names]

    def submit(self, prompt: str) -> None:
        # Pasting into a dead pane would take the whole tmux 3.3a server down.
        paste = ("if-shell", "-F", "-t", "c", "#{pane_dead}", "", "paste-buffer -p -d -b p -t c")
        self.tmux("load-buffer", "-b", "p", "-", ";", *paste, stdin=prompt)
        header = prompt.partition("\n")[0]
        wait_until(lambda: re.search(r"^❯\xa0\[(llmc|Pasted)", self.screen(), re.MULTILINE))
        self.tmux("send-keys", "-t", "c", "Enter")
        wait_until(lambda: any(e["prompt"].startswith(header) for e in self.seen("UserPromptSubmit")))

    def run(self, prompt: str) -> Json:
        """The event that ended the prompt's turn."""
        before = len(self.seen("Stop", "StopFailure"))
        self.submit(prompt)
        end = wait_until(lambda: self.seen("Stop", "StopFailure")[before:])[0]
        wait_until(lambda: self.status() in ("idle", "shell"))
        return end


@pytest.fixture(scope="module")
def api() -> Iterator[LoopbackApi]:
    with LoopbackApi() as server:
        yield server
        assert server.failures == []


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory, api: LoopbackApi) -> Iterator[Client]:
    started = Client(tmp_path_factory.mktemp("client"), api)
    yield started
    started.close()


@pytest.fixture
def client(shared_client: Client) -> Client:
    wait_until(lambda: shared_client.status() == "idle")
    return shared_client


@pytest.mark.real_client
@pytest.mark.soak
def test_a_command_runs_and_the_turn_ends(client: Client) -> None:
    end = client.run("[llmc task-1a]\n@sh echo made > made.txt\n@say all done\n")
    assert (client.repo / "made.txt").read_text() == "made\n"
    assert (end["hook_event_name"], end["last_assistant_message"]) == ("Stop", "all done")


@pytest.mark.real_client
@pytest.mark.soak
def test_a_failing_command_does_not_end_the_script(client: Client) -> None:
    assert client.run("[llmc task-2a]\n@sh exit 3\n@sh touch went-on\n")["hook_event_name"] == "Stop"
    assert (client.repo / "went-on").exists()


@pytest.mark.real_client
@pytest.mark.soak
def test_a_prompt_without_directives_is_answered_with_its_length_and_digest(client: Client) -> None:
    end = client.run("[llmc task-3a]\nhello\n")
    assert re.fullmatch(r"20 characters, sha1 [0-9a-f]{12}", end["last_assistant_message"])


@pytest.mark.real_client
@pytest.mark.soak
def test_a_question_waits_for_its_answer(client: Client) -> None:
    client.submit("[llmc task-4a]\n@ask Which colour?\n@sh touch answered\n")
    asked = wait_until(lambda: client.seen("PermissionRequest"))
    assert asked[-1]["tool_name"] == "AskUserQuestion"
    press = partial(client.tmux, "send-keys", "-t", "c", "Enter")
    answer_dialog(press, screen=client.screen, status=client.status)
    wait_until((client.repo / "answered").exists)
    wait_until(lambda: client.status() == "idle")


@pytest.mark.real_client
@pytest.mark.soak
def test_a_background_command_outlives_the_turn(client: Client) -> None:
    end = client.run(
        "[llmc task-5a]\n@background until [ -e release ]; do read -t 0.1 < <(:); done; touch freed\n"
    )
    assert [task["status"] for task in end["background_tasks"]] == ["running"]
    assert client.status() == "shell"
    stops = len(client.seen("Stop"))
    (client.repo / "release").touch()
    wait_until(lambda: len(client.seen("Stop")) > stops)
    assert (client.repo / "freed").exists()


@pytest.mark.real_client
@pytest.mark.parametrize(
    ("directive", "error"),
    [
        ("@error 529", "server_error"),
        pytest.param("@limit 30", "rate_limit", marks=pytest.mark.soak),
        pytest.param("@error 401", "authentication_failed", marks=pytest.mark.soak),
    ],
)
def test_an_api_error_ends_the_turn_at_once_and_the_next_prompt_is_unharmed(
    client: Client, directive: str, error: str
) -> None:
    name = directive.replace("@", "").replace(" ", "-")
    end = client.run(f"[llmc task-6a-{name}]\n{directive}\n")
    assert (end["hook_event_name"], end["error"]) == ("StopFailure", error)
    assert client.run(f"[llmc task-6b-{name}]\n@sh touch after-{name}\n")["hook_event_name"] == "Stop"
    assert (client.repo / f"after-{name}").exists()


@pytest.mark.real_client
@pytest.mark.soak
def test_messages_sent_while_busy_are_played_after_the_rest(client: Client) -> None:
    before = len(client.seen("Stop"))
    client.submit(
        "[llmc task-7a]\n@sh until [ -e go ]; do read -t 0.1 < <(:); done; echo 1 >> order\n@sh echo 2 >> order\n"
    )
    client.submit("[llmc message-7b]\n@sh echo 3 >> order\n")
    client.submit("[llmc message-7c]\n@sh echo 4 >> order\n")
    (client.repo / "go").touch()
    wait_until(lambda: client.seen("Stop")[before:])
    assert (client.repo / "order").read_text() == "1\n2\n3\n4\n"


@pytest.mark.real_client
@pytest.mark.soak
def test_messages_queued_to_the_end_of_a_turn_are_all_played(client: Client) -> None:
    client.submit("[llmc task-8a]\n@sleep 0.7\n@say slept\n")
    client.submit("[llmc message-8b]\n@sh touch second\n")
    client.submit("[llmc message-8c]\n@sh touch third\n")
    wait_until(lambda: (client.repo / "second").exists() and (client.repo / "third").exists())


@pytest.mark.real_client
@pytest.mark.soak
def test_a_task_is_created(client: Client) -> None:
    client.run("[llmc task-9a]\n@task Write the docs\n")
    assert [event["task_subject"] for event in client.seen("TaskCreated")] == ["Write the docs"]


@pytest.mark.real_client
@pytest.mark.soak
def test_a_hang_lasts_until_it_is_interrupted(client: Client, api: LoopbackApi) -> None:
    stops = len(client.seen("Stop"))
    client.submit("[llmc task-10a]\n@sh touch begun\n@hang\n")
    wait_until(lambda: api.requests[-1].reply == "hang")
    assert client.status() == "busy"
    client.tmux("send-keys", "-t", "c", "Escape")
    wait_until(lambda: client.status() == "idle")
    assert len(client.seen("Stop")) == stops
    assert client.run("[llmc task-10b]\n@sh touch woken\n")["hook_event_name"] == "Stop"
    assert (client.repo / "woken").exists()


@pytest.mark.real_client
@pytest.mark.soak
def test_a_crash_kills_the_client_itself(tmp_path: Path, api: LoopbackApi) -> None:
    client = Client(tmp_path, api)
    try:
        client.submit("[llmc task-11a]\n@crash\n")
        # tmux 3.3a sometimes misses an exit until its next child exits: give it one.
        show = ("display-message", "-p", "-t", "c", "#{pane_dead}:#{pane_dead_status}:#{pane_dead_signal}")
        ask = ("run-shell", "true", ";", *show)
        wait_until(lambda: client.tmux(*ask) == "1::9\n")
    finally:
        client.close()


@pytest.mark.real_client
@pytest.mark.soak
def test_two_sessions_do_not_disturb_each_other(client: Client, tmp_path: Path, api: LoopbackApi) -> None:
    other = Client(tmp_path, api)
    try:
        client.submit("[llmc task-12a]\n@sleep 0.3\n@sh touch mine\n")
        other.submit("[llmc task-12b]\n@sh touch theirs\n")
        wait_until(lambda: (client.repo / "mine").exists() and (other.repo / "theirs").exists())
        assert not (other.repo / "mine").exists()
    finally:
        other.close()


def user(*texts: str, results: int = 0) -> Json:
    content: list[Json] = [{"type": "tool_result", "content": "ok"} for _ in range(results)]
    return {"role": "user", "content": content + [{"type": "text", "text": text} for text in texts]}


def reply(*messages: Json, failed: set[tuple[int, str]] | None = None) -> Reply:
    return next_reply(current_turn(list(messages), failed or set()))


ASSISTANT: Json = {"role": "assistant", "content": []}
FOLDED = (
    "The user sent a new message while you were working:\n{}\n\nThis is how Claude Code surfaces messages"
)


def test_a_reminder_and_a_system_message_are_no_prompts() -> None:
    system = {"role": "system", "content": "@sh not-this"}
    asked = reply(
        user("<system-reminder>\n@sh nor-this\n</system-reminder>", "[llmc task-1]\n@sh this"), system
    )
    assert asked.tool_input["command"] == "this"


def test_say_and_sleep_join_the_next_message() -> None:
    answer = reply(user("[llmc task-1]\n@say a\n@sleep 2\n@say b\n@sh c"))
    assert (answer.text, answer.delay_s, answer.tool) == ("a\nb", 2.0, "Bash")


def test_a_prompt_that_failed_is_not_played_with_the_next_one() -> None:
    failed = "[llmc task-1]\n@error 529"
    assert reply(user(failed), failed={(0, failed)}).status == 529
    assert reply(user(failed + "\n", "[llmc task-2]\n@sh go"), failed={(0, failed)}).tool == "Bash"


def test_an_interrupted_prompt_is_not_played_again() -> None:
    mark = "[Request interrupted by user]"
    answer = reply(user("[llmc task-1]\n@sh one", mark, "[llmc task-2]\n@say two"))
    assert (answer.tool, answer.text) == ("", "two")


def test_a_folded_message_waits_for_the_rest_of_the_script() -> None:
    start = user("[llmc task-1]\n@sh one\n@sh two")
    folded = user(FOLDED.format("[llmc message-2]\n@sh three"), results=1)
    assert reply(start, ASSISTANT, folded).tool_input["command"] == "two"
    assert reply(start, ASSISTANT, folded, ASSISTANT, user(results=1)).tool_input["command"] == "three"


def test_a_notification_beside_a_result_does_not_restart_the_script() -> None:
    note = user("<task-notification>\n@sh no\n</task-notification>", results=1)
    assert reply(user("[llmc task-1]\n@sh one\n@say two"), ASSISTANT, note).text == "two"


def test_a_reject_remembers_the_line_of_the_task() -> None:
    task = user("[llmc task-1]\n@sh one\n@on-reject redo")
    rejected = reply(task, ASSISTANT, user(results=1), ASSISTANT, user("[llmc reject-2]\nnot good"))
    assert rejected.tool_input["command"] == "redo"


def post(url: str, body: Json) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        value: Json = json.load(answer)
    return value


def test_side_requests_are_answered() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    with LoopbackApi() as api:
        messages = [user("@sh not played")]
        title = post(
            f"{api.url}/v1/messages", {"messages": messages, "output_config": {"format": {"schema": schema}}}
        )
        assert json.loads(title["content"][0]["text"]) == {"title": "scripted"}
        assert post(f"{api.url}/v1/messages", {"messages": messages})["stop_reason"] == "end_turn"
        assert post(f"{api.url}/v1/messages/count_tokens", {"messages": messages})["input_tokens"] > 0
        with urllib.request.urlopen(f"{api.url}/v1/models", timeout=5) as answer:
            assert json.load(answer)["data"]
        with urllib.request.urlopen(urllib.request.Request(api.url, method="HEAD"), timeout=5) as answer:
            assert answer.status == 200
        assert [request.side for request in api.requests] == ["json", "text", "", "", ""]


def test_closing_ends_a_hanging_request() -> None:
    with LoopbackApi() as api:
        body = {"messages": [user("@hang")], "tools": [{"name": "Bash"}]}
        request = urllib.request.Request(f"{api.url}/v1/messages", json.dumps(body).encode())
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=0.2)
    assert [request.reply for request in api.requests] == ["hang"]


def test_the_seed_belongs_to_the_given_folder_only(tmp_path: Path) -> None:
    seed_config(tmp_path / "config", [tmp_path / "repo"])
    env = client_env(tmp_path / "config", tmp_path, "http://127.0.0.1:1")
    assert env["CLAUDE_CONFIG_DIR"] == str(tmp_path / "config")
    assert os.environ.get("HOME") != env["HOME"]
    state = json.loads((tmp_path / "config/.claude.json").read_text())
    assert list(state["projects"]) == [str(tmp_path / "repo")]
