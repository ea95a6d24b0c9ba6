"""Waiting for conditions, and answering a dialog as a user does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_s: float = 15, story: Callable[[], str] = str) -> T:
    """The first true value of the probe; fails when none comes, with the story."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, f"not true after {timeout_s} s: {_name(probe)} {story()}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.1)  # most probes run a program


def _name(probe: Callable[[], object]) -> str:
    code = getattr(probe, "__code__", None)
    return f"{probe} (line {code.co_firstlineno})" if code else repr(probe)


def answer_dialog(
    press: Callable[[], object], *, screen: Callable[[], str], status: Callable[[], str]
) -> None:
    """Press the key once the dialog is drawn, and again while it stays: a client ignores keys at first."""
    wait_until(lambda: status() == "waiting" and "Esc to cancel" in screen())
    press_until(lambda: status() != "waiting", press, screen)


def press_until(
    works: Callable[[], object], press: Callable[[], object], screen: Callable[[], str], timeout_s: float = 15
) -> None:
    """Press, and again each second until it has worked: a new dialog drops input, and nothing shows when that ends."""
    deadline = time.monotonic() + timeout_s
    while not works():
        assert time.monotonic() < deadline, screen()
        press()
        pressed = time.monotonic()
        while not works() and time.monotonic() < pressed + 1:
            time.sleep(0.02)
