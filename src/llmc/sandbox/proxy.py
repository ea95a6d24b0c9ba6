"""The only way out of a box: a proxy that connects to listed hosts, refuses all others, and counts the refusals.

    python -P -S -m llmc.sandbox.proxy <orders>

The holder (launch.py) starts it outside, with the sockets that listen inside, and it ends with the holder. It accepts
HTTP CONNECT and plain http requests. A listed port of this machine has a socket of its own inside, whose data is passed
on unchanged, so that any program can use it.

reaching.py decides which hosts are allowed, and how they are reached.
"""

import json
import os
import re
import socket
import sys
import threading
import time
from typing import NamedTuple

from llmc.base.hosts import Host, host_of
from llmc.sandbox.reaching import (
    CHUNK_BYTES,
    HEAD_S,
    Failed,
    ListFile,
    Refused,
    Upstream,
    connect,
    read_head,
    upstream_of,
)

#: connections at a time; others wait until one ends
MOST_CONNECTIONS = 256
#: a connection without a byte for this long is closed
IDLE_S = 3600.0
#: how long a client that was refused may go on sending
LINGER_S = 2.0
#: hosts that are counted by name; an agent may try any number
MOST_REFUSED = 100
OTHERS = "other hosts"
#: how often repeated tries of known hosts are written
WRITE_EVERY_S = 1.0

#: nothing that a server could read as the end of a line, or as another header
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]")
_HEADER = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*")
#: headers about the connection between client and proxy
_OF_CONNECTION = (b"connection", b"host", b"keep-alive", b"te", b"upgrade")


class Refusals:
    """Counts refusals in a file that llmc reads: a new host is written at once, repeated tries every WRITE_EVERY_S."""

    def __init__(self, path: str, wake: str, worker: str) -> None:
        self._path, self._wake, self._worker = path, wake, worker
        self._rows: dict[str, dict[str, str | int]] = {}
        self._lock, self._counted = threading.Lock(), threading.Event()
        threading.Thread(target=self._write_counts, daemon=True).start()

    def add(self, refused: Refused) -> None:
        with self._lock:
            row = {"host": refused.place, "why": refused.why, "allow": refused.allow}
            if refused.place not in self._rows and len(self._rows) >= MOST_REFUSED:
                row = {"host": OTHERS, "why": "too many to list", "allow": ""}
            is_new = row["host"] not in self._rows
            counted = self._rows.setdefault(row["host"], {**row, "tries": 0})
            counted["tries"] = int(counted["tries"]) + 1
            if is_new:
                self._write()
                self._tell()
        self._counted.set()

    def _write_counts(self) -> None:
        while self._counted.wait():
            self._counted.clear()
            time.sleep(WRITE_EVERY_S)
            with self._lock:
                self._write()

    def _write(self) -> None:
        try:
            with open(f"{self._path}.new", "w") as file:
                json.dump(list(self._rows.values()), file)
            os.rename(f"{self._path}.new", self._path)
        except OSError:
            pass  # the disk is full; the next one tries again

    def _tell(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(self._worker.encode(), self._wake)
            except OSError:
                pass  # no daemon: the next one reads the file


class Request(NamedTuple):
    """What a client asks for: a connection, or one request to pass on."""

    host: str
    port: int
    #: the head of a plain request, as the server gets it; b"" for CONNECT
    head: bytes = b""


def read_request(head: bytes) -> Request:
    """Parse the head that a client sent, without the empty line at its end; raises Failed."""
    first, *headers = head.split(b"\r\n")
    if not _REQUEST_LINE.fullmatch(first):
        raise Failed("400 Bad Request", "not an HTTP request")
    if not all(map(_HEADER.fullmatch, headers)):
        raise Failed("400 Bad Request", "a header is not valid")
    method, target, version = first.split(b" ")
    if method == b"CONNECT":
        return Request(*_place(target, 0))
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() != b"http":
        raise Failed("400 Bad Request", "this proxy accepts only CONNECT requests and http:// URLs")
    place = re.split(rb"[/?#]", rest, maxsplit=1)[0]
    path = rest.removeprefix(place)
    host, port = _place(place, 80)
    kept = [line for line in headers if not _is_of_connection(line)]
    lines = [b" ".join((method, path if path.startswith(b"/") else b"/" + path, version))]
    lines += [b"Host: " + place, b"Connection: close", *kept]
    return Request(host, port, b"\r\n".join(lines) + b"\r\n\r\n")


def _place(text: bytes, port: int) -> tuple[str, int]:
    """Host and port. `port` is the default; 0 if the text must name one."""
    try:
        written = text.decode("ascii")
        found = host_of(written)
    except ValueError:
        raise Failed("400 Bad Request", "the host is not valid") from None
    has_port = len(found.ports) == 1
    if "*" in found.name or not (has_port or port):
        raise Failed("400 Bad Request", "the host is not valid, or has no port")
    return found.name, found.ports[0] if has_port else port


def _is_of_connection(header: bytes) -> bool:
    name = header.partition(b":")[0].lower()
    return name in _OF_CONNECTION or name.startswith(b"proxy-")


class Proxy:
    """Serves the sockets that listen inside."""

    def __init__(self, list_file: ListFile, refusals: Refusals, upstream: Upstream | None) -> None:
        self._list_file, self._refusals, self._upstream = list_file, refusals, upstream
        self._free = threading.Semaphore(MOST_CONNECTIONS)

    def serve(self, listener: socket.socket, target: Host | None) -> None:
        """Serve each connection in its own thread. `target`: where all of them go; None: each request says where."""
        while True:
            self._free.acquire()
            try:
                client, _ = listener.accept()
            except OSError:  # the client has gone, or there are too many open files
                self._pause()
                continue
            try:
                threading.Thread(target=self._handle, args=(client, target), daemon=True).start()
            except RuntimeError:  # there are too many processes, or there is too little memory
                client.close()
                self._pause()

    def _pause(self) -> None:
        """Free the place of a connection that cannot be served, and wait a moment."""
        self._free.release()
        time.sleep(0.1)

    def _handle(self, client: socket.socket, target: Host | None) -> None:
        try:
            with client:
                if target is not None:
                    self._join(client, self._connect(target.name, target.ports[0]))
                else:
                    self._serve_request(client)
        except Refused as refused:  # a port that was listed when the program started
            self._refusals.add(refused)
        except (OSError, Failed, RuntimeError):
            pass  # one of the two ends has gone, nothing listens there, or no thread can start for the other direction
        finally:
            self._free.release()

    def _serve_request(self, client: socket.socket) -> None:
        try:
            head, rest = read_head(client)
            request = read_request(head)
            self._list_file.current().check(request.host, request.port)
            server = self._connect(request.host, request.port)
        except Refused as refused:
            self._refusals.add(refused)
            how = f"To allow it, the user must add {refused.allow} to sandbox.hosts in llmc's configuration."
            _answer(client, "403 Forbidden", f"llmc refuses {refused.place}: {refused.why}. {how}")
        except Failed as failed:
            _answer(client, failed.status, f"llmc: {failed}")
        except OSError as error:
            _answer(client, "502 Bad Gateway", f"llmc: cannot connect: {error}")
        else:
            self._join(client, server, request.head + rest, answers=not request.head)

    def _connect(self, host: str, port: int) -> socket.socket:
        return connect(self._list_file.current(), host, port, self._upstream)

    def _join(
        self, client: socket.socket, server: socket.socket, first: bytes = b"", *, answers: bool = False
    ) -> None:
        """Pass data in both directions until both end. `answers`: tell the client that it is connected."""
        with server:
            for end in (client, server):
                end.settimeout(IDLE_S)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if answers:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            joint = Joint()
            back = threading.Thread(target=joint.pump, args=(server, client), daemon=True)
            back.start()
            joint.pump(client, server, first)
            back.join()


def _answer(client: socket.socket, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    about = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    client.settimeout(HEAD_S)
    client.sendall(f"{about}Connection: close\r\n\r\n".encode() + body)
    client.shutdown(socket.SHUT_WR)
    # A connection that is closed with unread data is reset, and the answer may be lost.
    until = time.monotonic() + LINGER_S
    while (left := until - time.monotonic()) > 0:
        client.settimeout(left)
        if not client.recv(CHUNK_BYTES):
            return


class Joint:
    """Two connections whose data is passed on to each other."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def pump(self, source: socket.socket, target: socket.socket, data: bytes = b"") -> None:
        """Copy until the source ends, then close that direction: the target may still answer. A failure closes both."""
        try:
            if data:
                target.sendall(data)
            while data := self._next(source):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended already

    def _next(self, source: socket.socket) -> bytes:
        while True:
            try:
                data = source.recv(CHUNK_BYTES)
            except TimeoutError:
                if time.monotonic() - self._last < IDLE_S:
                    continue  # the other direction is in use
                raise
            self._last = time.monotonic()
            return data


def main() -> None:
    orders = json.loads(sys.argv[1])
    refusals = Refusals(orders["refused"], orders["wake"], orders["worker"])
    proxy = Proxy(ListFile(orders["listed"]), refusals, upstream_of(os.environ))
    serving = [
        threading.Thread(
            target=proxy.serve,
            args=(socket.socket(fileno=fd), host_of(target) if target else None),
            daemon=True,  # if one cannot start, the proxy ends, and the holder starts another
        )
        for fd, target in orders["listeners"]
    ]
    for one in serving:
        one.start()
    for one in serving:
        one.join()


if __name__ == "__main__":
    main()
