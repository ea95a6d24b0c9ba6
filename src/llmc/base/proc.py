"""Run programs: every program llmc runs is run here, with limits on time and output."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct

from llmc.base import clock
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.rotation import open_log, private_opener
from llmc.base.urls import scrub

#: how often a long command checks whether it must stop
STOP_POLL_S = 0.2
#: how long a program that runs another may take to stop it
ENDS_S = 10.0

#: how much to read and write at once, and the most that a pipe holds
_BLOCK, _MOST_LEFT = 1 << 16, 1 << 20

#: a started program
Child = subprocess.Popen[bytes]

_INSTALL_HINTS = {
    "tmux": "Install tmux (on Debian: `sudo apt-get install tmux`).",
    "git": "Install git (on Debian: `sudo apt-get install git`).",
}


class ShuttingDown(Exception):
    """llmc is stopping: the command is abandoned and will be run again later."""


class Overran(ToolFailed):
    """A program was stopped by llmc: it took too long or printed too much."""


class PrintedTooMuch(Overran):
    """A program was stopped by llmc: it printed too much."""


class ToolMissing(LlmcError):
    """A program llmc needs is not installed."""


class Done(Struct, frozen=True):
    """The result of a program."""

    argv: list[str]
    returncode: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.returncode == 0


#: the directory where the user started a background daemon, which itself runs in /
CALLER_DIR = "LLMC_CALLER_DIR"


def caller_dir() -> Path:
    """The working directory of the user who started this process."""
    try:
        return Path(os.environ.get(CALLER_DIR) or os.getcwd())
    except FileNotFoundError:
        return Path("/")  # it is gone


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without git variables and with untranslated messages.

    PATH keeps only absolute directories: relative ones start where the program runs, maybe in an agent's worktree.
    """
    env = command_env()
    folders = filter(os.path.isabs, env.get("PATH", "").split(os.pathsep))
    return {**env, "PATH": os.pathsep.join(folders) or os.defpath, "LC_ALL": "C", **(extra or {})}


def command_env() -> dict[str, str]:
    """The environment for a command configured by the user: without git variables, with the user's locale."""
    # A repository's hooks run with GIT_DIR set; llmc called from one must not operate on that repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.pop(CALLER_DIR, None)  # only for the daemon itself
    return {**env, "GIT_TERMINAL_PROMPT": "0"}


def run(
    argv: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    timeout_s: float = 30,
    check: bool = True,
    within: Sequence[str] = (),
    inherits: Sequence[int] = (),
    meanwhile: Callable[[], None] | None = None,
    most_bytes: int = 0,
    encoding: str = "utf-8",
    outlived: bool = False,
) -> Done:
    """Run a program and wait for it, not for what it leaves running; on a timeout its process group is killed.

    `within`: a program that runs it, such as bubblewrap; messages do not name it. `inherits`: descriptors that
    stay open. `meanwhile` is called while it runs; if it raises, the program is killed. `most_bytes`: kill it if
    it prints more. `encoding`: of its standard output. `outlived`: what it leaves running may print later; its output
    goes to files, as a closed pipe would kill a program that prints.
    """
    args = list(argv)
    stdin = subprocess.PIPE if input is not None else subprocess.DEVNULL
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(_unnamed_file()) for _ in ("stdout", "stderr")] if outlived else []
        process, interrupt = _start(
            [*within, *args], cwd, clean_env() if env is None else env, stdin, inherits, *files
        )
        opened.enter_context(process)
        opened.enter_context(clock.waiting(timeout_s))
        try:
            interrupt.raise_if_pressed()
            talk = Talk(process, input or b"", most_bytes or sys.maxsize)
            stdout, stderr = talk.until(
                time.monotonic() + timeout_s, STOP_POLL_S, meanwhile or (lambda: None)
            )
            if files:
                stdout, stderr = (_content(file, most_bytes or sys.maxsize) for file in files)
        except BaseException as error:
            kill_group(process)
            if isinstance(error, TooMuch):
                raise _too_much(args, most_bytes) from None
            if isinstance(error, subprocess.TimeoutExpired):
                raise ToolFailed(
                    args, None, "", message=f"`{scrub(' '.join(args))[:300]}` timed out after {timeout_s:g} s"
                ) from error
            raise
    # stderr goes into messages, often truncated; stdout may be data.
    done = Done(args, process.returncode, _text(stdout, encoding), scrub(_text(stderr)))
    if check and not done.ok:
        raise ToolFailed(args, done.returncode, done.stderr or done.stdout)
    return done


def _unnamed_file() -> BinaryIO:
    import tempfile  # few programs need it

    from llmc.base.files import explain

    try:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))
    except OSError as error:
        raise explain(error, "cannot create a temporary file") from error


def _content(file: BinaryIO, most_bytes: int) -> bytearray:
    """What a program wrote to a file; the position that both share stays."""
    size = os.fstat(file.fileno()).st_size
    if size > most_bytes:
        raise TooMuch
    return bytearray(os.pread(file.fileno(), size, 0))


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    input: bytes,
    timeout_s: float,
    most_bytes: int,
    stopping: Callable[[], bool] | None = None,
) -> Done:
    """Run a program with untrusted output: its group is stopped when it takes too long or prints too much.

    What it leaves running in its group is stopped, too. Raises ShuttingDown once `stopping` returns true.
    """
    args = list(argv)

    def look() -> None:
        if stopping is not None and stopping():
            raise ShuttingDown

    process, interrupt = _start(args, cwd, env, subprocess.PIPE)
    with process, clock.waiting(timeout_s):
        try:
            interrupt.raise_if_pressed()
            said = Talk(process, input, most_bytes).until(time.monotonic() + timeout_s, STOP_POLL_S, look)
        except TooMuch:
            raise _too_much(args, most_bytes) from None
        except subprocess.TimeoutExpired:
            raise Overran(args, None, "", message=f"`{args[0]}` timed out after {timeout_s:g} s") from None
        finally:
            kill_group(process)
    return Done(args, process.returncode, *(data.decode("utf-8", "replace") for data in said))


def _too_much(args: list[str], most_bytes: int) -> PrintedTooMuch:
    most = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes} bytes"
    return PrintedTooMuch(args, None, "", message=f"`{args[0]}` printed more than {most}")


def _start(
    args: list[str],
    cwd: Path | str | None,
    env: Mapping[str, str],
    stdin: int,
    inherits: Sequence[int] = (),
    stdout: int | BinaryIO = subprocess.PIPE,
    stderr: int | BinaryIO = subprocess.PIPE,
) -> "tuple[Child, _LateInterrupt]":
    """Start a program in its own group."""
    interrupt = _LateInterrupt()
    try:
        with interrupt:
            process = subprocess.Popen(
                args,
                cwd=cwd,
                env=dict(env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                pass_fds=inherits,
            )
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise _not_started(args, cwd, error) from error
    return process, interrupt


class _LateInterrupt:
    """Defer Ctrl-C while a program is being started, until its pid is known and it can be stopped."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        self._pressed = True

    def raise_if_pressed(self) -> None:
        if not self._pressed:
            return
        if callable(self._before) and self._before is not signal.default_int_handler:
            self._before(signal.SIGINT, None)  # another handler stays in place
            return
        raise KeyboardInterrupt


def run_logged(
    command: str,
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    timeout_s: float,
    stopping: Callable[[], bool] | None = None,
    answer: Path | None = None,
    about: str = "",
    through: Sequence[str] = (),
    untrusted: bool = False,
) -> Done:
    """Run a command configured by the user; log output and exit code, return the end of the output.

    Once `stopping` returns true, it is stopped and ShuttingDown raised. `answer`: a file that gets its standard
    output before the log does. `about`: its purpose, for the log. `through`: a program that runs it instead of the
    shell. If a signal kills it, the code is 128 plus the signal, as in shells. `untrusted`: it runs agents' code,
    so it gets a pipe instead of the log. Not all of its output is kept (base/captured.py), and processes that it
    leaves running cannot write to the log.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not cwd.is_dir():
        raise _not_started([command], cwd, FileNotFoundError())
    with contextlib.ExitStack() as opened:
        sink = opened.enter_context(open_log(log))
        said = opened.enter_context(open(answer, "wb", opener=private_opener)) if answer is not None else sink
        sink.write(_entry(about, f"$ {command}"))
        sink.flush()
        start = sink.tell()
        args = list(through) or ["/bin/sh", "-c", command]
        outputs = (subprocess.PIPE, subprocess.STDOUT) if untrusted else (said, sink)
        try:
            process, interrupt = _start(args, cwd, env, subprocess.DEVNULL, (), *outputs)
        except LlmcError as error:
            sink.write(_entry(about, str(error)))
            raise
        pipe = sink if untrusted else None
        code = _waited(process, interrupt, pipe, timeout_s, stopping, ends_others=bool(through))
        if code is None:
            sink.write(f"\n(stopped by llmc after {timeout_s:g} s)\n".encode())
            sink.flush()
            code = 124
        done = Done([command], code, tail(log, start), "")  # before the log may be renamed
        said_last = b"" if answer is None else answer.read_bytes()
        sink.write(said_last)
        cut = (said_last or done.stdout.encode(errors="replace"))[-1:] not in (b"", b"\n")
        sink.write(b"\n" * cut + _entry(about, f"exit code {code}"))
        return done


def _waited(
    process: Child,
    interrupt: "_LateInterrupt",
    sink: BinaryIO | None,
    timeout_s: float,
    stopping: Callable[[], bool] | None,
    *,
    ends_others: bool,
) -> int | None:
    """The exit code of a command, None if it took too long. `sink`: the log for the output in its pipe."""
    from llmc.base.captured import Captured  # most commands run none

    def look() -> None:
        if stopping is not None and stopping():
            raise ShuttingDown

    pipe = process.stdout
    output = Captured(pipe, sink, lambda wait_s: _code(process, wait_s)) if sink and pipe else None
    code = None
    try:
        interrupt.raise_if_pressed()
        with clock.waiting(timeout_s):
            code = output.until(timeout_s, STOP_POLL_S, look) if output else _wait(process, timeout_s, look)
    finally:
        if code is None:
            _end(process, ends_others=ends_others)
        if output:
            output.finish()
    return code


def _code(process: Child, wait_s: float) -> int | None:
    """The exit code of a command, as in shells; None if it is still running after `wait_s`."""
    try:
        code = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    return code if code >= 0 else 128 - code


def _wait(process: Child, timeout_s: float, look: Callable[[], None]) -> int | None:
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        code = _code(process, min(STOP_POLL_S, left_s))
        if code is not None or left_s <= STOP_POLL_S:
            return code
        look()


def _end(process: Child, *, ends_others: bool) -> None:
    """Kill a command. `ends_others`: on SIGTERM, it stops everything it runs, and then exits."""
    if ends_others:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
    kill_group(process)


def _entry(about: str, text: str) -> bytes:
    words = (time.strftime("%Y-%m-%dT%H:%M:%S%z"), about, text)
    return (" ".join(filter(None, words)) + "\n").encode(errors="replace")


def run_attached(argv: Sequence[str], *, env: Mapping[str, str], input: bytes | None = None) -> int:
    """Run an interactive program in this terminal (a pager, an editor); returns its exit code."""
    args = list(argv)
    # Ctrl-C and Ctrl-\\ reach us too: the program decides, a pager continues. It does not inherit a handler of ours.
    with handling(lambda *_: None, signal.SIGINT, signal.SIGQUIT):
        try:
            process = subprocess.Popen(
                args, env=dict(env), stdin=subprocess.PIPE if input is not None else None
            )
        except OSError as error:
            raise _not_started(args, None, error) from error
        process.communicate(input)
    return process.returncode


@contextlib.contextmanager
def handling(handler: Callable[[int, Any], object], *numbers: int) -> Iterator[None]:
    """Handle these signals during the block; does nothing outside the main thread, where Python cannot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def spawn_detached(argv: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> Child:
    """Start a program that outlives us, with its output appended to a file."""
    with open(output, "ab", opener=private_opener) as sink:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
            env=None if env is None else dict(env),
            start_new_session=True,
        )


def run_on_terminal(
    argv: Sequence[str], env: Mapping[str, str], columns: int, lines: int
) -> tuple[Child, int]:
    """Start a program on a terminal of its own; returns it and our end of the terminal."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    args = list(argv)
    try:
        child = subprocess.Popen(
            args, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), start_new_session=True
        )
    except OSError as error:
        os.close(ours)
        raise _not_started(args, None, error) from error
    finally:
        os.close(theirs)
    return child, ours


def copy_log(source: Path, log: Path, old: bytes, new: bytes) -> None:
    """Append a command's output, of any size, to a log, with one path replaced by another."""
    with source.open("rb") as file, open_log(log) as sink:
        kept = b""
        while piece := file.read(1 << 20):
            text = (kept + piece).replace(old, new)
            kept = (
                text[len(text) - len(old) + 1 :] if len(old) > 1 else b""
            )  # it may contain the start of the path
            sink.write(text[: len(text) - len(kept)])
        sink.write(kept)


def tail(path: Path, start: int, limit: int = 8000) -> str:
    """What was written to a log since `start`, at most the last `limit` bytes."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - limit))
        return file.read().decode(errors="replace")


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its process group, then reap it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _not_started(args: list[str], cwd: Path | str | None, error: OSError | ValueError) -> LlmcError:
    if cwd is not None and not os.path.isdir(cwd):
        return ToolFailed(args, None, "", message=f"`{args[0]}` failed to start: {cwd} is not a directory")
    if not isinstance(error, FileNotFoundError):
        why = getattr(error, "strerror", None) or error
        return ToolFailed(args, None, "", message=f"`{args[0][:300]}` failed to start: {why}")
    hint = _INSTALL_HINTS.get(args[0], f"Install {args[0]}, or fix its path with `llmc config edit`.")
    return ToolMissing(f"{args[0]} is not installed or not on PATH", hint=hint)


def _text(data: bytes | bytearray, encoding: str = "utf-8") -> str:
    return data.decode(encoding, "surrogateescape")


class TooMuch(Exception):
    """A program printed too much."""


class Talk:
    """Feeds a program its input and reads its output concurrently."""

    def __init__(self, process: subprocess.Popen[bytes], input: bytes, most_bytes: int) -> None:
        self._process, self._rest, self._most = process, memoryview(input), most_bytes
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        self._said = {pipe.fileno(): bytearray() for pipe in pipes}
        self._stdin = process.stdin
        self._pipes = selectors.PollSelector()  # unlike epoll, it needs no descriptor
        for fd in self._said:
            os.set_blocking(fd, False)
            self._pipes.register(fd, selectors.EVENT_READ)
        if self._stdin is not None:
            os.set_blocking(self._stdin.fileno(), False)
            self._pipes.register(self._stdin.fileno(), selectors.EVENT_WRITE)

    def until(self, deadline: float, poll_s: float, look: Callable[[], None]) -> tuple[bytearray, bytearray]:
        """The program's output in pipes, once it has ended; does not wait for one that another process inherited.

        `look` is called every `poll_s` and may raise.
        """
        due = time.monotonic() + poll_s
        with self._pipes:
            while self._process.poll() is None:
                self._exchange(max(0.0, min(due, deadline) - time.monotonic()))
                if time.monotonic() >= due:
                    look()
                    due = time.monotonic() + poll_s
                if time.monotonic() > deadline and self._process.poll() is None:
                    raise subprocess.TimeoutExpired("", 0)
            self._finish()
        out, err = self._said.values() or (bytearray(), bytearray())
        return out, err

    def _exchange(self, wait_s: float) -> None:
        if not self._pipes.get_map():  # all pipes are closed: wait for it to exit
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
        for key, _ in self._pipes.select(wait_s if self._pipes.get_map() else 0.0):
            if key.fd in self._said:
                self._take(key.fd)
            else:
                self._give()

    def _finish(self) -> None:
        """Read what is left, but no more than a pipe holds: what the program left running may fill it all the time."""
        for fd in self._said.keys() & self._pipes.get_map().keys():
            for _ in range(_MOST_LEFT // _BLOCK):
                if not self._take(fd):
                    break

    def _take(self, fd: int) -> bool:
        """Read once, so that the time is looked at between; returns whether there was anything."""
        try:
            data = os.read(fd, _BLOCK)
        except BlockingIOError:
            return False
        if not data:
            self._pipes.unregister(fd)
        self._said[fd] += data
        if len(self._said[fd]) > self._most:
            raise TooMuch
        return bool(data)

    def _give(self) -> None:
        assert self._stdin is not None
        try:
            self._rest = self._rest[os.write(self._stdin.fileno(), self._rest[:_BLOCK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it closed its input
            self._rest = self._rest[:0]
        if not self._rest:
            self._pipes.unregister(self._stdin.fileno())
            self._stdin.close()
