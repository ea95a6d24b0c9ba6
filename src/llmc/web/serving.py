"""Runs the server in this process until it is stopped."""

import asyncio
import contextlib
import gc
import resource
import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from llmc.api.roots import Project, open_project, roots_of_user
from llmc.api.sign_ins import SignIns
from llmc.base.errors import LlmcError
from llmc.web.rules import access
from llmc.web.server import Site

#: most roots of the user on one page
MOST_ROOTS = 12
#: maximum bytes of a WebSocket message
MOST_MESSAGE = 200_000
#: most connections that wait to be accepted
BACKLOG = 2048
#: how often to check a connection; one without progress between two checks is closed
QUIET_S = 15.0


class Impatient(H11Protocol):
    """Closes connections whose request does not arrive or whose response is not read: each holds an open file."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._before: object = None
        self._next_look = self.loop.call_later(QUIET_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            return  # a WebSocket has its own pings
        unread = self.transport.get_write_buffer_size()
        answers = self.cycle is not None and not self.cycle.response_complete
        # A response in progress, with all of it read so far, is a stream without news.
        now = None if answers and not unread else (self.cycle, unread)
        if now is not None and now == self._before:
            self.transport.abort()
            return
        self._before = now
        self._next_look = self.loop.call_later(QUIET_S, self._look)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams first, since they never end by themselves."""
        for live in self._site.lives.values():
            live.end_streams()
        await super().shutdown(sockets)


def serve(
    project: Project,
    sign_ins: SignIns,
    address: str,
    port: int,
    allowed: tuple[str, ...],
    ready: Callable[[str], None],
    *,
    commands: Iterable[str],
    read_only: bool = False,
) -> int:
    """Serve the page; `ready` is called with its URL."""
    _allow_many_files()
    listening = _listen(address, port)
    port = listening.getsockname()[1]
    projects = projects_of(project)
    served = {str(one.root.path) for one in projects.values()}
    site = Site(
        projects,
        sign_ins,
        hosts=access.hosts_of(address, port, allowed),
        cookie=f"llmc-{port}",
        commands=commands,
        read_only=read_only,
        unserved=[path for path in roots_of_user() if path not in served],
    )
    config = uvicorn.Config(
        site.app,
        http=Impatient,
        # Anyone who reaches the port can send invalid HTTP, which must not fill the log.
        log_level="error",
        access_log=False,
        # Only behind a proxy, trust headers that say where a request comes from.
        proxy_headers=bool(allowed),
        forwarded_allow_ips="127.0.0.1,::1",
        server_header=False,
        ws_max_size=MOST_MESSAGE,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config, site)
    shown = "127.0.0.1" if address in ("0.0.0.0", "::") else f"[{address}]" if ":" in address else address
    gc.collect()
    gc.freeze()
    ready(f"http://{shown}:{port}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listening]))
    return 0


def _allow_many_files() -> None:
    """Allow as many connections as the system does; the usual limit is about 1,000 open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = None
    try:
        made = socket.socket(family, socket.SOCK_STREAM)  # fails if the kernel has no IPv6
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except OSError as error:
        if made is not None:
            made.close()
        raise LlmcError(
            f"cannot listen on {address}:{port}: {error.strerror}",
            hint="Choose another address or port: llmc web --address 127.0.0.1 --port 0",
        ) from error
    made.listen(BACKLOG)
    return made


def projects_of(project: Project) -> dict[str, Project]:
    """This root first, then other roots of the user, each under a unique name."""
    found = {str(project.root.path): project}
    for path in roots_of_user():
        if path not in found and len(found) < MOST_ROOTS:
            with contextlib.suppress(LlmcError):
                found[path] = open_project(path)
    named: dict[str, Project] = {}
    for path, one in found.items():
        name = path.rstrip("/").rpartition("/")[2]
        number = 2
        key = name
        while key in named:
            key, number = f"{name}-{number}", number + 1
        named[key] = one
    return named
