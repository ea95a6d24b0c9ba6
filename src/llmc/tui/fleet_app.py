"""The screen: key handling and start. The contents come from list_store.py, diff_view.py and drawing.py."""

import time
from collections.abc import Callable

from textual import events

from llmc.api.roots import Project
from llmc.api.said import PLAIN
from llmc.api.subscription import Subscription
from llmc.base.errors import Exit
from llmc.tui.acting import Acting
from llmc.tui.drawing import Brush
from llmc.tui.frame import TYPING_S
from llmc.tui.keys import LEAVE, LIST, why_nothing
from llmc.tui.lines import Lines
from llmc.tui.typed import Typed


class FleetApp(Acting):
    """The fleet on one screen."""

    async def on_event(self, event: events.Event) -> None:
        """Handle keys and pastes here, in order. In widget queues, a letter can overtake the Backspace before it."""
        if not isinstance(event, events.Key | events.Paste):
            await super().on_event(event)
            return
        await self.mount_form()
        if self.form is None:
            return
        if self.form.display and (isinstance(event, events.Paste) or event.key != LEAVE):
            await self.form.take(event)
        elif isinstance(event, events.Paste):
            self._tell_typing()
        else:
            self._pressed(event)

    def _pressed(self, event: events.Key) -> None:
        """Handle a key that no form takes."""
        key = (
            event.character
            if event.character and event.character.isprintable() and event.character != " "
            else event.key
        )
        if self.confirm is not None and key != LEAVE:
            self._confirm_key(key)
            return
        if self._is_typing(event):
            return
        action = self.actions[self._where()].get(key)
        if action is not None:
            getattr(self, f"do_{action}")()
        else:
            told = why_nothing(key, self._where(), self.actions[LIST], self.key_names)
            self._say("", told, PLAIN)
        self._draw_bars()

    def _is_typing(self, event: events.Key) -> bool:
        """Whether the user types text meant for an agent; if so, say that this does not work here."""
        if event.character is None or not event.character.isalpha():
            return False
        now = time.monotonic()
        self._letters = [(at, letter) for at, letter in self._letters if now - at < TYPING_S]
        self._letters.append((now, event.character))
        if len({letter for _, letter in self._letters}) < 4:
            return False
        self._tell_typing()
        return True

    def _tell_typing(self) -> None:
        to, keys = self.worker_here or "a worker", self.key_names
        told = (
            f"cannot type here; press {keys['message']} to send {to} a message, or {keys['enter']} to attach"
        )
        self._say("", told, PLAIN)

    def _confirm_key(self, key: str) -> None:
        confirm = self.confirm
        if confirm is None or not confirm.listens:
            return
        if key == "y":
            self.confirm = None
            confirm.act()
        elif key == "d" and confirm.look:
            self.confirm = None
            self.do_diff()
        elif key in ("escape", "q"):
            self.confirm = None
        self.redraw()

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        if event.lines.id == "list":
            spot = self._list[event.index].spot if event.index < len(self._list) else None
            if spot is not None:
                self.store.cursor = spot
                self._moved()
                if event.again:
                    self.do_enter()
        elif self.view == "diff" and self.diff is not None:
            self.diff.go_to(event.index)
            self._draw_content()
        elif self.view == "roots":
            self.roots.cursor = event.index
            self._draw_content()
            if event.again:
                self.do_enter()


def run(
    project: Project,
    subscription: Subscription,
    brush: Brush,
    typed: Typed,
    roots: list[str],
    say: Callable[[str], None],
) -> tuple[int, str | None]:
    """Show the screen until it ends; returns the exit code, and the root to open next or None.

    `say` prints what happens after that, until every order has ended.
    """
    app = FleetApp(project, subscription, brush, typed, roots)
    try:
        chosen = app.run()
    finally:
        app.finish(say)
    return Exit.FAILED if app.return_code is None else app.return_code, chosen
