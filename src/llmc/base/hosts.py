"""Parse and match hosts in config.toml, such as `*.npmjs.org`, `db.example.com:5432` or `[::1]:8080`. Pure."""

import re
from collections.abc import Iterable
from shlex import quote
from typing import NamedTuple

#: the ports of a host that is written without one
WEB = (443, 80)
#: an unprivileged program cannot listen on a lower port
FIRST_FREE_PORT = 1024
_NAME = re.compile(r"(?=.{1,253}\Z)(\*\.)?[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")
_WRITTEN = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^\[\]:/@\s]+))(?::(?P<port>[0-9]{1,5}))?")


class Host(NamedTuple):
    """A name, an address, `*.domain` or `*`, and its ports."""

    name: str
    ports: tuple[int, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, whatever a name server says."""
        return self.name in ("localhost", "::1") or (self.name.startswith("127.") and _is_address(self.name))


def host_of(written: str) -> Host:
    """Parse a host as the user wrote it; ValueError if it is not one."""
    text = written.lower()
    if text.count(":") > 1 and "[" not in text:
        text = f"[{text}]"
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise ValueError(written)
    port = int(found["port"] or 0)
    name = _address(found["six"]) if found["six"] else _name(found["name"])
    if port > 65535 or (found["port"] and not port):
        raise ValueError(written)
    return Host(name, (port,) if port else WEB)


def _name(text: str) -> str:
    """The name as sent to a name server: without a trailing dot, and in ASCII."""
    name = text.removesuffix(".")
    if not name.isascii():
        name = name.encode("idna").decode()
    if name != "*" and not _is_address(name) and not (_NAME.fullmatch(name) and not _is_number(name)):
        raise ValueError(text)
    return name


def _is_number(name: str) -> bool:
    """Whether a resolver would take it for an address, as it does with `127.1`."""
    return name.rpartition(".")[2].isdigit() or name.rpartition(".")[2].startswith("0x")


def _is_address(name: str) -> bool:
    try:
        return _address(name) == name
    except ValueError:
        return False


def _address(text: str) -> str:
    """An address in its usual form."""
    from ipaddress import ip_address  # takes 4 ms, and few commands need it

    return str(ip_address(text))


def is_listed(hosts: Iterable[Host], name: str, port: int) -> bool:
    """Whether one of these hosts matches; `*.domain` matches every name below the domain, at any depth."""
    return any(port in host.ports and _matches(host.name, name) for host in hosts)


def _matches(pattern: str, name: str) -> bool:
    if not pattern.startswith("*."):
        return pattern in (name, "*")
    return name.endswith(pattern[1:]) and len(name) >= len(pattern)


def check_host(written: str) -> str | None:
    """The problem with a host in the configuration; None if there is none."""
    try:
        host_of(written)
    except ValueError:
        return "must be a host or host:port, such as pypi.org, *.npmjs.org or localhost:5432"
    return None


def with_port(name: str, port: int) -> str:
    """`name:port`, with brackets around an IPv6 address."""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def allow_command(hosts: Iterable[str], more: Iterable[str]) -> str:
    """The command that adds `more` to the hosts in sandbox.hosts."""
    listed = ", ".join(f'"{host}"' for host in dict.fromkeys([*hosts, *filter(None, more)]))
    return f"llmc config set sandbox.hosts {quote(f'[{listed}]')}"
