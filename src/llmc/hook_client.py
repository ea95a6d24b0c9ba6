"""The hook sender: what the agent runs on a hook. Silent, always exit 0, bounded, and as light as Python gets.

    python -I -S hook_client.py <inbox directory of the worker> <wake-up socket> [<event name> [<pane>]]

Run by absolute path and without `site`: only built-in modules (and `_socket`) may be imported here, so it costs
little more than the interpreter. The event is one file, complete when it has its name: temp, fsync, rename.
The payload is kept as it came; whoever reads the inbox parses it. Then the daemon, if any, is woken.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys
import time

LIMIT_S = 3
MAX_BYTES = 8 * 1024 * 1024


def read_payload() -> bytes:
    chunks = []
    size = 0
    while size < MAX_BYTES:
        chunk = posix.read(0, 65536)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def plain(value: bytes) -> bytes:
    """A mark or name, reduced to characters that need no escaping in JSON."""
    return bytes(
        c for c in value if c in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
    )


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
        posix.fsync(fd)
        posix.close(fd)
        posix.rename(temp, inbox + "/" + name)
    except OSError:
        posix.unlink(temp)  # the disk is full: what is left here would keep it so
        raise


def wake(path: str, worker: bytes) -> None:
    import _socket

    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.sendto(worker, path)


def main() -> None:
    _signal.signal(_signal.SIGALRM, lambda *_: posix._exit(0))
    _signal.alarm(LIMIT_S)
    name = f"{time.time_ns()}-{posix.getpid()}.json"
    inbox, socket_path = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        payload = b'{"hook_event_name":"' + sys.argv[3].encode() + b'"'
        if len(sys.argv) > 4:  # of which pane
            payload += b',"pane":"%' + plain(sys.argv[4].encode()) + b'"'
        payload += b"}"
    else:
        payload = read_payload() or b"null"
    own_name = inbox.rpartition("/")[2].encode("utf-8", "replace")
    worker = plain(posix.environ.get(b"LLMC_WORKER") or own_name)
    instance = plain(posix.environ.get(b"LLMC_INSTANCE", b""))
    head = b'{"worker":"' + worker + b'","instance":"' + instance + b'","payload":'
    store(inbox, name, head + payload + b"}")
    wake(socket_path, worker)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        pass
    posix._exit(0)
