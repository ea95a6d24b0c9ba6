"""Links and cookies: a link works once and for ten minutes, a sign-out ends everything, guesses are counted."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from llmc.api import sign_ins
from llmc.api.sign_ins import KEPT_S, SEEN_S, Secret, SignIns
from llmc.base.clock import now_unix
from llmc.base.errors import Refused
from llmc.config.paths import Root
from llmc.web import guard
from llmc.web.rules import access
from tests.support.web import COOKIE, HERE_URL, HOST, Read, Web


@pytest.fixture
def known(tmp_path: Path) -> SignIns:
    (tmp_path / ".llmc/locks").mkdir(parents=True)
    return SignIns(Root(tmp_path))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [now_unix()]
    monkeypatch.setattr(sign_ins, "now_unix", lambda: now[0])
    return now


def test_a_link_works_once_and_for_ten_minutes(known: SignIns, clock: list[float]) -> None:
    """Break: keep a used link; compare with the wrong clock."""
    link = known.new_link()
    cookie = known.use_link(link, "Firefox")
    assert cookie is not None
    assert known.use_link(link, "Firefox") is None
    late = known.new_link()
    clock[0] += 600.1
    assert known.use_link(late, "Firefox") is None
    assert known.use_link("", "x") is None
    assert known.browser(Secret("", "")) is None
    browser = known.browser(cookie)
    assert browser is not None
    assert browser.name == "Firefox"


def test_a_sign_out_forgets_links_too(known: SignIns) -> None:
    """Break: keep open links: a stolen one would still work."""
    cookie, other = (known.use_link(known.new_link(), "x") for _ in range(2))
    link = known.new_link()
    assert cookie
    assert other
    assert known.sign_out(known.browser(cookie)) == 1
    assert (known.browser(cookie), known.browser(other) is not None) == (None, True)
    assert known.sign_out() == 1
    assert known.browser(other) is None
    assert known.use_link(link, "x") is None


def test_a_browser_that_was_not_seen_for_long_is_signed_out(known: SignIns, clock: list[float]) -> None:
    """Break: trust a cookie forever."""
    cookie = known.use_link(known.new_link(), "x")
    assert cookie
    clock[0] += KEPT_S - 1
    browser = known.browser(cookie)
    assert browser is not None
    known.seen(browser)
    clock[0] += SEEN_S * 24
    assert known.browser(cookie) is not None
    clock[0] += KEPT_S
    assert known.browser(cookie) is None


def test_there_are_so_many_browsers_and_links_and_no_more(known: SignIns) -> None:
    first, *_ = links = [known.new_link() for _ in range(sign_ins.MOST_LINKS + 1)]
    assert known.use_link(first, "x") is None
    assert all(known.use_link(link, "x") for link in links[1:])
    for _ in range(sign_ins.MOST_BROWSERS):
        known.use_link(known.new_link(), "x")
    file = json.loads((known._root.private / "web.json").read_bytes())
    assert (len(file["browsers"]), len(file["links"])) == (sign_ins.MOST_BROWSERS, 0)


def test_a_guess_writes_nothing(known: SignIns) -> None:
    """Break: take the lock for each guess."""
    known.new_link()
    file = known._root.private / "web.json"
    before = file.stat().st_ino
    assert known.use_link("guess", "x") is None
    assert file.stat().st_ino == before


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"browsers": 3}', b"[" * 100_000, b"\xff", b"null"])
def test_a_file_that_is_none_signs_nobody_in(web: Web, garbage: bytes) -> None:
    """Until it is restored.

    Break: treat an unreadable file as an empty list; let an error end the request.
    """
    file = web.place.project.root.private / "web.json"
    good = file.read_bytes()
    file.write_bytes(garbage)
    shown = web.get("/board")
    assert (shown.status_code, str(file) in shown.text) == (503, False)
    assert web.get("/login").status_code == 200
    assert web.post("/login", data={"link": "x"}).status_code == 409
    with pytest.raises(Refused):
        web.place.sign_ins.new_link()
    file.write_bytes(good)
    assert web.get("/board").status_code == 200


def test_a_link_for_a_fifo_or_another_file(web: Web, tmp_path: Path) -> None:
    """Break: open whatever is there."""
    file = web.place.project.root.private / "web.json"
    good = tmp_path / "good"
    file.rename(good)
    file.symlink_to(good)
    assert web.get("/board").status_code == 503


def test_guesses_are_counted_by_address_and_nobody_is_locked_out(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: count none; count all addresses together:
    a neighbor could lock everyone out; count a HEAD of any page.
    """
    now = [time.monotonic()]
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    other = web.stranger()
    for _ in range(20):
        assert other.head("/login").status_code == 200
    for _ in range(access.MOST_FAILURES):
        assert other.post("/login", data={"link": "guess"}).status_code == 403
    right = web.place.sign_ins.new_link()
    refused = other.post("/login", data={"link": right})
    assert (refused.status_code, "Too many" in refused.text) == (429, True)
    # The page has a button that tries the same link again.
    fields = {one["name"]: one["value"] for tag, one in Read(refused.text).tags if tag == "input"}
    assert (fields, "Try again" in refused.text) == ({"link": right, "next": "/"}, True)
    assert web.get("/board").status_code == 200  # signed-in users notice nothing
    door: Any = web.place.site.app
    assert door.may_try("10.0.0.7")
    now[0] += 60.1
    done = other.post("/login", data=fields)
    assert done.status_code == 303
    assert other.get(done.headers["location"]).status_code == 200


def test_many_addresses_are_not_kept_for_ever(web: Web) -> None:
    door: Any = web.place.site.app
    for number in range(guard.MOST_ADDRESSES * 2):
        door.failed(f"10.0.{number // 256}.{number % 256}")
    assert len(door._failures) == guard.MOST_ADDRESSES


def test_the_cookie_is_for_this_site_and_no_script(web: Web) -> None:
    other = web.stranger()
    done = other.post("/login", data={"link": web.place.sign_ins.new_link()})
    words = {word.strip().lower() for word in done.headers["set-cookie"].split(";")}
    place = done.headers["location"].strip("/").lower()
    assert {"httponly", "samesite=strict", f"path=/{place}"} <= words
    assert len(place) == 43
    assert "secure" not in words
    link = web.place.sign_ins.new_link()
    tls = other.post("/login", data={"link": link}, headers={"origin": HERE_URL.replace("http:", "https:")})
    assert "; secure" in tls.headers["set-cookie"].lower()


def test_a_link_that_is_looked_at_is_not_used(web: Web) -> None:
    """A chat fetches every link for its preview. Break: sign in with GET or HEAD."""
    link = web.place.sign_ins.new_link()
    other = web.stranger()
    for _ in range(2):
        assert "set-cookie" not in other.get(f"/login?link={link}").headers
        assert "set-cookie" not in other.head(f"/login?link={link}").headers
    assert other.post("/login", data={"link": link}).status_code == 303
    assert web.stranger().post("/login", data={"link": link}).status_code == 403


def test_a_signed_out_browser_is_a_stranger(web: Web) -> None:
    cookie = web.cookies[COOKIE]
    out = web.post("/logout")
    assert out.headers["location"] == "/login?out=yes"
    assert f"path={web.home}".lower() in out.headers["set-cookie"].lower()
    gone = web.get("/board", headers={"cookie": f"{COOKIE}={cookie}"})
    # Not redirected to a page where it is signed out: login.js would send it back again and again.
    assert (gone.status_code, gone.headers["location"]) == (303, "/login?next=/board&out=yes")
    web.home = ""
    web.sign_in()
    web.place.sign_ins.sign_out()  # llmc web --sign-out
    assert web.get("/board").status_code == 303


async def _streamed_until_sign_out(web: Web, kind: str) -> list[Any]:
    """The messages of a stream whose browser is signed out after the first one."""
    got: list[Any] = []
    ended = asyncio.Event()
    first = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for one in first:
            return one
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        got.append(message)
        if len(got) == 2:
            SignIns(web.place.project.root).sign_out()  # another process: llmc web --sign-out
        if message["type"] == "http.response.body" and not message.get("more_body"):
            ended.set()

    headers = [(b"host", HOST.encode()), (b"cookie", f"{COOKIE}={web.cookies[COOKIE]}".encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"{web.home}/stream",
        "query_string": kind.encode(),
        "headers": headers,
    }
    async with asyncio.timeout(5):
        await web.place.site.app({**scope, "root_path": "", "client": ("127.0.0.1", 1)}, receive, send)
    return got


def test_a_sign_out_ends_open_streams(web: Web) -> None:
    """Immediately, not with the next message.

    Break: check the cookie only when a stream opens, or something is sent.
    """
    assert web.portal is not None
    _, first, last = web.portal.call(_streamed_until_sign_out, web, "page=roots")
    assert (first["more_body"], last["more_body"], last["body"]) == (True, False, b"")
