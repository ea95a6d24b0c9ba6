"""The screen in a real terminal: its own tmux server, keys pressed one by one, and what is shown."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until


class Terminal:
    """A terminal in which an llmc command runs."""

    def __init__(
        self, fleet: Fleet, *args: str, columns: int = 120, rows: int = 36, shell: str = "{}", **env: str
    ) -> None:
        """`shell`: what the shell runs, with the command in place of {}."""
        self._fleet = fleet
        self._socket = fleet.dir / f"terminal-{os.urandom(3).hex()}"
        look = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        self._env = (
            {key: value for key, value in fleet.env.items() if not key.startswith("TMUX")} | look | env
        )
        self._ended = fleet.dir / f"{self._socket.name}.code"
        line = shlex.join([sys.executable, "-m", "llmc", "--root", str(fleet.root), *args])
        script = f"{shell.format(line)}; echo $? > {self._ended}; echo BACK AT THE PROMPT; stty -a | head -3; exec sleep 1000"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", str(columns), "-y", str(rows), script
        )

    def _tmux(self, *args: str) -> str:
        argv = ["tmux", "-S", str(self._socket), *args]
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names: `j`, `Enter`, `Escape`, `Space`."""
        for key in keys:
            self._tmux("send-keys", "-t", "t", key)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "-t", "t", "--", text)

    def paste(self, text: str) -> None:
        """As a terminal pastes: bracketed."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p", "-t", "t")

    def send(self, data: bytes) -> None:
        """Bytes as the terminal itself could send them, all at once."""
        place = self._fleet.dir / f"{self._socket.name}.bytes"
        place.write_bytes(data)
        self._tmux("load-buffer", str(place))
        self._tmux("paste-buffer", "-r", "-t", "t")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def colours(self) -> str:
        """The screen with its escape sequences."""
        return self._tmux("capture-pane", "-e", "-p", "-t", "t")

    def sees(self, *texts: str, timeout_s: float = 20) -> str:
        """Wait until the screen shows all of these; returns it. The rest of it may be only partly drawn."""

        def found() -> str:
            shown = self.screen()
            return shown if all(text in shown for text in texts) else ""

        return wait_until(found, timeout_s, story=lambda: f"{texts} in\n{self.screen()}")

    def sees_no(self, text: str, timeout_s: float = 20) -> None:
        wait_until(lambda: text not in self.screen(), timeout_s, story=self.screen)

    def until(self, probe: Callable[[str], object], timeout_s: float = 20) -> None:
        wait_until(lambda: probe(self.screen()), timeout_s, story=self.screen)

    @property
    def exit_code(self) -> int | None:
        return int(self._ended.read_text()) if self._ended.exists() and self._ended.read_text() else None

    @property
    def pid(self) -> int:
        """The process of the screen."""
        shell = int(self._tmux("display-message", "-p", "-t", "t", "#{pane_pid}"))
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])

    @property
    def modes(self) -> str:
        """What a program has turned on and not off: its own page, and mouse reports."""
        return self._tmux("display-message", "-p", "-t", "t", "#{alternate_on} #{mouse_any_flag}").strip()

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"], env=self._env, capture_output=True, timeout=30
        )
