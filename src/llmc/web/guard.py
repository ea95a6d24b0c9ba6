"""The one door of the server: every request and WebSocket passes the access rules, and gets the page's policy.

Plain ASGI, so that a stream costs nothing here.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from llmc.api.sign_ins import SEEN_S, Browser, Secret, SignIns
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import printable, shortened
from llmc.web.rules import access

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: a body that takes longer to arrive is refused
BODY_S = 20.0
#: cookies of our name that are looked at: another server of this machine can set some, too
MOST_COOKIES = 8
#: addresses whose failed sign-ins are remembered
MOST_ADDRESSES = 1000
#: what every answer carries
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # not "no-referrer": a form would send `Origin: null` then, and be refused
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLarge(Exception):
    """The body has more bytes than its header said, or than we read."""


class Guard:
    """Wraps the application. `scope["browser"]` is who asks, `scope["home"]` what its addresses begin with."""

    def __init__(
        self, app: App, sign_ins: SignIns, hosts: frozenset[str], cookie: str, *, read_only: bool
    ) -> None:
        self._app, self._sign_ins, self._hosts = app, sign_ins, hosts
        self._cookie, self._read_only = cookie, read_only
        #: when sign-ins failed, by address
        self._failures: dict[str, deque[float]] = {}
        #: browsers with something that lasts, by hash, each with what is done when it is signed out
        self._lasting: dict[str, tuple[Browser, asyncio.Future[None]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        # In place: a stream keeps its scope for hours.
        place, scope["path"] = access.place_in(scope["path"])
        scope["home"] = f"/{place}" if place else ""
        try:
            browser = await self._browser(place, headers.get("cookie", ""))
            unreadable = None
        except LlmcError:  # where the file is concerns nobody who is not signed in
            browser = None
            unreadable = access.Refusal(
                503, "cannot read the list of signed-in browsers; run `llmc web --link` to see why"
            )
        asked = access.Asked(
            method=scope.get("method", "GET"),
            path=scope["path"],
            host=headers.get("host", ""),
            origin=headers.get("origin"),
            websocket=scope["type"] == "websocket",
            signed_in=browser is not None,
            embedded=access.is_embedded(headers),
            body_bytes=access.body_bytes(headers.get("content-length", "0")),
        )
        # More than one Host or Origin: which one a proxy believed is unknown.
        names = [name for name, _ in scope["headers"]]
        doubled = names.count(b"host") != 1 or names.count(b"origin") > 1
        refusal = (
            access.Refusal(400, "the request must have exactly one Host header and at most one Origin header")
            if doubled
            else access.refusal(asked, self._hosts, read_only=self._read_only)
        )
        if refusal is not None:
            refusal = unreadable if unreadable and refusal.status == 401 else refusal
            await self._refuse(scope, receive, send, asked, refusal)
            return
        scope["browser"], scope["guard"] = browser, self
        sender = self._while_signed_in(_with_headers(scope, send), browser)
        if asked.websocket:
            await self._app(scope, self._typed(self._until_signed_out(receive, browser), browser), sender)
        else:
            await self._app(scope, _limited(receive, self._until_signed_out(receive, browser)), sender)

    async def _browser(self, place: str, cookies: str) -> Browser | None:
        """Who has this place and one of these cookies."""
        given = cookies_of(cookies, self._cookie) if place else []
        found = (self._sign_ins.browser(Secret(place, cookie)) for cookie in given)
        browser = next((one for one in found if one is not None), None)
        if browser is not None and now_unix() - browser.seen_unix > SEEN_S:
            with contextlib.suppress(LlmcError):  # only a note
                await asyncio.to_thread(self._sign_ins.seen, browser)
        return browser

    def _while_signed_in(self, send: Send, browser: Browser | None) -> Send:
        """What lasts, a stream or a terminal, ends with the sign-in."""
        ended = False

        async def sending(message: Message) -> None:
            nonlocal ended
            lasts = message["type"] == "websocket.send" or message.get("more_body", False)
            if ended:
                return
            if lasts and browser is not None and not self._is_signed_in(browser):
                ended = True
                message = (
                    {"type": "websocket.close", "code": 1008, "reason": "signed out"}
                    if message["type"] == "websocket.send"
                    else {"type": "http.response.body", "body": b"", "more_body": False}
                )
            await send(message)

        return sending

    def _until_signed_out(self, receive: Receive, browser: Browser | None) -> Receive:
        """What a browser sends; after its sign-out it has left, also where nothing moves."""
        if browser is None:
            return receive

        async def received() -> Message:
            new = (browser, asyncio.get_running_loop().create_future())
            _, signed_out = self._lasting.setdefault(browser.hash, new)
            arriving = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((arriving, signed_out), return_when=asyncio.FIRST_COMPLETED)
                return arriving.result() if arriving.done() else {"type": "http.disconnect"}
            finally:
                arriving.cancel()

        return received

    def end_signed_out(self) -> None:
        """End every stream and terminal of a browser that is no longer signed in."""
        for browser, signed_out in list(self._lasting.values()):
            if not self._is_signed_in(browser):
                del self._lasting[browser.hash]
                signed_out.set_result(None)

    def _typed(self, receive: Receive, browser: Browser | None) -> Receive:
        """What comes through a WebSocket, until the sign-in ends."""

        async def received() -> Message:
            message = await receive()
            if message["type"] in ("websocket.receive", "http.disconnect") and not self._is_signed_in(
                browser
            ):
                return {"type": "websocket.disconnect", "code": 1008}
            return message

        return received

    def _is_signed_in(self, browser: Browser | None) -> bool:
        if browser is None:
            return False
        try:
            return self._sign_ins.is_signed_in(browser)
        except LlmcError:
            return False

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, asked: access.Asked, refusal: access.Refusal
    ) -> None:
        if asked.websocket:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        status, body = refusal.status, f"{refusal.text}\n"
        sent = dict(scope["headers"])
        navigates = sent.get(b"sec-fetch-mode", b"navigate") == b"navigate" and b"hx-request" not in sent
        if refusal.status == 401 and asked.method == "GET" and navigates:
            query = scope["query_string"].decode("latin-1")
            target = asked.path + (f"?{query}" if query else "")
            status, body = 303, ""
            # A browser that has a place of its own, and is not signed in there, is not led back to it.
            ended = "&out=yes" if scope["home"] else ""
            location = f"/login?next={quote(target, safe='/', errors='replace')}{ended}"
            headers.append((b"location", location.encode()))
        data = body.encode(errors="replace")
        headers.append((b"content-length", str(len(data)).encode()))
        headers.append((b"connection", b"close"))
        sender = _with_headers(scope, send)
        await sender({"type": "http.response.start", "status": status, "headers": headers})
        await sender({"type": "http.response.body", "body": data})

    def may_try(self, address: str) -> bool:
        """Whether another sign-in may be tried now from this address: nobody can lock another one out."""
        return not access.too_many(self._failures.get(address, ()), time.monotonic())

    def failed(self, address: str) -> None:
        # The address that failed last is the newest.
        times = self._failures.pop(address, deque(maxlen=access.MOST_FAILURES))
        times.append(time.monotonic())
        self._failures[address] = times
        if len(self._failures) > MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]


def cookies_of(header: str, name: str) -> list[str]:
    """The values of our cookie. What other servers of this machine have set is in the same header, of any form."""
    pairs = (piece.strip().partition("=") for piece in header.split(";"))
    return [value for key, _, value in pairs if key == name and value][:MOST_COOKIES]


def _limited(receive: Receive, later: Receive) -> Receive:
    """The body, refused when it grows too large or comes too slowly; then `later`, without a limit: a stream waits for hours."""
    read, ended = 0, False
    until = asyncio.get_running_loop().time() + BODY_S

    async def limited() -> Message:
        nonlocal read, ended
        if ended:
            return await later()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError as error:
            raise TooLarge from error
        read += len(message.get("body", b""))
        ended = message["type"] != "http.request" or not message.get("more_body", False)
        if read > access.MOST_BODY_BYTES:
            raise TooLarge
        return message

    return limited


def _with_headers(scope: Scope, send: Send) -> Send:
    """Adds what every answer carries; a policy of its own, and how long it may be kept, an answer says itself."""
    kept = scope["path"].startswith("/static/")

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name for name, _ in given}
            if b"content-security-policy" not in names:
                given.append((b"content-security-policy", access.POLICY.encode()))
            if b"cache-control" not in names and not kept:
                given.append((b"cache-control", b"no-store"))
            message["headers"] = [*given, *_HEADERS]
        await send(message)

    return sending


def named(browser: Browser | None, address: str) -> str:
    """Who asked and from where, for the event log. A proxy says the address: any text."""
    return f"{browser.name if browser else 'unknown'}, {shortened(printable(address), 60)}"
