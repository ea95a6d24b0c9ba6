"""The one door of the server: every request and WebSocket passes the access rules, and gets the page's policy.

Plain ASGI, so that a stream costs nothing here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote

from llmc.api.sign_ins import Browser, SignIns
from llmc.web.rules import access

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: a body that takes longer to arrive is refused
BODY_S = 20.0


class TooLarge(Exception):
    """The body has more bytes than its header said, or than we read."""


class Guard:
    """Wraps the application. `scope["browser"]` is who asks."""

    def __init__(
        self, app: App, sign_ins: SignIns, hosts: frozenset[str], cookie: str, *, read_only: bool
    ) -> None:
        self._app, self._sign_ins, self._hosts = app, sign_ins, hosts
        self._cookie, self._read_only = cookie, read_only
        #: when sign-ins failed
        self.failures: deque[float] = deque(maxlen=access.MOST_FAILURES * 2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        cookie = cookie_of(headers.get("cookie", ""), self._cookie)
        browser = await asyncio.to_thread(self._sign_ins.browser, cookie) if cookie else None
        length = headers.get("content-length", "0")
        asked = access.Asked(
            method=scope.get("method", "GET"),
            path=scope["path"],
            host=headers.get("host", ""),
            origin=headers.get("origin"),
            websocket=scope["type"] == "websocket",
            signed_in=browser is not None,
            body_bytes=int(length) if length.isdigit() else 0,
        )
        # More than one Host or Origin: which one a proxy believed is unknown.
        names = [name for name, _ in scope["headers"]]
        doubled = names.count(b"host") != 1 or names.count(b"origin") > 1
        refusal = (
            access.Refusal(400, "one Host header is needed")
            if doubled
            else access.refusal(asked, self._hosts, read_only=self._read_only)
        )
        if refusal is not None:
            await self._refuse(scope, receive, send, asked, refusal)
            return
        scope["browser"], scope["guard"] = browser, self
        policy = access.TAKE_OVER_POLICY if scope["path"].endswith("/take") else access.POLICY
        await self._app(scope, _limited(receive), _with_headers(send, policy))

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, asked: access.Asked, refusal: access.Refusal
    ) -> None:
        if asked.websocket:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.text[:120]})
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        status, body = refusal.status, f"{refusal.text}\n"
        sent = dict(scope["headers"])
        navigates = sent.get(b"sec-fetch-mode", b"navigate") == b"navigate" and b"hx-request" not in sent
        if refusal.status == 401 and asked.method == "GET" and navigates:
            query = scope["query_string"].decode("latin-1")
            target = asked.path + (f"?{query}" if query else "")
            status, body = 303, ""
            headers.append((b"location", f"/login?next={quote(target, safe='/')}".encode()))
        data = body.encode()
        headers.append((b"content-length", str(len(data)).encode()))
        headers.append((b"connection", b"close"))
        sender = _with_headers(send, access.POLICY)
        await sender({"type": "http.response.start", "status": status, "headers": headers})
        await sender({"type": "http.response.body", "body": data})

    def may_try(self) -> bool:
        """Whether another sign-in may be tried now."""
        return not access.too_many(self.failures, time.monotonic())

    def failed(self) -> None:
        self.failures.append(time.monotonic())


def cookie_of(header: str, name: str) -> str:
    """The value of our cookie; "" if there is none."""
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _limited(receive: Receive) -> Receive:
    """The body, refused when it grows too large or comes too slowly."""
    read = 0
    begun = time.monotonic()

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            if read > access.MOST_BODY_BYTES or time.monotonic() - begun > BODY_S:
                raise TooLarge
        return message

    return limited


def _with_headers(send: Send, policy: str) -> Send:
    """Adds what every answer carries."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()),
                (b"content-security-policy", policy.encode()),
                (b"x-content-type-options", b"nosniff"),
                # not "no-referrer": a form would send `Origin: null` then, and be refused
                (b"referrer-policy", b"same-origin"),
                (b"cross-origin-opener-policy", b"same-origin"),
                (b"cross-origin-resource-policy", b"same-origin"),
            ]
        await send(message)

    return sending


def named(browser: Browser | None, address: str) -> str:
    """Who asked and from where, for the event log."""
    return f"{browser.name if browser else 'unknown'}, {address}"
