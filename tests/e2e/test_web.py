"""`llmc web` in its own process, on loopback: bad clients, signals, and a root that breaks under it."""

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil
import pytest

from llmc.base.locks import Rank, lock
from llmc.config.paths import Root
from llmc.web.serving import QUIET_S
from tests.support.fleet import Fleet
from tests.support.no_ipv6 import without
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q"
#: the server, with less patience than in production
IMPATIENT = """
import runpy, sys
from llmc.web import guard, serving
serving.QUIET_S = guard.BODY_S = {quiet}
sys.argv[0] = "llmc"
runpy.run_module("llmc", run_name="__main__")
"""


class Server:
    """The process, and one signed-in browser."""

    def __init__(self, fleet: Fleet, *args: str, quiet: float = QUIET_S) -> None:
        self.fleet = fleet
        self.errors = (fleet.dir / "web.err").open("w+")
        argv = [
            sys.executable,
            "-c",
            IMPATIENT.format(quiet=quiet),
            "--root",
            str(fleet.root),
            "web",
            "--port",
            "0",
            "--json",
            *args,
        ]
        self.process = subprocess.Popen(
            argv,
            cwd=fleet.source,
            env=fleet.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        assert self.process.stdout is not None
        said = b""
        while not said.rstrip().endswith(b"}"):
            line = self.process.stdout.readline()
            assert line, self.said()
            said += line
        link = urlsplit(json.loads(said)["url"])
        here = json.loads((fleet.root / ".llmc/web.json").read_bytes())["serves"][-1]
        self.port = int(urlsplit(here).port or 0)
        self.host = f"127.0.0.1:{self.port}"
        self.home = ""
        form = urlencode({"link": link.query.partition("=")[2]})
        done = self.ask("POST", "/login", body=form, cookie="")
        assert done.status == 303, done.status
        self.cookie = str(done.headers["set-cookie"]).partition(";")[0]
        #: prefix of the browser's addresses
        self.home = str(done.headers["location"]).rpartition("/")[0]

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def ask(self, method: str, path: str, *, body: str | None = None, cookie: str | None = None) -> Any:
        """One request, with its answer read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"origin": f"http://{self.host}", "cookie": self.cookie if cookie is None else cookie}
        if body is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        path = path.removeprefix(self.home)  # an answer redirected there
        connection.request(method, self.home + path, body=body, headers=headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def text(self, path: str) -> str:
        return str(self.ask("GET", path).text)

    def stream(self, page: str = "attention") -> socket.socket:
        """A connection on which a stream has started."""
        made = socket.create_connection(("127.0.0.1", self.port), 20)
        head = f"GET {self.home}/stream?page={page} HTTP/1.1\r\nHost: {self.host}\r\nCookie: {self.cookie}\r\n\r\n"
        made.sendall(head.encode())
        return made

    def files(self) -> int:
        return psutil.Process(self.process.pid).num_fds()

    def ends(self, sent: int, within_s: float) -> int:
        begun = time.monotonic()
        self.process.send_signal(sent)
        code = self.process.wait(20)
        assert time.monotonic() - begun < within_s
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert "Traceback" not in self.said(), self.said()
        self.errors.close()


@contextlib.contextmanager
def serving(fleet: Fleet, *args: str, quiet: float = QUIET_S) -> Iterator[Server]:
    server = Server(fleet, *args, quiet=quiet)
    try:
        yield server
    finally:
        server.close()


def until_closed(one: socket.socket) -> None:
    """Read until the other end has closed."""
    one.settimeout(20)
    with contextlib.suppress(ConnectionResetError):
        while one.recv(65536):
            pass


@pytest.fixture(scope="module")
def impatient() -> Iterator[Server]:
    """A server that soon closes an idle connection."""
    fleet = Fleet("scripted").set_up("adam")
    with serving(fleet, quiet=0.4) as server:
        yield server
    fleet.close()


def test_slow_clients_are_ended_and_nobody_waits_for_them(impatient: Server) -> None:
    """Slow headers, a slow body, an answer that is not read. Break: `http="auto"`, no limit at all."""
    impatient.text("/")
    before = impatient.files()
    slow = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(30)]
    for one in slow[:10]:
        one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-")  # and never the end
    for one in slow[10:20]:
        head = f"POST /login HTTP/1.1\r\nHost: {impatient.host}\r\nOrigin: http://{impatient.host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlink="
        one.sendall(head.encode())
    unread = []
    for _ in range(10):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.connect(("127.0.0.1", impatient.port))
        one.sendall(f"GET /static/vendor/xterm.js HTTP/1.1\r\nHost: {impatient.host}\r\n\r\n".encode() * 20)
        unread.append(one)
    begun = time.monotonic()
    assert "What needs you" in impatient.text("/")
    assert time.monotonic() - begun < 5
    for one in slow:
        until_closed(one)
    wait_until(lambda: impatient.files() <= before + 2)
    for one in (*slow, *unread):
        one.close()


def test_what_is_not_http_leaves_no_trace(impatient: Server) -> None:
    """Break: log a line for each: any client that reaches the port could fill the disk."""
    for sent in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"x" * 200_000, b"GET http://attacker.example/ HTTP/1.1\r\nHost: attacker.example\r\n\r\n"):  # fmt: skip
        one = socket.create_connection(("127.0.0.1", impatient.port))
        with one, contextlib.suppress(OSError):
            one.sendall(sent)
            one.shutdown(socket.SHUT_WR)
            until_closed(one)
    assert impatient.said() == ""
    assert impatient.text("/board")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_with_streams_open(scripted: Fleet, sent: int) -> None:
    """Break: wait for every answer to end: a stream never does."""
    scripted.set_up("adam")
    with serving(scripted) as server:
        streams = [server.stream() for _ in range(5)]
        assert all(one.recv(15) == b"HTTP/1.1 200 OK" for one in streams)
        code = server.ends(sent, 3.0)
        assert code in (0, -sent)
        for one in streams:
            one.close()


def test_the_page_goes_on_while_everything_under_it_breaks(scripted: Fleet) -> None:
    """Break: let the subscription end with the first error; show an unreadable fleet as empty."""
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    scripted.llmc(
        "start", "--worker", "adam", "--prompt", f"Do it\n@sh echo 1 > f; git add f; {COMMIT} -m Work"
    )
    scripted.wait("adam", "needs_review")
    with serving(scripted) as server:
        assert "daemon running" in server.text("/board")
        scripted.kill_daemon()
        wait_until(lambda: "daemon not running" in server.text("/board"))
        scripted.tmux("kill-server")
        assert server.ask("GET", "/w/adam").status == 200
        assert "adam" in server.text("/")
        assert "not running" in _ordered(server, "/w/adam/message", text="hello")
        good = (scripted.root / "state.json").read_bytes()
        for bad in (b"garbage", b"", b"{}", b'{"workers": 1}'):
            _put(scripted.root, bad)
            wait_until(lambda: "state.json" in _health(server))
            told = server.ask("GET", "/w/adam/review")
            assert (told.status, "state.json" in told.text) == (503, True)
            assert server.ask("POST", "/w/adam/hold", body="").status == 303
        _put(scripted.root, good)
        wait_until(lambda: "state.json" not in _health(server))
        assert "adam" in server.text("/board")
        assert "on hold" in _ordered(server, "/w/baker/hold")


def test_a_link_needs_a_server(scripted: Fleet) -> None:
    """Stopped or killed, it makes no link. Break: trust the addresses in the file; print a dead link."""
    scripted.set_up("adam")
    with serving(scripted) as server:
        assert scripted.llmc("web", "--link").out.count(f"http://{server.host}/login?link=") == 1
        server.ends(signal.SIGTERM, 3.0)
        _no_link(scripted)
    with serving(scripted) as server:
        server.ends(signal.SIGKILL, 3.0)
        _no_link(scripted)


def _no_link(fleet: Fleet) -> None:
    file = fleet.root / ".llmc/web.json"
    before = file.read_bytes()
    done = fleet.llmc("web", "--link", code=1)
    assert (
        done.err.strip()
        == "llmc: cannot create a sign-in link: the web server is not running. Run `llmc web` to start the server; it prints a link."
    )
    assert file.read_bytes() == before


def _health(server: Server) -> str:
    """What the page says about the root; the last order may still show an old error."""
    return server.text("/board").partition('id="health"')[2].partition("</div>")[0]


def _put(root: Path, data: bytes) -> None:
    """Replace the state between two writes: the page itself records agents' states over whatever is there."""
    with lock(Root(root).lock("state"), Rank.STATE):
        new = root / "new-state"
        new.write_bytes(data)
        os.replace(new, root / "state.json")


def _ordered(server: Server, path: str, **fields: str) -> str:
    """The page of a finished order."""
    job = server.ask("POST", path, body=urlencode(fields)).headers["location"]
    wait_until(lambda: "running …" not in server.text(job))
    return server.text(job)


def by_whom(server: Server) -> str:
    """Who gave the order, according to the event log, for a request that names another address."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {"origin": f"http://{server.host}", "cookie": server.cookie, "x-forwarded-for": "100.64.0.9"}
    connection.request("POST", f"{server.home}/w/adam/hold", headers=headers)
    job = connection.getresponse().headers["location"]
    connection.close()
    wait_until(lambda: "running …" not in server.text(job))
    return str(server.fleet.events("web_ordered")[-1]["by"])


def test_nobody_on_this_machine_says_where_a_request_comes_from(impatient: Server) -> None:
    """Break: trust anyone's X-Forwarded-For."""
    assert by_whom(impatient) == "browser, 127.0.0.1"


@pytest.mark.soak
def test_a_proxy_says_where_a_request_comes_from(scripted: Fleet) -> None:
    scripted.set_up("adam")
    with serving(scripted, "--allow-host", "box.ts.net") as server:
        assert by_whom(server) == "browser, 100.64.0.9"


@pytest.mark.soak
def test_a_thousand_streams(scripted: Fleet) -> None:
    """And the fleet is still followed: files above 1,023. Break: `select.select` in the subscription."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    scripted.set_up("adam")
    with serving(scripted) as server:
        server.text("/board")
        streams = [server.stream() for _ in range(1100)]
        assert all(one.recv(15) == b"HTTP/1.1 200 OK" for one in streams)
        process = psutil.Process(server.process.pid)
        print("memory", process.memory_info().rss >> 20, "MB, files", process.num_fds())
        scripted.llmc("add", "baker")
        wait_until(lambda: "baker" in server.text("/board"))
        scripted.up("--no-patrol")  # from now on the agents' inboxes are watched, too
        wait_until(lambda: "daemon running" in server.text("/board"))
        scripted.llmc("down")
        wait_until(lambda: "daemon not running" in server.text("/board"))
        begun = time.monotonic()
        for one in streams:
            one.settimeout(20)
            seen = b""
            while b"daemon running" not in seen:
                seen += one.recv(1 << 20)
        print("all told after", time.monotonic() - begun, "s")
        assert server.ends(signal.SIGTERM, 5.0) in (0, -signal.SIGTERM)
        for one in streams:
            one.close()


def test_an_address_of_a_kind_that_the_kernel_lacks(scripted: Fleet) -> None:
    """Break: open the socket outside of `try` in `_listen`: a bug of llmc."""
    scripted.set_up()
    argv = without(sys.executable, "-m", "llmc", "--root", str(scripted.root), "web", "--address", "::1")
    done = subprocess.run(argv, cwd=scripted.dir, env=scripted.env, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "cannot listen on ::1:" in done.stderr
    assert "Address family not supported" in done.stderr
