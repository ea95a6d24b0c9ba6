"""A form at the bottom of the screen: a question and a text. Enter sends, Alt+Enter makes a new line, Esc goes back."""

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea

Send = Callable[[str], None]


class Form(TextArea):
    """A text that the user types."""

    DEFAULT_CSS = "Form { height: auto; max-height: 8; border: none; padding: 0 1; }"

    def __init__(
        self, send: Send, leave: Callable[[], None], changed: Send | None = None, *, text: str = ""
    ) -> None:
        super().__init__(text, id="form", soft_wrap=True, compact=True, highlight_cursor_line=False)
        self._send, self._leave, self._changed = send, leave, changed
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        match event.key:
            case "enter":
                event.prevent_default().stop()
                self._send(self.text)
            case "escape":
                event.prevent_default().stop()
                self._leave()
            case "alt+enter" | "shift+enter" | "ctrl+j":
                event.prevent_default().stop()
                self.insert("\n")
            case _:
                await super()._on_key(event)

    def on_text_area_changed(self) -> None:
        if self._changed is not None:
            self._changed(self.text)
