"""The only entry to the server: checks every request and WebSocket by the access rules, and adds the policy headers.

Plain ASGI, so that streams cost nothing here.
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
#: most cookies of our name to check: other servers on this machine can set some, too
MOST_COOKIES = 8
#: most addresses whose failed sign-ins are remembered
MOST_ADDRESSES = 1000
#: headers of every response
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # not "no-referrer": then a form would send `Origin: null` and be refused
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLarge(Exception):
    """The body is larger than the limit, or arrives too slowly."""


class Guard:
    """Wraps the application. Sets `scope["browser"]` (None: not signed in) and `scope["home"]`, its URL prefix."""

    def __init__(
        self, app: App, sign_ins: SignIns, hosts: frozenset[str], cookie: str, *, read_only: bool
    ) -> None:
        self._app, self._sign_ins, self._hosts = app, sign_ins, hosts
        self._cookie, self._read_only = cookie, read_only
        #: times of failed sign-ins, by address
        self._failures: dict[str, deque[float]] = {}
        #: by hash: browsers that may have an open stream or terminal, each with a future that is done on sign-out
        self._lasting: dict[str, tuple[Browser, asyncio.Future[None]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        # Changed in place, not copied: a stream keeps its scope for hours.
        place, scope["path"] = access.place_in(scope["path"])
        scope["home"] = f"/{place}" if place else ""
        try:
            browser = await self._browser(place, headers.get("cookie", ""))
            unreadable = None
        except LlmcError:  # the error names the file, which an unknown browser must not learn
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
        # With more than one Host or Origin, it is unknown which one a proxy used.
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
        """The browser that is signed in with this place and one of these cookies."""
        given = cookies_of(cookies, self._cookie) if place else []
        found = (self._sign_ins.browser(Secret(place, cookie)) for cookie in given)
        browser = next((one for one in found if one is not None), None)
        if browser is not None and now_unix() - browser.seen_unix > SEEN_S:
            with contextlib.suppress(LlmcError):  # only a note
                await asyncio.to_thread(self._sign_ins.seen, browser)
        return browser

    def _while_signed_in(self, send: Send, browser: Browser | None) -> Send:
        """Send to a browser; end its streams and terminals when it is signed out."""
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
        """Receive from a browser; its sign-out counts as a disconnect, also on an idle connection."""
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
        """Receive from a WebSocket until the browser is signed out."""

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
            # Keep login.js from sending a browser back to its own place, where it is not signed in.
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
        """Whether this address may try to sign in now; counted by address, so that none can lock out another."""
        return not access.too_many(self._failures.get(address, ()), time.monotonic())

    def failed(self, address: str) -> None:
        # Move the address to the end: the oldest one is dropped first.
        times = self._failures.pop(address, deque(maxlen=access.MOST_FAILURES))
        times.append(time.monotonic())
        self._failures[address] = times
        if len(self._failures) > MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]


def cookies_of(header: str, name: str) -> list[str]:
    """The values of our cookie. The header also has cookies of other servers on this machine, in any form."""
    pairs = (piece.strip().partition("=") for piece in header.split(";"))
    return [value for key, _, value in pairs if key == name and value][:MOST_COOKIES]


def _limited(receive: Receive, later: Receive) -> Receive:
    """Receive the body, refused if too large or too slow; then use `later` without a limit: streams wait for hours."""
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
    """Add the headers of every response. A response may bring its own policy and Cache-Control."""
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
    """Who asked and from where, for the event log. A proxy can report any text as the address."""
    return f"{browser.name if browser else 'unknown'}, {shortened(printable(address), 60)}"
