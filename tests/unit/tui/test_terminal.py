"""What the terminal sends, as keys and pastes."""

import pytest
from textual import events

from llmc.tui.terminal import Parser


def read(*reads: str) -> list[str]:
    """The keys and pastes from what the terminal sent in these reads."""
    parser = Parser()
    found = [event for one in reads for event in parser.feed(one)]
    return [event.key if isinstance(event, events.Key) else repr(event.text) for event in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        (("\x1b\r",), ["alt+enter"]),
        (("\x1b\n",), ["alt+enter"]),
        (("\x1bx",), ["escape", "x"]),
        (("\x1b1",), ["escape", "1"]),
        (("\x1bb",), ["ctrl+left"]),
        (("\x1b", "b"), ["escape", "b"]),
        (("\x1b", "\r"), ["escape", "enter"]),
        (("\x1b", "[A"), ["up"]),
        (("\x1b[", "A"), ["up"]),
        (("\x1b[13;3u",), ["alt+enter"]),
    ],
)
def test_an_escape_is_a_key_or_begins_one(reads: tuple[str, ...], found: list[str]) -> None:
    """Break: wait for more after every Esc; read Esc, x as Alt+x."""
    assert read(*reads) == found


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_paste_is_one_text_however_it_is_cut(size: int) -> None:
    """Break: look for the marks of a paste in only one read."""
    sent = "a\x1b[200~x\x1b[31my\r\nz\x1bq\x03\r\x1b[201~b\x1b[200~\x1b[201~c"
    cut = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert read(*cut) == ["a", repr("xy\nz^[q^C\n"), "b", "''", "c"]
