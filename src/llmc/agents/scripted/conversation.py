"""What both threads share: the session's files and hooks, the queue of messages, the way to the screen."""

import threading
from collections.abc import Callable
from typing import Any

from llmc.agents.scripted.background import Background
from llmc.agents.scripted.composer import Piece
from llmc.agents.scripted.dialogs import Dialog
from llmc.agents.scripted.hooks import Hooks
from llmc.agents.scripted.options import Options
from llmc.agents.scripted.session import Session, StatusFile
from llmc.agents.scripted.transcript import Transcript, timestamp


class Item:
    """Something a person (or a finished background shell) sent: a prompt, a `!command` or a slash command."""

    def __init__(self, kind: str, text: str, pieces: list[Piece] | None = None) -> None:
        self.kind = kind  # "prompt", "bash", "notification" or a slash command's name
        self.text = text
        self.pieces = pieces or []
        self.sent_at = timestamp()
        self.receipt: threading.Thread | None = None

    @property
    def shown(self) -> str:
        return "".join(piece.shown for piece in self.pieces) or self.text


class Conversation:
    """The session and its surroundings. `post` runs a function in the event loop."""

    def __init__(
        self, options: Options, post: Callable[[Callable[[], None]], None], with_status: bool
    ) -> None:
        self.options = options
        self.session = Session(options)
        self.post = post
        self.new_lines: list[str] = []
        self.transcript = Transcript(self.session, options.mode, not self.session.is_child)
        self.status = StatusFile(self.session, with_status and not self.session.is_child)
        self.hooks = Hooks(options, self.session, lambda line: self.print([line]))
        self.dialog: Dialog | None = None
        self.notifications: list[Item] = []
        self.earlier: list[str] = []
        self.background: list[Background] = []
        self._queue: list[Item] = []
        self._lock = threading.Lock()

    def print(self, lines: list[str]) -> None:
        self.post(lambda: self.new_lines.extend(lines))

    def notify(self, item: Item) -> None:
        """A background shell ended: its notice starts a turn of its own when no other runs."""
        self.post(lambda: self.notifications.append(item))

    def show_dialog(self, dialog: Dialog | None) -> None:
        self.post(lambda: setattr(self, "dialog", dialog))

    def rest(self) -> None:
        """The status between turns."""
        self.status.set("shell" if self.running_background() else "idle")

    def running_background(self) -> list[dict[str, Any]]:
        return [shell.described() for shell in self.background if shell.is_running]

    def queued(self) -> list[Item]:
        with self._lock:
            return list(self._queue)

    def enqueue(self, item: Item) -> None:
        """Queue a message behind the running turn; it is receipted at once, under the running turn's id."""
        item.pieces = item.pieces or [Piece(item.text)]
        self.transcript.queue("enqueue", content=item.text)
        if item.kind == "prompt":
            item.receipt = threading.Thread(
                target=self.hooks.fire, args=("UserPromptSubmit",), kwargs={"prompt": item.text}, daemon=True
            )
            item.receipt.start()
        with self._lock:
            self._queue.append(item)

    def take_prompts(self) -> list[Item]:
        """The messages at the head of the queue, up to the first command."""
        with self._lock:
            count = next(
                (at for at, item in enumerate(self._queue) if item.kind != "prompt"), len(self._queue)
            )
            taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def take_next(self) -> list[Item]:
        """What follows a turn: all plain messages together, or one command."""
        prompts = self.take_prompts()
        if prompts:
            return prompts
        with self._lock:
            taken, self._queue = self._queue[:1], self._queue[1:]
        return taken
