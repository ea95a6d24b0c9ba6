"""tmux on a private server, with exact targets, batched probes, and Unknown for what it would not say."""

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmc.errors import ToolFailed
from llmc.names import SessionName
from llmc.tools import proc, processes
from llmc.tools.clock import monotonic

WIDTH, HEIGHT = 500, 100
#: there is no server. Any other "error connecting to" (permissions, descriptors) says nothing about that.
_NO_SERVER = re.compile(r"^(no server running on |error connecting to .*\(No such file or directory\))", re.M)
#: a server whose last session has just been killed still answers, and then ends
_SERVER_LEAVES = re.compile(r"^(server exited|lost server)", re.M)
_SERVER_LEFT = re.compile(r"^(server exited|lost server|no server running on |error connecting to )", re.M)
_TRIES = 5
#: how long a server that was told to end may take
LEAVING_S = 2.0
_PANE_FORMAT = "|".join(
    f"#{{{name}}}"
    for name in (
        "session_name",
        "session_attached",
        "pane_dead",
        "pane_dead_status",
        "pane_dead_signal",
        "pane_pid",
    )
)


@dataclass(frozen=True)
class Unknown:
    """A probe that got no answer. Not "nothing there": nobody may conclude anything from it."""

    reason: str


@dataclass(frozen=True)
class Pane:
    """What tmux knows of one session's pane."""

    session: SessionName
    attached: bool
    dead: bool
    exit_code: int | None
    pid: int


@dataclass(frozen=True)
class Tmux:
    """One private tmux server."""

    server: str
    #: for so long the answer to `panes` is good for everybody: the daemon's lanes ask for it all the time
    remembers_s: float = 0.0
    _panes: "dict[str, tuple[float, dict[SessionName, Pane]]]" = field(default_factory=dict, compare=False)

    def argv(self, *args: str) -> list[str]:
        return ["tmux", "-L", self.server, "-f", "/dev/null", *args]

    def run(
        self, *args: str, input: bytes | None = None, check: bool = True, timeout_s: float = 10
    ) -> proc.Done:
        return proc.run(self.argv(*args), env=_minimal_env(), input=input, check=check, timeout_s=timeout_s)

    def panes(self) -> dict[SessionName, Pane] | Unknown:
        """Every session of the server in one call; empty only when tmux itself says there is no server.

        tmux 3.3a misses the end of a program now and then: the pane is dead, but has no exit code and its hook does
        not run. It notices when a child of its own ends, so it is given one.
        """
        at, known = self._panes.get("", (0.0, {}))
        if monotonic() - at < self.remembers_s:
            return known
        found = self._list_panes()
        if isinstance(found, dict) and any(pane.dead and pane.exit_code is None for pane in found.values()):
            with contextlib.suppress(ToolFailed):
                self.run("run-shell", "true", check=False)
            found = self._list_panes()
        if isinstance(found, dict):
            self._panes[""] = (monotonic(), found)
        return found

    def _list_panes(self) -> dict[SessionName, Pane] | Unknown:
        try:
            for _ in range(_TRIES):
                done = self.run("list-panes", "-a", "-F", _PANE_FORMAT, check=False)
                if done.ok or not _SERVER_LEAVES.search(done.stderr):
                    break
        except ToolFailed as error:
            return Unknown(error.message)
        if done.ok:
            return {pane.session: pane for pane in map(_pane, done.stdout.splitlines())}
        if _NO_SERVER.search(done.stderr):
            return {}
        return Unknown(done.stderr.strip() or f"tmux ended with {done.returncode}")

    def pane(self, session: SessionName) -> Pane | Unknown | None:
        known = self._panes.get("", (0.0, {}))[1].get(session)
        if known is not None and not known.dead and not processes.is_alive(known.pid):
            self._panes.clear()  # it has ended since
        panes = self.panes()
        return panes if isinstance(panes, Unknown) else panes.get(session)

    def exit_code(self, session: SessionName) -> int | None:
        """How the program of a dead pane ended; None when it cannot be known."""
        pane = self.pane(session)
        return pane.exit_code if isinstance(pane, Pane) else None

    def new_session(
        self, session: SessionName, cwd: str, argv: Sequence[str], died_argv: Sequence[str]
    ) -> None:
        """Start a detached session whose pane is the program itself; `died_argv` is run when it ends.

        One tmux call: the options are in force before the program can end.
        """
        for _ in range(_TRIES):
            done = self._new_session(session, cwd, argv, died_argv)
            if done.ok or not _SERVER_LEFT.search(done.stderr):
                break
        self._panes.clear()
        if not done.ok:
            raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)

    def _new_session(
        self, session: SessionName, cwd: str, argv: Sequence[str], died_argv: Sequence[str]
    ) -> proc.Done:
        target = exact(session)
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        return self.run(
            *["start-server", ";"],
            *["set-option", "-g", "remain-on-exit", "on", ";"],
            *["set-option", "-g", "history-limit", "20000", ";"],
            *["set-option", "-g", "status", "off", ";"],
            *["set-option", "-g", "default-terminal", "screen-256color", ";"],
            *["set-option", "-s", "escape-time", "20", ";"],
            # A person's terminal may be small: follow it while attached, and be wide again afterwards.
            *["set-hook", "-g", "client-attached", "set-option -w window-size latest", ";"],
            *["set-hook", "-g", "client-detached", f"resize-window -x {WIDTH} -y {HEIGHT}", ";"],
            *["new-session", "-d", "-s", session, *size, "-c", _word(no_format(cwd)), *_words(argv), ";"],
            *["set-hook", "-t", target, "pane-died", f"run-shell -b {tmux_quote(shell_join(died_argv))}"],
            check=False,
        )

    def kill_session(self, session: SessionName) -> None:
        """End a session; one that is gone already is fine."""
        done = self.run("kill-session", "-t", exact(session), check=False)
        self._panes.clear()
        gone = ("can't find session", "session not found", "server exited unexpectedly")
        if not done.ok and not _NO_SERVER.search(done.stderr) and not any(t in done.stderr for t in gone):
            raise ToolFailed(done.argv, done.returncode, done.stderr)

    def kill_server(self) -> None:
        self.run("kill-server", check=False)
        self._panes.clear()
        # While it leaves it may answer, or break off.
        if processes.wait_until(lambda: self.panes() == {}, LEAVING_S):
            Path(f"/tmp/tmux-{os.getuid()}/{self.server}").unlink(missing_ok=True)

    def send_keys(self, session: SessionName, *keys: str) -> None:
        self.run("send-keys", "-t", exact(session), *keys)

    def paste(self, session: SessionName, buffer: str, text: str) -> bool:
        """Bracketed paste of the text; False if the pane is dead.

        The test is made inside the server, in the same command: pasting into a dead pane crashes tmux 3.3a
        and every session with it.
        """
        target = exact(session)
        done = self.run(
            *["load-buffer", "-b", buffer, "-", ";"],
            *["if-shell", "-F", "-t", target, "#{pane_dead}"],
            f"delete-buffer -b {buffer} ; display-message -p dead",
            f"paste-buffer -p -d -b {buffer} -t '{target}'",
            input=text.encode("utf-8", "surrogatepass"),
        )
        return "dead" not in done.stdout

    def capture(self, session: SessionName, *, history: int = 0, styled: bool = False) -> str:
        """The pane's text, with `history` lines of scrollback above it."""
        flags = ["-S", f"-{history}"] if history else []
        return self.run(
            "capture-pane", "-p", *(["-e"] if styled else []), *flags, "-t", exact(session)
        ).stdout


def exact(session: SessionName) -> str:
    """A target that matches this session only: a bare `llmc-auto-1` also matches `llmc-auto-10`."""
    return f"={session}:"


def shell_join(argv: Sequence[str]) -> str:
    return shlex.join(argv)


def no_format(text: str) -> str:
    """Text where tmux expands formats: a directory may be called `#{x}` or `#(rm)`."""
    return text.replace("#", "##")


def tmux_quote(text: str) -> str:
    """One argument of a tmux command string: single quotes, formats disarmed."""
    return "'" + no_format(text).replace("'", "'\\''") + "'"


def _words(argv: Sequence[str]) -> list[str]:
    """A program and its arguments: two or more tmux executes itself, a single one it would give to a shell."""
    return [_word(word) for word in argv] if len(argv) > 1 else [_word(shell_join(argv))]


def _word(text: str) -> str:
    """One argument as it is: at its end, tmux would take a `;` for the end of the command."""
    return text[:-1] + "\\;" if text.endswith(";") else text


def _pane(line: str) -> Pane:
    session, attached, dead, status, signal, pid = line.split("|")
    code = int(status) if status else 128 + int(signal) if signal.isdigit() else None
    return Pane(SessionName(session), attached != "0", dead == "1", code if dead == "1" else None, int(pid))


def _minimal_env() -> dict[str, str]:
    """What the server needs: panes get their own complete environment from the launch spec."""
    # No TMUX_TMPDIR: a command from cron, without the variable of the shell that ran `llmc up`, would look for the
    # server in another place, and take every session for gone.
    keep = ("PATH", "HOME", "TERM", "USER", "LOGNAME", "SHELL")
    env = {key: os.environ[key] for key in keep if key in os.environ}
    return {"TERM": "screen-256color", **env, "LC_ALL": "C.UTF-8"}
