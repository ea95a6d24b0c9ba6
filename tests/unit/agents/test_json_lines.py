"""Rows of files that agents write: the same rows whatever the chunks, and each byte once."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc.agents.claude import json_lines
from llmc.agents.claude.json_lines import Budget, Rows
from llmc.base import given as base_given

LINES = st.sampled_from([b"", b"\r", b"x", b'{"n":1', b'{"n":1}', b'{"n":2,"m":0}', b'{"o":1}', b'["n"]'])


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=12), st.integers(1, 20), st.integers(0, 9), st.booleans(), st.integers(1, 5))
def test_they_are_those_of_the_whole_file(
    lines: list[bytes], chunk: int, torn: int, both: bool, at_once: int
) -> None:
    """Read in any chunks, in any number of calls.

    Break: lose or repeat the line where a chunk or a call ends.
    """
    data = b"".join(line + b"\n" for line in lines) + b'{"n":3,"m":1}'[:torn]
    needles = (b'"n"', b'"m"') if both else (b'"n"',)
    wanted = [
        json.loads(line)
        for line in lines
        if all(needle in line for needle in needles) and line.startswith(b"{") and line.endswith(b"}")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_CHUNK", chunk)
        found, end = [], 0
        while True:
            look = Rows(lambda: io.BytesIO(data), needles, end, Budget(most_rows=at_once))
            found += list(look)
            end = look.end
            if not look.is_cut:
                break
    assert (found, end) == (wanted, len(data) - torn)


@pytest.mark.parametrize("ends", [True, False])
def test_a_line_that_is_too_long_is_passed_once(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """Even while it grows.

    Break: read it again in each call, because it has no end yet; or keep it in memory.
    """
    monkeypatch.setattr(json_lines, "_CHUNK", 16)
    monkeypatch.setattr(base_given, "MOST_LINE", 50)
    long = b'{"n":"' + b"x" * 200 + (b'"}\n{"n":1}\n' if ends else b"")
    look = Rows(lambda: io.BytesIO(long), (b'"n"',), 0, Budget())
    assert list(look) == ([{"n": 1}] if ends else [])
    assert look.end >= len(long) - 50
    grown = long + b'x"}\n{"n":2}\n'
    assert list(Rows(lambda: io.BytesIO(grown), (b'"n"',), look.end, Budget())) == [{"n": 2}]


def test_a_budget_of_bytes_ends_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read to the end of the file, however long it is."""
    monkeypatch.setattr(json_lines, "_CHUNK", 16)
    data, budget = b'{"n":1}\n' * 100, Budget(most_bytes=160)
    look = Rows(lambda: io.BytesIO(data), (b'"n"',), 0, budget)
    assert (len(list(look)), look.is_cut, look.end) == (20, True, 160)


def test_a_file_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    look = Rows(lambda: (tmp_path / "none").open("rb"), (b'"n"',), 7, Budget())
    assert (list(look), look.end, look.is_cut) == ([], 7, False)
