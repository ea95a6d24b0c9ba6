"""Keys and the composer, without a terminal: however the input is split, the key presses are the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.agents.scripted import keyboard
from llmc.agents.scripted.keyboard import PASTE_END, PASTE_START, Composer, Decoder, Press

STREAM = (
    b"a\xc5\xbe\xf0\x9f\x9a\x80"
    + PASTE_START
    + "ž\n\x03日".encode()
    + PASTE_END
    + b"\r\x1b[A\x15\x7f\x1b[1;5Cx\x04"
)
PRESSES: list[Press] = [
    ("text", "až🚀"), ("paste", "ž\n\x03日"), ("enter", ""), ("ctrl-u", ""), ("backspace", ""), ("text", "x"), ("ctrl-d", "")
]  # fmt: skip


def joined(presses: list[Press]) -> list[Press]:
    """Text that came in several reads is the same text."""
    result: list[Press] = []
    for kind, text in presses:
        if kind == "text" and result and result[-1][0] == "text":
            result[-1] = ("text", result[-1][1] + text)
        else:
            result.append((kind, text))
    return result


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_cuts_between_reads_do_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    decoder = Decoder()
    presses = [p for a, b in itertools.pairwise(edges) for p in decoder.feed(STREAM[a:b])]
    assert joined(presses) == PRESSES


def test_a_lone_escape_is_the_key_once_nothing_follows() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.has_pending_escape
    assert decoder.flush() == [("escape", "")]
    assert decoder.feed(b"\x1b\x1b") + decoder.flush() == [("escape", "")] * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb\nc", "a\nb\nc"), ("a\nb\nc\nd", "[Pasted text #1 +3 lines]"), ("x" * 800, "x" * 800), ("x" * 801, "[Pasted text #1]")],
)  # fmt: skip
def test_a_placeholder_begins_at_four_lines_or_801_characters(text: str, shown: str) -> None:
    box = Composer()
    box.paste(text)
    assert box.shown == shown
    assert box.text == text


def test_only_inline_text_loses_its_trailing_blanks() -> None:
    box = Composer()
    box.paste("short \n")
    assert box.text == "short"
    box.clear()
    box.paste("a\nb\nc\nd\n")
    assert box.text == "a\nb\nc\nd\n"


def test_control_u_removes_a_line_and_a_whole_placeholder() -> None:
    box = Composer()
    box.insert("one\ntwo")
    box.kill_line()
    assert box.shown == "one\n"
    box.paste("x" * 900)
    box.kill_line()
    assert box.shown == "one\n"
    box.kill_line()
    box.kill_line()
    assert not box


@pytest.mark.parametrize(
    ("text", "kind"),
    [("exit", "exit"), (" :q ", "exit"), ("exit now", "prompt"), ("/clear", "clear"), ("/clear x", "clear"), ("/nope\nx", "unknown"),
     ("/etc/passwd", "prompt"), ("!ls", "bash"), ("# x", "prompt"), ("/cost", "panel"), ("see @READ", "prompt")],
)  # fmt: skip
def test_what_a_text_means(text: str, kind: str) -> None:
    assert keyboard.kind_of(text) == kind
