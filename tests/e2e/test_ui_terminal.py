"""What the terminal sends to the screen, and how the screen leaves the terminal: real bytes, real signals."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

Open = Callable[..., Terminal]


@pytest.fixture
def screen(scripted: Fleet) -> Iterator[Open]:
    scripted.set_up("adam")
    opened: list[Terminal] = []

    def start(*args: str, columns: int = 120, rows: int = 36, **env: str) -> Terminal:
        opened.append(Terminal(scripted, "ui", *args, columns=columns, rows=rows, **env))
        opened[-1].sees("IDLE 1")
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_any_bytes_are_keys_or_text(screen: Open) -> None:
    """Break: decode strictly; read ESC CR as Enter; parse what is in a paste; read Esc, x as Alt+x."""
    ui = screen()
    ui.send(b"\xe9\xff\xe9")
    ui.press("Right", "m")
    ui.sees("message to adam", "Alt+Enter or Ctrl+J adds a line")
    ui.send(b"caf\xe9s")
    ui.sees("caf\ufffds")
    ui.send(b"\x1b\r")
    ui.type("two")
    ui.send(b"\x1b\n")
    ui.type("three")
    shown = ui.sees("three").splitlines()
    assert [line.strip() for line in shown[-3:]] == ["caf\ufffds", "two", "three"]
    ui.press("Escape")
    ui.sees_no("message to adam")

    ui.press("m")
    ui.sees("message to adam")
    ui.send(b"\x1b[200~aa\x1b[31mbb\r\nc\tc\rdd\x1b[15~\x1bq\x03ee\x1b[201~")
    shown = ui.sees("message to adam", "aabb", "dd^[[15~^[q^Cee").splitlines()
    assert [line.split() for line in shown[-3:]] == [["aabb"], ["c", "c"], ["dd^[[15~^[q^Cee"]]
    ui.send(b"\x1b?")  # Esc, then a key of the list
    ui.sees_no("message to adam")
    ui.sees("Move down a page")
    ui.send(b"\x1b")
    ui.sees_no("Move down a page")
    ui.send(b"\x1b[200~y\x1b\rq\x1b[201~")
    ui.sees("You cannot type text here")
    assert ui.exit_code is None


def test_a_key_right_after_esc_is_a_key_of_its_own(screen: Open) -> None:
    """Break: read Esc, m as Alt+m."""
    ui = screen()
    ui.press("Right", "m")
    ui.sees("message to adam")
    ui.type("gone")
    ui.send(b"\x1bm")
    ui.sees_no("gone")
    ui.sees("message to adam")
    ui.send(b"\x1b1")
    ui.sees_no("message to adam")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_leaves_a_clean_terminal(screen: Open, end: signal.Signals) -> None:
    """Break: leave a signal to its default."""
    ui = screen()
    assert ui.modes == "1 1"
    os.kill(ui.pid, end)
    assert "NEEDS YOU" not in ui.sees("BACK AT THE PROMPT", "speed")
    assert " -echo " not in ui.screen()
    assert ui.exit_code == 128 + end
    assert ui.modes == "0 0"


def test_an_error_of_ours_ends_it_with_a_code(screen: Open, tmp_path: Path) -> None:
    """Break: return what textual returns: it has no code for an error."""
    broken = "from llmc.tui.moving import Moving\nMoving.do_tasks = lambda self: 1 / 0\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    ui = screen(PYTHONPATH=str(tmp_path))
    ui.press("t")
    ui.sees("ZeroDivisionError", "BACK AT THE PROMPT")
    assert ui.exit_code == 1
    assert ui.modes == "0 0"


def test_it_ends_with_its_terminal(screen: Open) -> None:
    """Break: go on without a terminal to read from."""
    ui = screen()
    pid = ui.pid
    ui.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
