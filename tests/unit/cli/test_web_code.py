"""The QR code of a link on a terminal."""

import re
from typing import Protocol

import pytest
import segno

from llmc.cli import web

SECRET = "aZ_3-" * 8 + "abc"
LINK = f"https://laptop.lan/login?link={SECRET}"
#: a character shows two modules, one above the other; True is light
HALVES = {"█": (True, True), "▀": (True, False), "▄": (False, True), " ": (False, False)}


class Draw(Protocol):
    def __call__(
        self, columns: int, link: str = LINK, *, colours: bool = True, utf8: bool = True
    ) -> list[str]: ...


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Draw:
    def draw(columns: int, link: str = LINK, *, colours: bool = True, utf8: bool = True) -> list[str]:
        monkeypatch.setattr(web, "has_colours", lambda: colours)
        monkeypatch.setattr(web, "columns", lambda: columns)
        monkeypatch.setattr(web, "is_utf8", lambda: utf8)
        web._print_code(link)
        return capsys.readouterr().out.splitlines()

    return draw


def test_the_code_is_light_on_dark_in_every_terminal(drawn: Draw) -> None:
    """Otherwise a terminal with a light background shows an inverted code, which many phones cannot read.

    Break: use the terminal's colors; leave a line without them.
    """
    lines = [re.fullmatch("\033\\[97;40m([█▀▄ ]+)\033\\[0m", line) for line in drawn(41)]
    halves = [[HALVES[char] for char in line[1]] for line in lines if line]
    rows = [[pair[half] for pair in line] for line in halves for half in (0, 1)]
    wanted = [[not dark for dark in row] for row in segno.make(LINK, error="l").matrix_iter(border=4)]
    assert len(halves) == len(lines)
    assert rows[: len(wanted)] == wanted


def test_a_link_that_a_phone_cannot_open_has_no_code(drawn: Draw) -> None:
    """A phone's 127.0.0.1 is its own. Break: print a code for every link."""
    for host in ("127.0.0.1:8765", "[::1]:80", "localhost"):
        assert drawn(80, f"http://{host}/login?link={SECRET}") == []


def test_a_terminal_that_cannot_show_the_code_gets_none(drawn: Draw) -> None:
    """Break: print lines that wrap, or question marks."""
    assert drawn(40) == []
    assert drawn(80, utf8=False) == []
    plain = drawn(80, colours=False)
    assert {*"".join(plain)} == {*HALVES}
