"""Who may request what: the rules, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.web.rules import access
from llmc.web.rules.access import Asked

HOSTS = access.hosts_of("127.0.0.1", 8765, ())
OURS = "http://127.0.0.1:8765"


def refused(**facts: object) -> int:
    """The status of a refusal; 0 if the request may proceed."""
    base = {
        "method": "GET",
        "path": "/",
        "host": "127.0.0.1:8765",
        "origin": None,
        "websocket": False,
        "signed_in": True,
    }
    read_only = bool(facts.pop("read_only", False))
    found = access.refusal(Asked(**{**base, **facts}), HOSTS, read_only=read_only)  # type: ignore[arg-type]
    return found.status if found else 0


def test_a_browser_that_signed_in_may_look_and_change() -> None:
    assert refused() == 0
    assert refused(method="POST", origin=OURS) == 0
    assert refused(method="POST", origin="https://127.0.0.1:8765") == 0
    assert refused(method="POST", origin="http://LOCALHOST:8765", host="localhost:8765") == 0
    assert refused(websocket=True, origin=OURS) == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        "attacker.example",
        "attacker.example:8765",
        "127.0.0.1.nip.io:8765",
        "127.0.0.1:8766",
        "127.0.0.1",
        "127.0.0.1:8765.",
        "localhost.:8765",
        "127.0.0.1:8765@attacker.example",
        "0.0.0.0:8765",
        "127.1:8765",
        " 127.0.0.1:8765",
    ],
)
def test_another_name_of_this_machine_is_refused(host: str) -> None:
    """DNS rebinding. Break: compare only the end of the name, or the name without its port."""
    assert refused(host=host) == 421
    assert refused(host=host, path="/login") == 421


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://attacker.example",
        "http://127.0.0.1:3000",
        "http://127.0.0.1:8765.example",
        "file://",
    ],
)
def test_another_origin_is_refused_even_for_a_look(origin: str) -> None:
    """Break: check the Origin only for changes; use startswith instead of equality; let `null` through."""
    for facts in ({}, {"method": "POST"}, {"websocket": True}, {"path": "/login", "method": "POST"}):
        assert refused(origin=origin, **facts) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_a_change_without_an_origin_is_refused(method: str) -> None:
    """Break: list the methods that change something, instead of those that do not."""
    assert refused(method=method) == 403


def test_a_page_of_another_port_may_only_link_here() -> None:
    """A cookie does not know ports. Break: allow `same-site`; check the mode without its destination."""
    for site in ("same-site", "cross-site"):
        for mode, dest in (
            ("no-cors", "image"),
            ("navigate", "iframe"),
            ("cors", "empty"),
            ("no-cors", "script"),
        ):
            asked = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
            assert access.is_embedded(asked)
        assert not access.is_embedded(
            {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        )
    assert not access.is_embedded({})
    assert not access.is_embedded({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"})
    assert not access.is_embedded({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"})
    assert refused(embedded=True) == 403
    assert refused(embedded=True, path="/static/llmc.css") == 403


def test_what_needs_no_sign_in_is_a_short_list() -> None:
    """Break: startswith("/login"); an open path that is only a part of another one."""
    assert [
        path
        for path in ("/login", "/manifest.webmanifest", "/static/llmc.css")
        if refused(path=path, signed_in=False)
    ] == []
    for path in (
        "/",
        "/loginx",
        "/login/x",
        "/w/static/",
        "/static",
        "/r/x/login",
        "/logout",
        "//static/x",
        "/stream",
    ):
        assert refused(path=path, signed_in=False) == 401


def test_read_only_refuses_every_change_but_a_sign_out() -> None:
    assert refused(read_only=True) == 0
    assert refused(read_only=True, method="POST", origin=OURS, path="/logout") == 0
    assert refused(read_only=True, method="POST", origin=OURS, path="/w/a/hold") == 403
    assert refused(read_only=True, websocket=True, origin=OURS, path="/w/a/terminal") == 403


@pytest.mark.parametrize(
    ("said", "bytes_"),
    [("0", 0), ("12", 12), ("9" * 30, 1_000_001), ("²", 1_000_001), ("-1", 1_000_001), ("1e3", 1_000_001)],
)
def test_a_length_that_is_no_number_is_too_long(said: str, bytes_: int) -> None:
    """Break: call `int` on whatever `isdigit` accepts."""
    assert access.body_bytes(said) == bytes_
    assert refused(body_bytes=1_000_001, method="POST", origin=OURS, path="/login") == 413


@given(st.text(max_size=12))
def test_numbers_from_outside(text: str) -> None:
    found = access.whole(text)
    assert found is None or (0 <= found < 10**9 and str(found) == (text.lstrip("0") or "0"))


@pytest.mark.parametrize(
    "given_",
    [
        "//attacker.example",
        "/\\attacker.example",
        "http://attacker.example",
        "\\/x",
        "/\t/x",
        "/a\nb",
        "",
        "x",
        "javascript:x",
    ],
)
def test_the_way_back_stays_here(given_: str) -> None:
    """Break: check only `startswith("/")`."""
    assert access.return_path(given_) == "/"


def test_the_way_back_keeps_its_query() -> None:
    assert access.return_path("/w/a/review?since=1&view=split") == "/w/a/review?since=1&view=split"


def test_names_that_the_user_allowed() -> None:
    """Break: allow every port of an allowed name; leave out 127.0.0.1 when listening on all addresses."""
    hosts = access.hosts_of("0.0.0.0", 8765, ("Laptop.Tailnet.ts.net", "box:9000"))
    assert {"laptop.tailnet.ts.net", "laptop.tailnet.ts.net:8765", "box:9000", "127.0.0.1:8765"} <= hosts
    assert not {"laptop.tailnet.ts.net:1", "box", "box:8765", "0.0.0.0:8765"} & hosts
    assert "[fd00::1]:8765" in access.hosts_of("fd00::1", 8765, ())


def passes(host: str, origin: str, address: str = "127.0.0.1", *allowed: str) -> int:
    """The result of a change that a browser sends through a tunnel; 0: it may proceed."""
    asked = Asked(method="POST", path="/", host=host, origin=origin, websocket=False, signed_in=True)
    found = access.refusal(asked, access.hosts_of(address, 8765, allowed), read_only=False)
    return found.status if found else 0


def test_the_recipe_for_tailscale() -> None:
    """`tailscale serve` ends TLS and sends its own name as Host, without a port; another port of it is in the name.

    Break: require our own port; treat an https Origin as foreign.
    """
    name = "laptop.tailnet.ts.net"
    assert passes(name, f"https://{name}") == 421  # without --allow-host
    assert passes(name, f"https://{name}", "127.0.0.1", name) == 0
    assert passes(name, "https://phone.tailnet.ts.net", "127.0.0.1", name) == 403
    assert passes("phone.tailnet.ts.net", "https://phone.tailnet.ts.net", "127.0.0.1", name) == 421
    assert passes(f"{name}:8443", f"https://{name}:8443", "127.0.0.1", name) == 421
    assert passes(f"{name}:8443", f"https://{name}:8443", "127.0.0.1", f"{name}:8443") == 0


def test_the_recipe_for_ssh() -> None:
    """`ssh -L` sends what the local browser says: the local port must be the remote port.

    Break: trust any port of loopback: another server on this machine would pass as ours.
    """
    assert passes("127.0.0.1:8765", "http://127.0.0.1:8765") == 0
    assert passes("localhost:8765", "http://localhost:8765") == 0
    assert passes("127.0.0.1:9000", "http://127.0.0.1:9000") == 421  # ssh -L 9000:127.0.0.1:8765
    assert passes("127.0.0.1:9000", "http://127.0.0.1:9000", "127.0.0.1", "127.0.0.1:9000") == 0


def test_the_secret_place_of_a_browser() -> None:
    """Break: accept a place of another length; or a path that only starts like one."""
    place = "aB3_-" + "x" * 38
    assert access.place_in(f"/{place}/w/adam") == (place, "/w/adam")
    assert access.place_in(f"/{place}") == (place, "/")
    for path in (
        "/",
        "/board",
        f"/{place}x/board",
        f"/{place[:-1]}/board",
        f"//{place}/",
        f"/w/{place}",
        f"/{place[:-1]}%/",
    ):
        assert access.place_in(path) == ("", path)


def test_ten_failures_in_a_minute_are_too_many() -> None:
    """Break: forget nothing, or everything."""
    assert not access.too_many([100.0] * 9, 100.0)
    assert access.too_many([100.0] * 10, 159.0)
    assert not access.too_many([100.0] * 10, 160.0)


def test_the_policy_lets_nothing_run_that_is_not_ours() -> None:
    assert "unsafe" not in access.POLICY
    assert access.POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in access.POLICY
    assert access.TAKE_OVER_POLICY.replace(" 'unsafe-inline'", "") == access.POLICY
    assert "script-src 'self';" in access.TAKE_OVER_POLICY
