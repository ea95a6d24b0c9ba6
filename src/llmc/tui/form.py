"""A form at the bottom of the screen: a question and a text. Enter sends, Alt+Enter adds a line, Esc goes back."""

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea

Send = Callable[[str], None]


class Form(TextArea):
    """A text field. It stays mounted and is shown when needed, so that no key is lost."""

    DEFAULT_CSS = "Form { height: auto; max-height: 8; border: none; padding: 0 1; display: none; }"

    def __init__(self) -> None:
        super().__init__("", id="form", soft_wrap=True, compact=True, highlight_cursor_line=False)
        self._send: Send = lambda text: None
        self._leave: Callable[[], None] = lambda: None
        self._changed: Send | None = None
        self._complete: Callable[[str], str] | None = None
        self._given = ""

    def open(
        self,
        text: str,
        send: Send,
        leave: Callable[[], None],
        changed: Send | None,
        complete: Callable[[str], str] | None,
    ) -> None:
        """Ask for a text. `changed` is called on each change, `complete` on Tab."""
        self._send, self._leave, self._changed, self._complete = send, leave, changed, complete
        self._given = self.text = text
        self.move_cursor(self.document.end)
        self.display = True
        self.focus()

    def close(self) -> None:
        self._changed = None
        self.display = False
        self.screen.set_focus(None)

    def press(self, key: str) -> bool:
        """Handle one of the form's own keys; returns False for any other key."""
        match key:
            case "enter":
                self._send(self.text)
            case "escape":
                self._leave()
            case "tab" if self._complete is not None:
                self.text = self._complete(self.text)
                self.move_cursor(self.document.end)
            case "alt+enter" | "shift+enter" | "ctrl+j":
                self.insert("\n")
            case _:
                return False
        return True

    async def take(self, event: events.Key | events.Paste) -> None:
        """Act on a key or a paste before the next one is read."""
        if isinstance(event, events.Paste):
            await self._on_paste(event)
        elif self.press(event.key):
            return
        elif bindings := self._bindings.key_to_bindings.get(event.key):
            await self.app.run_action(bindings[0].action, self)
        else:
            await self._on_key(event)

    def on_text_area_changed(self) -> None:
        if self._changed is not None and self.text != self._given:
            self._changed(self.text)
