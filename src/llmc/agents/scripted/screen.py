"""The scripted agent's screen: the conversation scrolls by, the composer stays at the bottom.

The normal screen is used, so tmux keeps the conversation in its history. Only the event loop draws.
"""

import fcntl
import os
import re
import struct
import termios
from collections import deque
from typing import NamedTuple

Attributes = list[int | list[bytes | int]]

BRACKETED_PASTE_ON = "\x1b[?2004h"
BRACKETED_PASTE_OFF = "\x1b[?2004l"


class Terminal:
    """Standard input and output; a pipe works too, without raw mode."""

    def __init__(self, in_fd: int = 0, out_fd: int = 1) -> None:
        self.in_fd = in_fd
        self.out_fd = out_fd
        self._saved: Attributes | None = None

    def open(self) -> None:
        if os.isatty(self.in_fd):
            self._saved = termios.tcgetattr(self.in_fd)
            termios.tcsetattr(self.in_fd, termios.TCSANOW, _raw(self._saved))
        self.write(BRACKETED_PASTE_ON)

    def close(self) -> None:
        self.write(BRACKETED_PASTE_OFF + "\x1b[?25h\r\n")
        if self._saved is not None:
            try:
                termios.tcsetattr(self.in_fd, termios.TCSANOW, self._saved)
            except termios.error:
                pass  # the terminal went away first

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            packed = fcntl.ioctl(self.out_fd, termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return 80, 24
        rows, columns = struct.unpack("HHHH", packed)[:2]
        return columns or 80, rows or 24

    def read(self) -> bytes | None:
        """What was typed; None at the end of input."""
        try:
            return os.read(self.in_fd, 65536) or None
        except OSError:
            return None

    def write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        try:
            while data:
                data = data[os.write(self.out_fd, data) :]
        except OSError:
            pass  # a closed terminal ends the agent with SIGHUP


def _raw(attributes: Attributes) -> Attributes:
    """Like tty.setraw, but output newlines still return the carriage: what we print stays simple."""
    raw = list(attributes)
    flags = [int(flag) for flag in raw[:4] if isinstance(flag, int)]
    raw[0] = flags[0] & ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    raw[2] = (flags[2] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    raw[3] = flags[3] & ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    return raw


PROMPT = "❯\u00a0"
SEARCH = "  search prompts: "
QUEUED_HINT = "Press up to edit queued messages"
KEPT_LINES = 300
MAX_LINE_CHARS = 2000

_UNPRINTABLE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")


class View(NamedTuple):
    """What the lower part shows right now."""

    draft: str
    footer: str
    queued: list[str]
    spinner: str
    #: an open dialog, which replaces the draft
    dialog: list[str]
    #: what a history search looks for; keys go there, and so does the cursor
    search: str | None


class Screen:
    """Draws the view below the conversation."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._conversation: deque[str] = deque(maxlen=KEPT_LINES)
        self._rows_above_cursor = 0
        self._drawn = ""

    def show(self, view: View, new_lines: list[str]) -> None:
        """Print new lines of the conversation and the view below them."""
        lines = [printable(line) for line in new_lines]
        self._conversation.extend(lines)
        up = self._up()
        body, cursor = self._block(view)
        if not lines and body == self._drawn:
            return
        self._drawn = body
        self._terminal.write(up + "".join(line + "\r\n" for line in lines) + body + cursor)

    def redraw(self, view: View) -> None:
        """Draw everything again after a resize."""
        rows = self._terminal.size()[1]
        lines = list(self._conversation)[-rows:]
        self._rows_above_cursor = 0
        body, cursor = self._block(view)
        self._drawn = body
        self._terminal.write("\x1b[H\x1b[2J" + "".join(line + "\r\n" for line in lines) + body + cursor)

    def clear(self) -> None:
        """Forget the conversation, as /clear does."""
        self._conversation.clear()
        self._rows_above_cursor = 0
        self._drawn = ""
        self._terminal.write("\x1b[H\x1b[2J\x1b[3J")

    def _up(self) -> str:
        up = f"\x1b[{self._rows_above_cursor}A" if self._rows_above_cursor else ""
        return f"\r{up}\x1b[J"

    def _block(self, view: View) -> tuple[str, str]:
        """The lower part, and the motion that puts the cursor after the draft."""
        columns, rows = self._terminal.size()
        room = max(3, rows - 8)
        above = [_fit(f"❯ {text.partition(chr(10))[0]}", columns) for text in view.queued[-5:]]
        above += [_fit(view.spinner, columns)] if view.spinner else []
        if view.dialog:
            lines = above + [_fit(line, columns) for line in view.dialog[-room:]]
            self._rows_above_cursor = len(lines) - 1
            return "\r\n".join(lines), ""
        rule = "─" * columns
        hint = QUEUED_HINT if view.queued and not view.draft else ""
        draft = _wrapped(hint or view.draft, columns - 2)[-room:]
        box = [(PROMPT if at == 0 else "  ") + line for at, line in enumerate(draft)]
        lines = [*above, rule, *box, rule, _fit(view.footer, columns)]
        if view.search is not None:
            lines[-1] = _fit(f"{SEARCH}{view.search}", columns)
            self._rows_above_cursor = len(lines) - 1
            return "\r\n".join(lines), f"\x1b[{1 + _width(lines[-1])}G"
        self._rows_above_cursor = len(above) + len(box)
        column = 3 if hint else 3 + _width(draft[-1])
        return "\r\n".join(lines), f"\x1b[2A\x1b[{column}G"


def printable(line: str) -> str:
    return _UNPRINTABLE.sub("", line.replace("\t", "    "))[:MAX_LINE_CHARS]


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if char < "\u0300":
        return 1
    import unicodedata  # only if there are wide characters: start-up time

    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit(line: str, columns: int) -> str:
    return _cut(printable(line), columns)[0]


def _cut(line: str, columns: int) -> tuple[str, str]:
    """As much of the line as fits, and the rest."""
    if line.isascii() or 2 * len(line) <= columns:
        return line[:columns], line[columns:]
    used = 0
    for at, char in enumerate(line):
        used += _char_width(char)
        if used > columns:
            return line[:at], line[at:]
    return line, ""


def _wrapped(text: str, columns: int) -> list[str]:
    lines: list[str] = []
    for raw in text.split("\n"):
        rest = _UNPRINTABLE.sub("", raw)
        while True:
            line, rest = _cut(rest, max(1, columns))
            lines.append(line)
            if not rest:
                break
    return lines
