"""Server-sent events of one browser: all live elements at first, then those that change, at most four times a second.

A browser that slept or lost the connection asks again and gets everything, so it cannot miss a change.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from llmc.web.guard import Receive, Scope, Send, TooLarge
from llmc.web.live import Live
from llmc.web.pages import Page

#: the least time between two messages
PAUSE_S = 0.25
#: without a change, a comment keeps proxies from closing the connection
ALIVE_S = 20.0


class Stream:
    """An ASGI answer."""

    def __init__(self, live: Live, page: Page, parts: Callable[[], Awaitable[dict[str, str]]]) -> None:
        self._live, self._page, self._parts = live, page, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_disconnected(receive))
        self._live.look_at(self._page.screens)
        try:
            await self._follow(send, gone)
        finally:
            self._live.look_away(self._page.screens)
            gone.cancel()

    async def _follow(self, send: Send, gone: "asyncio.Future[None]") -> None:
        topics = self._page.topics | {"job", "fleet"}
        sent: dict[str, str] = {}
        while not gone.done() and not self._live.ended:
            waiter = self._live.next_change(topics)
            try:
                parts = await self._parts()
                news = {name: html for name, html in parts.items() if sent.get(name) != html}
                if news:
                    sent |= news
                    await send({"type": "http.response.body", "body": message(news), "more_body": True})
                    await asyncio.wait({gone}, timeout=PAUSE_S)
                while not waiter.future.done() and not gone.done():
                    await asyncio.wait(
                        {gone, waiter.future}, timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not waiter.future.done() and not gone.done():
                        await send({"type": "http.response.body", "body": b": alive\n\n", "more_body": True})
            finally:
                self._live.forget(waiter)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    with contextlib.suppress(TooLarge):
        while (await receive())["type"] != "http.disconnect":
            pass


def message(parts: dict[str, str]) -> bytes:
    """One event that swaps these elements; each is in one morph, so that focus and scroll stay."""
    html = "".join(
        f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{part}</hx-partial>'
        for name, part in parts.items()
    )
    return ("".join(f"data: {line}\n" for line in html.replace("\r", "").split("\n")) + "\n").encode()
