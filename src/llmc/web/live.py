"""One root, followed once for all browsers: holds its latest state, and wakes the streams when it changes."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterable

from llmc.api.roots import Project
from llmc.api.subscription import (
    EVENTS,
    Change,
    EventLine,
    FleetSeen,
    Happened,
    Screen,
    ScreenSeen,
    Subscription,
    Trouble,
)
from llmc.api.views import Fleet
from llmc.base.errors import LlmcError
from llmc.web.jobs import Job, Jobs

#: minimum time between two wake-ups of the streams
PAUSE_S = 0.25
#: how long to gather changes: a look at the root reports its events and its fleet one after the other
GATHER_S = 0.02
#: a topic that changes this often, even when nothing else does
ALIVE = "alive"
ALIVE_S = 20.0
#: how long the first page waits for the first look at a root
FIRST_LOOK_S = 20.0
#: how long a page waits until a worker that was just added is seen
NEW_WORKER_S = 5.0


def wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Waiter:
    """A stream that waits for a change of its topics."""

    def __init__(self, topics: frozenset[str], future: "asyncio.Future[None]") -> None:
        self.topics, self.future = topics, future

    def wake(self) -> None:
        wake(self.future)


class Live:
    """What is known of a root now. Changes only in the event loop; other threads call `_heard` and `_from_thread`."""

    def __init__(self, key: str, project: Project) -> None:
        self.key, self.project = key, project
        self.fleet: Fleet | None = None
        self.trouble = ""
        self.events: deque[EventLine] = deque(maxlen=EVENTS)
        self.screens: dict[str, Screen] = {}
        self.jobs = Jobs(lambda job: self._from_thread("job", f"job {job.id}"))
        #: how often each topic has changed
        self.revisions: Counter[str] = Counter()
        #: the server is stopping: every stream ends now
        self.ended = False
        self._waiters: set[Waiter] = set()
        self._changed: set[str] = set()
        self._waking: asyncio.TimerHandle | None = None
        self._woken = 0.0
        self._looks: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first = asyncio.Event()
        self._subscription: Subscription | None = None
        self._reviewed: dict[str, dict[str, str]] = {}

    def follow(self) -> None:
        """Follow the root from now on."""
        if self._subscription is None:
            self._loop = asyncio.get_running_loop()
            self._subscription = Subscription(self.project, self._heard)
            self._subscription.start()
            self._stay_alive()

    async def seen(self) -> None:
        """Wait for the first look at the root."""
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                await self._first.wait()
        except TimeoutError as error:
            raise LlmcError(
                f"timed out reading the state of {self.project.root.path.name}",
                hint="Run `llmc doctor` in that root.",
            ) from error

    async def expect(self, worker: str) -> None:
        """Wait until a worker is seen, if it was just added."""
        if self._knows(worker) or worker not in await asyncio.to_thread(self._recorded):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEW_WORKER_S):
                while not self._knows(worker):
                    waiter = self.next_change(frozenset({"fleet"}))
                    try:
                        await waiter.future
                    finally:
                        self.forget(waiter)

    def _knows(self, worker: str) -> bool:
        return self.fleet is not None and worker in self.fleet.rows

    def _recorded(self) -> Iterable[str]:
        with contextlib.suppress(LlmcError):  # a state that cannot be read names no worker; the page says so
            return self.project.store.read().workers
        return ()

    def reviewed_by(self, browser: str) -> dict[str, str]:
        """By worker: the commit that a browser last reviewed."""
        return self._reviewed.setdefault(browser, {})

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.stop()

    def _heard(self, change: Change) -> None:
        """Called in the subscription's thread."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._apply, change)

    def _from_thread(self, *topics: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.changed, *topics)

    def _apply(self, change: Change) -> None:
        match change:
            case FleetSeen(fleet):
                self.fleet, self.trouble = fleet, ""
                self._first.set()
                self.changed("fleet")
            case Happened(events):
                self.events.extend(events)
                self.changed("events")
            case ScreenSeen(screen):
                self.screens[screen.worker] = screen
                self.changed("screen", f"screen {screen.worker}")
            case Trouble(text):
                self.trouble = text
                self._first.set()
                self.changed("fleet")

    def changed(self, *topics: str) -> None:
        """Soon wake the streams that show one of these topics; changes close together cause one wake-up."""
        self.revisions.update(topics)
        self._changed.update(topics)
        if self._waking is None:
            loop = asyncio.get_running_loop()
            self._waking = loop.call_at(max(loop.time() + GATHER_S, self._woken + PAUSE_S), self._wake)

    def _wake(self) -> None:
        topics, self._changed = self._changed, set()
        self._waking, self._woken = None, asyncio.get_running_loop().time()
        for waiter in [one for one in self._waiters if not one.topics.isdisjoint(topics)]:
            self._waiters.discard(waiter)
            waiter.wake()

    def _stay_alive(self) -> None:
        self.changed(ALIVE)
        asyncio.get_running_loop().call_later(ALIVE_S, self._stay_alive)

    def end_streams(self) -> None:
        self.ended = True
        self.changed("fleet")

    def next_change(self, topics: frozenset[str]) -> Waiter:
        """A waiter whose future is done at the next change of these topics."""
        waiter = Waiter(topics, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        return waiter

    def forget(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)
        waiter.future.cancel()

    def look_at(self, workers: Iterable[str]) -> None:
        """Capture these screens while a browser shows them."""
        self._looks.update(workers)
        self._watch()

    def look_away(self, workers: Iterable[str]) -> None:
        self._looks.subtract(workers)
        self._looks = +self._looks
        self._watch()

    def _watch(self) -> None:
        if self._subscription is not None:
            self._subscription.watch_screens(*self._looks)
        self.screens = {name: screen for name, screen in self.screens.items() if name in self._looks}

    def newest_events(self) -> list[EventLine]:
        """The events, newest first; a copy, because pages are made in threads."""
        return list(self.events)[::-1]

    def job_of(self, worker: str) -> Job | None:
        return self.jobs.latest(worker)
