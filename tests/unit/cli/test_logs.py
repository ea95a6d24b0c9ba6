"""`llmc logs daemon` for people: a JSON row becomes a line."""

import json
import time

import pytest

from llmc.cli.watching import _Rows, readable


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)


ROW = {
    "ts": 86400.5,
    "level": "INFO",
    "logger": "llmc.daemon",
    "message": "up",
    "action": "daemon_started",
    "pid": 7,
}


def test_a_row_is_a_line_with_its_time_level_message_and_facts() -> None:
    """Break: print the row as it is."""
    line = readable(json.dumps({**ROW, "cause": "", "worker": None, "why": "a\nb"}))
    assert line == "1970-01-02 00:00:00 INFO    up action=daemon_started pid=7 why=a b"


def test_a_traceback_stands_below_its_line() -> None:
    shown = readable(json.dumps({**ROW, "level": "ERROR", "traceback": "Traceback:\n  x\nBoom"})).splitlines()
    assert shown[1:] == ["    Traceback:", "      x", "    Boom"]


@pytest.mark.parametrize("line", ["", "torn {", "[1]", '{"ts": 1e999}', "\udcff"])
def test_what_is_no_row_is_shown_as_it_is(line: str) -> None:
    assert readable(line) == line


def test_a_line_is_shown_when_all_of_it_is_there() -> None:
    """Break: render each chunk that was read: half a row is not valid JSON."""
    rows, text = _Rows(), json.dumps(ROW)
    assert rows.of(text[:20]) == ""
    assert rows.of(text[20:] + "\n" + text[:5]) == readable(text) + "\n"
    assert rows.of(text[5:], last=True) == readable(text) + "\n"
