"""Child processes: hooks, tool commands, background shells."""

import os
import select
import signal
import subprocess
import threading
from typing import IO

from llmc.agents.scripted.session import Session

TERM_GRACE_S = 1.0
PIPE_BYTES = 65536


def child_env(session: Session) -> dict[str, str]:
    """What the client adds for everything it starts."""
    return {
        **os.environ,
        "CLAUDECODE": "1",
        "CLAUDE_CODE_CHILD_SESSION": "1",
        "CLAUDE_CODE_SESSION_ID": session.id,
        "CLAUDE_CODE_ENTRYPOINT": "cli",
    }


def spawn(
    command: str, cwd: str, env: dict[str, str], stdin: int | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """`sh -c` in a session of its own, so that it can be ended with all it started."""
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=cwd if os.path.isdir(cwd) else None,
        env=env,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.DEVNULL if output is None else output,
        stderr=subprocess.DEVNULL if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def pipe_with(data: bytes) -> int:
    """A pipe to read `data` from; nobody waits for a reader that does not read."""
    reader, writer = os.pipe()
    if len(data) <= PIPE_BYTES:
        _write_all(writer, data)
    else:
        threading.Thread(target=_write_all, args=(writer, data), daemon=True).start()
    return reader


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        pass  # the reader left early
    finally:
        os.close(fd)


def wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code, or None after the timeout. Popen.wait polls; a pidfd does not."""
    if not hasattr(os, "pidfd_open"):
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
    try:
        fd = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return child.wait()
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return None
    finally:
        os.close(fd)
    return child.wait()


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started."""
    signal_group(child, signal.SIGTERM)
    wait(child, TERM_GRACE_S)
    kill(child)
    child.wait()


def end_soon(child: subprocess.Popen[bytes]) -> None:
    """Like `end`, for a child that another thread waits for."""
    signal_group(child, signal.SIGTERM)
    timer = threading.Timer(TERM_GRACE_S, kill, (child,))
    timer.daemon = True
    timer.start()


def kill(child: subprocess.Popen[bytes]) -> None:
    """End the whole group now."""
    signal_group(child, signal.SIGKILL)
