"""A turn's tools: Bash (also in the background), AskUserQuestion, TaskCreate, TaskUpdate. Runs in the worker thread."""

import json
import os
import queue
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from llmc.agents.claude import layout
from llmc.agents.scripted import children
from llmc.agents.scripted.children import Background
from llmc.agents.scripted.conversation import Conversation
from llmc.agents.scripted.directives import Step, task_input, update_input
from llmc.agents.scripted.keyboard import Dialog, Question, question_input
from llmc.agents.scripted.session import Message, Session

LOCK_TRIES = 30
LOCK_RETRY_S = 0.09
STALE_LOCK_S = 10.0


class ToolError(Exception):
    """The tool failed; the turn goes on."""


def has_task_tools(allowed_tools: list[str]) -> bool:
    """Whether the task tools are on. 2.1.325 turned them off for current models, unless asked for."""
    return os.environ.get(layout.TASK_TOOLS) == "1" or "TaskCreate" in allowed_tools


def list_dir(session: Session) -> str:
    name = os.environ.get(layout.TASK_LIST) or session.id
    return os.path.join(session.config_dir, layout.TASKS, layout.list_name(name))


def create_task(session: Session, given: dict[str, Any]) -> str:
    """Write the next N.json; returns N."""
    directory = list_dir(session)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "a", encoding="utf-8"):
        pass
    with _locked(os.path.join(directory, ".lock.lock")):
        task_id = str(1 + _highest_task(directory))
        task: dict[str, Any] = {
            "id": task_id,
            "subject": given["subject"],
            "description": given["description"],
            "status": "pending",
            "blocks": [],
            "blockedBy": [],
        }
        if "metadata" in given:
            task["metadata"] = given["metadata"]
        with open(os.path.join(directory, task_id + ".json"), "w", encoding="utf-8") as file:
            json.dump(task, file, indent=2, ensure_ascii=False)
    return task_id


def update_task(session: Session, task_id: str, metadata: dict[str, Any]) -> None:
    """Add to a task's metadata; null removes a key."""
    path = os.path.join(list_dir(session), task_id + ".json")
    with _locked(path + ".lock"):
        with open(path, encoding="utf-8") as file:
            task = json.load(file)
        merged = {**(task.get("metadata") or {}), **metadata}
        task["metadata"] = {key: value for key, value in merged.items() if value is not None}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(task, file, indent=2, ensure_ascii=False)


def _highest_task(directory: str) -> int:
    numbers = [int(name[:-5]) for name in os.listdir(directory) if re.fullmatch(r"\d+\.json", name)]
    try:
        with open(os.path.join(directory, ".highwatermark"), encoding="utf-8") as file:
            numbers.append(int(file.read().strip() or 0))
    except (OSError, ValueError):
        pass
    return max(numbers, default=0)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    for _ in range(LOCK_TRIES):
        if _try_lock(path):
            break
        time.sleep(LOCK_RETRY_S)
    else:
        raise ToolError("Lock file is already being held")
    try:
        yield
    finally:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass  # taken over as stale


def _try_lock(path: str) -> bool:
    try:
        os.mkdir(path)
        return True
    except FileExistsError:
        pass
    try:
        if time.time() - os.stat(path).st_mtime > STALE_LOCK_S:
            os.rmdir(path)
    except OSError:
        pass  # released or taken over meanwhile
    return False


#: directive -> the client's tool
NAMES = {
    "sh": "Bash",
    "background": "Bash",
    "ask": "AskUserQuestion",
    "task": "TaskCreate",
    "update": "TaskUpdate",
}

MAX_OUTPUT_CHARS = 30_000
SHOWN_OUTPUT_LINES = 20
PERMISSION_NOTICE_S = 6.0
REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


class Result(NamedTuple):
    """What the model sees, and the details for the transcript."""

    content: str
    details: Any


class Toolbox:
    """Runs one tool at a time; `abort` ends it from the event loop."""

    def __init__(self, conversation: Conversation, cancelled: threading.Event) -> None:
        self._conversation = conversation
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._dialog: Dialog | None = None
        self._running = False
        self.was_aborted = False

    def abort(self) -> None:
        with self._lock:
            self.was_aborted = self.was_aborted or self._running
            if self._child:
                children.end_soon(self._child)
            if self._dialog:
                self._dialog.reply.put(None)

    def kill(self) -> None:
        with self._lock:
            if self._child:
                children.kill(self._child)

    def use(self, step: Step, message: Message) -> None:
        """Call the tool, with the hooks and transcript rows of the client around the call."""
        name, tool_input = NAMES[step.name], _input(step)
        call = {"tool_name": name, "tool_input": tool_input, "tool_use_id": f"toolu_{os.urandom(12).hex()}"}
        block = {"type": "tool_use", "id": call["tool_use_id"], "name": name, "input": tool_input}
        row = self._conversation.transcript.assistant(message, block)
        self._conversation.print([f"● {name}({step.arg})"])
        hooks = self._conversation.hooks
        began = time.monotonic()
        self._running = True
        try:
            if not self._conversation.options.allows(name):
                raise ToolError(f"<tool_use_error>Error: No such tool available: {name}</tool_use_error>")
            hooks.fire("PreToolUse", **call)
            result = self._run(step, call)
        except ToolError as error:
            self._record(row, call, str(error), f"Error: {error}", is_error=True)
            if not self._cancelled.is_set():
                hooks.fire(
                    "PostToolUseFailure", **call, error=str(error), is_interrupt=False, duration_ms=_ms(began)
                )
        else:
            self._record(row, call, result.content, result.details, is_error=False)
            hooks.fire("PostToolUse", **call, tool_response=result.details, duration_ms=_ms(began))
            hooks.fire("PostToolBatch", tool_calls=[call | {"tool_response": result.content}])
        finally:
            self._running = False

    def bang(self, text: str) -> None:
        """Run a user's `!command`: not a prompt, but the model sees it."""
        command = text[1:].strip()
        self._conversation.transcript.user(f"<bash-input>{command}</bash-input>")
        code, output = self._shell(command)
        self._show(output or ("" if code == 0 else f"Exit code {code}"))
        self._conversation.transcript.user(f"<bash-stdout>{output}</bash-stdout><bash-stderr></bash-stderr>")

    def _record(self, row: str, call: dict[str, Any], content: str, details: Any, is_error: bool) -> None:
        self._show(content)
        block = {
            "tool_use_id": call["tool_use_id"],
            "type": "tool_result",
            "content": content,
            "is_error": is_error,
        }
        self._conversation.transcript.user([block], toolUseResult=details, sourceToolAssistantUUID=row)

    def _run(self, step: Step, call: dict[str, Any]) -> Result:
        if step.name == "sh":
            return self._bash(step.arg)
        if step.name == "ask":
            return self._ask(step.arg, call)
        if step.name in ("task", "update"):
            if not has_task_tools(self._conversation.options.allowed_tools):
                raise ToolError(f"{call['tool_name']} is disabled for this session")
            act = self._create_task if step.name == "task" else self._update_task
            return act(call["tool_input"])
        return self._start_background(step.arg, call["tool_use_id"])

    def _bash(self, command: str) -> Result:
        code, output = self._shell(command)
        if self._cancelled.is_set():
            raise ToolError(REJECTED)
        if code:
            raise ToolError(f"Exit code {code}" + (f"\n{output}" if output else ""))
        details = {
            "stdout": output,
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        }
        return Result(output or "(Bash completed with no output)", details)

    def _shell(self, command: str) -> tuple[int, str]:
        """Wait for the shell itself, not for processes that inherit its output."""
        conversation = self._conversation
        with tempfile.TemporaryFile() as output:
            env = children.child_env(conversation.session)
            with self._lock:
                if self._cancelled.is_set():
                    return 143, ""
                child = self._child = children.spawn(command, conversation.session.cwd, env, output=output)
            code = child.wait()
            with self._lock:
                self._child = None
            if self._cancelled.is_set():
                children.kill(child)  # what it started
            return code, _text(output)

    def _start_background(self, command: str, tool_use_id: str) -> Result:
        conversation = self._conversation
        shell = Background(conversation.session, command, tool_use_id, conversation.background_ended)
        conversation.background.append(shell)
        text = f"Command running in background with ID: {shell.id}. Output is being written to: {shell.output_path}"
        return Result(text, {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": shell.id})

    def _create_task(self, task: dict[str, Any]) -> Result:
        task_id = create_task(self._conversation.session, task)
        self._conversation.hooks.fire(
            "TaskCreated", task_id=task_id, task_subject=task["subject"], task_description=task["description"]
        )
        details = {"task": {"id": task_id, "subject": task["subject"]}}
        return Result(f"Task #{task_id} created successfully: {task['subject']}", details)

    def _update_task(self, change: dict[str, Any]) -> Result:
        try:
            update_task(self._conversation.session, change["taskId"], change["metadata"])
        except FileNotFoundError as error:
            raise ToolError(f"Task #{change['taskId']} not found") from error
        return Result(f"Updated task #{change['taskId']} metadata", {"taskId": change["taskId"]})

    def _ask(self, question: str, call: dict[str, Any]) -> Result:
        conversation = self._conversation
        dialog = Question(question)
        with self._lock:
            self._dialog = dialog
        if self._cancelled.is_set():
            raise ToolError(REJECTED)
        conversation.show_dialog(dialog)
        conversation.status.set("waiting", "input needed")
        conversation.hooks.fire(
            "PermissionRequest", tool_name=call["tool_name"], tool_input=call["tool_input"]
        )
        answer = self._answer(dialog)
        conversation.show_dialog(None)
        with self._lock:
            self._dialog = None
        if answer is None:
            raise ToolError(REJECTED)
        conversation.status.set("busy")
        said = f'User has answered your questions: "{question}"="{answer}". You can now continue.'
        return Result(said, {"questions": call["tool_input"]["questions"], "answers": {question: answer}})

    def _answer(self, dialog: Dialog) -> str | None:
        try:
            return dialog.reply.get(timeout=PERMISSION_NOTICE_S)
        except queue.Empty:
            self._conversation.hooks.fire(
                "Notification", message="Claude needs your permission", notification_type="permission_prompt"
            )
            return dialog.reply.get()

    def _show(self, output: str) -> None:
        lines = output.split("\n")
        rest = len(lines) - SHOWN_OUTPUT_LINES
        shown = [f"  ⎿  {lines[0]}", *(f"     {line}" for line in lines[1:SHOWN_OUTPUT_LINES])]
        self._conversation.print([*shown, *([f"     … +{rest} lines"] if rest > 0 else []), ""])


def echo(prompt: str) -> str:
    """The reply to a prompt without directives: proof of what arrived, without outer blanks."""
    import hashlib  # takes 4 ms, not needed at start-up

    text = prompt.strip()
    return f"ECHO n={len(text)} sha={hashlib.sha1(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _input(step: Step) -> dict[str, Any]:
    if step.name == "ask":
        return question_input(step.arg)
    if step.name == "task":
        return task_input(step.arg)
    if step.name == "update":
        return update_input(step.arg)
    command: dict[str, Any] = {"command": step.arg, "description": "scripted"}
    return command | {"run_in_background": True} if step.name == "background" else command


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(MAX_OUTPUT_CHARS).decode("utf-8", "replace").rstrip("\n")


def _ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
