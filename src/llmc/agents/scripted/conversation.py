"""The state that both threads share, and the jobs that run: start-up, turns, /clear, and the queue behind them.

The methods of `Jobs` are called in the event loop; the work itself runs in the worker thread.
"""

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from llmc.agents.scripted.children import Background, Hooks
from llmc.agents.scripted.command_line import Options
from llmc.agents.scripted.keyboard import Dialog, Piece
from llmc.agents.scripted.session import Session, StatusFile, Transcript, timestamp

if TYPE_CHECKING:
    from llmc.agents.scripted.turn import Turn

Function = Callable[[], None]

BUG_EXIT_CODE = 70


class Item:
    """Something the user (or a finished background shell) sent: a prompt, a `!command` or a slash command."""

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

    def __init__(self, options: Options, post: Callable[[Function], None]) -> None:
        self.options = options
        self.session = Session(options)
        self.post = post
        self.new_lines: list[str] = []
        self.transcript = Transcript(self.session, options.mode, not self.session.is_child)
        with_status = os.environ.get("LLMC_SCRIPTED_NO_STATUS") != "1"
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

    def background_ended(self, shell: Background) -> None:
        """Add its notification, which starts a turn of its own when no other runs."""
        item = Item("notification", shell.notification())
        self.post(lambda: self.notifications.append(item))

    def show_dialog(self, dialog: Dialog | None) -> None:
        self.post(lambda: setattr(self, "dialog", dialog))

    def rest(self) -> None:
        """Set the status between turns."""
        self.status.set("shell" if self.running_background() else "idle")

    def running_background(self) -> list[dict[str, Any]]:
        return [shell.described() for shell in self.background if shell.is_running]

    def queued(self) -> list[Item]:
        with self._lock:
            return list(self._queue)

    def enqueue(self, item: Item) -> None:
        """Queue a message behind the running turn; its hook fires at once, with the running turn's id."""
        item.pieces = item.pieces or [Piece(item.text)]
        self.transcript.queue("enqueue", content=item.text)
        if item.kind == "prompt":
            item.receipt = self.hooks.fire_aside("UserPromptSubmit", prompt=item.text)
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


Done = Callable[[list[Piece], bool, bool], None]


class Jobs:
    """Runs one piece of work at a time, in one thread, so that the loop always responds to keys."""

    def __init__(self, conversation: Conversation, on_done: Done) -> None:
        self._conversation = conversation
        self._on_done = on_done
        self._given: SimpleQueue[Function] = SimpleQueue()
        self._busy = False
        self._backlog: list[Item] = []
        self._panel = ""
        self.turn: Turn | None = None
        self.is_deaf = True
        threading.Thread(target=self._work, daemon=True).start()

    def start(self, delay_s: float, prompt: str) -> None:
        if prompt:
            self._backlog.append(Item("prompt", prompt, [Piece(prompt)]))
        self._give(lambda: self._start(delay_s))

    def submit(self, item: Item) -> None:
        """A turn in progress takes messages into its queue; other work only delays them."""
        if self.turn:
            self._conversation.enqueue(item)
        else:
            self._backlog.append(item)

    def advance(self) -> None:
        """Start the next piece of work, if none runs."""
        if self._busy or self._conversation.dialog:
            return
        if self._panel:
            self._show_panel()
        elif queued := self._conversation.take_next():
            self._begin(queued, is_follow_up=True)
        elif self._backlog:
            self._begin([self._backlog.pop(0)])
        elif self._conversation.notifications:
            self._begin([self._conversation.notifications.pop(0)])

    def open_panel(self, title: str) -> None:
        """Open a panel when no work runs: the agent reports idle a moment before its work has ended."""
        self._panel = title

    def _show_panel(self) -> None:
        self._conversation.dialog = Dialog(self._panel)
        self._panel = ""
        self._conversation.status.set("waiting", "dialog open")

    def answer_dialog(self, answer: str) -> None:
        dialog, self._conversation.dialog = self._conversation.dialog, None
        if self.turn and dialog:
            dialog.reply.put(answer)
        else:
            self._conversation.rest()

    def cancel_dialog(self) -> None:
        self._conversation.dialog = None
        if self.turn:
            self.turn.interrupt()
        else:
            self._conversation.rest()

    def notify_idle(self) -> None:
        fields = {"message": "Claude is waiting for your input", "notification_type": "idle_prompt"}
        self._conversation.hooks.fire_aside("Notification", **fields)

    def abandon(self, reason: str) -> None:
        """Shut down: end the children, then fire the hook, then remove the status file."""
        self._conversation.transcript.close()
        if self.turn:
            self.turn.end()
        for shell in self._conversation.background:
            shell.kill()
        self._conversation.hooks.fire("SessionEnd", reason=reason)
        self._conversation.status.remove()

    def _give(self, work: Function) -> None:
        self._busy = True
        self._given.put(work)

    def _work(self) -> None:
        while True:
            job = self._given.get()
            try:
                job()
            except BaseException:
                import traceback  # takes 4 ms, not needed at start-up

                traceback.print_exc()  # a bug of ours: visible, and not a hang
                os._exit(BUG_EXIT_CODE)

    def _begin(self, items: list[Item], is_follow_up: bool = False) -> None:
        first = items[0]
        if first.kind in ("clear", "compact"):
            self._give(lambda: self._command(first.kind, is_follow_up))
            return
        from llmc.agents.scripted.turn import Turn  # imported by the worker after the start: start-up time

        for item in items:
            self._conversation.new_lines += [f"❯ {line}" for line in item.shown.split("\n")]
        turn = self.turn = Turn(self._conversation, items, is_follow_up)
        self._give(lambda: self._run(turn))

    def _finished(self, restored: list[Piece] | None = None, cleared: bool = False) -> None:
        """Called in the worker thread at the end of a job."""
        self._conversation.post(lambda: self._settle(restored or [], cleared))

    def _settle(self, restored: list[Piece], cleared: bool) -> None:
        had_turn = self.turn is not None
        self.turn = None
        self._busy = False
        self._on_done(restored if not self._conversation.queued() else [], cleared, had_turn)

    def _start(self, delay_s: float) -> None:
        conversation = self._conversation
        conversation.status.create()
        time.sleep(delay_s)
        session = conversation.session
        if session.source == "resume":
            conversation.earlier = conversation.transcript.load()
        self.is_deaf = False
        conversation.hooks.fire("SessionStart", source=session.source, model=conversation.options.model_name)
        conversation.rest()
        import llmc.agents.scripted.turn  # noqa: F401  -- while idle

        self._finished()

    def _run(self, turn: "Turn") -> None:
        turn.run()
        self._finished(turn.restored.pieces if turn.restored else None)

    def _command(self, kind: str, is_follow_up: bool) -> None:
        conversation = self._conversation
        if is_follow_up:
            conversation.transcript.queue("dequeue")
        conversation.status.set("busy")
        if kind == "clear":
            conversation.hooks.fire("SessionEnd", reason="clear")
            conversation.session.renew()
            conversation.transcript.restart()
            conversation.earlier = []
            conversation.rest()
            conversation.hooks.fire("SessionStart", source="clear")
        else:
            conversation.hooks.fire("PreCompact", trigger="manual", custom_instructions=None)
            conversation.hooks.fire("SessionStart", source="compact", model=conversation.options.model_name)
            conversation.hooks.fire("PostCompact", trigger="manual", compact_summary="scripted summary")
            conversation.print(["Compacted", ""])
            conversation.rest()
        self._finished(cleared=kind == "clear")
