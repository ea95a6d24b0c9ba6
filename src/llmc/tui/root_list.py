"""The roots of this user: for the header, and as a list to choose from. Pure."""

from collections.abc import Sequence

from msgspec import Struct, field
from rich.text import Text

from llmc.api.other_roots import RootSeen
from llmc.base.text import printable, shortened
from llmc.tui.drawing import Brush, marked, needs_you


class RootList(Struct):
    """The roots in order, and the position of the cursor."""

    paths: Sequence[str]
    #: the root on the screen
    shown: str
    cursor: int = 0
    seen: dict[str, RootSeen] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        return len(self.paths) > 1

    def update(self, root: RootSeen) -> None:
        self.seen[root.path] = root

    def begin(self) -> None:
        """Put the cursor on the root that is shown."""
        self.cursor = self._at

    def move(self, by: int) -> None:
        self.cursor = max(0, min(len(self.paths) - 1, self.cursor + by))

    def beside(self, by: int) -> str:
        """The next or previous root, wrapping around."""
        return self.paths[(self._at + by) % len(self.paths)]

    @property
    def _at(self) -> int:
        return self.paths.index(self.shown) if self.shown in self.paths else 0

    def name(self, path: str) -> str:
        """The last part of a path, with its parent directory if two roots would have the same name."""
        last = [one.rstrip("/").rpartition("/")[2] for one in self.paths]
        parts = path.rstrip("/").split("/")
        return printable("/".join(parts[-2:]) if last.count(parts[-1]) > 1 else parts[-1])

    def title(self, room: int, brush: Brush) -> str:
        """Every root with how many need you, the shown one in brackets; if they do not fit, the others as a sum."""
        line = f" {brush.dot} ".join(map(self._short, self.paths))
        if len(line) <= room:
            return line
        others = [path for path in self.paths if path != self.shown]
        return f"{self._short(self.shown)} +{len(others)} roots {sum(map(self._need, others)) or ''}".rstrip()

    def _short(self, path: str) -> str:
        seen = self.seen.get(path)
        count = "!" if seen is not None and seen.problem else str(self._need(path) or "")
        text = f"{self.name(path)} {count}".rstrip()
        return f"[{text}]" if path == self.shown else text

    def _need(self, path: str) -> int:
        seen = self.seen.get(path)
        return seen.counts.need if seen is not None and seen.counts is not None else 0

    def text_of(self, index: int, width: int, brush: Brush) -> Text:
        """One line of the list to choose from."""
        path, theme = self.paths[index], brush.theme
        names = max(len(self.name(one)) for one in self.paths)
        text = Text(f"  {self.name(path):<{names}}  ", style=f"bold {theme.text}")
        seen = self.seen.get(path)
        if seen is not None and seen.problem:
            text.append(f"{printable(seen.problem)}  ", style=theme.error)
        elif seen is not None and seen.counts is not None:
            counts = seen.counts
            need = needs_you(counts.need)
            text.append(f"{need:<12}", style=brush.look("asks") if counts.need else theme.muted)
            text.append(f"{counts.working:>3} working {counts.idle:>3} idle  ", style=theme.muted)
        else:
            text.append("...  ", style=theme.muted)
        text.append(shortened(printable(path), max(8, width - text.cell_len)), style=theme.muted)
        text.truncate(width, overflow="ellipsis")
        return marked(text, index == self.cursor, width, brush)
