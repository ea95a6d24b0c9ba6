"""The event log, read by time or backwards, returns what a complete read would."""

import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.base.log_reader import archive_name
from llmc.records import event_log
from llmc.records.event_log import EventLog


def write(path: Path, rows: list[dict[str, object]], cuts: list[int]) -> None:
    """Rows, with rotations after these numbers of them."""
    bounds = [0, *sorted({min(cut, len(rows)) for cut in cuts}), len(rows)]
    for number, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        last = number == len(bounds) - 1
        name = str(path) if last else archive_name(str(path), number)
        Path(name).write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows[begin:end]))


def numbered(times: list[float]) -> list[dict[str, object]]:
    return [{"seq": number, "ts": at, "text": "x" * (number % 90)} for number, at in enumerate(times, 1)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows fill a block, and the search gives up after a few."""
    monkeypatch.setattr(event_log, "_BLOCK", 300)
    monkeypatch.setattr(event_log, "_QUIET", 900)


times = st.lists(st.integers(0, 50), max_size=60).map(sorted)


@given(times, st.lists(st.integers(0, 60), max_size=3), st.integers(-1, 52))
def test_since_is_what_a_whole_read_gives(
    tmp_path_factory, at: list[int], cuts: list[int], since: int
) -> None:  # type: ignore[no-untyped-def]
    """Break: start one line later, or forget the archives."""
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    rows = numbered([float(one) for one in at])
    write(path, rows, cuts)
    log = EventLog(str(path))
    assert list(log.since(since)) == [row for row in rows if row["ts"] >= since]  # type: ignore[operator]
    assert list(log.newest()) == rows[::-1]
    numbers = [json.loads(line)["seq"] for line in log.reader_after(since).lines()]
    assert numbers == [row["seq"] for row in rows if row["seq"] > since]  # type: ignore[operator]
    assert rows_of_last(log, max(since, 0)) == rows[max(len(rows) - max(since, 0), 0) :]


def rows_of_last(log: EventLog, count: int, worker: str | None = None) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.reader_of_last(count, worker).lines()]


def test_a_clock_that_was_wrong_for_a_while_hides_nothing(tmp_path: Path) -> None:
    """Break: stop at the first row that is too old."""
    rows = numbered([100.0, 101.0, 3.0, 4.0, 102.0, 103.0])
    write(tmp_path / "events.jsonl", rows, [])
    found = EventLog(str(tmp_path / "events.jsonl")).since(101)
    assert [row["seq"] for row in found] == [2, 5, 6]


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read the log from its start."""
    path = tmp_path / "events.jsonl"
    write(path, numbered([float(number) for number in range(5000)]), [2000, 4000])
    read = 0
    real = os.pread

    def counted(fd: int, size: int, at: int) -> bytes:
        nonlocal read
        read += size
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert len(list(EventLog(str(path)).since(4990))) == 10
    assert 0 < read < 5000
    read = 0
    assert len(rows_of_last(EventLog(str(path)), 10)) == 10
    assert 0 < read < 5000


def test_a_torn_line_and_one_that_is_being_written_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    whole = [b'{"seq": 1, "ts": 5.0}', b'{"seq": 2, "ts"', b'{"ts": 7, "seq": 3}', b"[" * 9000, b"[1]"]
    path.write_bytes(b"\n".join(whole) + b'\n{"seq": 4, "ts": 9.0}')
    log = EventLog(str(path))
    assert [row["seq"] for row in log.since(1)] == [1, 3]
    assert [row["seq"] for row in log.newest()] == [3, 1]


@pytest.mark.parametrize("ts", ["soon", None, True, [], float("nan"), -1])
def test_a_row_without_a_time_is_old(tmp_path: Path, ts: object) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(json.dumps({"seq": 1, "ts": ts}).encode() + b'\n{"seq": 2, "ts": 9.0}\n')
    assert [row["seq"] for row in EventLog(str(path)).since(1)] == [2]


def test_what_comes_later_is_read_on_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, numbered([1.0, 2.0, 3.0]), [])
    reader = EventLog(str(path)).reader(2.5)
    assert len(list(reader.lines())) == 1
    with path.open("ab") as file:
        file.write(b'{"seq": 4, "ts": 4.0}\n')
    path.rename(archive_name(str(path), 1))
    path.write_bytes(b'{"seq": 5, "ts": 5.0}\n')
    assert [json.loads(line)["seq"] for line in reader.lines()] == [4, 5]


def test_a_log_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    assert list(log.since(0)) == list(log.since(5)) == list(log.newest()) == []
    assert list(log.reader_after(0).lines()) == list(log.reader_of_last(3).lines()) == []


def test_the_last_rows_of_a_worker_are_counted_without_those_of_others(tmp_path: Path) -> None:
    """Break: count every row; or take the name in another field for the worker."""
    workers = ["adam", "baker", "adam", "baker", None, "baker"]
    rows: list[dict[str, object]] = [
        {"seq": number, "ts": 1.0, "worker": worker, "text": "adam"}
        for number, worker in enumerate(workers, 1)
    ]
    write(tmp_path / "events.jsonl", rows, [4])
    log = EventLog(str(tmp_path / "events.jsonl"))
    assert rows_of_last(log, 1, "adam")[0]["seq"] == 3
    assert rows_of_last(log, 9, "adam")[0]["seq"] == 1
    assert rows_of_last(log, 0, "adam") == rows_of_last(log, 3, "carol") == []


def test_the_last_rows_are_followed_by_what_comes_next(tmp_path: Path) -> None:
    """Break: read the last rows and begin to follow behind them; what is written in between is lost."""
    path = tmp_path / "events.jsonl"
    write(path, numbered([1.0, 2.0, 3.0]), [1])
    reader = EventLog(str(path)).reader_of_last(2)
    with path.open("ab") as file:
        file.write(b'{"seq": 4, "ts": 9.5}\n')
    assert [json.loads(line)["seq"] for line in reader.lines()] == [2, 3, 4]


def test_where_nothing_is_new_enough_what_comes_next_is(tmp_path: Path) -> None:
    """Break: start at the beginning of the latest file."""
    path = tmp_path / "events.jsonl"
    write(path, numbered([1.0, 2.0]), [1])
    reader = EventLog(str(path)).reader(9.0)
    assert list(reader.lines()) == []
    with path.open("ab") as file:
        file.write(b'{"seq": 3, "ts": 9.5}\n')
    assert [json.loads(line)["seq"] for line in reader.lines()] == [3]
