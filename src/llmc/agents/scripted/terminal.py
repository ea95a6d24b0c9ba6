"""The terminal itself: raw mode, size, and writing that survives a terminal which is gone."""

import fcntl
import os
import struct
import termios

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
            pass  # a closed terminal ends us through SIGHUP


def _raw(attributes: Attributes) -> Attributes:
    """Like tty.setraw, but output newlines still return the carriage: what we print stays simple."""
    raw = list(attributes)
    flags = [int(flag) for flag in raw[:4] if isinstance(flag, int)]
    raw[0] = flags[0] & ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    raw[2] = (flags[2] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    raw[3] = flags[3] & ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    return raw
