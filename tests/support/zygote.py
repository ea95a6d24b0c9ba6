"""Runs `llmc` in forks of a process that has imported it: the same code and exit codes, no import cost.

That process has one thread and runs nothing itself, so that each fork starts like a fresh interpreter.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from llmc.base import proc

#: set where a daemon has to be its own process from the start, as for users
COLD = "LLMC_TEST_COLD_DAEMON"

_all: "list[_Zygote]" = []
_idle: "list[_Zygote]" = []


def run(
    argv: list[str], *, cwd: Path, env: Mapping[str, str], stdin: str | None = None, timeout_s: float = 90
) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end; commands that run at the same time have a process each."""
    if "LD_PRELOAD" in env:  # a library that a fork would not load
        program = [sys.executable, "-m", "llmc", *argv]
        return subprocess.run(
            program, cwd=cwd, env=env, input=stdin or "", timeout=timeout_s, capture_output=True, text=True
        )
    zygote = _idle_one()
    done = zygote.run(argv, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s)
    _idle.append(zygote)  # one that answered incorrectly is not used again
    return done


def spawn(
    argv: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: Path,
    stdin: str = os.devnull,
    out: str = "",
) -> "Spawned":
    """Start a command that keeps running; its output goes to `out` if that is not the file for errors."""
    return Spawned(_idle_one(), argv, cwd, env, (stdin, out or str(output), str(output)))


def _idle_one() -> "_Zygote":
    try:
        return _idle.pop()
    except IndexError:
        _all.append(_Zygote())
        return _all[-1]


class Spawned:
    """A running command; its zygote does nothing else in the meantime."""

    def __init__(
        self,
        zygote: "_Zygote",
        argv: list[str],
        cwd: Path,
        env: Mapping[str, str],
        files: tuple[str, str, str],
    ) -> None:
        self._zygote = zygote
        self._code: int | None = None
        names = dict(zip(("in", "out", "err"), files, strict=True))
        self.pid = zygote.begin({"argv": argv, "cwd": str(cwd), "env": dict(env), **names})

    def wait(self, timeout_s: float) -> int:
        """Its exit code; TimeoutError while it is still running."""
        if self._code is None:
            self._code = self._zygote.answer(timeout_s)
            _idle.append(self._zygote)
        return self._code


class _Zygote:
    """The process that forks; it exits with the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zygote"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # or an answer could wait in a buffer that select does not see
        )
        atexit.register(self._end)

    def _end(self) -> None:
        """It exits when no client is left; its forks keep running."""
        with self._process as ended:
            ended.kill()

    def run(
        self, argv: list[str], *, cwd: Path, env: Mapping[str, str], stdin: str | None, timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        with _memory(stdin or "") as given, _memory() as out, _memory() as err:
            request = {
                "argv": argv,
                "cwd": str(cwd),
                "env": dict(env or os.environ),
                "in": os.devnull if stdin is None else str(given),
                "out": str(out),
                "err": str(err),
            }
            pid = self.begin(request)
            try:
                code = self.answer(timeout_s)
            except TimeoutError as error:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["llmc", *argv], timeout_s, _text(out), _text(err)) from error
            return subprocess.CompletedProcess(argv, code, _text(out), _text(err))

    def begin(self, request: dict[str, Any]) -> int:
        """The pid of the process that becomes llmc."""
        assert self._process.stdin is not None
        rest = memoryview(json.dumps(request).encode() + b"\n")
        while rest:
            rest = rest[self._process.stdin.write(rest) :]
        return self.answer(60)

    def answer(self, timeout_s: float) -> int:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def _memory(text: str = "") -> Iterator[Path]:
    """A file for one command, not on disk."""
    with open(os.memfd_create("llmc-run"), "wb") as file:
        file.write(text.encode())
        file.flush()
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "backslashreplace")


def _serve() -> None:
    """One request per line; answered with the child's pid, then with its exit code."""
    _import_everything()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # most commands end before there is garbage to collect
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_llmc(request)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _import_everything() -> None:
    """What commands import immediately, what they import late, and what each creates: templates and types."""
    from llmc.cli.app import load
    from llmc.cli.commands import COMMANDS

    late = (
        "llmc.config.edit",
        "llmc.config.schema",
        "llmc.daemon.chores",
        "difflib",
        "tomlkit",
        "sqlite3",
    )
    for command in COMMANDS:
        load(command)
    for name in late:
        importlib.import_module(name)
    from llmc.config.load import check_text
    from llmc.config.schema import initial_text
    from llmc.landing.prompts import _templates
    from llmc.records.state import State

    check_text(initial_text("/source", "main", "scripted"), "config.toml")
    msgspec.convert({}, State)
    for template in _templates().list_templates():
        _templates().get_template(template)


def _become_llmc(request: dict[str, Any]) -> NoReturn:
    """Whatever happens, the child must not continue as the process that forks."""
    code = 99
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for fd, file in enumerate(
            (
                os.open(request["in"], os.O_RDONLY),
                os.open(request["out"], flags),
                os.open(request["err"], flags),
            )
        ):
            os.dup2(file, fd)
            os.close(file)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8", errors="surrogateescape")
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8", errors="backslashreplace")
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["llmc", *request["argv"]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if COLD not in os.environ:
            proc.spawn_detached = _fork_detached
        from llmc.__main__ import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Forked:
    """What `up --detach` needs to know about the daemon that it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._code = 1
        return self._code


def _fork_detached(argv: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> Any:
    """Like proc.spawn_detached, for llmc itself: its own session, none of our files, its output in a file."""
    assert list(argv[:3]) == [sys.executable, "-m", "llmc"], argv
    pid = os.fork()
    if pid:
        return _Forked(pid)
    os.setsid()
    os.closerange(3, 1024)
    output.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(output, os.O_CREAT | os.O_WRONLY, 0o600))
    _become_llmc(
        {
            "argv": list(argv[3:]),
            "cwd": "/",
            "env": dict(env or os.environ),
            "in": os.devnull,
            "out": str(output),
            "err": str(output),
        }
    )


if __name__ == "__main__":
    _serve()
