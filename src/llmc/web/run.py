"""Runs the server in this process until it is stopped."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Iterable

import uvicorn

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


def serve(
    project: Project,
    sign_ins: SignIns,
    address: str,
    port: int,
    allowed: Iterable[str],
    ready: Callable[[str], None],
    *,
    read_only: bool = False,
) -> int:
    """Serve the page; `ready` gets its URL."""
    listening = _listen(address, port)
    port = listening.getsockname()[1]
    site = Site(
        projects_of(project),
        sign_ins,
        hosts=access.hosts_of(address, port, allowed),
        cookie=f"llmc-{port}",
        read_only=read_only,
    )
    config = uvicorn.Config(
        site.app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=MOST_MESSAGE,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    shown = "127.0.0.1" if address in ("0.0.0.0", "::") else f"[{address}]" if ":" in address else address
    gc.collect()
    gc.freeze()
    ready(f"http://{shown}:{port}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listening]))
    return 0


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
