"""A form at the bottom of the screen: a question and a text. Enter sends, Alt+Enter makes a new line, Esc goes back."""

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea

from llmc.tui.keys import LEAVE

Send = Callable[[str], None]


class Form(TextArea):
    """A text that the user types. It is always there, and shown when it is asked for: so no key is lost."""

    DEFAULT_CSS = "Form { height: auto; max-height: 8; border: none; padding: 0 1; display: none; }"

    def __init__(self, elsewhere: Callable[[events.Key], None]) -> None:
        super().__init__("", id="form", soft_wrap=True, compact=True, highlight_cursor_line=False)
        self._send: Send = lambda text: None
        self._leave: Callable[[], None] = lambda: None
        self._changed: Send | None = None
        self._complete: Callable[[str], str] | None = None
        self._given = ""
        self._elsewhere = elsewhere

    def open(
        self,
        text: str,
        send: Send,
        leave: Callable[[], None],
        changed: Send | None,
        complete: Callable[[str], str] | None,
    ) -> None:
        """Ask for a text. `changed` hears of each change; `complete` answers Tab."""
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
        """A key of the form's own; returns whether it was one."""
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

    def press_late(self, key: str, character: str | None) -> None:
        """A key that was on its way to the screen when the form opened. The form may have the focus by now."""
        if self.press(key):
            return
        if key == "backspace":
            self.action_delete_left()
        elif character and character.isprintable():
            self.insert(character)

    async def _on_key(self, event: events.Key) -> None:
        if not self.display or event.key == LEAVE:
            event.prevent_default().stop()
            self._elsewhere(event)  # closed a moment ago: the key is the screen's
        elif self.press(event.key):
            event.prevent_default().stop()
        else:
            await super()._on_key(event)

    def on_text_area_changed(self) -> None:
        if self._changed is not None and self.text != self._given:
            self._changed(self.text)
