"""The proxy of a contained program, as the holder starts it: what it passes on; odd clients and servers."""

import json
import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from llmc.base.hosts import host_of
from llmc.sandbox import proxy, reaching
from llmc.sandbox.network import Network, for_holder, write_list
from tests.support.waiting import wait_until

MEGABYTE = 1 << 20


class Side:
    """A running proxy, its clients' side, and its files."""

    def __init__(self, place: Path, target: str) -> None:
        """`target`: a host and port with their own socket."""
        self.target = target
        self.wake = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.wake.bind(str(place / "wake"))
        self.network = Network(
            hosts=(), endpoints=(), files=str(place / "adam"), wake=str(place / "wake"), worker="adam"
        )
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(2)]
        self.address, self.direct = (one.getsockname() for one in self._listeners)
        given: dict[str, Any] = for_holder(self.network)
        fds = [one.fileno() for one in self._listeners]
        orders = {**given["orders"], "listeners": [[fds[0], ""], [fds[1], target]]}
        self.process = subprocess.Popen(
            [*given["proxy"], json.dumps(orders)], env={**os.environ, **given["proxy_env"]}, pass_fds=fds
        )
        self._clients: list[socket.socket] = []

    def allow(self, *hosts: str) -> None:
        write_list(Network(hosts=hosts, endpoints=(), files=self.network.files))

    def ask(self, request: bytes, *, address: tuple[str, int] | None = None) -> socket.socket:
        client = socket.create_connection(address or self.address, timeout=20)
        self._clients.append(client)
        client.sendall(request)
        return client

    def tunnel(self, port: int, host: str = "127.0.0.1") -> socket.socket:
        client = self.ask(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
        return client

    def refused(self) -> dict[str, int]:
        try:
            rows = json.loads(Path(f"{self.network.files}.refused").read_bytes())
        except FileNotFoundError:
            return {}
        return {row["host"]: row["tries"] for row in rows}

    def rest(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()

    def close(self) -> None:
        self.rest()
        self.process.kill()
        self.process.wait(20)
        for listener in (*self._listeners, self.wake):
            listener.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with server(echo) as port:
        made = Side(tmp_path_factory.mktemp("proxy"), f"127.0.0.1:{port}")
        yield made
        made.close()


@pytest.fixture
def side(shared: Side) -> Iterator[Side]:
    yield shared
    shared.rest()


@contextmanager
def server(handle: Callable[[socket.socket], object], *, six: bool = False) -> Iterator[int]:
    """A server on loopback; each connection is handled in its own thread."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):
                handle(self.request)

    class Server(socketserver.ThreadingTCPServer):
        address_family = socket.AF_INET6 if six else socket.AF_INET
        daemon_threads = True
        request_queue_size = 128

    with Server(("::1" if six else "127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


def echo(client: socket.socket) -> None:
    while data := client.recv(65536):
        client.sendall(data)


def count(client: socket.socket) -> None:
    """Answers when the client has sent everything."""
    client.sendall(str(len(read_all(client))).encode())


def read_head(client: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        chunk = client.recv(1)
        assert chunk, data
        data += chunk
    return data


def read_all(client: socket.socket) -> bytes:
    chunks = []
    while chunk := client.recv(65536):
        chunks.append(chunk)
    return b"".join(chunks)


def test_what_is_not_listed_is_refused_and_counted(side: Side) -> None:
    """Break: no `check` in `_serve_request`."""
    with server(echo) as listed, server(echo) as other:
        side.allow(f"127.0.0.1:{listed}")
        requests = [f"CONNECT 127.0.0.1:{other} HTTP/1.1", f"GET http://127.0.0.1:{other}/ HTTP/1.1"]
        for request in (*requests, "CONNECT evil.example:443 HTTP/1.1"):
            said = read_all(side.ask(f"{request}\r\n\r\n".encode())).decode()
            assert said.startswith("HTTP/1.1 403 ")
            assert "to sandbox.hosts" in said
        wait_until(lambda: side.refused().get("evil.example:443") == 1)
        assert side.refused()[f"127.0.0.1:{other}"] == 2


def test_the_daemon_is_woken_once_for_each_host(side: Side) -> None:
    """Break: no `_tell` in `add`: refusals show up at the next patrol; or one per try: an agent floods it."""
    side.allow()
    side.wake.setblocking(False)
    with suppress(BlockingIOError):
        while side.wake.recv(100):
            pass
    for host in ("once.example", "once.example", "twice.example"):
        read_all(side.ask(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode()))
    assert [side.wake.recv(100) for _ in range(2)] == [b"adam", b"adam"]
    with pytest.raises(BlockingIOError):
        side.wake.recv(100)


def test_a_client_that_still_sends_gets_the_answer(side: Side) -> None:
    """Break: close immediately: the connection is reset, and the answer is lost."""
    side.allow()
    client = side.ask(b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n")
    for _ in range(8):
        client.sendall(b"x" * MEGABYTE)
    assert b" 403 " in read_all(client)


def test_the_list_can_change_while_it_runs(side: Side) -> None:
    with server(echo) as port:
        side.allow()
        assert b" 403 " in read_all(side.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()))
        side.allow(f"127.0.0.1:{port}")
        side.tunnel(port)
        Path(f"{side.network.files}.hosts").write_text("{")  # an unreadable one changes nothing
        side.tunnel(port)


def test_a_half_closed_connection_still_answers(side: Side) -> None:
    """Break: end both directions when one has ended."""
    with server(count) as port:
        side.allow(f"127.0.0.1:{port}")
        client = side.tunnel(port)
        client.sendall(b"x" * 12345)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"12345"


def test_a_big_upload_and_a_big_answer(side: Side) -> None:
    with server(count) as port:
        side.allow(f"127.0.0.1:{port}")
        client = side.tunnel(port)
        for _ in range(8):
            client.sendall(b"x" * MEGABYTE)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == str(8 * MEGABYTE).encode()
    with server(lambda one: one.sendall(b"y" * 8 * MEGABYTE)) as port:
        side.allow(f"127.0.0.1:{port}")
        assert len(read_all(side.tunnel(port))) == 8 * MEGABYTE


def test_an_answer_comes_as_it_is_sent(side: Side) -> None:
    """A stream's event is not held back until the next one."""
    go_on = threading.Event()

    def stream(client: socket.socket) -> None:
        read_head(client)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        client.sendall(b"data: 1\n\n")
        go_on.wait(20)
        client.sendall(b"data: 2\n\n")

    with server(stream) as port:
        side.allow(f"127.0.0.1:{port}")
        client = side.ask(f"GET http://127.0.0.1:{port}/events HTTP/1.1\r\n\r\n".encode())
        read_head(client)
        assert client.recv(9, socket.MSG_WAITALL) == b"data: 1\n\n"
        go_on.set()
        assert read_all(client) == b"data: 2\n\n"


def test_a_plain_request_with_a_body(side: Side) -> None:
    seen: list[bytes] = []

    def take(client: socket.socket) -> None:
        seen.append(read_head(client) + client.recv(4, socket.MSG_WAITALL))
        client.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    with server(take) as port:
        side.allow(f"127.0.0.1:{port}")
        head = f"POST http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: evil\r\nContent-Length: 4\r\n\r\n"
        assert read_all(side.ask(head.encode() + b"body")).startswith(b"HTTP/1.1 204")
    wanted = (
        f"POST /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
    )
    assert seen == [wanted.encode()]


@pytest.mark.soak
def test_more_connections_than_there_may_be_wait(side: Side) -> None:
    """Break: count a connection as closed too early."""
    with server(echo) as port:
        side.allow(f"127.0.0.1:{port}")
        clients = [side.tunnel(port) for _ in range(proxy.MOST_CONNECTIONS - 2)]  # two wait to be accepted
        for number, client in enumerate(clients):
            client.sendall(b"%3d" % number)
        for number, client in enumerate(clients):
            assert client.recv(3, socket.MSG_WAITALL) == b"%3d" % number
        waiting = [side.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()) for _ in range(8)]
        waiting[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting[-1].recv(1)
        for client in clients:
            client.close()
        for client in waiting:
            client.settimeout(20)
            assert read_head(client).startswith(b"HTTP/1.1 200 ")


class Dripping:
    """A client that sends a byte each second, by its own clock."""

    now_s = left_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def settimeout(self, seconds: float) -> None:
        self.left_s = seconds

    def recv(self, _: int) -> bytes:
        if self.left_s < 1:
            raise TimeoutError
        self.now_s += 1
        return b"x"

    def sendall(self, _: bytes) -> None:
        pass

    def shutdown(self, _: int) -> None:
        pass


def test_a_slow_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: restart the time limit for each part: an occasional byte would keep a place forever."""
    client: Any = Dripping()
    monkeypatch.setattr(reaching, "time", client)
    with pytest.raises(reaching.Failed) as failed:
        reaching.read_head(client)
    assert failed.value.status.startswith("408")
    assert client.now_s == reaching.HEAD_S


def test_a_refused_client_cannot_go_on_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: restart the time limit for each part in `_answer`."""
    client: Any = Dripping()
    monkeypatch.setattr(proxy, "time", client)
    proxy._answer(client, "403 Forbidden", "no")
    assert client.now_s == proxy.LINGER_S


def test_a_connection_without_a_byte_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Break: no `settimeout` in `_join`: open connections would take all places."""
    monkeypatch.setattr(proxy, "IDLE_S", 0.2)
    refusals: Any = None
    with server(echo) as port, socket.create_server(("127.0.0.1", 0)) as listener:
        write_list(Network(hosts=(f"127.0.0.1:{port}",), endpoints=(), files=str(tmp_path / "adam")))
        made = proxy.Proxy(reaching.ListFile(str(tmp_path / "adam.hosts")), refusals, None)
        with socket.create_connection(listener.getsockname(), timeout=20) as client:
            made._handle(listener.accept()[0], host_of(f"127.0.0.1:{port}"))
            assert client.recv(1) == b""


class Silent:
    """A side that sends nothing, by its own clock: each wait takes this long, and ends with a given call."""

    def __init__(self, clock: Dripping, *waits: tuple[float, Callable[[], object]]) -> None:
        self.clock, self.waits, self.is_shut = clock, [*waits], False

    def recv(self, _: int) -> bytes:
        seconds, act = self.waits.pop(0)
        self.clock.now_s += seconds
        act()
        raise TimeoutError

    def shutdown(self, _: int) -> None:
        self.is_shut = True


def test_a_connection_that_is_used_one_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a model thinks. Break: end after a wait even if the other direction is in use."""
    clock = Dripping()
    monkeypatch.setattr(proxy, "time", clock)
    joint = proxy.Joint()

    def other_way() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b"x")
            ours.shutdown(socket.SHUT_WR)
            joint.pump(theirs, theirs)

    half = proxy.IDLE_S / 2
    side: Any = Silent(clock, (half, other_way), (half, lambda: None), (proxy.IDLE_S, lambda: None))
    joint.pump(side, side)
    assert side.is_shut
    assert side.waits == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 this is TLS\r\n\r\n", b"400"),
        (b"CONNECT 127.1:80 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\n" + b"x" * (reaching.MOST_HEAD_BYTES + 1), b"431"),
    ],
)
def test_a_bad_request_is_answered(side: Side, sent: bytes, status: bytes) -> None:
    side.allow()
    before = side.refused()
    assert side.ask(sent).recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 " + status
    assert side.refused() == before


def test_a_server_that_is_not_there(side: Side) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    side.allow(f"127.0.0.1:{port}", "no-such-host.invalid")
    for place in (f"127.0.0.1:{port}", "no-such-host.invalid:443"):
        said = read_all(side.ask(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode()))
        assert said.startswith(b"HTTP/1.1 502 "), said


def test_what_goes_wrong_before_a_connection_is_answered(tmp_path: Path) -> None:
    """Whatever it is: here the user's own proxy hangs up. Break: answer only `Failed`: the agent sees no reason."""
    refusals: Any = None
    with server(lambda one: one.close()) as port, socket.create_server(("127.0.0.1", 0)) as listener:
        write_list(Network(hosts=("a.example",), endpoints=(), files=str(tmp_path / "adam")))
        by = reaching.Upstream("127.0.0.1", port)
        made = proxy.Proxy(reaching.ListFile(str(tmp_path / "adam.hosts")), refusals, by)
        with socket.create_connection(listener.getsockname(), timeout=20) as client:
            client.sendall(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            made._handle(listener.accept()[0], None)
            assert read_all(client).startswith(b"HTTP/1.1 502 ")


def test_a_client_that_is_gone_ends_its_connection(side: Side) -> None:
    """Even to a server that waits for it. Break: no `shutdown` after a failure in `pump`."""
    ended = threading.Event()

    def wait(client: socket.socket) -> None:
        read_all(client)
        ended.set()

    with server(wait) as port:
        side.allow(f"127.0.0.1:{port}")
        client = side.tunnel(port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))  # reset, as by a crash
        client.close()
        assert ended.wait(20)


def test_a_listed_name_that_leads_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if only one of its addresses does, or a second answer would. Break: connect to the name again."""
    answers: list[tuple[str, ...]] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with server(echo) as port:
        name = f"rebound.example:{port}"
        for addresses in (("127.0.0.1",), ("93.184.216.34", "127.0.0.1")):
            answers[:] = [addresses]
            with pytest.raises(reaching.Refused) as refused:
                reaching.connect(reaching.Listed((host_of(name),)), "rebound.example", port)
            assert refused.value.allow == f"127.0.0.1:{port}"
        answers[:] = [("127.0.0.1",)]
        listed = reaching.Listed((host_of(name), host_of(f"127.0.0.1:{port}")))
        reaching.connect(listed, "rebound.example", port).close()
    assert answers == []


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: stop at the first address that does not answer: a host with IPv6 would need an IPv6 network."""
    with server(echo) as port:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{one}", port)) for one in (2, 1)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        hosts = [host_of(f"{name}:{port}") for name in ("two.example", "127.0.0.1", "127.0.0.2")]
        with reaching.connect(reaching.Listed(hosts), "two.example", port) as made:
            made.sendall(b"x")
            assert made.recv(1) == b"x"


def test_an_address_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no `settimeout` in `_dial`: the kernel takes minutes."""
    monkeypatch.setattr(reaching, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as open_ones:
        for _ in range(4):  # the next one waits
            one = open_ones.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        with pytest.raises(reaching.Failed, match="timed out"):
            reaching.connect(reaching.Listed((host_of(f"127.0.0.1:{port}"),)), "127.0.0.1", port)


def test_the_proxy_that_a_user_needs_is_used() -> None:
    """Break: connect directly: on such a network nothing would answer.
    Or lose data that comes with the answer (early).
    """
    seen: list[bytes] = []
    answers = {
        "good": b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n",
        "bad": b"HTTP/1.1 407 No\r\n\r\n",
        "early": b"HTTP/1.1 200 OK\r\n\r\nfirst words",
        "odd": b"SSH-2.0 200 OK\r\n\r\n",
    }

    def upstream(client: socket.socket) -> None:
        seen.append(read_head(client))
        name = seen[-1].split()[1].partition(b".")[0].decode()
        client.sendall(answers[name])
        echo(client)

    with server(upstream) as port:
        by = reaching.Upstream("127.0.0.1", port, "Proxy-Authorization: Basic x\r\n")
        listed = reaching.Listed((host_of("*.example"),))
        with reaching.connect(listed, "good.example", 443, by) as found:
            found.sendall(b"through")
            assert found.recv(7, socket.MSG_WAITALL) == b"through"
        for name in ("bad", "early", "odd"):
            with pytest.raises(reaching.Failed, match="answered: "):
                reaching.connect(listed, f"{name}.example", 443, by)
    wanted = (
        "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\nProxy-Authorization: Basic x\r\n\r\n"
    )
    assert seen[0].decode() == wanted


def test_ipv6(side: Side) -> None:
    with server(echo, six=True) as port:
        side.allow(f"[::1]:{port}")
        client = side.tunnel(port, "[::1]")
        client.sendall(b"six")
        assert client.recv(3, socket.MSG_WAITALL) == b"six"


def test_a_port_that_is_passed_on_as_it_is(side: Side) -> None:
    """While it is listed."""
    side.allow(side.target)
    client = side.ask(b"no HTTP", address=side.direct)
    assert client.recv(7, socket.MSG_WAITALL) == b"no HTTP"
    side.allow()
    assert side.ask(b"", address=side.direct).recv(1) == b""
    wait_until(lambda: side.refused().get(side.target) == 1)


@pytest.mark.soak
def test_any_number_of_hosts_is_counted_in_little_room(side: Side) -> None:
    side.allow()
    for number in range(proxy.MOST_REFUSED + 3):
        side.ask(f"CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n".encode()).recv(1)
    wait_until(lambda: side.refused().get(proxy.OTHERS, 0) >= 3)
    assert len(side.refused()) == proxy.MOST_REFUSED + 1


class OneClient:
    """A listener with one client; then it stops the thread that accepts."""

    def __init__(self, client: socket.socket) -> None:
        self._clients = [client]

    def accept(self) -> tuple[socket.socket, None]:
        return self._clients.pop(), None


def test_a_connection_without_a_thread_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And another one gets its place.

    Break: no `except RuntimeError` in `serve`: the listener would be dead.
    """

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    refusals: Any = None
    made = proxy.Proxy(reaching.ListFile(str(tmp_path / "none")), refusals, None)
    ours, theirs = socket.socketpair()
    listener: Any = OneClient(theirs)
    monkeypatch.setattr(threading.Thread, "start", start)
    with ours, pytest.raises(IndexError):
        made.serve(listener, None)
    ours.close()
    assert theirs.fileno() == -1
    assert made._free._value == proxy.MOST_CONNECTIONS - 1  # the one that waits for a client
