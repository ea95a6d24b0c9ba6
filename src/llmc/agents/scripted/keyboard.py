"""What the user types: bytes become keys, keys become a draft or an answer, a draft becomes a prompt or a command."""

import re
from queue import SimpleQueue
from typing import Any

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
    """Splits the byte stream into presses; an incomplete one waits for the next read."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pasting = False
        self._searched = 0

    @property
    def has_pending_escape(self) -> bool:
        """Whether an ESC may be the Esc key or the start of a sequence: call `flush` a little later."""
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
        """No sequence followed the ESC in time: it was the Esc key. What came after it is read again."""
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
        """A cursor or function key, which is ignored."""
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


MAX_INLINE_NEWLINES = 2
MAX_INLINE_CHARS = 800

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?|[\x80-\x9f].?", re.DOTALL
)


def cleaned(text: str) -> str:
    """A paste as the client takes it: CRLF becomes two line feeds, like every CR."""
    text = text.replace("\r", "\n").replace("\t", "    ")
    return _ESCAPES.sub("", text)


class Piece:
    """A part of the draft. One with a label is a paste, and the box shows only its label."""

    def __init__(self, text: str, label: str = "") -> None:
        self.text = text
        self.label = label

    @property
    def shown(self) -> str:
        return self.label or self.text


class Composer:
    """The draft. The cursor is always at its end."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._pastes = 0

    def __bool__(self) -> bool:
        return any(piece.text for piece in self.pieces)

    @property
    def shown(self) -> str:
        return "".join(piece.shown for piece in self.pieces)

    @property
    def text(self) -> str:
        """What Enter would send: without trailing blanks, unless they belong to a placeholder."""
        text = "".join(piece.text for piece in self.pieces)
        return text if self.pieces and self.pieces[-1].label else text.rstrip()

    def insert(self, text: str) -> None:
        if self.pieces and not self.pieces[-1].label:
            self.pieces[-1].text += text
        else:
            self.pieces.append(Piece(text))

    def paste(self, raw: str) -> None:
        text = cleaned(raw)
        lines = text.count("\n")
        if lines <= MAX_INLINE_NEWLINES and len(text) <= MAX_INLINE_CHARS:
            self.insert(_normalised(text))
            return
        for at, piece in enumerate(self.pieces):
            if piece.label and piece.text == text:
                self.pieces[at] = Piece(text)  # pasted again: shown in full, still there once
                return
        self._pastes += 1
        label = f"[Pasted text #{self._pastes}" + (f" +{lines} lines]" if lines else "]")
        self.pieces.append(Piece(text, label))

    def backspace(self) -> None:
        if not self.pieces:
            return
        last = self.pieces[-1]
        last.text = "" if last.label else last.text[:-1]
        if not last.text:
            self.pieces.pop()

    def kill_line(self) -> None:
        """C-u: delete a whole placeholder, or text back to the start of its last line."""
        if not self.pieces:
            return
        last = self.pieces[-1]
        kept = "" if last.label else last.text[: last.text.rfind("\n") + 1]
        if kept == last.text:
            kept = kept[:-1]
        last.text = kept
        if not kept:
            self.pieces.pop()

    def continue_line(self) -> bool:
        """Turn a backslash at the end of typed text into a newline; returns whether there was one."""
        if not self.pieces or self.pieces[-1].label or not self.pieces[-1].text.endswith("\\"):
            return False
        self.pieces[-1].text = self.pieces[-1].text[:-1] + "\n"
        return True

    def take(self) -> list[Piece]:
        """Empty the box and return what was in it."""
        taken, self.pieces = self.pieces, []
        return taken

    def clear(self) -> None:
        self.pieces = []


def _normalised(text: str) -> str:
    if text.isascii():
        return text
    import unicodedata  # only when needed: start-up time

    return unicodedata.normalize("NFC", text)


OPTIONS = [{"label": "Yes", "description": "go ahead"}, {"label": "No", "description": "do not"}]


class Dialog:
    """An open dialog; the worker thread waits on `reply` for the answer (None: cancelled)."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.box = Composer()
        self.reply: SimpleQueue[str | None] = SimpleQueue()

    def lines(self, columns: int) -> list[str]:
        return ["─" * columns, f"  {self.title}", "", "  Esc to cancel"]

    def typed(self, text: str) -> str | None:
        """Take typed text; returns the answer if that decides it."""
        self.box.insert(text)
        return None

    def entered(self) -> str | None:
        """Take Enter; returns the answer if that decides it."""
        return ""


class Question(Dialog):
    """AskUserQuestion: pick an option by Enter or digit, or type an answer."""

    def lines(self, columns: int) -> list[str]:
        draft = self.box.shown
        marks = ["❯" if at == 0 and not draft else " " for at in range(len(OPTIONS))]
        options = [
            f"{mark} {at}. {option['label']}"
            for at, (mark, option) in enumerate(zip(marks, OPTIONS, strict=True), 1)
        ]
        free = (
            f"{'❯' if draft else ' '} {len(OPTIONS) + 1}. {draft.replace(chr(10), ' ') or 'Type something.'}"
        )
        head = ["─" * columns, " ☐ Question", "", self.title, ""]
        return [*head, *options, free, "─" * columns, "  Enter to select · ↑/↓ to navigate · Esc to cancel"]

    def typed(self, text: str) -> str | None:
        if not self.box and text.isdigit() and 1 <= int(text) <= len(OPTIONS):
            return OPTIONS[int(text) - 1]["label"]
        return super().typed(text)

    def entered(self) -> str | None:
        return self.box.text or OPTIONS[0]["label"]


def question_input(question: str) -> dict[str, Any]:
    """The tool's input as the client passes it on."""
    return {
        "questions": [{"question": question, "header": "Question", "options": OPTIONS, "multiSelect": False}]
    }


EXIT_WORDS = ("exit", "quit", ":q", ":q!", ":wq", ":wq!")

#: slash commands with an effect of their own
ACTIONS = {
    "clear": "clear",
    "reset": "clear",
    "new": "clear",
    "compact": "compact",
    "exit": "exit",
    "quit": "exit",
}
#: slash commands that open a panel
PANELS = (
    "add-dir",
    "agents",
    "config",
    "cost",
    "help",
    "hooks",
    "mcp",
    "model",
    "permissions",
    "resume",
    "status",
)

_COMMAND = re.compile(r"/([A-Za-z0-9:_-]+)(?=\s|$)")


def kind_of(text: str) -> str:
    """`prompt`, `bash`, `clear`, `compact`, `exit`, `panel` or `unknown`."""
    if text.strip() in EXIT_WORDS:
        return "exit"
    if text.startswith("!"):
        return "bash"
    name = slash_name(text)
    if not name:
        return "prompt"
    return ACTIONS.get(name) or ("panel" if name in PANELS else "unknown")


def slash_name(text: str) -> str:
    """The command a text calls; a path such as /etc/passwd is plain text."""
    match = _COMMAND.match(text)
    return match[1] if match else ""
