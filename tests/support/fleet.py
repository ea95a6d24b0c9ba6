"""A fleet in a temporary directory, driven only through the public command line."""

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc.agents.kinds import reader_of
from llmc.base.locks import is_locked
from llmc.base.processes import is_alive
from llmc.base.wake import wake
from llmc.config.edit import set_value
from llmc.config.root_layout import DAEMON_LOCK, tmux_server
from llmc.records.event_log import EventLog
from tests.support import on_postgres, zygote
from tests.support.loopback_api import LoopbackApi
from tests.support.real_client import DUMMY_KEY, client_env, find_client, seed_config
from tests.support.waiting import answer_dialog, press_until, wait_until

#: for `parametrize("fleet", ..., indirect=True)`: where the real client is slow and shows little more
REAL_IN_SOAK = ["scripted", pytest.param("claude", marks=[pytest.mark.real_client, pytest.mark.soak])]
#: and where other tests do the same with the scripted agent, and more
SCRIPTED_IN_SOAK = [
    pytest.param("scripted", marks=pytest.mark.soak),
    pytest.param("claude", marks=pytest.mark.real_client),
]
#: only the new client in `make test`: it shows all that the scripted agent and an old client do
NEW_CLIENT = [
    *SCRIPTED_IN_SOAK,
    pytest.param("claude-2.1.197", marks=[pytest.mark.real_client, pytest.mark.soak]),
]
#: the real clients, old and new, only in `make soak`: another test shows the same on the new one
CLIENTS_IN_SOAK = [
    "scripted",
    pytest.param("claude", marks=[pytest.mark.real_client, pytest.mark.soak]),
    pytest.param("claude-2.1.197", marks=[pytest.mark.real_client, pytest.mark.soak]),
]

#: `SANDBOX=on pytest ...` contains the agents and the checks of each root (CONTRIBUTING.md)
SANDBOX = os.environ.get("SANDBOX", "off")


def in_soak(*values: object) -> list[Any]:
    """For `parametrize`: cases of a matrix for `make soak`; the others show as much in `make test`."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


class Result:
    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Fleet:
    """One root, its source repository, and the environment in which `llmc` runs."""

    def __init__(self, agent: str, api: LoopbackApi | None = None) -> None:
        self.agent = agent
        self.dir = Path(tempfile.mkdtemp(prefix="t-"))
        self.root = self.dir / "root"
        self.source = self.dir / "src"
        self.home = self.dir / "home"
        self.config_dir = self.dir / "claude"
        #: what an agent leaves for the test, or waits for; a contained one sees only this and its worktree
        self.marks = self.dir / "marks"
        self.env = self._environment(api)
        #: set in every root of this fleet
        shared = {} if SANDBOX == "off" else {"sandbox.write": json.dumps([str(self.marks)])}
        self.settings = {"defaults.sandbox": SANDBOX, **shared}
        self._logs: dict[str, str] = {}
        self._told_before = 0
        self._rows_before: dict[Path, int] = {}
        #: where its tasks and goals are stored, if it is a node
        self.rows: on_postgres.Rows | None = None
        for directory in (self.home, self.source, self.marks):
            directory.mkdir()
        (self.source / "README.md").write_text("sample\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "README.md")
        self.git("commit", "-q", "-m", "First commit")

    def _environment(self, api: LoopbackApi | None) -> dict[str, str]:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "LLMC_AGENT": self.agent,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{name: value for name, value in os.environ.items() if name == "LLMC_PORTABLE"},
        }
        if api is not None:
            self.config_dir.mkdir()
            seed_config(self.config_dir, [self.root])
            client = client_env(self.config_dir, self.home, api.url, DUMMY_KEY)
            env = {**client, **env, "LLMC_AGENT": str(find_client(self.agent))}
        return env

    def git(self, *args: str, cwd: Path | None = None) -> str:
        identity = ["-c", "user.name=Person", "-c", "user.email=person@example.com"]
        done = subprocess.run(
            ["git", *identity, *args], cwd=cwd or self.source, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"git {args}: {done.stderr}"
        return done.stdout.strip()

    def commit(self, name: str, text: str, message: str) -> str:
        (self.source / name).write_text(text)
        self.git("add", name)
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def llmc(
        self,
        *args: str,
        code: int | None = 0,
        stdin: str | None = None,
        timeout: float = 90,
        cwd: Path | None = None,
        quotes: bool = False,
        **env: str,
    ) -> Result:
        """Run a command; `code`: the expected exit code (None: any). `quotes`:
        it shows another program's output.
        """
        done = zygote.run(
            list(args), cwd=cwd or self.source, env={**self.env, **env}, stdin=stdin, timeout_s=timeout
        )
        result = Result(done)
        assert code is None or result.code == code, f"llmc {' '.join(args)[:200]}\n{result!r}\n{self.story()}"
        assert quotes or "Traceback" not in result.err, result.err
        if args[0] == "init" and result.code == 0 and self.has_root:
            self.configure(self.settings)
        return result

    @property
    def has_root(self) -> bool:
        return (self.root / "config.toml").exists()

    def answered(self, text: bytes, *args: str) -> int:
        """The exit code of a command on a terminal, where the user answers its question."""
        master, slave = pty.openpty()
        terminal = os.ttyname(slave)
        try:
            begun = zygote.spawn(
                list(args),
                cwd=self.source,
                env=self.env,
                stdin=terminal,
                out=os.devnull,
                output=Path(terminal),
            )
            os.write(master, text)
            return begun.wait(60)
        finally:
            os.close(master)
            os.close(slave)

    def on_terminal(self, *args: str, columns: int = 80, typed: bytes = b"") -> str:
        """What a command shows on a terminal that wide, with colors; `typed`: what the user answers."""
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, columns))
        env = {name: value for name, value in self.env.items() if name != "NO_COLOR"}
        terminal = os.ttyname(slave)
        shown: list[bytes] = []

        def read() -> None:
            with contextlib.suppress(OSError):  # the end of a terminal is an error
                while data := os.read(master, 65536):
                    shown.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        begun = zygote.spawn(list(args), cwd=self.source, env=env, stdin=terminal, output=Path(terminal))
        try:
            os.write(master, typed)
            begun.wait(60)
        finally:
            os.close(slave)
            reader.join()
            os.close(master)
        return b"".join(shown).decode()

    def spawn(self, *args: str) -> "subprocess.Popen[bytes]":
        """Run a command in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "llmc", *args],
            cwd=self.source,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def set_up(self, *workers: str, config: dict[str, str] | None = None) -> "Fleet":
        self.llmc("init", "--target", str(self.root))
        self.configure(config or {})
        if on_postgres.is_on():
            self._join()
        for worker in workers:
            self.llmc("add", worker)
        return self

    def _join(self) -> None:
        node = on_postgres.config(self)
        self.configure(node)
        self.llmc("fleet", "init")
        self.rows = on_postgres.Rows(node["fleet.database"])

    def configure(self, config: Mapping[str, str]) -> None:
        """Set options with the function behind `llmc config set`, without a process for each."""
        for key, value in config.items():
            set_value(self.root / "config.toml", key, value)

    def new_case(self) -> "Fleet":
        """For a fleet that several tests share: hide earlier events from the next test."""
        self._told_before = max((int(row["seq"]) for row in self._events()), default=0)
        self._rows_before = {path: len(rows) for path, rows in self._transcripts()}
        return self

    def plant(self, files: Mapping[str, str], message: str = "A new case") -> None:
        """A commit on the source's main branch with only these files, and nothing that was there before."""
        self.git("rm", "-rfq", "--ignore-unmatch", ".")
        for name, text in {"README.md": "sample\n", **files}.items():
            (self.source / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def rest(self, *workers: str) -> None:
        """After a test on a shared fleet, however it ended:
        these workers are idle, not held, and without work.
        """
        for name in workers:
            row = self.record(name)
            if row.get("held"):
                self.llmc("release", name)
            if row["status"] != "idle" or row.get("accept"):
                self.llmc("reset", name)

    def has_daemon(self) -> bool:
        return is_locked(self.root / ".llmc/locks/daemon.lock")

    def up(self, *args: str, cold: bool = False) -> None:
        """Start the daemon: as a fork, or `cold` as a program that imports everything itself."""
        # Each fleet has a new root but the same client: testing it every time would cost seconds.
        known = ("--no-canary",) if "--auto" in args else ()
        env: dict[str, Any] = {zygote.COLD: "1"} if cold else {}
        self.llmc("up", "--detach", *args, *known, **env)

    def status(self, worker: str) -> dict[str, Any]:
        view = self.llmc("status", "--json", cwd=self.root).json
        return next(row for row in view["workers"] if row["name"] == worker)

    def record(self, worker: str) -> dict[str, Any]:
        """A worker from state.json, without a process for each check."""
        return dict(json.loads((self.root / "state.json").read_text())["workers"][worker])

    def wait(self, worker: str, status: str, timeout: float = 30) -> dict[str, Any]:
        arguments = ("--status", status, "--timeout", str(timeout), "--json")
        result = self.llmc("wait", worker, *arguments, code=None, cwd=self.root)
        assert result.code == 0, f"{worker} did not become {status}: {result!r}\n{self.story()}"
        return dict(result.json["worker"])

    def events(self, action: str | None = None) -> list[dict[str, Any]]:
        """The event log, read with the function behind `llmc events`, without a process for each check."""
        rows = (row for row in self._events() if int(row["seq"]) > self._told_before)
        return [row for row in rows if action in (None, row["action"])]

    def _events(self) -> Iterator[dict[str, Any]]:
        return EventLog(str(self.root / "logs/events.jsonl")).all()

    def printed_events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.llmc("events", "--json").out.splitlines()]

    def log(self) -> list[str]:
        """The subjects on the source's main branch, newest first; git runs once per commit there."""
        ref = self.source / ".git/refs/heads/main"
        commit = ref.read_text().strip() if ref.is_file() else self.git("rev-parse", "refs/heads/main")
        if commit not in self._logs:
            self._logs[commit] = self.git("log", "--format=%s", commit)
        return self._logs[commit].splitlines()

    def worktree(self, worker: str) -> Path:
        return self.root / ".worktrees" / worker

    def tmux(self, *args: str) -> str:
        argv = ["tmux", "-L", tmux_server(str(self.root)), *args]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True).stdout

    def end_tmux(self, server: str) -> None:
        subprocess.run(["tmux", "-L", server, "kill-server"], env=self.env, capture_output=True)
        Path(f"/tmp/tmux-{os.getuid()}", server).unlink(missing_ok=True)

    def session(self, worker: str) -> str:
        return f"=llmc-{self.root.name}-{worker}:"

    def screen(self, worker: str) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.session(worker))

    def client_status(self, worker: str) -> str:
        """What the agent reports in its status file."""
        return reader_of(self.agent).state(self._config_of(worker), self.pane_pid(worker)).status.value

    def status_file(self, worker: str) -> Path:
        """The file itself; a contained agent is alone in its home."""
        place = self._config_of(worker)
        name = f"{self.pane_pid(worker)}.json" if place == self.client_config else "*.json"
        (found,) = place.glob(f"sessions/{name}")
        return found

    def agent_pid(self, worker: str) -> int:
        """The process of the agent itself."""
        if not self.record(worker).get("contained"):
            return self.pane_pid(worker)
        return int((self.root / f".llmc/home/{worker}.pid").read_text().split()[0])

    def pane_pid(self, worker: str) -> int:
        """The process of an agent; for a contained one, its holder."""
        return int(self.tmux("display-message", "-p", "-t", self.session(worker), "#{pane_pid}").strip())

    def answer_dialog(self, worker: str, key: str) -> None:
        """What the user does with an open dialog."""
        answer_dialog(
            lambda: self.tmux("send-keys", "-t", self.session(worker), key),
            screen=lambda: self.screen(worker),
            status=lambda: self.client_status(worker),
        )

    def leave_draft(self, worker: str, text: str) -> str:
        """What a user does who begins an answer to an open question; the line that shows it.

        The full stop comes after everything that is still on its way to the client, so the line then stays as it is.
        """
        wait_until(lambda: "Enter to select" in self.screen(worker))
        press_until(
            lambda: text in self.free_line(worker),
            lambda: self.paste(worker, text),
            lambda: self.screen(worker),
        )
        self.paste(worker, ".")
        wait_until(lambda: self.free_line(worker).endswith(f"{text}."), story=lambda: self.screen(worker))
        return self.free_line(worker)

    def free_line(self, worker: str) -> str:
        """The line for an answer in words, after the two options of `@ask`; "" if there is none."""
        lines = [line.rstrip() for line in self.screen(worker).splitlines()]
        return next((line for line in reversed(lines) if line[1:].startswith(" 3. ")), "")

    def paste(self, worker: str, text: str) -> None:
        self.tmux("set-buffer", "-b", "draft", text)
        self.tmux("paste-buffer", "-p", "-d", "-b", "draft", "-t", self.session(worker))

    def _config_of(self, worker: str) -> Path:
        """The client's configuration directory; a contained one has its own."""
        own = self.root / ".llmc/home" / worker
        return own if own.is_dir() else self.client_config

    @property
    def client_config(self) -> Path:
        return self.config_dir if self.config_dir.exists() else self.root / ".llmc/agents/scripted"

    def daemon_pid(self) -> int:
        return int(json.loads((self.root / ".llmc/daemon.json").read_text())["pid"])

    def wake(self, worker: str) -> None:
        """Wake the daemon, as the next hook or patrol would."""
        wake(self.root / ".llmc/run/wake.sock", worker)

    @contextmanager
    def frozen_daemon(self) -> Iterator[None]:
        """Freeze the daemon, as on a starved machine, but not while it holds a lock that others wait for."""
        pid = self.daemon_pid()
        wait_until(lambda: self._freeze(pid))
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _freeze(self, pid: int) -> bool:
        """Stop the daemon; let it continue if it was caught with a lock."""
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: process_state(pid) == "T")
        own = self.root / ".llmc/locks/daemon.lock"
        if any(is_locked(path) for path in own.parent.iterdir() if path != own):
            os.kill(pid, signal.SIGCONT)
            return False
        return True

    def kill_daemon(self) -> None:
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        # Its lock goes with its last thread, a moment later.
        wait_until(lambda: not is_alive(pid) and not is_locked(self.root / DAEMON_LOCK))

    def transcript_rows(self) -> list[dict[str, Any]]:
        """Every row of every transcript that the agents wrote."""
        new = (rows[self._rows_before.get(path, 0) :] for path, rows in self._transcripts())
        return [json.loads(line) for rows in new for line in rows]

    def _transcripts(self) -> list[tuple[Path, list[str]]]:
        places = [self.client_config, *self.root.glob(".llmc/home/*/")]
        files = sorted(file for place in places for file in place.glob("projects/*/*.jsonl"))
        # The last line may be half written.
        return [(path, path.read_text().rpartition("\n")[0].splitlines()) for path in files]

    def user_turns(self) -> list[str]:
        """The prompts that started a turn, as recorded in the transcripts."""
        rows = [row for row in self.transcript_rows() if row.get("type") == "user"]
        return [text for row in rows if (text := _content(row))]

    def prompts_in_transcripts(self) -> list[str]:
        """Every prompt that the agent received: started, or queued while it was busy."""
        queued = [
            row.get("content", "")
            for row in self.transcript_rows()
            if row.get("type") == "queue-operation" and row.get("operation") == "enqueue"
        ]
        return self.user_turns() + queued

    def story(self) -> str:
        """What happened, for a failure message."""
        try:
            events = (self.root / "logs/events.jsonl").read_text()[-60000:]
        except OSError:
            events = ""
        screens = "\n".join(
            f"--- screen of {path.name}\n"
            + "\n".join(line[:150] for line in self.screen(path.name).rstrip().splitlines()[-30:])
            for path in sorted((self.root / ".worktrees").glob("*"))
        )
        return f"--- events\n{events}\n{screens}"

    def close(self) -> None:
        """Kill whatever runs for this fleet: its state is no longer needed, and a clean `down` is slow."""
        wait_until(self._kill_all)
        if self.rows is not None:
            self.rows.close()
        for place in (self.root, *self.root.glob(".llmc/canary/*")):
            Path(f"/tmp/tmux-{os.getuid()}", tmux_server(str(place))).unlink(missing_ok=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _kill_all(self) -> bool:
        """Whether nothing is running: its processes have the fleet's home in their environment,
        or are forks that hold a lock.
        """
        mark = f"HOME={self.home}".encode()
        found = {pid for pid in _processes() if mark in _environment(pid)}
        found |= _holders(self.root / ".llmc/locks") - {os.getpid()}
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """What a process was started with; empty for one that has exited, or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _holders(folder: Path) -> set[int]:
    """The processes that hold a lock there."""
    ours = {str(path.stat().st_ino): str(path) for path in folder.glob("*")}
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
    found = ((int(row[4]), ours.get(row[5].rpartition(":")[2])) for row in rows)
    return {pid for pid, path in found if pid > 0 and path and path in _open_files(pid)}


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{fd}")


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _content(row: dict[str, Any]) -> str:
    content = row["message"]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")
