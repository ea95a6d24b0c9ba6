"""The web page: what a board of twenty workers, a thousand streams, an event, the first page and a large diff cost.

The workers print four lines a second, as a busy agent draws its screen. The server runs as users run it; the browsers are
connections of this process.
"""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import psutil
from tests.support.fleet import Fleet

from bench.fleets import fleet, llmc, pace_ms, wait_for_rest
from bench.measure import Row, clock_ms, row
from llmc.records.worker import Status
from llmc.repo.project import Project

NAME = "web"
WORKERS = [f"worker-{number}" for number in range(1, 21)]
WORK = "@sh for i in $(seq 4000); do echo line $i; sleep 0.25; done"
LARGE = "@sh for i in $(seq 5000); do echo line $i of a large file; done > large.txt; git add -A; git -c user.name=W -c user.email=w@e commit -qm Large"
SECONDS = 20.0
STREAMS = 1000
EVENTS = 30
BOARD_PERCENT, BOARD_MB = 5.0, 60.0
STREAMS_PERCENT, STREAMS_MB = 10.0, 80.0
EVENT_MS, DIFF_MS, PAGE_KB = 300.0, 1000.0, 200.0


class Server:
    """A running server and a signed-in browser."""

    def __init__(self, made: Fleet) -> None:
        self._child = subprocess.Popen(
            [llmc(), "--root", str(made.root), "web", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        link = urlsplit(json.loads(self._child.stdout.readline())["url"])
        self.host, self.port = link.hostname or "", link.port or 0
        self.process = psutil.Process(self._child.pid)
        secret = parse_qs(link.query)["link"][0]
        headers = {
            "Origin": f"http://{self.host}:{self.port}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        answer = self.ask("POST", "/login", urlencode({"link": secret}), headers)
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        self.home = (answer.getheader("location") or "").rpartition("/")[0]

    def ask(
        self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request(method, path, body, headers or {})
        return connection.getresponse()

    def get(self, path: str) -> bytes:
        answer = self.ask("GET", self.home + path, headers={"Cookie": self.cookie, "Accept-Encoding": "gzip"})
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return data

    @contextlib.asynccontextmanager
    async def stream(self, query: str) -> AsyncIterator[asyncio.StreamReader]:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**20)
        host = f"{self.host}:{self.port}"
        writer.write(
            f"GET {self.home}/stream?{query} HTTP/1.1\r\nHost: {host}\r\nCookie: {self.cookie}\r\n\r\n".encode()
        )
        try:
            yield reader
        finally:
            writer.close()

    def used_s(self) -> float:
        """Including the programs that it started and waited for."""
        return sum(self.process.cpu_times()[:4])

    def megabytes(self) -> float:
        return self.process.memory_info().rss / 2**20

    def stop(self) -> None:
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(30)


@contextlib.contextmanager
def _server(made: Fleet) -> Iterator[Server]:
    server = Server(made)
    try:
        yield server
    finally:
        server.stop()


def run() -> list[Row]:
    with fleet("scripted", *WORKERS, "large") as (made, project):
        made.llmc("start", "--worker", "large", "--prompt", LARGE)
        wait_for_rest(project, "large", Status.NEEDS_REVIEW)
        for worker in WORKERS:
            made.llmc("start", "--worker", worker, "--prompt", WORK)
        with _server(made) as server:
            board = asyncio.run(_watched(server, project, "page=board", 1))
        with _server(made) as server:
            many = asyncio.run(_watched(server, project, "page=events", STREAMS))
        with _server(made) as server:
            pace = [pace_ms() for _ in range(5)]
            page_kb = _first_page_kb(server)
            diffs = [clock_ms(lambda: server.get("/w/large/review")) for _ in range(7)]
            events = asyncio.run(_event_to_page(server, project))
    return [
        _share("20 workers on the board", board[0], BOARD_PERCENT),
        _size("20 workers on the board, memory (MB as ms)", board[1], BOARD_MB, "MB"),
        _share(f"{STREAMS:,} event streams", many[0], STREAMS_PERCENT),
        _size(f"{STREAMS:,} event streams, memory (MB as ms)", many[1], STREAMS_MB, "MB"),
        row(NAME, "event to page", events, "300 ms", EVENT_MS, target=1.0, judged="p95", pace_ms=pace),
        _size("first page (kB as ms)", page_kb, PAGE_KB, "kB"),
        row(NAME, "a diff of 5,000 lines", diffs, "1 s", DIFF_MS, target=1.0, pace_ms=pace),
    ]


def _share(case: str, used_s: float, percent: float) -> Row:
    about = f"{SECONDS:g} s of one core"
    return Row(NAME, case, 1, used_s * 1000, used_s * 1000, about, SECONDS * 1000, percent / 100)


def _size(case: str, size: float, most: float, unit: str) -> Row:
    return Row(NAME, case, 1, size, size, f"{most:g} {unit}", most, 1.0, note=f"{size:.0f} {unit}")


def _first_page_kb(server: Server) -> float:
    """Everything that the first page loads."""
    files = (
        "/",
        "/static/llmc.css",
        "/static/llmc.js",
        "/static/vendor/htmx.min.js",
        "/static/vendor/hx-sse.min.js",
    )
    return sum(len(server.get(path)) for path in files) / 1000


async def _watched(server: Server, project: Project, query: str, streams: int) -> tuple[float, float]:
    """Processor seconds and megabytes while some browsers watch a page, with one event per second."""
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(streams):
            readers.append(await stack.enter_async_context(server.stream(query)))
        tasks = [asyncio.ensure_future(_drain(reader)) for reader in readers]
        await asyncio.sleep(3)
        before = server.used_s()
        for number in range(int(SECONDS)):
            _emit(project, f"second {number}")
            await asyncio.sleep(1)
        used, memory = server.used_s() - before, server.megabytes()
        for task in tasks:
            task.cancel()
        if any(task.done() and not task.cancelled() for task in tasks):
            raise RuntimeError("a stream ended")
    return used, memory


def _emit(project: Project, about: str) -> None:
    with project.store.transaction() as tx:
        tx.emit("hook_received", worker=None, hook="bench", reason=about)


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def _event_to_page(server: Server, project: Project) -> list[float]:
    """From the event in the log until a browser receives it."""
    times = []
    async with server.stream("page=events") as reader:
        await reader.read(65536)
        for number in range(EVENTS):
            mark = f"bench-{os.getpid()}-{number}-".encode()
            _emit(project, mark.decode())
            began, seen = time.perf_counter(), b""
            while mark not in seen:
                seen = seen[-200:] + await asyncio.wait_for(reader.read(65536), 30)
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.4)
    return times
