"""A user at tmux, beside an agent: their own panes and windows, and an attached terminal."""

import os
import pty
import select
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import NamedTuple

from llmc.base.processes import is_alive
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

#: a shell that the user leaves open
SHELL = ("env", "PS1=mine$ ", "bash", "--norc", "-i")


class Seat(NamedTuple):
    """A pane, and the process it runs."""

    pane: str
    pid: int

    @property
    def lives(self) -> bool:
        return is_alive(self.pid)


def seat_of(fleet: Fleet, worker: str = "adam") -> Seat:
    """The agent's pane, while its session has no other."""
    (row,) = fleet.tmux(
        "list-panes", "-s", "-t", fleet.session(worker), "-F", "#{pane_id} #{pane_pid}"
    ).splitlines()
    return Seat(row.split()[0], int(row.split()[1]))


def opens(fleet: Fleet, command: str, *program: str, target: str = "") -> Seat:
    """The user opens a pane (`split-window`), a window (`new-window`) or a session, and has it in front."""
    if command == "new-window":
        target = fleet.tmux("display-message", "-p", "-t", target, "#{session_id}:").strip()
    where = ["-t", target] if target else []
    shown = fleet.tmux(command, *where, "-P", "-F", "#{pane_id} #{pane_pid}", *program).split()
    return Seat(shown[0], int(shown[1]))


def a_pane_that_ended(fleet: Fleet, command: str, target: str) -> Seat:
    """The user's shell exited, and `remain-on-exit` leaves it dead in front of the agent."""
    fleet.tmux("set-option", "-g", "remain-on-exit", "on")
    made = opens(fleet, command, "sh", "-c", "exit 0", target=target)
    wait_until(lambda: shown(fleet, made, "#{pane_dead}") == "1")
    assert shown(fleet, made, "#{pane_active}#{window_active}") == "11"
    return made


def shown(fleet: Fleet, seat: Seat, what: str) -> str:
    return fleet.tmux("display-message", "-p", "-t", seat.pane, what).strip()


def screen(fleet: Fleet, seat: Seat) -> str:
    return fleet.tmux("capture-pane", "-p", "-t", seat.pane)


def panes(fleet: Fleet) -> list[str]:
    return fleet.tmux("list-panes", "-a", "-F", "#{pane_id}").split()


@contextmanager
def attached(fleet: Fleet, worker: str = "adam", columns: int = 80, rows: int = 24) -> Iterator[int]:
    """`llmc attach` in its own terminal; yields its keyboard."""
    pid, keyboard = pty.fork()
    if pid == 0:
        os.chdir(fleet.source)
        os.execve(sys.executable, [sys.executable, "-m", "llmc", "attach", worker], fleet.env)
    ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    closed = threading.Event()
    screen = threading.Thread(target=_drawn, args=(keyboard, closed))
    screen.start()
    try:
        wait_until(lambda: fleet.tmux("list-clients"), story=fleet.story)
        assert fleet.status(worker)["attached"]
        yield keyboard
        os.write(keyboard, b"\x02d")
        wait_until(lambda: not fleet.tmux("list-clients"))
        assert not fleet.status(worker)["attached"]
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        closed.set()
        screen.join()
        os.close(keyboard)


def _drawn(terminal: int, closed: threading.Event) -> None:
    """Read what a terminal is to show, until it is closed: a program that writes to a full one waits."""
    while not closed.is_set():
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                os.read(terminal, 65536)
            except OSError:  # its program has ended
                return
