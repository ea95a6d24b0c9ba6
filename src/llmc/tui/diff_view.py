"""The diff of a review as lines with a cursor: files, rows, and the comments below their lines. Pure."""

from bisect import bisect_left
from collections.abc import Callable

from msgspec import Struct, field
from rich.cells import cell_len
from rich.text import Text

from llmc.api.commenting import Comment, DiffFile, DiffRow, Kind, Page, Placed, gap_before, row_of
from llmc.base.text import counted, in_line, indented, visible
from llmc.tui.drawing import Brush, clock

NUMBER_CELLS = 5
#: width of the line numbers and the sign before a line of code
GUTTER = 2 * NUMBER_CELLS + 4
#: how many unchanged lines git shows around a change, and how many more or fewer a key shows
CONTEXT = 3
CONTEXT_STEP = 5


class DiffLine(Struct, frozen=True):
    """One line of the view."""

    #: `file`, `row`, `comment`, `unchanged` for a line that git leaves out, or `text` for a remark about the whole diff
    kind: str
    file: int = -1
    #: index in the rows of the file; for an unchanged line: of the hunk after it
    row: int = -1
    placed: Placed | None = None
    text: str = ""
    unchanged: DiffRow | None = None


class DiffView(Struct):
    """The diff of a review on the screen."""

    page: Page
    folded: set[str] = field(default_factory=set)
    cursor: int = 0
    lines: list[DiffLine] = field(default_factory=list)
    #: unchanged lines around each change
    context: int = CONTEXT
    #: unfolded stretches of unchanged lines, by path and the row of the hunk after them
    opened: set[tuple[str, int]] = field(default_factory=set)
    #: by path: all lines of the files whose unchanged lines were read
    texts: dict[str, list[str]] = field(default_factory=dict)
    #: the rows on the screen, as (line, piece): a line wider than the screen has several pieces
    rows: list[tuple[int, int]] = field(default_factory=list)
    #: the lines with several pieces: the drawn text, and where each piece starts
    long: dict[int, tuple[Text, list[int]]] = field(default_factory=dict)
    #: the width that the rows were made for; 0: not made yet
    width: int = 0
    #: the line and piece that the cursor was moved to; on any other line, the cursor is at the first piece
    piece: tuple[int, int] = (0, 0)
    #: the key that unfolds unchanged lines
    unfolds: str = "f"

    @classmethod
    def of(cls, page: Page, before: "DiffView | None" = None, unfolds: str = "f") -> "DiffView":
        """The view of a page. Folded files stay folded, and the cursor stays where it was."""
        view = cls(page=page, unfolds=unfolds)
        view.folded = {file.path for file in page.files if file.folded or file.path in page.viewed}
        if before is not None and before.page.worker == page.worker:
            known = {file.path for file in before.page.files}
            view.folded = {path for path in view.folded if path not in known} | before.folded
            if before.page.review.result == page.review.result:
                view.context, view.opened, view.texts = before.context, set(before.opened), dict(before.texts)
        view.refresh()
        if before is not None and before.page.worker == page.worker:
            view.cursor = view._same_line(before)
            view.piece = view.cursor, before.piece[1] if before.piece[0] == before.cursor else 0
        return view

    def _same_line(self, before: "DiffView") -> int:
        line = before.line
        if line is None:
            return 0
        if line.file >= 0:
            path = before.page.files[line.file].path
            same = [
                n
                for n, one in enumerate(self.lines)
                if one.file >= 0
                and self.page.files[one.file].path == path
                and (one.kind, one.row) == (line.kind, line.row)
            ]
            if same:
                return same[0]
        return min(before.cursor, max(0, len(self.lines) - 1))

    def refresh(self) -> None:
        """Rebuild the lines."""
        lines = [DiffLine("comment", placed=one) for one in self._at_top()]
        lines += [DiffLine("text", text=text) for text in self._remarks()]
        for number, file in enumerate(self.page.files):
            lines.append(DiffLine("file", number))
            under = [one for one in self.page.comments if one.anchor and one.anchor.path == file.path]
            if file.path in self.folded:
                continue
            at_row: dict[int | None, list[Placed]] = {}
            for one in under:
                assert one.anchor is not None
                at_row.setdefault(row_of(one.anchor, file), []).append(one)
            lines += [DiffLine("comment", number, placed=one) for one in at_row.get(None, [])]
            for at, row in enumerate(file.rows):
                head, tail = self._around(file, at) if row.kind is Kind.HUNK else ([], [])
                lines += [DiffLine("unchanged", number, at, unchanged=one) for one in head]
                lines.append(DiffLine("row", number, at))
                lines += [DiffLine("unchanged", number, at, unchanged=one) for one in tail]
                lines += [DiffLine("comment", number, at, one) for one in at_row.get(at, [])]
        self.lines, self.width = lines, 0
        self.cursor = min(self.cursor, max(0, len(lines) - 1))

    def lay_out(self, width: int, brush: Brush) -> None:
        """Lay out the rows for this width, without cutting off any character of the diff."""
        if width == self.width:
            return
        self.width, self.rows, self.long = width, [], {}
        for index, line in enumerate(self.lines):
            starts = [0]
            if not self._fits(line, width):
                text = self._text(line, width, brush)
                starts = _starts(text.plain, width, _indent(line, width))
                if len(starts) > 1:
                    self.long[index] = text, starts
            self.rows += [(index, piece) for piece in range(len(starts))]
        line_at, piece = self.piece
        self.piece = line_at, min(piece, len(self.long[line_at][1]) - 1 if line_at in self.long else 0)

    def _fits(self, line: DiffLine, width: int) -> bool:
        """Whether a line of code certainly fits; avoids drawing the thousands of lines of a large diff."""
        if line.kind == "unchanged" and line.unchanged is not None:
            row = line.unchanged
        elif line.kind == "row" and not self._is_hunk(line):
            row = self.page.files[line.file].rows[line.row]
        else:
            return False
        drawn = _drawn(row.text)
        return drawn.isascii() and GUTTER + len(drawn) <= width

    @property
    def at(self) -> int:
        """The row of the cursor."""
        line, piece = self.piece
        return bisect_left(self.rows, (self.cursor, piece if line == self.cursor else 0))

    def go_to(self, row: int) -> None:
        """Put the cursor on a row of the screen."""
        if self.rows:
            self.piece = self.rows[max(0, min(len(self.rows) - 1, row))]
            self.cursor = self.piece[0]

    def _around(self, file: DiffFile, at: int) -> tuple[list[DiffRow], list[DiffRow]]:
        """The unchanged lines shown before a hunk: those after the previous change, and those right before the hunk."""
        gap, text = gap_before(file, at), self.texts.get(file.path)
        if text is None or not gap.size:
            return [], []
        more = gap.size if (file.path, at) in self.opened else self.context - CONTEXT
        above = more if gap.first > 1 and (file.path, at) not in self.opened else 0
        middle = min(gap.last + 1, gap.first + above)
        start = max(middle, gap.last + 1 - more)
        return gap.rows(text, range(gap.first, middle)), gap.rows(text, range(start, gap.last + 1))

    def _hidden(self, line: DiffLine) -> int:
        """How many unchanged lines are left out before a hunk."""
        file = self.page.files[line.file]
        return gap_before(file, line.row).size - sum(map(len, self._around(file, line.row)))

    def _at_top(self) -> list[Placed]:
        """Comments about the whole change, and those whose file is no longer in the diff."""
        paths = {file.path for file in self.page.files}
        return [one for one in self.page.comments if one.anchor is None or one.anchor.path not in paths]

    def _remarks(self) -> list[str]:
        review, page = self.page.review, self.page
        found = [f"warning: {text}" for text in review.warnings]
        if review.author and not review.so_far:
            found += [f"Author: {in_line(review.author)}", *indented(review.message).split("\n")]
        if review.conflicts:
            found.append(f"conflicts with the default branch in {counted(len(review.conflicts), 'file')}")
        if review.so_far:
            dirty = f"; uncommitted changes in {counted(len(review.dirty), 'file')}" if review.dirty else ""
            is_free = review.so_far in ("idle", "no_changes")
            what = "nothing to review" if is_free else "unfinished work"
            found.append(f"{what} (status: {review.so_far}){dirty}")
        elif review.dirty:
            found.append(f"uncommitted changes in {counted(len(review.dirty), 'file')} will not land")
        if page.by_rebase:
            found.append(f"not shown: {counted(len(page.by_rebase), 'file')} changed only by the rebase")
        if not page.files and not review.too_large:
            found.append("no changes" if not page.since else f"nothing changed since round {page.since}")
        return found

    @property
    def line(self) -> DiffLine | None:
        return self.lines[self.cursor] if 0 <= self.cursor < len(self.lines) else None

    @property
    def file(self) -> DiffFile | None:
        line = self.line
        return self.page.files[line.file] if line is not None and line.file >= 0 else None

    @property
    def draft(self) -> Comment | None:
        """The draft comment at the cursor's line."""
        line = self.line
        if line is None:
            return None
        if line.kind == "comment" and line.placed is not None and not line.placed.comment.round:
            return line.placed.comment
        here = [
            one.placed.comment
            for one in self.lines
            if one.kind == "comment" and one.placed and (one.file, one.row) == (line.file, line.row)
        ]
        return next((comment for comment in here if not comment.round), None)

    def move(self, by: int) -> None:
        """Move by rows of the screen, so that every piece of a very long line can be reached."""
        self.go_to(self.at + by)

    def jump(self, wanted: str, by: int) -> bool:
        """Go to the next or previous file, hunk or comment; returns whether there is one."""
        tests: dict[str, Callable[[DiffLine], bool]] = {
            "file": lambda line: line.kind == "file",
            "hunk": self._is_hunk,
            "comment": lambda line: line.kind == "comment",
        }
        test = tests[wanted]
        places = range(self.cursor + 1, len(self.lines)) if by > 0 else range(self.cursor - 1, -1, -1)
        found = next((at for at in places if test(self.lines[at])), None)
        if found is not None:
            self.cursor = found
        return found is not None

    def _is_hunk(self, line: DiffLine) -> bool:
        return line.kind == "row" and self.page.files[line.file].rows[line.row].kind is Kind.HUNK

    @property
    def unread(self) -> DiffFile | None:
        """The file to read before the unchanged lines at the cursor can be unfolded."""
        file, line = self.file, self.line
        is_gap = file is not None and line is not None and self._is_hunk(line) and self._hidden(line) > 0
        return file if is_gap and file is not None and file.path not in self.texts else None

    def widen(self, by: int) -> None:
        """Show more or fewer unchanged lines around each change."""
        self.context = max(CONTEXT, self.context + by)
        before = self.line
        self.refresh()
        if before is not None:
            same = (
                n
                for n, one in enumerate(self.lines)
                if (one.kind, one.file, one.row, one.placed)
                == (before.kind, before.file, before.row, before.placed)
            )
            self.cursor = next(same, self.cursor)

    def fold(self) -> None:
        """Fold or unfold the unchanged lines at the cursor, or else its file."""
        file, line = self.file, self.line
        if file is None or line is None:
            return
        key = (file.path, line.row)
        if file.path in self.texts and (
            key in self.opened
            if line.kind == "unchanged"
            else self._is_hunk(line) and gap_before(file, line.row).size
        ):
            self.opened ^= {key}
            self.refresh()
            self.cursor = next(
                n
                for n, one in enumerate(self.lines)
                if (one.kind, one.file, one.row) == ("row", line.file, line.row)
            )
            return
        self.folded ^= {file.path}
        number = line.file
        self.refresh()
        self.cursor = next(n for n, one in enumerate(self.lines) if one.kind == "file" and one.file == number)

    def fold_all(self) -> None:
        """Fold all files, or unfold them if all are folded."""
        paths = {file.path for file in self.page.files}
        self.folded = set() if self.folded >= paths else paths
        self.refresh()

    def title(self, brush: Brush) -> str:
        """Worker, size, round and drafts."""
        page, dot = self.page, f" {brush.dot} "
        added = sum(file.added or 0 for file in page.files)
        deleted = sum(file.deleted or 0 for file in page.files)
        files = counted(len(page.files), "file")
        parts = [page.worker, f"{files} +{added} -{deleted}", f"round {page.round}"]
        if page.since:
            parts.append(f"since round {page.since}")
        if page.viewed:
            parts.append(f"{len(page.viewed)} viewed")
        if page.drafts:
            parts.append(counted(len(page.drafts), "draft"))
        return dot.join(parts)

    def row_text(self, row: int, brush: Brush) -> Text:
        """One row, drawn for the width that the rows were made for."""
        index, piece = self.rows[row]
        line, width = self.lines[index], self.width
        if index in self.long:
            whole, starts = self.long[index]
            text = whole[starts[piece] : [*starts, len(whole)][piece + 1]]
            if piece:
                mark = f"{brush.goes_on:>{_indent(line, width) - 1}} "
                text = Text(mark, style=whole.style).append_text(text)
        else:
            text = self._text(line, width, brush)
        text.pad_right(max(0, width - text.cell_len))
        if index == self.cursor:
            if row == self.at:
                text = Text.assemble((">", f"bold {brush.theme.text}"), text[1:])
            if line.kind != "row" or not self._is_change(line):
                text.stylize(f"on {brush.theme.selected}")
            text.stylize("bold")
        return text

    def _text(self, line: DiffLine, width: int, brush: Brush) -> Text:
        """A whole line, which may be wider than the screen."""
        match line.kind:
            case "file":
                return self._file(line, width, brush)
            case "row" if self._is_hunk(line):
                return self._hunk(line, brush)
            case "row":
                return self._row(self.page.files[line.file].rows[line.row], brush)
            case "unchanged":
                assert line.unchanged is not None
                return self._row(line.unchanged, brush)
            case "comment":
                assert line.placed is not None
                return self._comment(line, line.placed, brush)
            case _:
                return Text(f" {visible(line.text)}", style=brush.look("notice"))

    def _is_change(self, line: DiffLine) -> bool:
        return self.page.files[line.file].rows[line.row].kind in (Kind.ADDED, Kind.REMOVED)

    def _file(self, line: DiffLine, width: int, brush: Brush) -> Text:
        file = self.page.files[line.file]
        size = "binary" if file.added is None else f"+{file.added} -{file.deleted}"
        marks = []
        if file.path in self.page.viewed:
            marks.append("viewed")
        if file.path in self.folded:
            marks.append(f"folded: {file.folded}" if file.folded else "folded")
        count = sum(bool(one.anchor and one.anchor.path == file.path) for one in self.page.comments)
        if count:
            marks.append(f"{count} comment{'s' if count > 1 else ''}")
        was = f" (was {in_line(file.was)})" if file.was else ""
        right = "  ".join([size, *marks])
        text = Text(style=f"on {brush.theme.selected}")
        text.append(f" {in_line(file.path)}{was}", style=f"bold {brush.theme.text}")
        text.pad_right(max(1, width - len(right) - 2 - text.cell_len))
        text.append(f" {right}", style=brush.theme.muted)
        return text

    def _hunk(self, line: DiffLine, brush: Brush) -> Text:
        row, hidden = self.page.files[line.file].rows[line.row], self._hidden(line)
        lines = counted(hidden, "unchanged line")
        told = (
            f"{'..':>{2 * NUMBER_CELLS}}  {lines} ({self.unfolds} unfolds)"
            if hidden
            else f"{brush.rule * 3} line {row.new}"
        )
        return Text(f" {told}  {in_line(row.text)}", style=brush.theme.muted)

    def _row(self, row: DiffRow, brush: Brush) -> Text:
        theme = brush.theme
        if row.kind is Kind.NOTE:
            return Text(f" {'':>{2 * NUMBER_CELLS}}   {in_line(row.text)}", style=theme.muted)
        old, new = (f"{number or '':>{NUMBER_CELLS}}" for number in (row.old, row.new))
        sign = {Kind.ADDED: "+", Kind.REMOVED: "-"}.get(row.kind, " ")
        gutter, code = f" {old}{new} {sign} ", _drawn(row.text)
        if sign == " ":
            return Text.assemble((gutter, theme.muted), code)
        text = Text(gutter + code, style=f"{theme.text} on {theme.added if sign == '+' else theme.removed}")
        for begin, end in _shown_spans(row.text, row.words):
            colour = theme.added_word if sign == "+" else theme.removed_word
            text.stylize(f"bold {theme.text} on {colour}", GUTTER + begin, GUTTER + end)
        return text

    def _comment(self, line: DiffLine, placed: Placed, brush: Brush) -> Text:
        comment = placed.comment
        theme = brush.theme
        word = f"round {comment.round} {placed.standing}" if comment.round else placed.standing
        corner = "`" if brush.plain else "╰"
        where = ""
        is_elsewhere = line.row < 0 and placed.anchor is not None and placed.anchor.line is not None
        if placed.anchor is not None and (is_elsewhere or placed.anchor.fit in ("line_gone", "file_gone")):
            quote = placed.anchor.quote[-1].strip() if placed.anchor.quote else placed.anchor.path
            where = f" [{'file' if placed.anchor.fit == 'file_gone' else 'line'} not in the diff: {in_line(quote)}]"
        text = Text(f"   {'':>{2 * NUMBER_CELLS}}{corner} ", style=theme.muted)
        text.append(f"{word} ", style=brush.look("asks" if not comment.round else "review"))
        text.append(f"{in_line(comment.text)}", style=theme.text)
        text.append(f"{where}  {clock(comment.at_unix)}", style=theme.muted)
        return text


def _indent(line: DiffLine, width: int) -> int:
    """The indent of the further rows of a line that is wider than the screen."""
    wanted = {"row": GUTTER, "unchanged": GUTTER, "comment": GUTTER + 1}.get(line.kind, 4)
    return min(wanted, max(2, width // 2))


def _starts(text: str, width: int, indent: int) -> list[int]:
    """Where each piece of a text starts; all but the first are indented."""
    starts, used = [0], 0
    for at, char in enumerate(text):
        cells = cell_len(char)
        if used + cells > width and used > (indent if len(starts) > 1 else 0):
            starts.append(at)
            used = indent
        used += cells
    return starts


def _drawn(text: str) -> str:
    """Code as it is drawn: tabs as four spaces, control characters escaped."""
    return in_line(text.replace("\t", "    "))


def _shown_spans(text: str, words: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """The spans in the drawn line, where tabs and escaped characters are longer."""
    return [(len(_drawn(text[:start])), len(_drawn(text[:end]))) for start, end in words]
