"""Which work runs: the start, turns, /clear, and what waits behind them.

The methods are called in the event loop; the work itself runs in the worker thread.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmc.agents.scripted.composer import Piece
from llmc.agents.scripted.conversation import Conversation, Item
from llmc.agents.scripted.dialogs import Dialog
from llmc.agents.scripted.loop import Function, Worker

if TYPE_CHECKING:
    from llmc.agents.scripted.turn import Turn

Done = Callable[[list[Piece], bool, bool], None]


class Jobs:
    """Runs one piece of work at a time."""

    def __init__(self, conversation: Conversation, on_done: Done) -> None:
        self._conversation = conversation
        self._on_done = on_done
        self._worker = Worker()
        self._busy = False
        self._backlog: list[Item] = []
        self._panel = ""
        self.turn: Turn | None = None
        self.is_deaf = True

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
        """Work that runs delays it: the agent says that it is idle a moment before its work has ended."""
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
        """The hook runs aside: a slow one must not hold up keys."""
        fields = {"message": "Claude is waiting for your input", "notification_type": "idle_prompt"}
        hooks = self._conversation.hooks
        threading.Thread(target=hooks.fire, args=("Notification",), kwargs=fields, daemon=True).start()

    def abandon(self, reason: str) -> None:
        """The client ends: its children with it, then the hook, then the status file."""
        self._conversation.transcript.close()
        if self.turn:
            self.turn.end()
        for shell in self._conversation.background:
            shell.kill()
        self._conversation.hooks.fire("SessionEnd", reason=reason)
        self._conversation.status.remove()

    def _give(self, work: Function) -> None:
        self._busy = True
        self._worker.give(work)

    def _begin(self, items: list[Item], is_follow_up: bool = False) -> None:
        first = items[0]
        if first.kind in ("clear", "compact"):
            work = self._clear if first.kind == "clear" else self._compact
            self._give(lambda: work(is_follow_up))
            return
        from llmc.agents.scripted.turn import Turn  # imported by the worker after the start: start-up time

        for item in items:
            self._conversation.new_lines += [f"❯ {line}" for line in item.shown.split("\n")]
        turn = self.turn = Turn(self._conversation, items, is_follow_up)
        self._give(lambda: self._run(turn))

    def _finished(self, restored: list[Piece] | None = None, cleared: bool = False) -> None:
        """Called in the worker thread, as the last thing of a job."""
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
        import llmc.agents.scripted.turn  # noqa: F401  -- while nobody waits for it

        self._finished()

    def _run(self, turn: "Turn") -> None:
        turn.run()
        self._finished(turn.restored.pieces if turn.restored else None)

    def _clear(self, is_follow_up: bool) -> None:
        conversation = self._conversation
        if is_follow_up:
            conversation.transcript.queue("dequeue")
        conversation.status.set("busy")
        conversation.hooks.fire("SessionEnd", reason="clear")
        conversation.session.renew()
        conversation.transcript.restart()
        conversation.earlier = []
        conversation.rest()
        conversation.hooks.fire("SessionStart", source="clear")
        self._finished(cleared=True)

    def _compact(self, is_follow_up: bool) -> None:
        conversation = self._conversation
        if is_follow_up:
            conversation.transcript.queue("dequeue")
        conversation.status.set("busy")
        conversation.hooks.fire("PreCompact", trigger="manual", custom_instructions=None)
        conversation.hooks.fire("SessionStart", source="compact", model=conversation.options.model_name)
        conversation.hooks.fire("PostCompact", trigger="manual", compact_summary="scripted summary")
        conversation.print(["Compacted", ""])
        conversation.rest()
        self._finished()
