"""The network of a contained program: its own loopback,
and the proxy that the holder starts, keeps up and ends.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc import launch
from llmc.base.processes import Process, command_of, identify
from llmc.sandbox.network import Network
from llmc.sandbox.rules import Mount
from tests.support.contained import held, needs_bubblewrap
from tests.support.waiting import wait_until
from tests.support.web_server import web_server

pytestmark = needs_bubblewrap

#: an ordinary user, who owns nothing
NOBODY = 65534
#: tries every way out that it is given, and prints the result of each
TRIES = """
import ctypes, os, socket, sys

def told(name, act):
    try:
        print(name, "REACHED", act())
    except Exception as error:
        print(name, type(error).__name__)

def asks(where):
    with socket.create_connection(where, timeout=5) as sock:
        sock.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return sock.makefile('rb').read()

def by_proxy(url):
    host, _, port = os.environ["http_proxy"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(f"GET {url} HTTP/1.1\\r\\n\\r\\n".encode())
        said = sock.makefile("rb").read()
    if b" 403 " in said:
        raise PermissionError
    return said

def abstract():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(chr(0) + sys.argv[3])

listed, other = int(sys.argv[1]), int(sys.argv[2])
told("listed", lambda: asks(("127.0.0.1", listed)))
told("listed-by-proxy", lambda: by_proxy(f"http://127.0.0.1:{listed}/"))
told("port", lambda: asks(("127.0.0.1", other)))
told("port-by-proxy", lambda: by_proxy(f"http://127.0.0.1:{other}/"))
told("address", lambda: asks((sys.argv[4], other)))
told("name-by-proxy", lambda: by_proxy("http://evil.example/"))
told("abstract", abstract)
told("outside", lambda: socket.create_connection(("192.0.2.1", 80), timeout=5))
told("names", lambda: socket.getaddrinfo("example.com", 80))
told("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
told("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
told("vsock", lambda: socket.socket(socket.AF_VSOCK))
def ring():
    if ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno())
told("io_uring", ring)
print("interfaces", *(name for _, name in socket.if_nameindex()))
print("open", *sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def network(place: Path, *hosts: str) -> Network:
    return Network(hosts=hosts, endpoints=(), files=str(place.parent / "adam"), worker="adam")


def tried(place: Path, user: int | None = None) -> dict[str, str]:
    """The result of each attempt of a contained program."""
    name = f"llmc-{os.urandom(4).hex()}"
    with web_server("0.0.0.0") as other, web_server() as listed, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        words = [str(listed), str(other), name, socket.gethostbyname(socket.gethostname())]
        argv = ["/usr/bin/python3", "-c", TRIES, *words]
        out, said = held(place, argv, network=network(place, f"127.0.0.1:{listed}"), user=user).communicate(
            timeout=60
        )
    assert not said
    rows = (line.partition(" ") for line in out.splitlines())
    found = {name: rest for name, _, rest in rows}
    assert "hello" in found.pop("listed")
    assert "hello" in found.pop("listed-by-proxy")
    assert found.pop("interfaces") == "lo"
    assert found.pop("open") == "0 1 2"  # nothing of the holder's
    return found


def test_only_what_is_listed_answers(place: Path) -> None:
    """Break: no `--unshare-net` in sandbox/rules.py."""
    assert tried(place) == {
        "port": "ConnectionRefusedError",
        "port-by-proxy": "PermissionError",
        "address": tried_address(),
        "name-by-proxy": "PermissionError",
        "abstract": "ConnectionRefusedError",
        "outside": "OSError",
        "names": "gaierror",
        "raw": "PermissionError",
        "packet": "PermissionError",
        "vsock": "PermissionError",
        "io_uring": "OSError",
    }
    rows = json.loads((place.parent / "adam.refused").read_bytes())
    assert [row["tries"] for row in rows] == [1, 1]
    assert rows[1]["allow"] == "evil.example"


def tried_address() -> str:
    """The machine's own address has no route inside; on a loopback address, nothing listens."""
    is_loopback = socket.gethostbyname(socket.gethostname()).startswith("127.")
    return "ConnectionRefusedError" if is_loopback else "OSError"


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests here run as an ordinary user already")
def test_of_an_ordinary_user_too() -> None:
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir="/tmp") as directory:
        place = Path(directory) / "work"
        place.mkdir()
        found = tried(place, NOBODY)
    assert not [name for name, said in found.items() if "REACHED" in said]


def proxies(place: Path) -> list[Process]:
    """The proxies of this place, by their command line."""
    mark = str(place.parent / "adam.hosts")
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and mark in command_of(int(name))]
    return [
        process
        for pid in found
        if (process := identify(pid)) is not None and "llmc.sandbox.proxy" in command_of(pid)
    ]


@contextmanager
def running(place: Path, *hosts: str) -> Iterator["subprocess.Popen[str]"]:
    argv = ["/bin/sh", "-c", "echo runs; read x; exit 7"]
    with held(place, argv, network=network(place, *hosts), stdin=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        wait_until(lambda: len(proxies(place)) == 1)
        yield program
        program.kill()


def test_the_proxy_ends_with_the_program(place: Path) -> None:
    """And leaves no zombie where the machine's init process does not reap. Break: no `close` in launch.py."""
    prctl = ctypes.CDLL(None).prctl
    with running(place) as program:
        (proxy,) = proxies(place)
        prctl(launch.PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children
        try:
            program.communicate("end\n", timeout=20)
        finally:
            prctl(launch.PR_SET_CHILD_SUBREAPER, 0)
        assert program.returncode == 7
        assert not Path(f"/proc/{proxy.pid}").exists()


def test_a_box_that_does_not_start_is_not_waited_for(place: Path) -> None:
    """Break: no `_theirs.close()` in launch.py: the holder would wait for the sockets forever."""
    with held(place, ["/bin/true"], Mount("/no/such/place"), network=network(place)) as program:
        _, said = program.communicate(timeout=20)
    assert program.returncode != 0
    assert "/no/such/place" in said
    assert proxies(place) == []


def test_the_proxy_ends_with_a_killed_holder(place: Path) -> None:
    """Break: no PR_SET_PDEATHSIG for the proxy."""
    with running(place) as program:
        (proxy,) = proxies(place)
        program.kill()
        wait_until(lambda: not proxy.is_alive)


def test_a_killed_proxy_is_started_again(place: Path) -> None:
    """However soon. Break: no `keep_up` in launch.py: an agent would be without its model until a restart."""
    ask = "import sys, urllib.request as u; sys.stdin.readline(); print(u.urlopen(sys.argv[1], timeout=20).read()); sys.stdin.readline()"
    with web_server() as port:
        argv = ["/usr/bin/python3", "-c", ask, f"http://127.0.0.1:{port}/"]
        there = network(place, f"127.0.0.1:{port}")
        with held(place, argv, network=there, stdin=subprocess.PIPE) as program:
            wait_until(lambda: len(proxies(place)) == 1)
            (first,) = proxies(place)
            os.kill(first.pid, signal.SIGKILL)
            wait_until(lambda: not first.is_alive)
            out, said = program.communicate("go\nend\n", timeout=30)
            assert (out, said, program.returncode) == ("b'hello'\n", "", 0)


@pytest.mark.soak
def test_a_proxy_that_never_works_is_tried_at_longer_intervals(place: Path) -> None:
    """And the program continues.

    Break: no pause in `keep_up` of launch.py: it would start hundreds per second.
    """
    with running(place) as program:
        seen: list[tuple[float, int]] = []
        for _ in range(3):
            (proxy,) = proxies(place)
            os.kill(proxy.pid, signal.SIGKILL)
            killed = time.monotonic()
            wait_until(lambda gone=proxy.pid: [one.pid for one in proxies(place)] not in ([], [gone]))
            seen.append((time.monotonic() - killed, proxy.pid))
        assert seen[0][0] >= launch.FIRST_PAUSE_S * 0.9
        assert seen[2][0] >= 2 * seen[0][0] * 0.9
        assert program.poll() is None


@pytest.mark.soak
def test_keys_at_the_terminal_are_not_for_the_proxy(place: Path) -> None:
    """And it prints nothing there. Break: no `setsid` in launch.py: Ctrl-C would end it; no `dup2`."""
    with running(place):
        (proxy,) = proxies(place)
        assert os.getsid(proxy.pid) == proxy.pid
        assert os.readlink(f"/proc/{proxy.pid}/cwd") == "/"
        assert {os.readlink(f"/proc/{proxy.pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}
