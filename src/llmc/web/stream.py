"""Server-sent events of one browser: all live elements at first, then those that change.

A browser that slept or lost the connection asks again and gets everything, so it cannot miss a change.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from functools import lru_cache

from llmc.web.guard import Receive, Scope, Send, TooLarge
from llmc.web.live import ALIVE, Live, Waiter
from llmc.web.pages import Page

#: stands for a browser's home in the elements that all browsers share; no text can guess it
HOME = f"/{secrets.token_hex(16)}"
#: without news, it keeps proxies from closing the connection
COMMENT = b": alive\n\n"


class Stream:
    """An ASGI answer."""

    def __init__(
        self, live: Live, page: Page, home: str, parts: Callable[[], Awaitable[dict[str, str]]]
    ) -> None:
        self._live, self._page, self._parts = live, page, parts
        self._home = home
        self._topics = page.topics | {"job", "fleet", ALIVE}
        self._waiter: Waiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(self._leave)
        self._live.look_at(self._page.screens)
        try:
            await self._follow(send, gone)
        finally:
            self._live.look_away(self._page.screens)
            gone.cancel()

    def _leave(self, _: object) -> None:
        if self._waiter is not None:
            self._waiter.wake()

    async def _follow(self, send: Send, gone: "asyncio.Future[None]") -> None:
        sent: dict[str, str] = {}
        alive = -1
        while not gone.done() and not self._live.ended:
            self._waiter = waiter = self._live.next_change(self._topics)
            try:
                parts = await self._parts()
                news = tuple((name, html) for name, html in parts.items() if sent.get(name) != html)
                sent.update(news)
                if news or alive != self._live.revisions[ALIVE]:
                    alive = self._live.revisions[ALIVE]
                    body = message(news, self._home) if news else COMMENT
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                if not gone.done():
                    await waiter.future
            finally:
                self._live.forget(waiter)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    with contextlib.suppress(TooLarge):
        while (await receive())["type"] != "http.disconnect":
            pass


@lru_cache(maxsize=128)
def message(parts: tuple[tuple[str, str], ...], home: str) -> bytes:
    """One event that swaps these elements, the same bytes for every tab of a browser; a morph keeps focus and scroll."""
    html = "".join(
        f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{part}</hx-partial>' for name, part in parts
    )
    lines = html.replace(HOME, home).replace("\r", "").split("\n")
    return ("".join(f"data: {line}\n" for line in lines) + "\n").encode()
