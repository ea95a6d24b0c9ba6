"""Attacks on every route: from other pages, other host names, without a cookie, with bodies of any size."""

import asyncio
import contextlib
import json
import logging
import shutil
import stat
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from llmc.api.sign_ins import SignIns
from llmc.config.paths import Root
from llmc.web import guard
from llmc.web.rules import access
from tests.support.repos import Mold, project_at
from tests.support.web import COOKIE, HERE_URL, HOST, Place, Read, Web, faults, plain_root, routes

#: they need no sign-in
OPEN = ("/login", "/manifest.webmanifest", "/static/llmc.css")
SAFE = ("GET", "HEAD")


def status(web: Web, method: str, path: str, **headers: str) -> int:
    """How a request ends; 403 for a WebSocket that was not opened."""
    if method != "WS":
        return web.request(method, path, headers=headers).status_code
    try:
        with web.websocket_connect(path, headers=headers):
            return 101
    except (WebSocketDisconnect, WebSocketDenialResponse):
        return 403


def every(web: Web) -> list[tuple[str, str]]:
    """All routes except those that never end."""
    found = routes(web.place.site)
    assert len(found) > 60
    assert {"GET", "HEAD", "POST", "PUT", "DELETE", "WS"} == {method for method, _ in found}
    return [(method, path) for method, path in found if path not in ("/stream", "/r/root/stream")]


def unchanged(web: Web) -> Any:
    root = web.place.project.root
    return root.events.read_bytes(), (root.path / "state.json").read_bytes(), web.place.live.jobs.recent(99)


@contextlib.contextmanager
def changes_nothing(web: Web) -> Iterator[None]:
    before = unchanged(web)
    yield
    assert unchanged(web) == before


def test_without_a_cookie_there_is_only_the_sign_in(hostile: Web) -> None:
    """Break: decide in each route, and forget one."""
    other = hostile.stranger()
    with changes_nothing(hostile):
        for method, path in [
            *every(hostile),
            ("GET", "/stream"),
            ("GET", "/r/root/stream"),
            ("GET", "/nothing"),
        ]:
            if path in OPEN:
                continue
            wanted = 403 if method == "WS" else 303 if method == "GET" else 401
            assert status(other, method, path) == wanted, (method, path)
            shown = other.request(method if method != "WS" else "GET", path, headers={"hx-request": "true"})
            assert (shown.status_code, "w1" in shown.text) == (401, False), path
    assert status(hostile, "WS", "/w/w1/terminal") == 101  # only the cookie was missing
    moved = other.get("/w/w1/review?since=1&view=split").headers["location"]
    assert moved == "/login?next=/w/w1/review%3Fsince%3D1%26view%3Dsplit"


@pytest.mark.parametrize("cookie", ["x", "", '"', "a" * 5000, "\\", "é", "{json}"])
def test_a_wrong_cookie_is_none(hostile: Web, cookie: str) -> None:
    other = hostile.stranger()
    for method, path in every(hostile):
        if path not in OPEN and method != "WS":
            done = other.request(method, path, headers={b"cookie": f"{COOKIE}={cookie}".encode("latin-1")})  # type: ignore[dict-item]
            assert done.status_code in (303, 401), (method, path)


def test_cookies_of_other_servers_do_not_sign_anybody_out(hostile: Web) -> None:
    """They share a header, and may have our name. Break: SimpleCookie; only the first cookie of our name."""
    mine = hostile.cookies[COOKIE]
    other = hostile.stranger()
    other.home = hostile.home
    for header in (
        f'bad={{"a": 1}}, x; {COOKIE}={mine}',
        f"{COOKIE}=theirs; {COOKIE}={mine}",
        f"=; ;;{COOKIE}={mine};",
    ):
        assert other.get("/board", headers={"cookie": header}).status_code == 200


def test_a_cookie_is_nothing_without_its_place(hostile: Web) -> None:
    """Knowing one is not knowing the other: another local server, or a file. Break: hash only the cookie."""
    mine, other = hostile.cookies[COOKIE], hostile.stranger()
    another = hostile.stranger()
    another.sign_in()
    for home in (
        "",
        another.home,
        "/" + "x" * 43,
        hostile.home[:-1] + ("A" if hostile.home[-1] != "A" else "B"),
    ):
        other.home = home
        for method, path in every(hostile):
            if path not in OPEN and method != "WS":
                done = other.request(method, path, headers={"cookie": f"{COOKIE}={mine}"})
                assert done.status_code in (303, 401), (home, method, path)
    other.home = hostile.home
    assert other.get("/board", headers={"cookie": f"{COOKIE}={mine}"}).status_code == 200
    assert other.get("/board").status_code == 303


def test_sign_ins_of_two_servers_are_apart(mold: Mold) -> None:
    """On one host a cookie is for every port: names may be the same, paths never are. Break: `path=/`."""
    folder = mold.place(plain_root)
    shutil.copytree(folder / "root/.llmc/locks", folder / "other/.llmc/locks", dirs_exist_ok=True)
    first = Place(project_at(folder / "root"))
    secrets = [first.sign_ins.use_link(first.sign_ins.new_link(), "x") for _ in range(2)]
    other = SignIns(Root(folder / "other"))
    assert len({one.place for one in secrets if one}) == 2
    with first.served() as web:
        for secret in secrets:
            assert secret is not None
            assert other.browser(secret) is None
            web.home = f"/{secret.place}"
            web.cookies.clear()
            web.headers["cookie"] = f"{COOKIE}={secret.cookie}"
            assert web.get("/board").status_code == 200
            # The page, its stream and its answers name no address outside it.
            for text in (web.get("/").text, web.streamed("/stream?page=board", secret.cookie)):
                addresses = {
                    one[key]
                    for _, one in Read(text).tags
                    for key in ("href", "action", "hx-post")
                    if key in one
                }
                assert addresses
                assert not [
                    one
                    for one in addresses
                    if not one.startswith((web.home, "/static/", "/manifest", "#", "?"))
                ]


@pytest.mark.parametrize(
    "origin",
    [
        "http://attacker.example",
        "null",
        "http://127.0.0.1:3000",
        f"http://localhost:{8765}",
        "",
        f"{HERE_URL}.example",
    ],
)
def test_a_foreign_origin_is_refused_everywhere(hostile: Web, origin: str) -> None:
    """CSRF by a form or by fetch, with the cookie. Break: check `Origin` only for changes."""
    with changes_nothing(hostile):
        for method, path in every(hostile):
            assert status(hostile, method, path, origin=origin) == 403, (method, path)


def test_a_change_needs_an_origin(hostile: Web) -> None:
    """A client that is not a browser sends none, with a stolen cookie. Break: treat no Origin as ours."""
    del hostile.headers["origin"]
    try:
        with changes_nothing(hostile):
            for method, path in every(hostile):
                if method not in SAFE:
                    assert status(hostile, method, path) == 403, (method, path)
    finally:
        hostile.headers["origin"] = HERE_URL


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example:8765",
        "127.0.0.1.nip.io:8765",
        "127.0.0.1:1",
        "127.0.0.1",
        "",
        "localhost.:8765",
        "[::]:8765",
        "0:8765",
        "ATTACKER.example",
    ],
)
def test_a_name_that_somebody_points_here_is_refused_everywhere(hostile: Web, host: str) -> None:
    """DNS rebinding: the browser thinks that page and server are the same.

    Break: only starlette's trusted hosts.
    """
    with changes_nothing(hostile):
        for method, path in every(hostile):
            wanted = 403 if method == "WS" else 421
            assert status(hostile, method, path, host=host, origin=f"http://{host}") == wanted, (method, path)


def test_our_own_name_in_capitals_is_ours(hostile: Web) -> None:
    assert status(hostile, "GET", "/board", host="LOCALHOST:8765", origin="http://localhost:8765") == 200


def test_two_hosts_or_two_origins_are_refused_everywhere(hostile: Web) -> None:
    """A proxy and we could trust different ones. Break: use the last of each name."""
    twice: list[list[tuple[str, str]]] = [
        [("host", HOST), ("host", "attacker.example")],
        [("host", "attacker.example"), ("host", HOST)],
        [("host", HOST), ("origin", HERE_URL), ("origin", "http://attacker.example")],
    ]
    for method, path in every(hostile):
        for headers in twice if method != "WS" else []:
            request = hostile.build_request(method, path)
            request.headers = type(request.headers)(
                [*headers, ("cookie", f"{COOKIE}={hostile.cookies[COOKIE]}")]
            )
            assert hostile.send(request).status_code == 400, (method, path, headers)


def test_a_page_on_another_port_can_embed_nothing(hostile: Web) -> None:
    """Its cookie is ours, too: an agent's own web server could mark a change as seen with an image.

    Break: no Sec-Fetch.
    """
    before = hostile.place.project.store.read().workers["w1"]
    for method, path in every(hostile):
        for site in ("same-site", "cross-site") if method != "WS" else ():
            for mode, dest in (("no-cors", "image"), ("navigate", "iframe")):
                headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
                assert status(hostile, method, path, **headers) == 403, (method, path)
    assert hostile.place.project.store.read().workers["w1"] == before
    linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert status(hostile, "GET", "/board", **linked) == 200


PATHS = [
    "../server.py", "..%2fserver.py", "%2e%2e/server.py", "%2e%2e%2fserver.py", "..\\server.py", "..%5cserver.py", "%00", "x%00.css",
    "/etc/passwd", "%2fetc%2fpasswd", "....//server.py", "vendor/../../server.py", "%252e%252e/server.py", "x" * 5000, "\u202e", "",
    "vendor", ".", "%ff%fe", "con", "~root",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leaves_its_folder(hostile: Web, path: str) -> None:
    """Break: join a request's path to a directory."""
    for place in (
        "/static/",
        "/static/vendor/",
        "/w/",
        "/w/w1/review/files/",
        "/w/w1/review/drafts/",
        "/jobs/",
        "/r/",
        "/",
    ):
        for method in ("GET", "PUT"):
            done = hostile.request(method, f"{place}{path}")
            # 401: the client itself resolved the dots to a path outside the browser's own.
            assert done.status_code in (200, 303, 307, 400, 401, 404, 405), (method, place, done.status_code)
            assert "class Site" not in done.text
            assert "root:x" not in done.text
            assert (
                done.status_code != 200
                or path in ("../server.py", "", ".", "%2e%2e/server.py", "..")
                or "<main" in done.text
            )
            location = done.headers.get("location", "")
            assert not location or location.startswith(("/", HERE_URL + "/")), location


@pytest.mark.parametrize(
    "target",
    [
        "//attacker.example",
        "https://attacker.example",
        "/\\attacker.example",
        "/%09/attacker.example",
        "javascript:pwn()",
    ],
)
def test_the_sign_in_leads_nowhere_else(web: Web, target: str) -> None:
    """Break: redirect to whatever `next` says."""
    other = web.stranger()
    page = other.get("/login", params={"next": target, "link": "x"})
    assert faults(page.text) == []
    assert "attacker" not in page.text or target.startswith("/%09")
    done = other.post("/login", data={"link": web.place.sign_ins.new_link(), "next": target})
    assert done.status_code == 303
    other.home = done.headers["location"][:44]
    assert done.headers["location"][44:] in ("/", "/%09/attacker.example")  # a path of ours
    assert access.place_in(other.home + "/x") == (other.home[1:], "/x")


def endless(sent: list[int]) -> Iterator[bytes]:
    while True:
        sent.append(1)
        yield b"text=" + b"x" * 65536


@pytest.mark.parametrize("path", ["/w/w1/message", "/login"])
def test_a_body_of_100_mb_is_not_read(web: Web, path: str) -> None:
    """Break: no limit when the length is not given."""
    assert web.post(path, content=b"x", headers={"content-length": "100000000"}).status_code == 413
    sent: list[int] = []
    big = (piece for piece, _ in zip(endless(sent), range(1600), strict=False))
    done = web.post(path, content=big)
    assert done.status_code == 413, done.text
    assert web.place.live.jobs.recent(9) == []


async def _never_ends(app: Any, path: str, cookie: str) -> list[Any]:
    """What a client gets whose body never ends."""
    got: list[Any] = []
    headers = [
        (b"host", HOST.encode()),
        (b"origin", HERE_URL.encode()),
        (b"cookie", f"{COOKIE}={cookie}".encode()),
    ]
    begun = iter([{"type": "http.request", "body": b"text=", "more_body": True}])

    async def receive() -> Any:
        for one in begun:
            return one
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        got.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "root_path": "",
    }
    async with asyncio.timeout(10):
        await app({**scope, "client": ("127.0.0.1", 1)}, receive, send)
    return got


def test_a_body_that_never_ends_is_given_up(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: check the clock only when something arrives."""
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    assert web.portal is not None
    path = f"{web.home}/w/w1/message"
    start, _ = web.portal.call(_never_ends, web.place.site.app, path, web.cookies[COOKIE])
    assert start["status"] == 413
    assert (b"connection", b"close") in start["headers"]


def test_secrets_are_in_no_log_and_no_file(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """Break: log the address of a request; store a cookie in plain text."""
    caplog.set_level(logging.DEBUG)
    link = web.place.sign_ins.new_link()
    other = web.stranger()
    other.get(f"/login?link={link}")
    other.home = other.post("/login", data={"link": link}).headers["location"].rpartition("/")[0]
    cookie, place = other.cookies[COOKIE], other.home[1:]
    other.post("/login", data={"link": "wrong-secret"})
    other.post("/w/w1/hold")
    web.ended(other.post("/w/w1/hold").headers["location"].rpartition("/")[2])
    root = web.place.project.root
    kept = {
        str(path): path.read_bytes()
        for path in root.path.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    secrets = [one.encode() for one in (link, cookie, place)]
    assert [name for name, data in kept.items() if any(one in data for one in secrets)] == []
    # The test client is a browser, and logs its requests.
    logged = " ".join(one.getMessage() for one in caplog.records if not one.name.startswith("http"))
    assert link not in logged
    assert cookie not in logged
    assert place not in logged
    assert "wrong-secret" not in logged
    file = root.private / "web.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert all(len(one["hash"]) == 64 for one in json.loads(file.read_bytes())["browsers"])


def test_a_method_that_is_not_there(hostile: Web) -> None:
    for method, path in every(hostile):
        if method == "GET":
            for odd in ("PATCH", "OPTIONS", "TRACE", "FOO"):
                assert hostile.request(odd, path).status_code in (404, 405), (odd, path)


def test_the_address_of_an_order_is_no_page(hostile: Web) -> None:
    """When opened from the history, for example: a page with a link back, and nothing is done.

    Break: starlette's own answer.
    """
    known = every(hostile)
    with changes_nothing(hostile):
        for method, path in known:
            if method == "POST" and ("GET", path) not in known:
                shown = hostile.get(path)
                assert (shown.status_code, faults(shown.text)) in ((404, []), (405, [])), path
                assert "Back to the list" in shown.text, path
