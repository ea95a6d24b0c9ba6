"""The terminal under the screen: turns its bytes into keys and pastes, and restores it at the end.

Fixes textual's own driver, which stops at a byte that is not UTF-8, reads Alt+Enter as Enter and an escape in a paste
as keys, draws on stderr, and leaves the terminal in raw mode when a signal ends the process.
"""

import codecs
import contextlib
import functools
import os
import selectors
import signal
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from llmc.base.text import cells, uncoloured, visible

if TYPE_CHECKING:
    from llmc.tui.frame import Frame

ESC = "\x1b"
#: how terminals send Alt+Enter
ALT_ENTER = (f"{ESC}\r", f"{ESC}\n")
#: what follows Esc in the sequences of other keys: cursor keys, and Option+arrow on a Mac
CONTINUES = "[Obf"
#: signals that end the screen and restore the terminal
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: after a signal, the process ends within this time, whatever it waits for
END_S = 5
STDOUT = 1
#: ASCII replacements for the characters that the screen draws with
_GLYPHS = {"│": "|", "─": "-", "…": ".", "·": "-", "↓": "v", "↑": "^", "←": "<", "→": ">"}
#: how often the input thread checks whether to end
POLL_S = 0.1


class Parser(XTermParser):
    """Turns what the terminal sends into keys and pastes."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        #: the paste so far; None outside a paste
        self._pasted: str | None = None
        self._tail = ""

    def feed(self, data: str) -> Iterable[Message]:
        """The events of this input. Esc at the end of a read is a key, unless the next read continues a sequence."""
        if self._tail.endswith(ESC) and self._timeout_time is not None and data[0] not in CONTINUES[:2]:
            self._timeout_time = 0.0
            yield from self.tick()
        if to_parse := self._to_parse(data):
            yield from super().feed(to_parse)

    def _to_parse(self, data: str) -> str:
        """The input, with each paste held back until its end and cleaned, so that nothing in it is a key."""
        found = ""
        while data:
            if self._pasted is None:
                seen = self._tail + data  # the start of a paste may come in two reads
                at = seen.find(BRACKETED_PASTE_START)
                if at < 0:
                    self._tail = seen[1 - len(BRACKETED_PASTE_START) :]
                    return found + data
                end = at + len(BRACKETED_PASTE_START) - len(self._tail)
                found, data = found + data[:end], data[end:]
                self._tail, self._pasted = "", ""
            else:
                text, end_mark, data = (self._pasted + data).partition(BRACKETED_PASTE_END)
                self._pasted = None if end_mark else text
                if end_mark:
                    found += plain(text) + end_mark
        return found

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """The keys of a sequence. Most terminals send the same for Alt+x and for Esc, x; read both as Esc, x."""
        is_pair = len(sequence) == 2 and sequence[0] == ESC and sequence[1].isprintable()
        if sequence in ALT_ENTER:
            yield events.Key("alt+enter", None)
        elif alt or (is_pair and sequence[1] not in CONTINUES):
            yield events.Key("escape", ESC)
            yield from super()._sequence_to_key_events(sequence[-1])
        else:
            yield from super()._sequence_to_key_events(sequence)


def plain(pasted: str) -> str:
    """Pasted text without colors; line breaks and tabs are kept, other control characters escaped."""
    return visible(uncoloured(pasted.replace("\r\n", "\n").replace("\r", "\n")))


@functools.cache
def in_ascii(char: str) -> str:
    """A character in ASCII, of the same width: a similar glyph, its base letter, or `?`."""
    letters = unicodedata.normalize("NFKD", _GLYPHS.get(char, char)).encode("ascii", "ignore").decode()
    return letters if len(letters) == cells(char) else "?" * cells(char)


def _written_in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "registered for encoding only"
    return "".join(map(in_ascii, error.object[error.start : error.end])), error.end


codecs.register_error("llmc-ascii", _written_in_ascii)


class Output:
    """Where the screen is drawn: stdout, because stderr may be a file. Output to a lost terminal is dropped."""

    def __init__(self, *, only_ascii: bool) -> None:
        encoding, errors = ("ascii", "llmc-ascii") if only_ascii else ("utf-8", "replace")
        self._file = open(
            STDOUT, "w", buffering=1 << 16, encoding=encoding, errors=errors, newline="", closefd=False
        )

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """Reads from and draws on the terminal; a signal restores the terminal before it ends the process."""

    def __init__(self, app: "Frame", **options: Any) -> None:
        super().__init__(app, **options)
        self._file = Output(only_ascii=app.brush.plain)  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        for one in ENDING:
            self._loop.add_signal_handler(one, self._end, one)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        super().stop_application_mode()
        for one in ENDING:
            self._loop.remove_signal_handler(one)

    def _end(self, number: signal.Signals) -> None:
        """End the screen; a blocked terminal or a running order cannot delay this beyond END_S."""
        signal.alarm(END_S)
        self._app.exit(None, 128 + number)

    def run_input_thread(self) -> None:
        parser = Parser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_S):
                    data = self._read()
                    if not data:
                        self._app.call_later(self._end, signal.SIGHUP)
                        return
                    if text := decode(data):
                        self._send(parser.feed(text))
                self._send(parser.tick())

    def _read(self) -> bytes:
        """What the terminal sent; nothing if it is gone."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

    def _send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)
