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

#: other roots of the user on the same page
MOST_ROOTS = 12
#: a WebSocket message is not larger
MOST_MESSAGE = 200_000
#: connections that wait to be accepted
BACKLOG = 2048
#: a connection on which nothing moves is looked at this often, and ended the second time
QUIET_S = 15.0


class Impatient(H11Protocol):
    """Ends a connection whose request does not arrive, or whose answer is not read: each holds a file of ours."""

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
        # An answer in the works, and all of it read so far: a stream without news.
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
        """A stream has no end to wait for."""
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
    """Serve the page; `ready` gets its URL."""
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
        # Anybody who reaches the port can send what is not HTTP: no line in a log for each.
        log_level="error",
        access_log=False,
        # Without a proxy, nobody else says where a request comes from.
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
    """As many connections as the system allows: 1,000 is the usual limit of open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address, port))
    except OSError as error:
        made.close()
        raise LlmcError(
            f"cannot listen on {address}:{port}: {error.strerror}",
            hint="Choose another port: llmc web --port 0",
        ) from error
    made.listen(BACKLOG)
    return made


def projects_of(project: Project) -> dict[str, Project]:
    """This root first, then the other roots of the user, each under a name of its own."""
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
