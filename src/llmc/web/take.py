"""Takes over a worker: its own pane in the browser, through a WebSocket. Meanwhile the worker is attached."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from llmc.api import orders, workers
from llmc.api.roots import Project
from llmc.api.said import command_line
from llmc.base.errors import LlmcError
from llmc.base.text import printable

#: maximum bytes of a paste
MOST_TYPED = 100_000
#: maximum bytes of the reason why a terminal is closed
MOST_REASON = 120
#: most pieces of output that wait for the browser; then the terminal waits
MOST_WAITING = 256


async def over(
    socket: WebSocket, project: Project, worker: str, by: str, with_root: Callable[[str], str]
) -> None:
    """Serve one terminal until the browser leaves or the pane ends."""
    await socket.accept()
    try:
        taken = await asyncio.to_thread(_take, project, worker, by)
    except LlmcError as error:
        await socket.close(1011, reason(with_root(error.message), with_root(error.hint)))
        return
    try:
        await socket.send_json({"columns": taken.columns, "lines": taken.lines})
        await _both_ways(socket, taken.fd)
    finally:
        # However this ends, hand the worker back.
        await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(workers.hand_back, taken)))
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the browser left first
            await socket.close()


def reason(message: str, hint: str = "") -> str:
    """The error, in the 123 bytes that a closing WebSocket may send. A hint is never cut: half a command is no help."""
    whole = printable(f"{message}. {hint}" if hint else message)
    if len(whole.encode()) <= MOST_REASON:
        return whole
    return printable(message).encode()[:MOST_REASON].decode(errors="ignore")


def _take(project: Project, worker: str, by: str) -> workers.TakenOver:
    taken = workers.take_over(project, worker)
    orders.note(project, worker, command_line("attach", worker), by)
    return taken


async def _both_ways(socket: WebSocket, fd: int) -> None:
    loop = asyncio.get_running_loop()
    shown: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        except OSError:  # the terminal has ended
            data = b""
        shown.put_nowait(data)
        if not data or shown.qsize() >= MOST_WAITING:
            loop.remove_reader(fd)

    async def show() -> None:
        while data := await shown.get():
            await socket.send_bytes(data)
            if shown.qsize() < MOST_WAITING // 2:
                loop.add_reader(fd, read)

    async def type_in() -> None:
        while True:
            message: dict[str, Any] = dict(await socket.receive())
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes") or (message.get("text") or "").encode()
            if data and len(data) <= MOST_TYPED:
                await _write(fd, data)

    os.set_blocking(fd, False)
    loop.add_reader(fd, read)
    ways = [asyncio.ensure_future(show()), asyncio.ensure_future(type_in())]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(fd)
        for way in ways:
            way.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, OSError):
                await way


async def _write(fd: int, data: bytes) -> None:
    """Type as fast as the pane reads. No thread: it could wait until another file has this number, and write there."""
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            free = asyncio.Event()
            loop.add_writer(fd, free.set)
            try:
                await free.wait()
            finally:
                loop.remove_writer(fd)
