"""Widgets that draw lines: a scrolled list that draws only its visible lines, and one-line bars."""

from collections.abc import Callable

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

#: draws the line with this number for a width
Drawing = Callable[[int, int], Text]


class Lines(ScrollView):
    """Scrolled lines. A line is drawn when it is first seen, so thousands of lines cost nothing."""

    DEFAULT_CSS = "Lines { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }"

    class Clicked(Message):
        """A line was clicked; `again`: in a double click."""

        def __init__(self, lines: "Lines", index: int, again: bool) -> None:
            super().__init__()
            self.lines, self.index, self.again = lines, index, again

    class Resized(Message):
        """The size has changed, so the lines must be drawn again."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.can_focus = False
        self._count = 0
        self._draw: Drawing = lambda index, width: Text()
        self._made: dict[tuple[int, int], Strip] = {}
        self._height = 0
        #: the last lines were requested, so they stay visible when the size changes
        self._opened_at_end = False

    def show(self, count: int, draw: Drawing) -> None:
        """Show these lines; the scroll position stays."""
        self._count, self._draw = count, draw
        self._made.clear()
        size = Size(self.size.width, count)
        if size != self.virtual_size:
            self.virtual_size = size
        self.refresh()

    def reveal(self, index: int, *, context: int = 0) -> None:
        """Scroll until a line is visible, with `context` lines around it."""
        height = max(1, self.size.height)
        top = round(self.scroll_offset.y)
        if index - context < top:
            self._go_to(index - context)
        elif index + context >= top + height:
            self._go_to(min(self._count, index + context + 1) - height)

    def begin_at(self, index: int) -> None:
        """Scroll a line to the top, or scroll to the end if too few lines follow."""
        self._opened_at_end = index >= self._count - self.size.height
        self._go_to(min(index, self._count - self.size.height))

    def _go_to(self, top: int) -> None:
        # Forced: there is no scrollbar yet for lines that were shown a moment ago.
        self.scroll_to(y=max(0, top), animate=False, immediate=True, force=True)

    @property
    def at_end(self) -> bool:
        return round(self.scroll_offset.y) + self.size.height >= self._count

    @property
    def page(self) -> int:
        return max(1, self.size.height - 1)

    def render_line(self, y: int) -> Strip:
        index = round(self.scroll_offset.y) + y
        width = self.size.width
        if index >= self._count or width <= 0:
            return Strip.blank(width, self.rich_style)
        key = (index, width)
        if key not in self._made:
            if len(self._made) > 4000:
                self._made.clear()
            self._made[key] = _strip(self, self._draw(index, width), width)
        return self._made[key]

    def on_resize(self, event: events.Resize) -> None:
        self._made.clear()
        was_at_end = round(self.scroll_offset.y) + self._height >= self._count
        self._height = event.size.height
        self.virtual_size = Size(self.size.width, self._count)
        if self._opened_at_end and was_at_end:
            self._go_to(self._count - self._height)
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        index = round(self.scroll_offset.y) + event.y
        if 0 <= index < self._count:
            self.post_message(self.Clicked(self, index, event.chain > 1))


class Bar(Widget):
    """One line of text."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._draw: Callable[[int], Text] = lambda width: Text()

    def show(self, draw: Callable[[int], Text]) -> None:
        self._draw = draw
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        text = self._draw(width)
        text.truncate(width, overflow="ellipsis")
        return _strip(self, text, width)


def _strip(widget: Widget, text: Text, width: int) -> Strip:
    """A line as textual draws it. For a text without spans, rich leaves the text's style to the caller."""
    console = widget.app.console
    segments = Segment.apply_style(text.render(console), console.get_style(text.style))
    strip = Strip(segments, text.cell_len)
    return strip.adjust_cell_length(width, widget.rich_style).apply_style(widget.rich_style)
