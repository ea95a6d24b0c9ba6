"""What a contained program may connect to, and which variables it gets. No connection is made here."""

from pathlib import Path
from typing import Any

import pytest

from llmc.base.hosts import host_of
from llmc.sandbox import reaching
from llmc.sandbox.network import Network, environment, for_holder, refused
from llmc.sandbox.proxy import Request, read_request
from llmc.sandbox.reaching import Failed, Listed, Refused, Upstream, upstream_of
from llmc.sandbox.rules import passed_on


def network(*hosts: str) -> Network:
    return Network(hosts=hosts, endpoints=(), files="")


def test_a_port_of_this_machine_answers_inside_if_it_is_listed() -> None:
    """Ports below 1024 cannot be opened inside: those go through the proxy, even for programs without one."""
    found = network("localhost:5432", "127.0.0.1:80", "[::1]:3128", "10.0.0.1:5432", "*.example.com")
    assert found.passed == [("localhost", 5432), ("::1", 3128)]
    assert found.port == 3129
    assert environment(found)["NO_PROXY"] == environment(found)["no_proxy"] == "localhost,::1"
    assert environment(found)["HTTPS_PROXY"] == "http://127.0.0.1:3129"
    assert environment(network())["NO_PROXY"] == "localhost,127.0.0.1,::1"


def test_a_launch_begins_with_nothing_refused(tmp_path: Path) -> None:
    """Break: keep the file: what an earlier agent could not reach would be reported for the next one."""
    files = tmp_path / "adam"
    Path(f"{files}.refused").write_text(
        '[{"host": "a.example:443", "why": "x", "allow": "a.example", "tries": 1}]'
    )
    assert [row.host for row in refused(str(files))] == ["a.example:443"]
    for_holder(Network(hosts=(), endpoints=(), files=str(files)))
    assert refused(str(files)) == []


def test_what_listens_inside_and_the_proxy_of_the_user(tmp_path: Path) -> None:
    """Break: use only 127.0.0.1 for localhost: a program that tries IPv6 first waits, or fails."""
    hosts = ("localhost:5432", "[::1]:8080", "a.example")
    user = {"HTTPS_PROXY": "http://corp.example:3128"}
    given: dict[str, Any] = for_holder(
        Network(hosts=hosts, endpoints=(), files=str(tmp_path / "adam"), upstream=user)
    )
    assert given["listeners"] == [
        ("127.0.0.1:3128", ""),
        ("127.0.0.1:5432", "localhost:5432"),
        ("[::1]:5432", "localhost:5432"),
        ("[::1]:8080", "[::1]:8080"),
    ]
    assert given["proxy_env"]["HTTPS_PROXY"] == user["HTTPS_PROXY"]


HOSTS = Listed(
    tuple(map(host_of, ["a.example", "*.b.example", "10.0.0.5:443", "localhost:5432"])),
    (host_of("model.example:443"),),
)


@pytest.mark.parametrize(
    ("host", "address", "port"),
    [
        ("a.example", "93.184.216.34", 443),
        ("a.example", "2606:2800:220:1::1", 80),
        ("x.b.example", "10.0.0.5", 443),
        ("localhost", "127.0.0.1", 5432),
        ("localhost", "::1", 5432),
        ("model.example", "192.168.1.1", 443),
    ],
)
def test_an_address_that_is_public_or_listed(host: str, address: str, port: int) -> None:
    HOSTS.check(host, port)
    HOSTS.check_address(host, address, port)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.6", "172.16.0.1", "192.168.0.1", "169.254.169.254"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%2", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.6", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("::127.0.0.1", "fec0::1", "64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "5f00::1"),
    ],
)
def test_a_listed_name_does_not_lead_to_this_machine_or_its_neighbours(address: str) -> None:
    """The owner of a listed name decides where it leads.

    Break: no `check_address`, or a list of private IPv6 ranges.
    """
    with pytest.raises(Refused, match="not public"):
        HOSTS.check_address("a.example", address, 443)


def test_a_public_address_of_this_machine_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services on this machine may trust local callers. Break: no `_is_here` in reaching.py."""
    monkeypatch.setattr(reaching, "_is_public", lambda _: True)
    HOSTS.check_address("a.example", "93.184.216.34", 443)
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(Refused, match="belongs to this machine"):
            HOSTS.check_address("a.example", address, 443)


def test_what_to_list_for_a_refused_host() -> None:
    for host, port, allow in (
        ("c.example", 443, "c.example"),
        ("c.example", 22, "c.example:22"),
        ("::2", 80, "[::2]:80"),
    ):
        with pytest.raises(Refused) as found:
            HOSTS.check(host, port)
        assert found.value.allow == allow
    with pytest.raises(Refused) as found:
        HOSTS.check_address("a.example", "::ffff:10.0.0.6", 443)
    assert found.value.allow == "10.0.0.6:443"


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (b"CONNECT A.example:443 HTTP/1.1\r\nHost: other", Request("a.example", 443)),
        (b"CONNECT [::1]:8080 HTTP/1.0", Request("::1", 8080)),
    ],
)
def test_a_request_to_be_connected(head: bytes, wanted: Request) -> None:
    assert read_request(head) == wanted


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://a.example", b"/"),
        (b"http://a.example/x?y=http://z/", b"/x?y=http://z/"),
        (b"HTTP://a.example?x=1/2", b"/?x=1/2"),
    ],
)
def test_a_plain_request_is_passed_on_as_the_server_expects_it(target: bytes, path: bytes) -> None:
    """Break: pass on the client's Host: a server has many sites, and only one of them is listed."""
    head = b"\r\n".join(
        (b"GET " + target + b" HTTP/1.1", b"Host: other", b"Proxy-Connection: x", b"Accept: */*")
    )
    wanted = b"\r\n".join(
        (b"GET " + path + b" HTTP/1.1", b"Host: a.example", b"Connection: close", b"Accept: */*")
    )
    assert read_request(head) == Request("a.example", 80, wanted + b"\r\n\r\n")


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"x", b"GET / HTTP/1.1", b"GET https://a.example/ HTTP/1.1", b"GET ftp://a/ HTTP/1.1"),
        *(
            b"CONNECT a.example HTTP/1.1",
            b"CONNECT :443 HTTP/1.1",
            b"CONNECT *:443 HTTP/1.1",
            b"CONNECT a:443 SSH",
        ),
        *(
            b"CONNECT a.example:443  HTTP/1.1",
            b"CONNECT u@a.example:443 HTTP/1.1",
            b"GET http://u:p@a/ HTTP/1.1",
        ),
        *(
            b"GET http://127.1/ HTTP/1.1",
            b"GET http://a.example:99999/ HTTP/1.1",
            b"GET http://\xff/ HTTP/1.1",
        ),
        *(b"GET http://a/ HTTP/1.1\r\n folded: x", b"GET http://a/ HTTP/1.1\r\nno colon"),
        *(b"GET http://a/ HTTP/1.1\r\nx: y\nHost: b", b"GET http://a/ HTTP/1.1\nHost: b"),
        *(
            b"GET http://a/ HTTP/1.1\nHost:b",
            b"GET http://a/\nHost:b HTTP/1.1",
            b"GET http://a/\x0bx HTTP/1.1",
        ),
        *(
            b"G\tT http://a/ HTTP/1.1",
            b"GET http://a/ HTTP/1.1\r\nHost : b",
            b"GET http://a/ HTTP/1.1\r\nx: \0",
        ),
        *(b"GET http://a/ HTTP/1.9", b"GET http:///x HTTP/1.1", b"CONNECT [::1%lo]:80 HTTP/1.1"),
        *(
            b"CONNECT 2130706433:80 HTTP/1.1",
            b"CONNECT 0x7f000001:80 HTTP/1.1",
            b"CONNECT 0177.0.0.1:80 HTTP/1.1",
        ),
    ],
)
def test_a_bad_request(head: bytes) -> None:
    with pytest.raises(Failed, match=r"valid|request|proxy"):
        read_request(head)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p.example:3128/"}, Upstream("p.example", 3128)),
        ({"http_proxy": "p.example"}, Upstream("p.example", 80)),
        ({"https_proxy": "http://a:80", "HTTP_PROXY": "http://b:80"}, Upstream("a", 80)),
        ({"ALL_PROXY": "socks5://p.example:1080"}, None),
        ({"HTTPS_PROXY": "http://u:p%40@p:1"}, Upstream("p", 1, "Proxy-Authorization: Basic dTpwQA==\r\n")),
        (
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".corp.example, *.b,c,"},
            Upstream("p", 1, "", ("corp.example", "b", "c")),
        ),
    ],
)
def test_the_proxy_that_a_user_needs(variables: dict[str, str], wanted: Upstream | None) -> None:
    assert upstream_of(variables) == wanted


def test_what_is_near_is_reached_without_it() -> None:
    found = Upstream("p", 1, exceptions=("corp.example",))
    assert found.is_for("pypi.org")
    assert found.is_for("93.184.216.34")
    assert found.is_for("notcorp.example")
    for host in ("localhost", "127.0.0.1", "10.0.0.1", "::1", "corp.example", "a.corp.example"):
        assert not found.is_for(host), host
    assert not Upstream("p", 1, exceptions=("*",)).is_for("pypi.org")


def test_secrets_stay_outside_unless_they_are_named() -> None:
    needed = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "EDITOR", "TERM")
    secret = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "DATABASE_URL", "ANTHROPIC_API_KEY")
    other = ("LLMC_GIT_PASSWORD", "HTTP_PROXY", "PGPASSWORD", "LESSOPEN", "PATHS")
    theirs = dict.fromkeys((*needed, *secret, *other), "x")
    assert {*passed_on(theirs, ())} == {*needed}
    assert {*passed_on(theirs, ("ANTHROPIC_*", "DATABASE_URL"))} == {
        *needed,
        "ANTHROPIC_API_KEY",
        "DATABASE_URL",
    }
