"""On a kernel without IPv6, opening a socket fails, not binding or connecting it: contained agents work all the same."""

import socket
import subprocess
import sys
from pathlib import Path

from llmc.sandbox import box_entry
from llmc.sandbox.network import Network, for_holder
from tests.support.no_ipv6 import without

#: one connection for each word of this: a host whose addresses are of both families, and a literal one
ASKS = """
import json, socket, sys
from llmc.sandbox import reaching
from llmc.base.hosts import host_of

port = int(sys.argv[1])
rows = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
socket.getaddrinfo = lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", at) for family, at in rows]
listed = reaching.Listed([host_of("six.example")], [host_of(f"both.example:{port}")])
with reaching.connect(listed, "both.example", port) as made:
    print(made.getpeername()[0])
rows[:] = [(socket.AF_INET6, ("2606:4700::1111", 443, 0, 0))]
try:
    reaching.connect(listed, "six.example", 443)
except reaching.Failed as failed:
    print(failed)
"""


def test_an_agent_starts_without_the_ports_that_cannot_be_opened(tmp_path: Path) -> None:
    """Break: open the socket outside of `try` in box_entry: with a listed localhost port, no contained agent starts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = for_holder(Network(hosts=(f"localhost:{port}",), endpoints=(), files=str(tmp_path / "adam")))
    listeners = found["listeners"]
    assert isinstance(listeners, list)
    addresses = [address for address, _ in listeners]
    assert addresses[1:] == [f"127.0.0.1:{port}", f"[::1]:{port}"]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        entry = [sys.executable, "-I", "-S", box_entry.__file__, str(theirs.fileno())]
        words = [*entry, ",".join(addresses[1:]), "/bin/echo", "the agent runs"]
        done = subprocess.run(without(*words), pass_fds=(theirs.fileno(),), capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("the agent runs\n", "")
        said, fds, _, _ = socket.recv_fds(ours, 4096, 4)
    assert said == bytes([0]), "the one for IPv4"
    with socket.socket(fileno=fds[0]) as opened:
        assert opened.getsockname() == ("127.0.0.1", port)


def test_a_host_with_addresses_of_both_families_is_reached() -> None:
    """Break: open the socket outside of `try` in `_dial` or `_is_here`: the connection is dropped without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [sys.executable, "-c", ASKS, str(server.getsockname()[1])]
        done = subprocess.run(without(*words), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    both, six = done.stdout.splitlines()
    assert both == "127.0.0.1"
    assert six.startswith("cannot connect to six.example:443: [Errno 97] Address family")
