"""The entry point for untrusted JSON: what it accepts can be stored, shown, and written again."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from llmc.base import given
from llmc.base.files import json_record, read_given, read_json
from llmc.base.given import BadJson

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@generated(ANY)
def test_honest_json_is_what_it_was(value: Any) -> None:
    assert given.parse(json.dumps(value)) == value
    assert given.parse(json.dumps(value, ensure_ascii=False).encode()) == value


@generated(
    st.binary(max_size=200) | st.text(st.sampled_from('[]{}",:0123456789eE.-+NaInfity\\ud83 '), max_size=80)
)
def test_whatever_it_takes_can_be_written_again(data: bytes | str) -> None:
    """Break: leave out parse_constant, parse_float or the check for surrogates."""
    try:
        value = given.parse(data)
    except BadJson:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("NaN", "NaN is not valid in JSON"),
        ('{"priority": -Infinity}', "-Infinity is not valid in JSON"),
        ("1e999", "1e999 is not a finite number"),
        ("[" * 10_000, "nested too deeply"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ('{"a": ' * 100 + "1" + "}" * 100, "nested too deeply"),
        ("9" * 5000, "is not a finite number"),
        ("9" * 400, "is not a finite number"),
        (b"\xff\xfe", "invalid JSON"),
        (b'"\xed\xa0\x80"', "invalid JSON"),
        ("", "invalid JSON"),
        ('{"a": 1', "invalid JSON"),
    ],
)
def test_what_it_does_not_take(data: bytes | str, problem: str) -> None:
    with pytest.raises(BadJson, match=problem):
        given.parse(data)


def test_a_number_as_javascript_writes_it() -> None:
    """Digits up to 1e21, where it has a float. Break: refuse them: the row, file or hook with such a number is lost."""
    long = [2**63, -(2**63) - 1, 18446744073709552000, 10**20]
    found = given.parse(json.dumps([*long, 2**63 - 1]))
    assert found == [*map(float, long), 2**63 - 1]
    assert [type(value) for value in found] == [float] * 4 + [int]


def test_half_a_character_is_shown() -> None:
    """A cut emoji is valid JSON, but not valid text. Break: leave it in: printing or writing it fails."""
    assert given.parse(r'{"\ud83d": ["a\udc00", "\ud83d\ude00"]}') == {"\\ud83d": ["a\\udc00", "\U0001f600"]}
    assert given.parse(b"\xef\xbb\xbf[1]") == [1], "a mark that some editors write"


def test_control_characters_are_written_out() -> None:
    assert (
        given.written_out("a\x1b[2J\x00\x9b\ud800b\tc\nd\u2028é")
        == "a\\x1b[2J\\x00\\x9b\\ud800b\tc\nd\u2028é"
    )


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b'{"a"', b"\xff", b"[" * 10_000, b'{"a": NaN}'])
def test_a_row_that_is_none(line: bytes) -> None:
    assert given.row(line) is None


@pytest.mark.parametrize("value", [True, "1", None, [], float("nan"), float("inf"), 10**400])
def test_no_numbers(value: object) -> None:
    assert given.number(value) is None


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """Break: open it like any file: a FIFO blocks forever, a device never ends, 1 GB fills the memory."""
    fifo, folder, link, large = (tmp_path / name for name in ("fifo", "folder", "link", "large"))
    os.mkfifo(fifo)
    folder.mkdir()
    link.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(1 << 30)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (fifo, folder, link, large, tmp_path / "socket", tmp_path / "missing"):
            with pytest.raises(OSError, match=r"not a regular|larger than|symbolic|No such|directory"):
                read_json(path)
            assert json_record(path) == {}
    whole = tmp_path / "whole"
    whole.write_bytes(b"[1]")
    assert read_given(whole, 3) == b"[1]"
    with pytest.raises(OSError, match="larger than"):
        read_given(whole, 2)
    assert json_record(whole) == {}, "no object"
