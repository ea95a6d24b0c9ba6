"""tmux on a private server: exact targets, batched probes, and Unknown if it does not answer."""

import contextlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from llmc.base import proc, processes
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.names import PaneId, SessionName
from llmc.base.panes import FORMAT, MARK, PROCESS, WORKER, Pane, Panes, find, parse
from llmc.base.text import pattern

T = TypeVar("T")

WIDTH, HEIGHT = 500, 100
#: no server. Any other "error connecting to" (permissions, descriptors) proves nothing.
_NO_SERVER = pattern(r"^(no server running on |error connecting to .*\(No such file or directory\))", re.M)
#: a server whose last session was just killed still answers before it exits
_SERVER_LEAVES = pattern(r"^(server exited|lost server)", re.M)
_SERVER_LEFT = r"^(server exited|lost server|no server running on |error connecting to )"
#: the user may open or close the session between our check and our command
_TRY_AGAIN = pattern(f"{_SERVER_LEFT}|^(duplicate session|can't find session)", re.M)
_TRIES = 5
#: how long a server may take to exit
LEAVING_S = 2.0


class Unknown(Struct, frozen=True):
    """A probe without an answer. Not "nothing there": no conclusion may be drawn from it."""

    reason: str


def answered(found: T | Unknown, who: str = "", hint: str = "Run the command again.") -> T:
    """The result of a probe; raises if there is none. `who`: the subject of the error message."""
    if isinstance(found, Unknown):
        raise LlmcError(f"{who}: tmux did not answer: {found.reason}".removeprefix(": "), hint=hint)
    return found


#: the options that a session's status line shows (sessions/status_line.py); NEXT: the session its key switches to
LEFT, RIGHT, NEXT, KEYS = "@llmc_line", "@llmc_need", "@llmc_next", "@llmc_keys"
#: the status line of our server: tmux draws it from these options, and expands no formats in their values
STATUS_LINE = (
    *("set-option", "-g", "status", "on", ";"),
    *("set-option", "-g", "status-interval", "0", ";"),
    *("set-option", "-g", "status-style", "reverse", ";"),
    *("set-option", "-g", "status-left-length", "90", ";"),
    *("set-option", "-g", "status-right-length", "90", ";"),
    *("set-option", "-g", "status-left", f" #{{{LEFT}}} ", ";"),
    *("set-option", "-g", "status-right", f" #{{{RIGHT}}}   #{{{KEYS}}} ", ";"),
    *("set-option", "-g", "window-status-format", "", ";"),
    *("set-option", "-g", "window-status-current-format", "", ";"),
    *("bind-key", "-T", "prefix", "Space", "if-shell", "-F", f"#{{{NEXT}}}"),
    *(
        f"run-shell -C \"switch-client -t '#{{{NEXT}}}'\"",
        "display-message 'nothing else is waiting for you'",
        ";",
    ),
)


class Tmux(Struct, frozen=True):
    """One private tmux server."""

    server: str
    #: how long the last list of panes may be reused, because the daemon's lanes ask often
    remembers_s: float = 0.0
    _panes: "dict[str, tuple[float, Panes]]" = field(default_factory=dict)

    @property
    def by_hand(self) -> str:
        """The tmux command for this server in any shell; with -L, TMUX_TMPDIR could point elsewhere."""
        return f"tmux -S /tmp/tmux-{os.getuid()}/{self.server}"

    def argv(self, *args: str) -> list[str]:
        return ["tmux", "-L", self.server, "-f", "/dev/null", *args]

    def run(
        self, *args: str, input: bytes | None = None, check: bool = True, timeout_s: float = 10
    ) -> proc.Done:
        return proc.run(self.argv(*args), env=_minimal_env(), input=input, check=check, timeout_s=timeout_s)

    def panes(self) -> Panes | Unknown:
        """All panes of the server in one call; empty only if tmux says that there is no server.

        tmux 3.3a sometimes misses the end of a program: the pane is dead, but has no exit code and its hook does
        not run. It notices when another child exits, so we start one.
        """
        at, found = monotonic(), self._list_panes()
        if isinstance(found, dict) and any(pane.dead and pane.exit_code is None for pane in found.values()):
            with contextlib.suppress(ToolFailed):
                self.run("run-shell", "true", check=False)
            found = self._list_panes()
        if isinstance(found, dict):
            self._panes[""] = (at, found)
        return found

    def _list_panes(self) -> Panes | Unknown:
        answers: list[proc.Done] = []

        def has_settled() -> bool:
            answers.append(self.run("list-panes", "-a", "-F", FORMAT, check=False))
            return answers[-1].ok or not _SERVER_LEAVES.search(answers[-1].stderr)

        try:
            processes.wait_until(has_settled, LEAVING_S)
        except ToolFailed as error:
            return Unknown(error.message)
        done = answers[-1]
        if done.ok:
            return parse(done.stdout.splitlines())
        if _NO_SERVER.search(done.stderr):
            return {}
        return Unknown(done.stderr.strip() or f"tmux exited with code {done.returncode}")

    def agent(
        self, worker: str, session: SessionName, pane_id: PaneId, instance: str, *, now: bool = False
    ) -> Pane | Unknown | None:
        """The pane of a worker's launch, wherever it was moved to; None if it is gone. `now`: always ask tmux."""

        def look(found: Panes) -> Pane | None:
            return find(found, worker, session, pane_id, instance)

        at, remembered = self._panes.get("", (0.0, {}))
        known = look(remembered) if not now and monotonic() - at < self.remembers_s else None
        # The cache may only confirm that it runs: another command may have launched it since.
        if known is not None and not known.dead and processes.is_alive(known.pid):
            return known
        found = self.panes()
        return found if isinstance(found, Unknown) else look(found)

    def is_watched(self) -> bool:
        """Whether a terminal is attached to any session, as of a moment ago."""
        at, remembered = self._panes.get("", (0.0, {}))
        found = remembered if monotonic() - at < self.remembers_s else self.panes()
        return not isinstance(found, Unknown) and any(pane.attached for pane in found.values())

    def launch(
        self,
        session: SessionName,
        cwd: str,
        argv: Sequence[str],
        died_argv: Sequence[str],
        *,
        instance: str = "",
        worker: str = "",
    ) -> PaneId:
        """Start a program in its own pane and mark the pane; `died_argv` (with the pane) runs when it exits.

        The pane is in a new detached session, or in a new window if the user has something in that session.
        One tmux call, so that marks and options are set before the program can exit.
        """
        for _ in range(_TRIES):
            try:
                done = self._launch(session, cwd, argv, died_argv, instance, worker)
            except ToolFailed as error:
                if error.returncode is not None or not instance:
                    raise
                # tmux did not answer in time, but may have done it.
                found = self.agent(worker, session, PaneId(""), instance, now=True)
                if not isinstance(found, Pane):
                    raise
                self._follow_people(session, found.id, found.pid)
                return found.id
            if done.ok or not _TRY_AGAIN.search(done.stderr):
                break
        self._panes.clear()
        if not done.ok:
            raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)
        pane_id, pid = done.stdout.split()
        self._follow_people(session, PaneId(pane_id), int(pid))
        return PaneId(pane_id)

    def _launch(
        self,
        session: SessionName,
        cwd: str,
        argv: Sequence[str],
        died_argv: Sequence[str],
        instance: str,
        worker: str,
    ) -> proc.Done:
        # Only a unique name identifies the window that the previous command made, until it is renamed.
        window = f"llmc-{instance or os.urandom(6).hex()}"
        pane = f"={session}:={window}"
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        has_session = self.run("has-session", "-t", f"={session}", check=False).ok
        place = ["new-window", "-t", exact(session)] if has_session else ["new-session", "-s", session, *size]
        return self.run(
            *["start-server", ";"],
            *["set-option", "-g", "history-limit", "20000", ";"],
            *STATUS_LINE,
            *["set-option", "-g", "default-terminal", "screen-256color", ";"],
            *["set-option", "-s", "escape-time", "20", ";"],
            *[*place, "-d", "-n", window, "-P", "-F", "#{pane_id} #{pane_pid}", "-c", _word(no_format(cwd))],
            *[*_words(argv), ";"],
            *_marks(pane, instance, worker, died_argv),
            *["if-shell", "-F", "-t", pane, "#{?session_attached,0,1}"],
            *[f"resize-window -t '{pane}' {' '.join(size)}", ";"],
            *["rename-window", "-t", pane, worker or "agent"],
            check=False,
        )

    def _follow_people(self, session: SessionName, pane_id: PaneId, pid: int) -> None:
        """Make the agent's window follow the size of an attached terminal, and return to the default without one.

        The agent runs without it: a tmux that does not answer in time is no reason to give up its launch.
        """
        alone = f"#{{&&:{_runs(pid)},#{{?session_attached,0,1}}}}"
        attached = f"if-shell -F -t {pane_id} '{_runs(pid)}' 'set-option -w -t {pane_id} window-size latest'"
        detached = f"if-shell -F -t {pane_id} '{alone}' 'resize-window -t {pane_id} -x {WIDTH} -y {HEIGHT}'"
        with contextlib.suppress(ToolFailed):
            self.run(
                *["set-hook", "-gu", "client-attached", ";", "set-hook", "-gu", "client-detached", ";"],
                *["set-hook", "-t", exact(session), "client-attached", attached, ";"],
                *["set-hook", "-t", exact(session), "client-detached", detached],
                check=False,
            )

    def adopt(self, pane: Pane, died_argv: Sequence[str], *, instance: str, worker: str) -> None:
        """Mark a pane that was launched without marks; replaces its session-wide hook."""
        self.run(
            *["set-hook", "-u", "-t", exact(pane.session), "pane-died", ";"],
            *_marks(pane.id, instance, worker, died_argv)[:-1],
        )
        self._follow_people(pane.session, pane.id, pane.pid)
        self._panes.clear()

    def kill_session(self, session: SessionName) -> None:
        """Kill a session and all its panes; it may already be gone."""
        self._kill("kill-session", "-t", exact(session))

    def kill_pane(self, pane: Pane) -> None:
        """Kill exactly this pane; it may already be gone."""
        self._kill("if-shell", "-F", "-t", pane.id, _runs(pane.pid), f"kill-pane -t {pane.id}")

    def _kill(self, *command: str) -> None:
        done = self.run(*command, check=False)
        self._panes.clear()
        gone = ("can't find", "session not found", "server exited unexpectedly")
        if not done.ok and not _NO_SERVER.search(done.stderr) and not any(t in done.stderr for t in gone):
            raise ToolFailed(done.argv, done.returncode, done.stderr)

    def kill_server(self) -> None:
        self.run("kill-server", check=False)
        self._panes.clear()
        # While it exits it may answer or drop the connection.
        if processes.wait_until(lambda: self.panes() == {}, LEAVING_S):
            Path(f"/tmp/tmux-{os.getuid()}/{self.server}").unlink(missing_ok=True)

    def send_keys(self, pane: Pane, *keys: str) -> bool:
        """Send keys to exactly this pane; False if it is gone or runs another program."""
        pressed = f"send-keys -t {pane.id} {' '.join(map(_quote, keys))}"
        done = self.run("if-shell", "-F", "-t", pane.id, _runs(pane.pid), pressed, "display-message -p gone")
        return "gone" not in done.stdout

    def paste(self, pane: Pane, buffer: str, text: str) -> bool:
        """Bracketed paste of the text; False if the pane is dead, gone, or runs another program.

        The server itself checks, in the same command: pasting into a dead pane crashes tmux 3.3a with all
        its sessions.
        """
        done = self.run(
            *["load-buffer", "-b", buffer, "-", ";"],
            *["if-shell", "-F", "-t", pane.id, f"#{{&&:{_runs(pane.pid)},#{{?pane_dead,0,1}}}}"],
            f"paste-buffer -p -d -b {buffer} -t {pane.id}",
            f"delete-buffer -b {buffer} ; display-message -p dead",
            input=text.encode("utf-8", "surrogatepass"),
        )
        return "dead" not in done.stdout

    def capture(self, pane: Pane, *, history: int = 0, styled: bool = False) -> str:
        """The pane's text, with `history` lines of scrollback; for a dead pane, without the gap above tmux's last line."""
        flags = ["-S", f"-{history}"] if history else []
        text = self.run("capture-pane", "-p", *(["-e"] if styled else []), *flags, "-t", pane.id).stdout
        return re.sub(r"\n{3,}", "\n\n", text) if pane.dead else text

    def capture_all(self, panes: Sequence[Pane]) -> dict[PaneId, str]:
        """The text of several panes with styles, in one call; a pane that is gone by now, and those after it, are missing."""
        if not panes:
            return {}  # tmux without a command would make a session
        mark = os.urandom(16).hex()
        ends = ["display-message", "-p", mark]
        commands = [["capture-pane", "-p", "-e", "-t", pane.id, ";", *ends] for pane in panes]
        shown = self.run(*(word for one in commands for word in (*one, ";")), check=False).stdout
        return {pane.id: text for pane, text in zip(panes, shown.split(f"{mark}\n")[:-1], strict=False)}

    def size(self, pane: Pane) -> tuple[int, int]:
        """Columns and lines of a pane's window, with the status line."""
        where = "#{window_width} #{window_height}"
        columns, lines = _two_numbers(pane, self.run("display-message", "-p", "-t", pane.id, where).stdout)
        return columns, lines + 1

    def screen(self, pane: Pane) -> tuple[str, tuple[int, int]]:
        """The pane's text with styles, and its cursor position at the same moment."""
        where = ["display-message", "-p", "-t", pane.id, "#{cursor_x} #{cursor_y}"]
        shown = self.run("capture-pane", "-p", "-e", "-t", pane.id, ";", *where).stdout
        text, _, cursor = shown.rstrip("\n").rpartition("\n")
        return text, _two_numbers(pane, cursor)


def exact(session: SessionName) -> str:
    """A target that matches only this session: a bare `llmc-auto-1` also matches `llmc-auto-10`."""
    return f"={session}:"


def _marks(pane: str, instance: str, worker: str, died_argv: Sequence[str]) -> list[str]:
    """The options of an agent's pane, which override those that the user sets for a window."""
    died = f"run-shell -b {tmux_quote(shlex.join(died_argv))[:-1]} #{{hook_pane}}'"
    here = ["-p", "-t", pane]
    return [
        *["set-option", *here, "remain-on-exit", "on", ";"],
        # Do not synchronize keys with other panes.
        *["set-option", *here, "synchronize-panes", "off", ";"],
        *["set-option", *here, MARK, instance, ";"],
        *["set-option", *here, WORKER, worker, ";"],
        *["set-option", "-F", *here, PROCESS, "#{pane_pid}", ";"],
        *["set-hook", *here, "pane-died", died, ";"],
    ]


def _two_numbers(pane: Pane, answer: str) -> tuple[int, int]:
    """What tmux says about a pane; for a missing one, it prints a blank and exits with 0."""
    words = answer.split()
    if len(words) != 2:
        who = pane.worker or pane.session
        raise Refused(f"{who}'s agent is not running", hint="Run `llmc status` to see how to start it.")
    return int(words[0]), int(words[1])


def _runs(pid: int) -> str:
    """A condition for tmux: the pane still runs the same process.

    Ids start at %0 with each server, and for a missing pane tmux picks another.
    """
    return f"#{{==:#{{pane_pid}},{pid}}}"


def no_format(text: str) -> str:
    """Escape text for tmux formats: a directory may be named `#{x}` or `#(rm)`."""
    return text.replace("#", "##")


def tmux_quote(text: str) -> str:
    """One argument of a tmux command string: single quotes, formats disarmed."""
    return _quote(no_format(text))


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _words(argv: Sequence[str]) -> list[str]:
    """A program and its arguments: tmux executes two or more directly, but passes a single one to a shell."""
    return [_word(word) for word in argv] if len(argv) > 1 else [_word(shlex.join(argv))]


def _word(text: str) -> str:
    """One literal argument: tmux would take a trailing `;` for the end of the command."""
    return text[:-1] + "\\;" if text.endswith(";") else text


def _minimal_env() -> dict[str, str]:
    """The server's environment; panes get their complete environment from the launch spec."""
    # No TMUX_TMPDIR: a command from cron, without the variable of the shell that ran `llmc up`, would look for the
    # server elsewhere and find no sessions.
    keep = ("PATH", "HOME", "TERM", "USER", "LOGNAME", "SHELL")
    env = {key: os.environ[key] for key in keep if key in os.environ}
    return {"TERM": "screen-256color", **env, "LC_ALL": "C.UTF-8"}


def outer(environment: Mapping[str, str]) -> str | None:
    """The socket of the tmux that shows this process; None outside tmux."""
    return environment.get("TMUX", "").partition(",")[0] or None


def prefix_of(server: list[str]) -> str:
    """The prefix key of a server; tmux's default if unknown."""
    argv = [*server, "show-options", "-gv", "prefix"]
    try:
        return proc.run(argv, env=_minimal_env(), check=False, timeout_s=5).stdout.strip() or "C-b"
    except LlmcError:
        return "C-b"
