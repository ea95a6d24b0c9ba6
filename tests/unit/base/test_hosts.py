"""Host names as users write them."""

import shlex
import tomllib

import pytest

from llmc.base.hosts import Host, allow_command, check_host, host_of, is_listed

WEB = (443, 80)


@pytest.mark.parametrize(
    ("written", "name", "ports"),
    [
        ("pypi.org", "pypi.org", WEB),
        ("PyPI.org.", "pypi.org", WEB),
        ("*.npmjs.org", "*.npmjs.org", WEB),
        ("*", "*", WEB),
        ("db.example.com:5432", "db.example.com", (5432,)),
        ("localhost:8080", "localhost", (8080,)),
        ("10.0.0.5:443", "10.0.0.5", (443,)),
        ("[::1]:8080", "::1", (8080,)),
        ("0:0:0:0:0:0:0:1", "::1", WEB),
        ("bücher.example", "xn--bcher-kva.example", WEB),
    ],
)
def test_it_is_read_as_it_is_looked_up(written: str, name: str, ports: tuple[int, ...]) -> None:
    assert check_host(written) is None
    assert host_of(written) == Host(name, ports)


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            " ",
            "https://pypi.org",
            "pypi.org/simple",
            "user@pypi.org",
            "a b",
            "a..b",
            "-a.b",
            "*.*.b",
            "a.*",
        ),
        *(
            "a:0",
            "a:65536",
            "a:b",
            "a:",
            "[::1",
            "[x]:80",
            "127.1",
            "0x7f000001",
            "2130706433",
            "*.4",
            "a" * 300,
        ),
        *("a\n", "a\0b", "fe80::1%eth0", "pypi.org:443:443"),
    ],
)
def test_what_is_not_a_host(written: str) -> None:
    """Including addresses that only a resolver understands: they could lead to this machine."""
    assert check_host(written) is not None


@pytest.mark.parametrize(
    ("listed", "name", "port", "wanted"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "a.pypi.org", 443, False),
        ("*.npmjs.org", "a.b.npmjs.org", 443, True),
        ("*.npmjs.org", "npmjs.org", 443, False),
        ("*.npmjs.org", "evilnpmjs.org", 443, False),
        ("*.npmjs.org", ".npmjs.org", 443, False),
        ("*", "anything.example", 80, True),
        ("*", "anything.example", 8080, False),
        ("a.b:8080", "a.b", 8080, True),
        ("a.b:8080", "a.b", 443, False),
    ],
)
def test_what_is_listed(listed: str, name: str, port: int, wanted: bool) -> None:
    assert is_listed([host_of(listed)], name, port) is wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("127.evil.example", False),
        ("10.0.0.1", False),
    ],
)
def test_what_is_this_machine(name: str, wanted: bool) -> None:
    assert Host(name, (1,)).is_loopback is wanted


def test_the_command_that_allows_a_host_keeps_those_that_are_listed() -> None:
    words = shlex.split(allow_command(["a.b"], ["c.d:22", "", "a.b"]))
    assert words[:4] == ["llmc", "config", "set", "sandbox.hosts"]
    assert tomllib.loads(f"x = {words[4]}") == {"x": ["a.b", "c.d:22"]}
