"""Who may request what over HTTP. Every request and every WebSocket is checked here first. Pure.

Three independent checks: the Host must be a name of this server (so a name that an attacker points at 127.0.0.1 is
refused), the Origin must be this server's (so another page cannot send anything), and a cookie that no other site can
send identifies the browser. For cookies, another port of the same machine is the same site. Therefore the headers in
which a browser describes the requesting page count, too: another origin may only link to us. And the cookie is for a
secret path: a browser that visits another port does not send it there.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

#: the paths that need no sign-in
_OPEN = ("/login", "/manifest.webmanifest", "/icon.svg")
_SAFE = ("GET", "HEAD")
#: a path: the secret first part of a browser's URLs, and the rest
_PLACE = re.compile(r"/([A-Za-z0-9_-]{43})(/.*)?", re.DOTALL)
#: maximum bytes of a body
MOST_BODY_BYTES = 1_000_000
#: most failed sign-ins per minute from one address
MOST_FAILURES = 10

#: scripts and styles from our own files only; nothing embeds the page
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: xterm.js sets the style attributes of its rows
TAKE_OVER_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")


class Asked(Struct, frozen=True):
    """The facts about a request that the rules need."""

    method: str
    path: str
    host: str
    #: None if the browser sent none
    origin: str | None
    websocket: bool
    signed_in: bool
    #: whether another origin sent the request, other than by a link that the user followed
    embedded: bool = False
    #: as the client declares it; 0 if it does not
    body_bytes: int = 0


class Refusal(Struct, frozen=True):
    """Why a request is refused."""

    status: int
    text: str


def refusal(asked: Asked, hosts: Iterable[str], *, read_only: bool) -> Refusal | None:
    """Why this request is refused; None: it is allowed."""
    if asked.host.lower() not in hosts:
        return Refusal(
            421, f"unknown host name {_shown(asked.host)}; to allow it: llmc web --allow-host NAME"
        )
    writes = asked.websocket or asked.method not in _SAFE
    if asked.origin is None and writes:
        return Refusal(403, "missing Origin header")
    if asked.origin is not None and not _is_ours(asked.origin, asked.host):
        return Refusal(403, f"requests from {_shown(asked.origin)} are not allowed")
    if asked.embedded:
        return Refusal(403, "requests embedded in another site's page are not allowed")
    if asked.body_bytes > MOST_BODY_BYTES:
        return Refusal(413, f"the request is larger than {MOST_BODY_BYTES // 1000} kB")
    if is_open(asked.path):
        return None
    if not asked.signed_in:
        return Refusal(401, "not signed in; run `llmc web --link` to get a sign-in link")
    if read_only and writes and asked.path != "/logout":
        return Refusal(403, "this server is read-only")
    return None


def place_in(path: str) -> tuple[str, str]:
    """The secret first part of a path, "" if it has none, and the rest of the path."""
    found = _PLACE.fullmatch(path)
    return (found[1], found[2] or "/") if found else ("", path)


def is_embedded(headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin requests an image, script, frame or data. Old browsers do not tell."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")


def body_bytes(header: str) -> int:
    """The length that a client declares; above the limit if it is not a number."""
    length = whole(header)
    return MOST_BODY_BYTES + 1 if length is None else length


def whole(text: str) -> int | None:
    """An untrusted number; None if it is not a number, or has too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def is_open(path: str) -> bool:
    return path in _OPEN or path.startswith("/static/")


def _is_ours(origin: str, host: str) -> bool:
    """Whether we served the requesting page, under the host name that it requests."""
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _shown(text: str) -> str:
    return repr(text[:80])


def hosts_of(address: str, port: int, allowed: Iterable[str]) -> frozenset[str]:
    """The accepted Host headers: this server's address, the loopback names, and the names the user allowed."""
    names = {"127.0.0.1", "localhost", "[::1]"}
    if address not in ("0.0.0.0", "::"):
        names.add(f"[{address}]" if ":" in address and not address.startswith("[") else address)
    given = {name.lower() for name in allowed}
    ports = {f"{name}:{port}" for name in names} | {f"{name}:{port}" for name in given if ":" not in name}
    return frozenset(ports | given | (names if port == 80 else set()))


def too_many(failures: Iterable[float], now: float) -> bool:
    """Whether sign-in has failed too often in the last minute."""
    return sum(1 for at in failures if now - at < 60) >= MOST_FAILURES


def return_path(given: str) -> str:
    """Where to go after the sign-in: a path of this server only."""
    if (
        given.startswith("/")
        and not given.startswith(("//", "/\\"))
        and "\\" not in given
        and given.isprintable()
    ):
        return given
    return "/"
