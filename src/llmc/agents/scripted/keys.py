"""Bytes from the terminal become key presses and pastes. Pure."""

PASTE_START = b"\x1b[200~"
PASTE_END = b"\x1b[201~"

#: a press is (kind, text): kind is "text", "paste" or the name of a key
Press = tuple[str, str]

_CONTROL = {
    0x03: "ctrl-c",
    0x04: "ctrl-d",
    0x08: "backspace",
    0x0A: "newline",
    0x0D: "enter",
    0x12: "ctrl-r",
    0x15: "ctrl-u",
    0x7F: "backspace",
}


class Decoder:
    """Cuts the byte stream into presses; what is not complete yet waits for the next read."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pasting = False
        self._searched = 0

    @property
    def has_pending_escape(self) -> bool:
        """True while a lone ESC may be the Esc key or the start of a sequence: ask `flush` a little later."""
        return not self._pasting and self._buffer[:1] == b"\x1b"

    def feed(self, data: bytes) -> list[Press]:
        self._buffer += data
        presses: list[Press] = []
        while self._buffer:
            press = self._paste() if self._pasting else self._press()
            if press is None:
                break
            if press[0]:
                presses.append(press)
        return presses

    def flush(self) -> list[Press]:
        """Nothing followed the ESC: it was the key. What came after it is read again."""
        if not self.has_pending_escape:
            return []
        del self._buffer[:1]
        return [("escape", ""), *self.feed(b"")]

    def _paste(self) -> Press | None:
        end = self._buffer.find(PASTE_END, self._searched)
        if end < 0:
            self._searched = max(0, len(self._buffer) - len(PASTE_END))
            return None
        text = self._buffer[:end].decode("utf-8", "replace")
        self._drop(end + len(PASTE_END))
        self._pasting = False
        return "paste", text

    def _press(self) -> Press | None:
        first = self._buffer[0]
        if first == 0x1B:
            return self._escape()
        if first < 0x20 or first == 0x7F:
            self._drop(1)
            return _CONTROL.get(first, ""), ""
        return self._text()

    def _text(self) -> Press | None:
        end = next(
            (i for i, byte in enumerate(self._buffer) if byte < 0x20 or byte == 0x7F), len(self._buffer)
        )
        if end == len(self._buffer):
            end -= _partial_tail(self._buffer)
            if end <= 0:
                return None
        text = self._buffer[:end].decode("utf-8", "replace")
        self._drop(end)
        return "text", text

    def _escape(self) -> Press | None:
        buffer = self._buffer
        if buffer.startswith(PASTE_START):
            self._drop(len(PASTE_START))
            self._pasting = True
            return "", ""
        if len(buffer) == 1:
            return None
        if buffer[1] == 0x1B:
            self._drop(1)
            return "escape", ""
        if buffer[1] == 0x5B or buffer[1] == 0x4F:
            return self._sequence()
        newline = buffer[1] in b"\r\n"
        self._drop(2)
        return ("newline" if newline else ""), ""

    def _sequence(self) -> Press | None:
        """A cursor or function key: known to exist, and ignored."""
        for at in range(2, len(self._buffer)):
            if 0x40 <= self._buffer[at] <= 0x7E:
                self._drop(at + 1)
                return "", ""
        return None

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._searched = 0


def _partial_tail(data: bytearray) -> int:
    """How many bytes at the end are the beginning of a character whose rest has not arrived."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        wanted = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return back if wanted > back else 0
    return 0
