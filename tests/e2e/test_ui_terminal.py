"""What the terminal sends to the screen, and how the screen leaves the terminal: real bytes, real signals."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc.api.subscription import Subscription
from llmc.repo.project import open_project
from llmc.tui.drawing import Brush
from llmc.tui.fleet_app import FleetApp
from llmc.tui.theme import THEMES
from llmc.tui.typed import Typed
from tests.support.fleet import Fleet, in_soak
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
    ui.sees("message to adam", "three")  # it was not sent
    ui.press("C-u", "BSpace", "C-u", "BSpace", "C-u")
    ui.sees_no("three")
    ui.send(b"\x1b[200~aa\x1b[31mbb\r\nc\tc\rdd\x1b[15~\x1bq\x03ee\x1b[201~")
    shown = ui.sees("message to adam", "aabb", "dd^[[15~^[q^Cee").splitlines()
    assert [line.split() for line in shown[-3:]] == [["aabb"], ["c", "c"], ["dd^[[15~^[q^Cee"]]
    ui.send(b"\x1b?")  # Esc, then a key of the list
    ui.sees_no("message to adam")
    ui.sees("Move down a page")
    ui.send(b"\x1b")
    ui.sees_no("Move down a page")
    ui.send(b"\x1b[200~y\x1b\rq\x1b[201~")
    ui.sees("cannot type here")
    assert ui.exit_code is None


def test_keys_that_come_at_once_act_in_their_order(screen: Open) -> None:
    """Break: leave keys and pastes to textual's widget queues: a letter overtakes the Backspace before it."""
    ui = screen()
    ui.send(b"\x1b[Cmcut\x17one\x7f\x7f\x7ftwo\x15tree\x1b[D\x1b[D\x1b[Dh\x05s")
    ui.sees("message to adam")
    ui.until(lambda shown: shown.splitlines()[-1].strip() == "threes")
    ui.send(b"\x15\x1b[200~pasted\x1b[201~\x7f\x7f\x1b[200~r\x1b[201~")
    ui.until(lambda shown: shown.splitlines()[-1].strip() == "pastr")


def test_a_key_right_after_esc_is_a_key_of_its_own(screen: Open) -> None:
    """Break: read Esc, m as Alt+m."""
    ui = screen()
    ui.press("Right", "m")
    ui.sees("message to adam")
    ui.type("gone")
    ui.send(b"\x1bm")  # closed, and opened again with the unsent text
    ui.type("x")
    ui.sees("message to adam", "gonex")
    ui.send(b"\x1b1")
    ui.sees_no("message to adam")


@pytest.mark.parametrize("end", [signal.SIGHUP, *in_soak(signal.SIGTERM, signal.SIGQUIT)])
def test_a_signal_leaves_a_clean_terminal(screen: Open, end: signal.Signals) -> None:
    """Break: leave a signal to its default."""
    ui = screen()
    assert ui.modes == "1 1"
    os.kill(ui.pid, end)
    assert "NEEDS YOU" not in ui.sees("BACK AT THE PROMPT", "speed")
    assert " -echo " not in ui.screen()
    assert ui.exit_code == 128 + end, ui.screen()
    assert ui.modes == "0 0"


def test_a_signal_ends_it_on_a_terminal_that_takes_nothing(scripted: Fleet) -> None:
    """Break: wait at exit until everything is written."""
    scripted.set_up("adam")
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "llmc", "--root", str(scripted.root), "ui"]
    env = {**scripted.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    screen = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    try:
        shown = b""
        while b"IDLE" not in shown:
            shown += os.read(ours, 4096)
        termios.tcflow(theirs, termios.TCOOFF)
        screen.send_signal(signal.SIGTERM)
        assert screen.wait(20) != 0
    finally:
        screen.kill()
        screen.wait()
        os.close(ours)
        os.close(theirs)


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
    """Break: continue without a terminal to read from."""
    ui = screen()
    pid = ui.pid
    ui.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.soak
def test_a_command_never_keeps_the_screen(screen: Open, scripted: Fleet) -> None:
    """Break: run a server in a thread; wait for a command at exit; react to another program's Ctrl-C."""
    ui = screen()
    for line, told in (("up", "run it in the background: up --detach"), ("web", "web --detach")):
        ui.press(":")
        ui.sees("Tab completes")
        ui.type(line)
        ui.press("Enter")
        ui.sees(told)
    assert not scripted.has_daemon()
    ui.press(":")
    ui.sees("Tab completes")
    ui.type("status --watch")
    ui.press("Enter")
    ui.sees("Ctrl-C")
    ui.press("C-c")
    ui.sees("NEEDS YOU 0", "llmc status --watch")
    ui.press("C-l")
    assert ui.exit_code is None
    scripted.up("--no-patrol")
    ui.sees("daemon up")
    ui.press(":")
    ui.sees("Tab completes")
    ui.type("wait adam --status needs_review")
    ui.press("Enter")
    ui.sees("llmc wait adam --status needs_review  ...")
    ui.press("q")
    ui.sees("is still running. Stop it and quit?", "y quit")
    ui.press("y")
    ui.sees("BACK AT THE PROMPT", timeout_s=5)
    assert ui.exit_code == 0


@pytest.mark.parametrize("line", ['attach "adam', "message 'adam", "status \\"])
def test_a_command_with_an_open_quote_is_refused(screen: Open, line: str) -> None:
    """Break: split the line with shlex in more than one place."""
    ui = screen()
    ui.press(":")
    ui.sees("Tab completes")
    ui.type(line)
    ui.press("Enter")
    ui.sees("cannot parse the command")
    assert ui.exit_code is None


def test_hold_twice_is_no_hold(screen: Open, scripted: Fleet) -> None:
    """Break: check whether it is held before taking the lock."""
    ui = screen()
    ui.press("Right")
    ui.send(b"hhhh")

    def told() -> list[str]:
        return [row["action"] for row in scripted.events() if row["action"] in ("held", "released")]

    wait_until(lambda: told() == ["held", "released", "held", "released"], story=lambda: str(told()))


@pytest.mark.soak
def test_a_landed_commit_stays_on_the_screen(screen: Open, scripted: Fleet) -> None:
    """Break: send it to a pager, which prints a short one and exits."""
    scripted.up("--no-patrol")
    commit = "git add -A; git -c user.name=W -c user.email=w@e.com commit -q -m 'Greet by name'"
    scripted.llmc("start", "--worker", "adam", "--prompt", f"Greet\n@sh echo hello > g.txt; {commit}")
    scripted.wait("adam", "needs_review")
    scripted.llmc("accept", "adam", "--yes")
    ui = screen()
    ui.sees("LANDED TODAY 1")
    ui.press(">", "Right", ">", "Enter")
    ui.sees("Landed commit", "Greet by name", "g.txt | 1 +", "+hello", "NEEDS YOU")
    ui.press("q")
    ui.sees_no("+hello")
    assert ui.exit_code is None


@pytest.mark.parametrize("shell", ["{} 2>FILE", "{} 2>&-"])
def test_it_is_drawn_on_stdout(screen: Open, tmp_path: Path, shell: str) -> None:
    """Break: draw on stderr."""
    said = tmp_path / "said"
    ui = screen(shell=shell.replace("FILE", str(said)))
    ui.press("?")
    ui.sees("Move down a page")
    ui.press("q", "q")
    ui.sees("BACK AT THE PROMPT")
    assert ui.exit_code == 0
    assert not said.exists() or said.read_text() == ""


def test_a_closed_stream_is_said(scripted: Fleet) -> None:
    """Break: ask a closed stream whether it is a terminal."""
    scripted.set_up("adam")
    for shell, told in (("{} <&-", "requires a terminal"), ("{} >&-", "requires a terminal")):
        ui = Terminal(scripted, "ui", shell=shell)
        assert "Traceback" not in ui.sees(told, "BACK AT THE PROMPT")
        assert ui.exit_code == 2
        ui.close()


def test_without_colour(screen: Open) -> None:
    """Break: draw a bar past textual's filters; or in shades of gray."""
    ui = screen(NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", ui.colours())


def test_without_utf_8(screen: Open) -> None:
    """Break: trust the LC_CTYPE that Python sets; send a glyph that textual draws."""
    ui = screen(shell="env -u LC_ALL LANG=C {}", columns=100)
    ui.press("Right", "?")
    assert ui.sees("Move down a page", "NEEDS YOU").isascii()
    ui.press("m")
    ui.sees("message to adam")
    ui.paste("caf\u00e9 \u4e2d")
    ui.sees("cafe ??")


def test_a_dumb_terminal_gets_lines(scripted: Fleet) -> None:
    """Break: draw a screen with escape sequences."""
    scripted.set_up("adam")
    ui = Terminal(scripted, "ui", shell="env TERM=dumb {}")
    ui.sees("Type the number", "0 need you")
    assert ui.modes == "0 0"
    ui.type('attach "adam')
    ui.press("Enter")
    ui.sees("cannot parse the command")
    ui.type("llmc ui --help")  # on the terminal itself: a command whose output is captured ends with "done"
    ui.press("Enter")
    ui.sees("Usage: llmc ui", "--theme")
    ui.type("list")
    ui.press("Enter")
    ui.sees_no("done")
    ui.type("quit")
    ui.press("Enter")
    ui.sees("BACK AT THE PROMPT")
    ui.close()


def test_a_key_and_the_first_frame_mount_one_form(scripted: Fleet) -> None:
    """Break: check whether the form is there, and mount it after another key has."""
    scripted.set_up("adam")
    typed = Typed(lambda line: [], lambda line, stopping: (0, ""), lambda line: False, lambda line: [])
    project = open_project(str(scripted.root))
    app = FleetApp(project, Subscription(project).start(), Brush(THEMES["dark"]), typed, [])

    async def mount_twice() -> None:
        async with app.run_test(), asyncio.timeout(30):
            if app.form is not None:
                await app.form.remove()
                app.form = None
            await asyncio.gather(app.mount_form(), app.mount_form())

    asyncio.run(mount_twice())
    assert app.form is not None
