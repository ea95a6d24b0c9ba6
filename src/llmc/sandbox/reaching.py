"""How the proxy reaches a host: which hosts and addresses are allowed, and when the user's proxy is used.

Names are resolved here. If a name leads to an address that is not public, that address must be listed too: otherwise
the owner of a listed name could lead an agent to this machine and its neighbors. If the user needs a proxy to reach
other machines (HTTPS_PROXY), it is used.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple

from llmc.base.hosts import WEB, Host, host_of, is_listed, with_port

#: how long the other side may take to send its request or its answer
HEAD_S = 30.0
MOST_HEAD_BYTES = 64 * 1024
#: how long one address may take to answer
CONNECT_S = 10.0
CHUNK_BYTES = 64 * 1024
#: variables that name the user's proxy, the first that is set; the last two list hosts that do not need it
UPSTREAM_VARIABLES = (
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"),
    *("no_proxy", "NO_PROXY"),
)

_NAT64, _IPV6_IN_USE = IPv6Network("64:ff9b::/96"), IPv6Network("2000::/3")


class Refused(Exception):
    """A host that is not listed. `allow`: what the user would add to the list."""

    def __init__(self, host: str, port: int, why: str, allow: str) -> None:
        super().__init__(why)
        self.place, self.why, self.allow = with_port(host, port), why, allow


class Failed(Exception):
    """A request that cannot be served: the HTTP status, and why."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Listed(NamedTuple):
    """The hosts that are let through."""

    hosts: Sequence[Host]
    #: may have any address: the user's own settings name them
    endpoints: Sequence[Host] = ()

    def check(self, host: str, port: int) -> None:
        """Raises Refused if a host is not listed."""
        if not is_listed((*self.hosts, *self.endpoints), host, port):
            allow = host if port in WEB and ":" not in host else with_port(host, port)
            raise Refused(host, port, "it is not in sandbox.hosts", allow)

    def check_address(self, host: str, address: str, port: int) -> None:
        """Raises Refused if a listed host leads to an address that is neither public nor listed."""
        found = _meant(address)
        if is_listed(self.endpoints, host, port) or (_is_public(found) and not _is_here(found)):
            return
        names = (str(found), "localhost") if found.is_loopback else (str(found),)
        if not any(one.name in names and port in one.ports for one in self.hosts):
            what = "is not public" if not _is_public(found) else "belongs to this machine"
            why = f"its address {found} {what} and is not in sandbox.hosts"
            raise Refused(host, port, why, with_port(str(found), port))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _meant(address: str) -> IPv4Address | IPv6Address:
    """The address that is really reached: some IPv6 addresses stand for an IPv4 address."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return found
    if found in _NAT64:
        return IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or found


def _is_public(found: IPv4Address | IPv6Address) -> bool:
    """Whether an address is public. In IPv6 only one range is; others are for networks like the user's own."""
    is_in_use = isinstance(found, IPv4Address) or found in _IPV6_IN_USE
    return is_in_use and found.is_global and not found.is_multicast


def _is_here(found: IPv4Address | IPv6Address) -> bool:
    """Whether this machine has that address: it would then connect to it from the same one. Nothing is sent."""
    try:
        opened = socket.socket(socket.AF_INET if found.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return False  # its kernel has no addresses of that kind
        raise
    with opened as sock:
        try:
            sock.connect((str(found), 9))
        except OSError:
            return False  # there is no route to it
        return str(sock.getsockname()[0]) == str(found)


class ListFile:
    """The list, from a file that llmc rewrites when the configuration changes."""

    def __init__(self, path: str) -> None:
        self._path, self._seen = path, (0, 0)
        self._listed = Listed(())

    def current(self) -> Listed:
        try:
            found = os.stat(self._path)
            if (found.st_ino, found.st_mtime_ns) != self._seen:
                with open(self._path, "rb") as file:
                    rows = json.load(file)
                hosts, endpoints = (tuple(map(host_of, rows[name])) for name in ("hosts", "endpoints"))
                self._listed, self._seen = Listed(hosts, endpoints), (found.st_ino, found.st_mtime_ns)
        except (OSError, ValueError):
            pass  # the list as it was
        return self._listed


class Upstream(NamedTuple):
    """A proxy that the user needs to reach other machines."""

    host: str
    port: int
    #: the header with the user's credentials; "" for none
    authorization: str = ""
    #: hosts that are reached without it, and the names below them
    exceptions: tuple[str, ...] = ()

    def is_for(self, host: str) -> bool:
        if host == "localhost" or (_is_address(host) and not _is_public(_meant(host))):
            return False
        return not any(one == "*" or f".{host}".endswith(f".{one}") for one in self.exceptions)


def upstream_of(environment: Mapping[str, str]) -> Upstream | None:
    """The proxy that the user's variables name; None unless it is reached by plain HTTP."""
    urls = (environment.get(name, "") for name in UPSTREAM_VARIABLES[:-2])
    scheme, _, rest = next(filter(None, urls), "").rpartition("://")
    who, _, place = rest.rstrip("/").rpartition("@")
    try:
        host = host_of(place)
    except ValueError:
        return None
    if scheme not in ("http", ""):
        return None
    listed = next((environment[name] for name in UPSTREAM_VARIABLES[-2:] if environment.get(name)), "")
    exceptions = (one.strip().removeprefix("*.").lstrip(".").lower() for one in listed.split(","))
    authorization = f"Proxy-Authorization: Basic {_encoded(who)}\r\n" if who else ""
    return Upstream(host.name, host.ports[-1], authorization, tuple(filter(None, exceptions)))


def _encoded(who: str) -> str:
    from base64 import b64encode
    from urllib.parse import unquote_to_bytes

    return b64encode(unquote_to_bytes(who)).decode()


def connect(listed: Listed, host: str, port: int, upstream: Upstream | None = None) -> socket.socket:
    """Connect to the first address that answers. All are checked before any is tried; a name is resolved only once."""
    if upstream is not None and upstream.is_for(host):
        return _connect_by(upstream, host, port)
    found = _addresses(host, port)
    for *_, address in found:
        listed.check_address(host, str(address[0]), port)
    return _dial(found, with_port(host, port))


def _connect_by(upstream: Upstream, host: str, port: int) -> socket.socket:
    """Connect through the user's proxy, which resolves the name: its addresses are not known here."""
    place = with_port(host, port)
    server = _dial(_addresses(upstream.host, upstream.port), with_port(upstream.host, upstream.port))
    try:
        server.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{upstream.authorization}\r\n".encode())
        head, rest = read_head(server)
        if rest or not head.startswith(b"HTTP/1.") or head[8:12] != b" 200":
            said = head.split(b"\r\n")[0].decode(errors="replace")
            raise Failed(
                "502 Bad Gateway", f"the proxy {with_port(upstream.host, upstream.port)} answered: {said}"
            )
    except BaseException:
        server.close()
        raise
    return server


def _addresses(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Failed("502 Bad Gateway", f"cannot resolve {host}: {error}") from None


def _dial(addresses: list[Any], place: str) -> socket.socket:
    problem: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            return _connected(socket.socket(family, kind, protocol), address)
        except OSError as error:
            problem = error
    raise Failed("502 Bad Gateway", f"cannot connect to {place}: {problem}")


def _connected(server: socket.socket, address: Any) -> socket.socket:
    try:
        server.settimeout(CONNECT_S)
        server.connect(address)
    except BaseException:
        server.close()
        raise
    return server


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head that the other side sent, and what came after it."""
    until, data = time.monotonic() + HEAD_S, b""
    while b"\r\n\r\n" not in data:
        if len(data) > MOST_HEAD_BYTES:
            raise Failed("431 Request Header Fields Too Large", "the request is too long")
        client.settimeout(max(0.01, until - time.monotonic()))
        try:
            chunk = client.recv(CHUNK_BYTES)
        except TimeoutError:
            raise Failed("408 Request Timeout", "timed out waiting for the request") from None
        if not chunk:
            raise ConnectionError("the connection was closed")
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest
