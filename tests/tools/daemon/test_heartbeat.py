"""The heartbeat of auto mode: it stops when something hangs, and only then."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import clock
from llmc.config.paths import Root
from llmc.daemon import watches
from llmc.daemon.watches import Heartbeat
from tests.support.waiting import wait_until


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setattr(watches, "INTERVAL_S", 0.01)
    monkeypatch.setattr(watches, "STUCK_S", 0.3)
    found = Root(tmp_path / "root")
    found.heartbeat.parent.mkdir(parents=True)
    return found


@pytest.fixture
def stuck() -> list[str]:
    return []


@pytest.fixture
def beats(root: Root, stuck: list[str]) -> Iterator[Heartbeat]:
    """Marked all the time, as by a running event loop; a log that cannot be written."""

    def on_stuck(what: str) -> None:
        stuck.append(what)
        raise OSError("no space left")

    made = Heartbeat(root, "i-1", on_stuck)
    made.start()
    over = threading.Event()
    loop = threading.Thread(target=lambda: [made.mark() for _ in iter(lambda: over.wait(0.01), True)])
    loop.start()
    yield made
    over.set()
    loop.join()
    made.stop()


def last(root: Root) -> float:
    body = json.loads(root.heartbeat.read_text())
    assert body["instance_id"] == "i-1"
    return float(body["timestamp_unix"])


def advances(root: Root) -> None:
    before = last(root)
    wait_until(lambda: last(root) > before, 5)


@pytest.mark.req("0-090", "0-091")
def test_it_is_whole_whenever_it_is_read(root: Root, beats: Heartbeat) -> None:
    """Break: write into the file itself, or leave the temporary file beside it."""
    held = root.heartbeat.open()  # a reader that has it open keeps the beat it opened
    before = held.read()
    seen = {last(root) for _ in range(2000)}
    wait_until(lambda: seen.add(last(root)) or len(seen) > 3, 5)
    held.seek(0)
    assert held.read() == before
    held.close()
    beats.stop()
    beats._thread.join()
    assert [path.name for path in root.heartbeat.parent.iterdir()] == [root.heartbeat.name]


@pytest.mark.req("0-090", "0-111")
@pytest.mark.parametrize(("timeout_s", "beats"), [(30.0, 1), (0.4, 4)])
def test_it_comes_often_enough_for_its_supervisor(
    root: Root, monkeypatch: pytest.MonkeyPatch, timeout_s: float, beats: int
) -> None:
    """Break: beat every five seconds, even if the supervisor treats that as a hang."""
    monkeypatch.setattr(watches, "INTERVAL_S", 5.0)
    made = Heartbeat(root, "i-1", lambda _: None, timeout_s)
    made.start()
    seen = {last(root)}
    began = time.monotonic()
    while time.monotonic() - began < 0.6:
        made.mark()
        seen.add(last(root))
    made.stop()
    assert len(seen) >= beats if beats > 1 else len(seen) == 1


@pytest.mark.req("0-092", "0-093")
def test_a_lane_that_hangs_stops_it_until_it_goes_on(root: Root, beats: Heartbeat, stuck: list[str]) -> None:
    """Break: beat whatever the lanes do; let an unwritable log end the thread; check every root's lanes."""
    hangs = threading.Event()

    def lane(name: str, of: str) -> None:
        with clock.watched(name, of):
            hangs.wait()

    others = threading.Thread(target=lane, args=("the lane of another root", "/another"), daemon=True)
    others.start()
    wait_until(lambda: clock.running("/another") == ["the lane of another root"], 5)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > 2 * watches.STUCK_S, 5)
    advances(root)
    thread = threading.Thread(target=lane, args=("the lane of auto-1", str(root.path)), daemon=True)
    thread.start()
    wait_until(lambda: stuck == ["the lane of auto-1"], 5)
    stopped = last(root)
    wait_until(lambda: time.time() - stopped > 0.2, 5)
    assert last(root) == stopped
    hangs.set()
    thread.join()
    others.join()
    advances(root)


@pytest.mark.req("0-093")
def test_a_wait_with_a_limit_of_its_own_is_no_hang(root: Root, beats: Heartbeat, stuck: list[str]) -> None:
    """A post-accept command may run for hours. Break: check only the time of the last step."""
    began, over = threading.Event(), threading.Event()

    def lane() -> None:
        with clock.watched("the lane of auto-1", str(root.path)), clock.waiting(3600):
            began.set()
            over.wait()

    thread = threading.Thread(target=lane, daemon=True)
    thread.start()
    began.wait()
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > 2 * watches.STUCK_S, 5)
    advances(root)
    over.set()
    thread.join()
    assert stuck == []


@pytest.mark.req("0-093")
def test_an_event_loop_that_hangs_stops_it(root: Root, stuck: list[str]) -> None:
    """Break: leave the loop's own mark out."""
    beats = Heartbeat(root, "i-1", stuck.append)
    beats.start()
    wait_until(lambda: stuck == ["the daemon's main loop"], 5)
    beats.stop()
