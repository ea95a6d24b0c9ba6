"""Server-sent events of one browser: all live elements at first, then those that change.

A browser that slept or lost the connection reconnects and gets everything, so it cannot miss a change.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache

from llmc.web.guard import Receive, Scope, Send, TooLarge
from llmc.web.live import ALIVE, Live, wake
from llmc.web.pages import Page

Make = Callable[[], Awaitable[dict[str, str]]]

#: placeholder for a browser's URL prefix in elements that all browsers share; random, so no text can contain it
HOME = f"/{secrets.token_hex(16)}"
#: sent without news, so that proxies keep the connection open and the page does not consider it lost
ALIVE_EVENT = b"event: alive\ndata:\n\n"


class Feed:
    """The live elements of a page, made once after each change for all streams that show the page."""

    def __init__(self, live: Live, topics: frozenset[str], make: Make) -> None:
        self.streams = 0
        self.parts: dict[str, str] = {}
        #: how many times the elements were made
        self.made = 0
        self._live, self._topics, self._make = live, topics, make
        self._waiting: set[asyncio.Future[None]] = set()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while not self._live.ended:
                waiter = self._live.next_change(self._topics)
                try:
                    self.parts = await self._make()
                    self.made += 1
                    self._wake()
                    await waiter.future
                finally:
                    self._live.forget(waiter)
        finally:
            self._wake()

    def _wake(self) -> None:
        woken, self._waiting = self._waiting, set()
        for future in woken:
            wake(future)

    def next(self) -> "asyncio.Future[None]":
        """A future that is done when the elements are made again, or the feed ends."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        return future

    def forget(self, future: "asyncio.Future[None]") -> None:
        self._waiting.discard(future)

    @property
    def ended(self) -> bool:
        return self._task.done()

    def raise_failure(self) -> None:
        """Raise the error that kept the elements from being made, if any."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    def stop(self) -> None:
        self._task.cancel()


class Feeds:
    """The feeds of the pages that browsers show now."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, ...], Feed] = {}

    @contextlib.contextmanager
    def joined(self, key: tuple[str, ...], live: Live, topics: frozenset[str], make: Make) -> Iterator[Feed]:
        feed = self._feeds.get(key)
        if feed is None or feed.ended:
            feed = self._feeds[key] = Feed(live, topics, make)
        feed.streams += 1
        try:
            yield feed
        finally:
            feed.streams -= 1
            if feed.streams == 0:
                feed.stop()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]


class Stream:
    """The event stream of one browser, as an ASGI response."""

    def __init__(
        self, live: Live, page: Page, home: str, feed: contextlib.AbstractContextManager[Feed]
    ) -> None:
        self._live, self._page, self._home = live, page, home
        self._joined = feed
        self._next: asyncio.Future[None] | None = None

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
            with self._joined as feed:
                await self._follow(feed, send, gone)
        finally:
            self._live.look_away(self._page.screens)
            gone.cancel()

    def _leave(self, _: object) -> None:
        if self._next is not None:
            wake(self._next)

    async def _follow(self, feed: Feed, send: Send, gone: "asyncio.Future[None]") -> None:
        sent: dict[str, str] = {}
        seen, alive = 0, -1
        while not gone.done() and not feed.ended:
            if seen == feed.made:
                self._next = feed.next()
                try:
                    await self._next
                finally:
                    feed.forget(self._next)
                continue
            seen = feed.made
            news = tuple((name, html) for name, html in feed.parts.items() if sent.get(name) != html)
            sent.update(news)
            if news or alive != self._live.revisions[ALIVE]:
                alive = self._live.revisions[ALIVE]
                body = message(news, self._home) if news else ALIVE_EVENT
                await send({"type": "http.response.body", "body": body, "more_body": True})
        feed.raise_failure()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    with contextlib.suppress(TooLarge):
        while (await receive())["type"] != "http.disconnect":
            pass


@lru_cache(maxsize=128)
def message(parts: tuple[tuple[str, str], ...], home: str) -> bytes:
    """One event that replaces these elements, cached for all tabs of a browser. Morphing keeps focus and scroll."""
    html = "".join(
        f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{part}</hx-partial>' for name, part in parts
    )
    lines = html.replace(HOME, home).replace("\r", "").split("\n")
    return ("".join(f"data: {line}\n" for line in lines) + "\n").encode()
