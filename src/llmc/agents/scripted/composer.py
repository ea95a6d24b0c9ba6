"""The box a person types into: plain text, and long pastes shown as placeholders. Pure."""

import re

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
    """A stretch of the draft; with a label it is a paste that the box shows by its label only."""

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
        """What Enter would send: trailing blanks go, unless they are a placeholder's own."""
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
        """C-u: a placeholder goes whole, text back to the start of its last line."""
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
        """A backslash at the end of typed text turns Enter into a newline and is eaten."""
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
    import unicodedata  # only for those who need it: start-up time

    return unicodedata.normalize("NFC", text)
