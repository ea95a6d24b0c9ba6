"""One turn of the scripted agent: its messages, their steps, and how it ends. Runs in the worker thread."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable

from llmc.agents.scripted import tools
from llmc.agents.scripted.conversation import Conversation, Item
from llmc.agents.scripted.directives import Step, steps
from llmc.agents.scripted.session import Message, git_branch, new_uuid

#: HTTP status -> the `error` of StopFailure and its text, as measured
API_ERRORS = {
    401: ("authentication_failed", "Please run /login · API Error: 401 scripted 401"),
    403: ("authentication_failed", "Please run /login · API Error: 403 scripted 403"),
    404: (
        "model_not_found",
        "There's an issue with the selected model. It may not exist or you may not have access to it.",
    ),
    413: (
        "invalid_request",
        "Request too large (max 32MB). Double press esc to go back and try with a smaller file.",
    ),
    429: ("rate_limit", "API Error: Request rejected (429) · scripted 429"),
}


class ApiError(Exception):
    """The request failed for good: StopFailure instead of Stop."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(text)
        self.label = label
        self.text = text


def api_error(arg: str) -> None:
    code = int(_first(arg, "500"))
    label, text = "unknown", f"API Error: {code} scripted {code}"
    if code >= 500:
        label = "server_error"
        text += ". This is a server-side issue, usually temporary — try again in a moment."
    raise ApiError(*API_ERRORS.get(code, (label, text)))


def usage_limit(arg: str) -> None:
    """The text has the reset time twice: for people and for programs."""
    reset = int(time.time() + float(_first(arg, "3600")))
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(reset))
    raise ApiError("rate_limit", f"You've hit your usage limit · resets {iso} ({reset})")


def crash(arg: str) -> None:
    """Exit at once, without hooks; the status file stays."""
    os._exit(int(_first(arg, "1")))


def _first(arg: str, default: str) -> str:
    return (arg.split() or [default])[0]


FOLLOW_UP_IDLE_S = 0.02


class InterruptedTurnError(Exception):
    """The user interrupted the turn, or the client exits."""


class Turn:
    """Everything that happens between busy and idle."""

    def __init__(self, conversation: Conversation, items: list[Item], is_follow_up: bool = False) -> None:
        self.conversation = conversation
        self.cancelled = threading.Event()
        self.toolbox = tools.Toolbox(conversation, self.cancelled)
        self._items = items
        self._is_follow_up = is_follow_up
        self._pending: deque[Step] = deque()
        self._message: Message | None = None
        self._last_text = ""
        self._tools_run = self._tools_skipped = 0
        self._had_output = False
        self._began = time.monotonic()

    @property
    def restored(self) -> Item | None:
        """The prompt to put back into the box, if the turn was interrupted before the agent said anything."""
        alone = len(self._items) == 1 and self._items[0].kind == "prompt"
        return self._items[0] if alone and self.cancelled.is_set() and not self._had_output else None

    def end(self) -> None:
        """End the turn and its tool at once, because the client exits."""
        self.interrupt()
        self.toolbox.kill()

    def interrupt(self) -> None:
        """Called by the event loop."""
        self.cancelled.set()
        self.toolbox.abort()

    def run(self) -> None:
        try:
            self._begin()
            self._work()
            self._stop()
        except InterruptedTurnError:
            self._interrupted()
        except ApiError as error:
            self._failed(error)
        self.conversation.rest()

    def _begin(self) -> None:
        conversation = self.conversation
        if self._is_follow_up:
            for _ in self._items:
                conversation.transcript.queue("dequeue")
            time.sleep(FOLLOW_UP_IDLE_S)
        conversation.session.prompt_id = new_uuid()
        conversation.transcript.branch = git_branch(conversation.session.cwd)
        conversation.status.set("busy")
        for item in self._items:
            self._receive(item)

    def _receive(self, item: Item) -> None:
        conversation = self.conversation
        if item.receipt:
            item.receipt.join()
        elif item.kind != "bash":
            conversation.hooks.fire("UserPromptSubmit", prompt=item.text)
        if item.kind == "bash":
            self.toolbox.bang(item.text)
        elif item.kind == "notification":
            conversation.transcript.queue("enqueue", content=item.text)
            conversation.transcript.queue("dequeue")
            conversation.transcript.prompt(item.text, "system", "task-notification")
        else:
            conversation.transcript.prompt(item.text, "queued" if self._is_follow_up else "typed")
            self._pending.extend(self._steps(item))

    def _steps(self, item: Item) -> list[Step]:
        found = steps(item.text, self.conversation.earlier)
        self.conversation.earlier.append(item.text)
        return found

    def _work(self) -> None:
        if not self._pending:
            self._check()
            self._say(self._answer())
        while self._pending:
            self._check()
            step = self._pending.popleft()
            if step.name in tools.NAMES:
                self._use_tool(step)
            else:
                self._other_step(step)
        if self._message is None:
            self._say(f"DONE {self._tools_run}/{self._tools_run + self._tools_skipped}")

    def _answer(self) -> str:
        item = self._items[-1]
        return "Noted." if item.kind == "notification" else tools.echo(item.text)

    def _other_step(self, step: Step) -> None:
        actions: dict[str, Callable[[str], None]] = {
            "say": self._say,
            "sleep": lambda seconds: self._wait(float(seconds or 0)),
            "hang": lambda _: self._wait(None),
            "crash": crash,
            "limit": usage_limit,
            "error": api_error,
        }
        actions[step.name](step.arg)

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise InterruptedTurnError

    def _wait(self, seconds: float | None) -> None:
        if self.cancelled.wait(seconds):
            raise InterruptedTurnError

    def _say(self, text: str) -> None:
        self.conversation.transcript.assistant(self._reply(text), {"type": "text", "text": text})
        self.conversation.print([f"● {text}", ""])
        self._last_text = text

    def _reply(self, first: str) -> Message:
        """The message being written: it lasts until its tool call, and its usage covers all of it."""
        self._had_output = True
        if self._message is None:
            upcoming = [first]
            for step in self._pending:
                upcoming.append(step.arg)
                if step.name in tools.NAMES:
                    break
            ends = not any(step.name in tools.NAMES for step in self._pending)
            reason = "end_turn" if ends else "tool_use"
            model = self.conversation.options.model_name
            self._message = self.conversation.transcript.message(model, reason, "".join(upcoming))
        return self._message

    def _use_tool(self, step: Step) -> None:
        message = self._reply(step.arg)
        message.stop_reason = "tool_use"
        self.toolbox.use(step, message)
        self._message = None
        name = tools.NAMES[step.name]
        if self.conversation.options.allows(name):
            self._tools_run += 1
        else:  # in auto mode a question would get no answer
            self._tools_skipped += 1
            self._pending.appendleft(Step("say", f"{name} is not available; skipped: {step.arg}"))
        self._check()
        self._absorb()

    def _absorb(self) -> None:
        """After a tool call, add the messages that arrived meanwhile to this turn."""
        for item in self.conversation.take_prompts():
            if item.receipt:
                item.receipt.join()
            command = new_uuid()
            self.conversation.transcript.queue(
                "remove",
                content=item.text,
                reason="absorbed_mid_turn",
                commandUuid=command,
                deliveryId=new_uuid(),
            )
            self.conversation.transcript.attachment(
                {
                    "type": "queued_command",
                    "prompt": item.text,
                    "commandMode": "prompt",
                    "origin": {"kind": "human"},
                    "timestamp": item.sent_at,
                }
            )
            self.conversation.print([f"❯ {line}" for line in item.shown.split("\n")])
            self._pending.extend(self._steps(item) or [Step("say", tools.echo(item.text))])

    def _stop(self) -> None:
        conversation = self.conversation
        began = time.monotonic()
        conversation.hooks.fire(
            "Stop",
            stop_hook_active=False,
            last_assistant_message=self._last_text,
            background_tasks=conversation.running_background(),
            session_crons=[],
        )
        conversation.transcript.stop_hooks(conversation.hooks.commands("Stop"), time.monotonic() - began)
        self._finish()

    def _interrupted(self) -> None:
        during = " for tool use" if self.toolbox.was_aborted else ""
        text = f"[Request interrupted by user{during}]"
        self.conversation.transcript.user([{"type": "text", "text": text}])
        self.conversation.print(["  ⎿  Interrupted · What should Claude do instead?", ""])

    def _failed(self, error: ApiError) -> None:
        conversation = self.conversation
        message = conversation.transcript.message("<synthetic>", "stop_sequence", error.text)
        conversation.transcript.assistant(
            message, {"type": "text", "text": error.text}, error=error.label, isApiErrorMessage=True
        )
        conversation.print([f"  ⎿  {error.text}", ""])
        conversation.hooks.fire("StopFailure", error=error.label, last_assistant_message=error.text)
        self._finish()

    def _finish(self) -> None:
        seconds = time.monotonic() - self._began
        self.conversation.transcript.turn_duration(seconds)
        self.conversation.print([f"✻ Worked for {seconds:.0f}s · done {time.strftime('%H:%M')}", ""])
