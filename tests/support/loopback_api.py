"""A Messages API on 127.0.0.1 that plays llmc's directives to the real client, with no model behind it.

Every request carries the whole conversation, so a reply is computed from the request alone: retries, several
sessions and `--resume` need no bookkeeping. The one exception is the prompts whose turn was failed on purpose.
"""

import hashlib
import json
import math
import re
import select
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from llmc.agents.scripted.directives import Step, steps, task_input, update_input

Json = dict[str, Any]

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\n?", re.DOTALL)
_INTERRUPTED = "[Request interrupted by user"
_NOTIFICATION = "<task-notification>"
_FOLDED = re.compile(
    r"The user sent a new message while you were working:\n(?P<text>.*?)"
    r"(?:\n\n(?:This is how Claude Code surfaces|IMPORTANT: )|\Z)",
    re.DOTALL,
)
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
#: the tool that the client offers with `--json-schema`
STRUCTURED = "StructuredOutput"
#: goals are quoted in a prompt, so that their lines are indented
_JSON_LINE = re.compile(
    r"^[ \t]*@(?P<name>json(?:-repaired|-status)?)[ \t]+(?P<json>\{.*\}|\d+)[ \t]*$", re.MULTILINE
)
_SENT_BACK = "Your previous answer:"
# The client is the nearest ancestor of its Bash tool that has a status file.
CRASH = (
    'p=$$; while [ "$p" -gt 1 ] && [ ! -e "$CLAUDE_CONFIG_DIR/sessions/$p.json" ]; do '
    "p=$(sed -n 's/^PPid:[[:space:]]*//p' \"/proc/$p/status\"); done; "
    '[ "$p" -gt 1 ] && kill -9 "$p"'
)


@dataclass(frozen=True)
class Request:
    """What is remembered about one request."""

    method: str
    path: str
    session: str = ""
    model: str = ""
    side: str = ""  # why this is not a turn: `json`, `text`; empty for a turn
    tools: tuple[str, ...] = ()
    prompt: str = ""  # the latest prompt of the turn
    retry: int = 0
    reply: str = ""  # `text`, a tool's name, `http 429`, `hang`


@dataclass(frozen=True)
class Reply:
    """One assistant message, or what happens instead of one."""

    text: str = ""
    tool: str = ""
    tool_input: Json = field(default_factory=dict)
    delay_s: float = 0.0
    status: int = 200
    message: str = ""
    retry_after_s: int = 0
    hang: bool = False

    @property
    def name(self) -> str:
        return "hang" if self.hang else f"http {self.status}" if self.status != 200 else self.tool or "text"


@dataclass(frozen=True)
class Prompt:
    """A prompt in the conversation: which message holds it, and how many replies came before."""

    text: str
    folded: bool
    message: int
    replies_before: int
    ended: bool = False  # the turn it belonged to was interrupted

    @property
    def key(self) -> tuple[int, str]:
        return self.replies_before, self.text.strip()  # a block that is no longer the last gains a newline


@dataclass(frozen=True)
class Turn:
    """The prompts that the running turn has to process, and its progress."""

    prompts: tuple[Prompt, ...]
    earlier: tuple[Prompt, ...]
    replies_given: int


def read_prompts(messages: list[Json]) -> list[Prompt]:
    """Everything the user said, oldest first, without the client's own additions."""
    found: list[Prompt] = []
    replies = 0
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            replies += 1
            continue
        beside_result = any(block.get("type") == "tool_result" for block in _blocks(message))
        for text in (
            _REMINDER.sub("", block["text"]) for block in _blocks(message) if block.get("type") == "text"
        ):
            folded = _FOLDED.match(text)
            if folded:
                found.append(Prompt(folded["text"], True, index, replies))
            elif text.startswith(_INTERRUPTED):
                found = [replace(prompt, ended=True) for prompt in found]
            elif message["role"] != "user" or not text.strip():
                continue  # "system" messages inside a conversation list tools, skills and the environment
            elif not (beside_result and text.startswith(_NOTIFICATION)):
                found.append(Prompt(text, False, index, replies))
    return found


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def current_turn(messages: list[Json], failed: set[tuple[int, str]]) -> Turn:
    """The turn that this request belongs to.

    Messages queued until a turn's end start the next one together, in one user message; failed prompts stay
    there, too, in front of the next one, and must not be played again.
    """
    found = read_prompts(messages)
    starts = [prompt.message for prompt in found if not prompt.folded]
    members = [p for p in found if starts and p.message >= starts[-1] and not p.ended]
    untried = [prompt for prompt in members if prompt.key not in failed]
    if any(not prompt.folded for prompt in untried):
        members = untried
    replies = sum(message["role"] == "assistant" for message in messages)
    first = members[0].replies_before if members else replies
    return Turn(tuple(members), tuple(p for p in found if p not in members), replies - first)


def next_reply(turn: Turn) -> Reply:
    """The next assistant message: one directive that needs one, with the `@say` and `@sleep` before it."""
    todo: list[Step] = []
    earlier = [prompt.text for prompt in turn.earlier]
    for prompt in turn.prompts:
        if not prompt.text.startswith(_NOTIFICATION):
            todo += steps(prompt.text, earlier) or [Step("say", _echo(prompt.text))]
        earlier.append(prompt.text)
    return _nth(_replies(todo), turn.replies_given)


def structured_reply(turn: Turn) -> Reply:
    """The answer to a request with a schema: the JSON that the prompt asks for, and nothing else.

    A line `@json {..}` is the first answer. A prompt that sends an answer back gets that of `@json-repaired
    {..}`, if it has such a line. `@json-status 529` fails instead.
    Without any of them the answer is text, which fits no schema.
    """
    prompt = turn.prompts[-1].text if turn.prompts else ""
    found = {match["name"]: match["json"] for match in _JSON_LINE.finditer(prompt)}
    if "json-status" in found:
        status = int(found["json-status"])
        return Reply(status=status, message=f"scripted {status}")
    answer = found.get("json-repaired") if _SENT_BACK in prompt else None
    answer = answer or found.get("json")
    if answer is None or turn.replies_given:
        return next_reply(turn) if answer is None else Reply(text="done")
    return Reply(tool=STRUCTURED, tool_input=json.loads(answer))


def _nth(replies: Iterator[Reply], n: int) -> Reply:
    last = Reply(text="done")
    for index, reply in enumerate(replies):
        last = reply
        if index == n:
            break
    return last


def _echo(prompt: str) -> str:
    digest = hashlib.sha1(prompt.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return f"{len(prompt)} characters, sha1 {digest[:12]}"


def _replies(todo: list[Step]) -> Iterator[Reply]:
    said: list[str] = []
    delay_s = 0.0
    for step in todo:
        if step.name == "say":
            said.append(step.arg)
        elif step.name == "sleep":
            delay_s += float(step.arg or 1)
        else:
            yield replace(_act(step), text="\n".join(said), delay_s=delay_s)
            said, delay_s = [], 0.0
    yield Reply(text="\n".join(said) or "done", delay_s=delay_s)


def _act(step: Step) -> Reply:
    match step.name:
        case "sh":
            return _bash(step.arg)
        case "background":
            return _bash(step.arg, run_in_background=True)
        case "crash":
            return _bash(CRASH)
        case "task":
            return Reply(tool="TaskCreate", tool_input=task_input(step.arg))
        case "update":
            return Reply(tool="TaskUpdate", tool_input=update_input(step.arg))
        case "ask":
            options = [{"label": label, "description": f"Say {label}"} for label in ("Yes", "No")]
            question = {"question": step.arg or "Go on?", "header": "Question", "multiSelect": False}
            return Reply(tool="AskUserQuestion", tool_input={"questions": [question | {"options": options}]})
        case "hang":
            return Reply(hang=True)
        case "limit":
            return _limit(float(step.arg or 60))
        case "error":
            status = int(step.arg or 529)
            return Reply(status=status, message=f"scripted {status}")
        case _:
            raise ValueError(f"no such directive: @{step.name}")


def _limit(seconds: float) -> Reply:
    resets = datetime.now(UTC) + timedelta(seconds=seconds)
    text = f"usage limit reached, resets at {resets.isoformat(timespec='seconds')}"
    return Reply(status=429, message=text, retry_after_s=math.ceil(seconds))


def _bash(command: str, **options: bool) -> Reply:
    return Reply(tool="Bash", tool_input={"command": command, "description": "scripted", **options})


def minimal(schema: Json) -> Any:
    """The smallest value that fits a JSON schema."""
    if "enum" in schema or "const" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return minimal(schema[union][0])
    properties: Json = schema.get("properties", {})
    if properties or schema.get("type") == "object":
        return {name: minimal(properties[name]) for name in schema.get("required", properties)}
    empty: Json = {"array": [], "number": 0, "integer": 0, "boolean": False, "null": None}
    return empty.get(schema.get("type", "string"), "scripted")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._note(Request("HEAD", self.path))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self._note(Request("GET", self.path))
        if not self.path.startswith("/v1/models"):
            return self._error(404, "no such path")
        ids = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
        models = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
            for name in ids
        ]
        return self._json({"data": models, "has_more": False, "first_id": ids[0], "last_id": ids[-1]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if path == "/v1/messages":
            return self._messages(
                json.loads(raw), min(50_000, len(raw) // 4)
            )  # more makes the client compact
        self._note(Request("POST", self.path))
        if path == "/v1/messages/count_tokens":
            return self._json({"input_tokens": max(1, len(raw) // 4)})
        return self._error(404, "no such path")

    def _messages(self, body: Json, tokens: int) -> None:
        session = self.headers.get("x-claude-code-session-id", "")
        tools = tuple(tool.get("name", "") for tool in body.get("tools") or ())
        request = Request(
            "POST",
            self.path,
            session=session,
            model=body.get("model", ""),
            tools=tools,
            retry=int(self.headers.get("x-stainless-retry-count") or 0),
        )
        if not tools:
            schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
            text = json.dumps(minimal(schema)) if schema else "<summary>scripted summary</summary>"
            self._note(replace(request, side="json" if schema else "text", reply="text"))
            return self._answer(body, Reply(text=text), tokens)
        failed = self.server.failed.setdefault(session, set())
        turn = current_turn(body["messages"], failed)
        reply = structured_reply(turn) if STRUCTURED in tools else next_reply(turn)
        self._note(replace(request, prompt=turn.prompts[-1].text if turn.prompts else "", reply=reply.name))
        if reply.hang or reply.status != 200:
            failed.update(prompt.key for prompt in turn.prompts)
        if not self._client_stays(None if reply.hang else reply.delay_s):
            return None
        if reply.status != 200:
            return self._error(reply.status, reply.message, reply.retry_after_s)
        return self._answer(body, reply, tokens)

    def _client_stays(self, seconds: float | None) -> bool:
        """Wait that long (None: forever); False once the client has hung up or the server closes."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            slice_s = 0.05 if end is None else max(0.0, min(0.05, end - time.monotonic()))
            readable, _, _ = select.select([self.connection], [], [], slice_s)
            if (
                readable or self.server.closing.is_set()
            ):  # a client that waits for an answer sends nothing more
                self.close_connection = True
                return False
        return True

    def _answer(self, body: Json, reply: Reply, tokens: int) -> None:
        blocks: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
        if reply.tool:
            use = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:22]}", "name": reply.tool}
            blocks.append(use | {"input": reply.tool_input})
        message = {
            "id": f"msg_{uuid.uuid4().hex[:22]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": blocks,
            "stop_reason": "tool_use" if reply.tool else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": max(1, len(json.dumps(blocks)) // 4),
            },
        }
        if not body.get("stream"):
            return self._json(message)
        events = "".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(message)
        )
        return self._send(200, "text/event-stream; charset=utf-8", events.encode())

    def _error(self, status: int, text: str, retry_after_s: int = 0) -> None:
        error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": text}
        headers = {"x-should-retry": "false"}  # without it the client retries ten times, for three minutes
        if retry_after_s:
            headers["retry-after"] = str(retry_after_s)
        self._json({"type": "error", "error": error}, status, headers)

    def _json(self, value: Json, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(value).encode(), headers)

    def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("request-id", f"req_{uuid.uuid4().hex[:20]}")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _note(self, request: Request) -> None:
        with self.server.lock:
            self.server.requests.append(request)


def _events(message: Json) -> Iterator[Json]:
    """The stream of server-sent events that spells a message."""
    blank = {"content": [], "stop_reason": None, "usage": message["usage"] | {"output_tokens": 1}}
    yield {"type": "message_start", "message": message | blank}
    for index, block in enumerate(message["content"]):
        start: Json = {"text": ""} if block["type"] == "text" else {"input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]} if block["type"] == "text" else _input_delta(block)
        )
        yield {"type": "content_block_start", "index": index, "content_block": block | start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _input_delta(block: Json) -> Json:
    return {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.requests: list[Request] = []
        self.failures: list[str] = []
        self.failed: dict[str, set[tuple[int, str]]] = {}

    def handle_error(self, request: object, client_address: object) -> None:
        text = traceback.format_exc()
        if (
            "BrokenPipeError" not in text and "ConnectionResetError" not in text
        ):  # an interrupted client hangs up
            self.failures.append(text)


class LoopbackApi:
    """The server, running from `with` to the end of the block."""

    def __init__(self) -> None:
        self._server = _Server()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[Request]:
        """The requests so far, oldest first."""
        with self._server.lock:
            return list(self._server.requests)

    @property
    def failures(self) -> list[str]:
        """Tracebacks of requests that this server could not answer: a bug in the test or in this file."""
        return list(self._server.failures)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
