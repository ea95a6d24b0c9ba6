"""The network of a contained program: its own loopback, and a proxy (proxy.py) that connects to the listed hosts."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

import llmc
from llmc.base.files import write_atomic
from llmc.base.hosts import FIRST_FREE_PORT, Host, host_of, with_port
from llmc.records.worker import RefusedHost
from llmc.sandbox import box_entry, proxy

_Kind = TypeVar("_Kind")

#: the proxy's port on the loopback inside, or the next one that is free
FIRST_PORT = 3128
#: names of the loopback, which programs connect to without a proxy
_HERE = ("localhost", "127.0.0.1", "::1")

#: variables that Python and the resolver may need
_FOR_PROXY = ("LD_LIBRARY_PATH", "LOCALDOMAIN", "RES_OPTIONS")


class Network(Struct, frozen=True, kw_only=True):
    """What a contained program may connect to. Hosts are in the syntax of `sandbox.hosts`."""

    hosts: tuple[str, ...]
    #: hosts of the agent's model, and registries of tool chains; their addresses need not be public
    endpoints: tuple[str, ...]
    #: the path of two files between llmc and the proxy, up to `.hosts` (the list) and `.refused` (what was not on it)
    files: str
    #: the user's variables that name a proxy
    upstream: Mapping[str, str] = {}
    #: the socket that the proxy wakes when it refuses a host, and the worker that it names
    wake: str = ""
    worker: str = ""

    @property
    def listed(self) -> list[Host]:
        return [host_of(one) for one in (*self.hosts, *self.endpoints)]

    @property
    def passed(self) -> list[tuple[str, int]]:
        """Listed ports of this machine, from 1024 on: they answer inside, too."""
        here = [(host.name, port) for host in self.listed if host.is_loopback for port in host.ports]
        return [(name, port) for name, port in dict.fromkeys(here) if port >= FIRST_FREE_PORT]

    @property
    def port(self) -> int:
        """The proxy's port, inside."""
        taken = {port for _, port in self.passed}
        return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def environment(network: Network) -> dict[str, str]:
    """The variables by which programs find the proxy."""
    only_by_proxy = {host.name for host in network.listed if min(host.ports) < FIRST_FREE_PORT}
    found = {
        "http_proxy": f"http://127.0.0.1:{network.port}",
        "https_proxy": f"http://127.0.0.1:{network.port}",
        "no_proxy": ",".join(name for name in _HERE if name not in only_by_proxy),
    }
    # Node uses them only if another variable allows it.
    return {**found, **{name.upper(): value for name, value in found.items()}, "NODE_USE_ENV_PROXY": "1"}


def write_list(network: Network) -> None:
    """Write the list for the proxy, which reads it again when it has changed."""
    listed = {"hosts": network.hosts, "endpoints": network.endpoints}
    write_atomic(Path(f"{network.files}.hosts"), json.dumps(listed).encode())


def relist(files: str, hosts: tuple[str, ...]) -> bool:
    """Update the list of a running program; returns whether it changed. Its endpoints stay as they were at launch."""
    listed = _decoded(f"{files}.hosts", dict[str, tuple[str, ...]], {})
    is_new = bool(listed) and listed["hosts"] != hosts
    if is_new:
        write_list(Network(hosts=hosts, endpoints=listed["endpoints"], files=files))
    return is_new


def refused(files: str) -> list[RefusedHost]:
    """What the proxy refused since the program started."""
    return _decoded(f"{files}.refused", list[RefusedHost], [])


def _decoded(path: str, kind: type[_Kind], default: _Kind) -> _Kind:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return default


def for_holder(network: Network) -> dict[str, object]:
    """The network in a launch spec: what listens inside, and the proxy outside. Writes its list, forgets refusals."""
    write_list(network)
    Path(f"{network.files}.refused").unlink(missing_ok=True)
    listeners = [(with_port("127.0.0.1", network.port), "")]
    for name, port in network.passed:
        places = ("127.0.0.1", "::1") if name == "localhost" else (name,)
        listeners += [(with_port(place, port), with_port(name, port)) for place in places]
    orders = {
        "listed": f"{network.files}.hosts",
        "refused": f"{network.files}.refused",
        "wake": network.wake,
        "worker": network.worker,
    }
    return {
        "inside": [sys.executable, "-I", "-S", box_entry.__file__],
        "proxy": [sys.executable, "-P", "-S", "-m", proxy.__name__],
        "proxy_env": {
            **{name: os.environ[name] for name in _FOR_PROXY if name in os.environ},
            **network.upstream,
            "PYTHONPATH": os.path.dirname(os.path.dirname(llmc.__file__)),
        },
        "listeners": listeners,
        "orders": orders,
    }
