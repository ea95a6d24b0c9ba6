"""The colors of a screen become classes; every other control sequence disappears."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.web.html import preview, screen
from llmc.web.rules import sgr


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("plain", [("plain", "")]),
        ("\x1b[1;31mred\x1b[0m on", [("red", "bold fg1"), (" on", "")]),
        ("\x1b[7mx\x1b[27my", [("x", "inverse"), ("y", "")]),
        ("\x1b[97;44mx", [("x", "fg15 bg4")]),
        ("\x1b[38;5;196mx\x1b[39my", [("x", "fg9"), ("y", "")]),
        ("\x1b[38;2;0;0;0;4mx", [("x", "underline fg0")]),
        ("\x1b[38;5;244mx", [("x", "fg8")]),
        ("\x1b[38:2::0:0:238mx", [("x", "fg0")]),
        ("\x1b[999;;38mx", [("x", "")]),
        ("\x1b[m\x1b[22;23;24;49mx", [("x", "")]),
        ("a\x1b[2Jb\x1b]0;title\x07c\x1b]8;;http://x\x1b\\d\x1b[?25le\x9bf\x00g", [("abcdefg", "")]),
        ("tail\x1b", [("tail", "")]),
        ("tail\x1b[3", [("tail3", "")]),
    ],
)
def test_colours(line: str, pieces: list[tuple[str, str]]) -> None:
    assert list(sgr.spans(line)) == pieces


@given(st.text(alphabet=st.sampled_from("\x1b[]0123456789;:m<>&\"'\x07\\ax\n\t\x9b?"), max_size=60))
def test_no_line_writes_an_element_or_a_class_of_its_own(line: str) -> None:
    """Break: mark a piece as Markup; put the codes into the class as they are."""
    drawn = str(screen([line]))
    rest = re.sub(
        r'<span class="(?:(?:bold|dim|italic|underline|inverse|[fb]g(?:1[0-5]|[0-9])) ?)+">|</span>',
        "",
        drawn,
    )
    assert "<" not in rest
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", drawn)


def test_a_preview_has_the_last_lines_that_say_something() -> None:
    assert str(preview(["a", "b", "\x1b[31m \x1b[0m", "c", "", "<d>"])) == "b\nc\n&lt;d&gt;"
