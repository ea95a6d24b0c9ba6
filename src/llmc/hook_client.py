"""The hook sender, which the agent runs on a hook. Silent, fast, with a time limit, and always exits with 0.

    python -I -S hook_client.py <inbox directory of the worker> <wake-up socket> [<event name> [<pane>]]

The agent is the outermost ancestor process with the marks of a launch; variables set by programs below it are ignored.

Runs by absolute path and without `site`, and imports only built-in modules and `_socket`, so that it costs little more
than the interpreter. Writes the event to a file (temp, fsync, rename) with its payload unchanged, and wakes the daemon.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys
import time

LIMIT_S = 3
MAX_BYTES = 8 * 1024 * 1024

#: environment variables that mark a launch
MARKS = (b"LLMC_WORKER", b"LLMC_INSTANCE", b"LLMC_ROOT", b"LLMC_INBOX", b"LLMC_WAKE")
#: avoid what only Linux has (docs/architecture.md)
PORTABLE = sys.platform != "linux" or bool(posix.environ.get(b"LLMC_PORTABLE"))
#: a process: pid, parent, session, terminal (0: none), start in ticks, name, marks
Kin = tuple[int, int, int, int, int, bytes, dict[bytes, bytes]]


def read_all(fd: int) -> bytes:
    chunks = []
    size = 0
    while size < MAX_BYTES:
        chunk = posix.read(fd, 65536)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def read_file(path: str) -> bytes:
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return read_all(fd)
    finally:
        posix.close(fd)


def lineage(pid: int) -> list[Kin]:
    """A process and its ancestors, nearest first; empty without /proc."""
    found: list[Kin] = []
    for _ in range(0 if PORTABLE else 5):  # retry if a parent exits while we look
        found = _walk(pid)
        if found and found[-1][1] == 0:
            break
    return found


def _walk(pid: int) -> list[Kin]:
    found: list[Kin] = []
    while pid > 0:
        try:
            name, _, rest = read_file(f"/proc/{pid}/stat").rpartition(b")")
        except OSError:
            break  # gone, or hidden from us
        fields = rest.split()
        parent, session, terminal, started = (int(fields[index]) for index in (1, 3, 4, 19))
        if found and started > found[-1][4]:
            break  # the parent exited and its pid was reused
        found.append((pid, parent, session, terminal, started, name.partition(b"(")[2], marks_of(pid)))
        pid = parent
    return found


def marks_of(pid: int) -> dict[bytes, bytes]:
    """The marks that a process was started with; empty if it cannot be read."""
    try:
        pairs = (entry.partition(b"=") for entry in read_file(f"/proc/{pid}/environ").split(b"\0"))
        return {name: value for name, _, value in pairs if name in MARKS and value}
    except OSError:
        return {}


def marks_of_agent() -> dict[bytes, bytes]:
    """The marks of the launch that we run in, else our own variables."""
    found = {name: posix.environ[name] for name in MARKS if posix.environ.get(name)}
    for *_, marks in lineage(posix.getppid()):
        if b"LLMC_INSTANCE" in marks:
            found = marks
    return found


def plain(value: bytes) -> bytes:
    """A mark or name, reduced to characters that need no escaping in JSON."""
    return bytes(
        c for c in value if c in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
    )


#: the temporary and the final name of the event, once all of it is written
written: list[str] = []


def store(inbox: str, name: str, data: bytes) -> None:
    temp = inbox + "/.tmp-" + name
    try:
        fd = posix.open(temp, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        posix.mkdir(inbox, 0o700)
        fd = posix.open(temp, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[posix.write(fd, data) :]
        written[:] = temp, inbox + "/" + name
        posix.fsync(fd)
        posix.close(fd)
        posix.rename(*written)
    except OSError:
        posix.unlink(temp)  # do not leave it on a full disk
        raise


def name_it() -> None:
    try:
        posix.rename(*written)
    except FileNotFoundError:
        pass  # it has its name


def wake(path: str, worker: bytes) -> None:
    import _socket

    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.sendto(worker, path)


def main() -> None:
    def give_up(*_: object) -> None:
        """Time is up. A written event still gets its name, or a slow disk would lose it."""
        try:
            if written:
                name_it()
                wake(socket_path, worker)
        finally:
            posix._exit(0)

    _signal.signal(_signal.SIGALRM, give_up)
    _signal.alarm(LIMIT_S)
    name = f"{time.time_ns()}-{posix.getpid()}.json"
    inbox, socket_path = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        payload = b'{"hook_event_name":"' + sys.argv[3].encode() + b'"'
        if len(sys.argv) > 4:  # of which pane
            payload += b',"pane":"%' + plain(sys.argv[4].encode()) + b'"'
        payload += b"}"
    else:
        payload = read_all(0) or b"null"
    own_name = inbox.rpartition("/")[2].encode("utf-8", "replace")
    marks = marks_of_agent()
    worker = plain(marks.get(b"LLMC_WORKER") or own_name)
    instance = plain(marks.get(b"LLMC_INSTANCE", b""))
    head = b'{"worker":"' + worker + b'","instance":"' + instance + b'","payload":'
    store(inbox, name, head + payload + b"}")
    wake(socket_path, worker)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        pass
    posix._exit(0)
