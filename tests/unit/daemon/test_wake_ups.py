"""The daemon's wake-up socket: any agent can write to it, and as much as it likes."""

from typing import Any

import pytest

from llmc.daemon import main
from llmc.daemon.main import CLIENT_WATCH_S, Daemon


class Lane:
    poked = 0

    def poke(self) -> None:
        self.poked += 1


class Loop:
    """What the daemon asks of its event loop."""

    def __init__(self) -> None:
        self.readers: set[Any] = set()
        self.later: list[tuple[float, Any, Any]] = []

    def add_reader(self, sock: Any, *_: Any) -> None:
        self.readers.add(sock)

    def remove_reader(self, sock: Any) -> None:
        self.readers.discard(sock)

    def call_later(self, delay_s: float, act: Any, sock: Any) -> None:
        self.later.append((delay_s, act, sock))


def test_a_flood_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read until the socket is empty: the daemon would do nothing else. Or leave out the others:
    their wake-ups are lost in a flood.
    """
    daemon = Daemon.__new__(Daemon)
    daemon.lanes = {"adam": Lane(), "eve": Lane()}  # type: ignore[dict-item]
    loop = Loop()
    daemon.loop = loop  # type: ignore[assignment]
    monkeypatch.setattr(main, "receive", lambda _: "adam")
    daemon._listen("socket")  # type: ignore[arg-type]
    daemon._drain("socket")  # type: ignore[arg-type]
    assert [lane.poked for lane in daemon.lanes.values()] == [1, 1]  # type: ignore[attr-defined]
    assert loop.readers == set()
    ((delay_s, act, sock),) = loop.later
    assert delay_s == CLIENT_WATCH_S
    act(sock)
    assert (loop.readers, daemon.wake_ups) == ({"socket"}, 0)
    waiting = ["adam"]
    monkeypatch.setattr(main, "receive", lambda _: waiting.pop() if waiting else None)
    daemon._drain("socket")  # type: ignore[arg-type]
    assert [lane.poked for lane in daemon.lanes.values()] == [2, 1]  # type: ignore[attr-defined]
    assert loop.readers == {"socket"}
