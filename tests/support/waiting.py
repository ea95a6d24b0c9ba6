"""Waiting for what is to come, and answering a dialog as a person does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_s: float = 15, story: Callable[[], str] = str) -> T:
    """The first true value of the probe; fails when none comes, with the story."""
    began = time.monotonic()
    while True:
        value = probe()
        if value:
            return value
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, f"not true after {timeout_s} s: {probe} {story()}"
        # A look may start a program: what takes long is looked at less often.
        time.sleep(0.02 if waited_s < 1 else 0.05)


def answer_dialog(
    press: Callable[[], object], *, screen: Callable[[], str], status: Callable[[], str]
) -> None:
    """Press the key once the dialog is drawn, and again while it stays: a client ignores keys at first."""
    wait_until(lambda: status() == "waiting" and "Esc to cancel" in screen())
    deadline = time.monotonic() + 15
    while status() == "waiting":
        assert time.monotonic() < deadline, screen()
        press()
        pressed = time.monotonic()
        while status() == "waiting" and time.monotonic() < pressed + 1:
            time.sleep(0.02)
