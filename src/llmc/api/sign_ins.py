"""Who may use the web page: browsers that signed in with a link, in `.llmc/web.json`.

Links and cookies carry 256 random bits. The file has only their hashes: every agent runs as the same user and can read
it. A link works once. A cookie is not bound to a port, so browsers would send it to every server on this machine.
Therefore it is valid for one path only, which is as secret as the cookie; that browser finds the page there.
"""

import hashlib
import os
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import Refused
from llmc.base.files import read_given, write_atomic
from llmc.base.locks import Rank, lock
from llmc.config.paths import Root

LOCK_S = 10.0
#: how long a link works
LINK_S = 600.0
#: how many links may be open at the same time
MOST_LINKS = 8
#: how many browsers may be signed in; after that, the one not seen for longest is signed out
MOST_BROWSERS = 50
#: `seen_unix` is written this often
SEEN_S = 3600.0
#: a browser that was not seen for this long is signed out
KEPT_S = 180 * 86400.0


class Link(msgspec.Struct, frozen=True):
    """An unused link."""

    hash: str
    until_unix: float


class Secret(msgspec.Struct, frozen=True):
    """What identifies a browser: the first part of its addresses, and the cookie for that path."""

    place: str
    cookie: str

    @property
    def hash(self) -> str:
        return _hash(f"{self.place}/{self.cookie}")


class Browser(msgspec.Struct, frozen=True):
    """A browser that signed in."""

    #: of its `Secret`
    hash: str
    #: from its user agent, such as `iPhone`
    name: str
    since_unix: float
    seen_unix: float


class _File(msgspec.Struct, frozen=True):
    links: tuple[Link, ...] = ()
    browsers: tuple[Browser, ...] = ()
    #: the URLs of the server, the best one for a phone first
    serves: tuple[str, ...] = ()


class SignIns:
    def __init__(self, root: Root) -> None:
        self._root, self._file = root, str(root.private / "web.json")
        #: the file's inode, times and size when it was last read, and its contents
        self._known: tuple[tuple[int, ...], _File] | None = None

    def serves(self, urls: tuple[str, ...]) -> None:
        """Remember the URLs of the server."""
        self._change(lambda file: replace(file, serves=urls))

    def serving(self) -> tuple[str, ...]:
        return self._read().serves

    def new_link(self) -> str:
        """Create a link; returns its secret."""
        secret, now = secrets.token_urlsafe(32), now_unix()

        def add(file: _File) -> _File:
            open_links = [link for link in file.links if link.until_unix > now]
            return replace(file, links=(*open_links[1 - MOST_LINKS :], Link(_hash(secret), now + LINK_S)))

        self._change(add)
        return secret

    def use_link(self, secret: str, name: str) -> Secret | None:
        """Sign a browser in; None if the link is unknown, used or too old."""
        made = Secret(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        wanted, now = _hash(secret), now_unix()
        used = False
        if not any(link.hash == wanted for link in self._read().links):
            return None  # a guess takes no lock and writes no file

        def use(file: _File) -> _File:
            nonlocal used
            used = any(link.hash == wanted and link.until_unix > now for link in file.links)
            links = tuple(link for link in file.links if link.hash != wanted)
            known = sorted(file.browsers, key=lambda one: one.seen_unix)[1 - MOST_BROWSERS :]
            new = (*known, Browser(made.hash, name, now, now)) if used else file.browsers
            return replace(file, links=links, browsers=new)

        self._change(use)
        return made if used else None

    def browser(self, secret: Secret) -> Browser | None:
        """The browser with this secret."""
        return self._with(secret.hash)

    def is_signed_in(self, browser: Browser) -> bool:
        return self._with(browser.hash) is not None

    def _with(self, wanted: str) -> Browser | None:
        since = now_unix() - KEPT_S
        return next(
            (
                one
                for one in self._read().browsers
                if secrets.compare_digest(one.hash, wanted) and one.seen_unix > since
            ),
            None,
        )

    def seen(self, browser: Browser) -> None:
        """Note that a browser is in use."""
        now = now_unix()

        def note(file: _File) -> _File:
            known = (
                replace(one, seen_unix=now) if one.hash == browser.hash else one for one in file.browsers
            )
            return replace(file, browsers=tuple(known))

        self._change(note)

    def sign_out(self, browser: Browser | None = None) -> int:
        """Sign out one browser, or else every browser and link; returns how many browsers."""
        gone = 0

        def forget(file: _File) -> _File:
            nonlocal gone
            kept = tuple(one for one in file.browsers if browser is not None and one.hash != browser.hash)
            gone = len(file.browsers) - len(kept)
            return replace(file, browsers=kept, links=file.links if browser is not None else ())

        self._change(forget)
        return gone

    def _change(self, act: Callable[[_File], _File]) -> None:
        with lock(self._root.lock("web"), Rank.WEB, timeout_s=LOCK_S):
            write_atomic(Path(self._file), msgspec.json.encode(act(self._read())), mode=0o600)

    def _read(self) -> _File:
        try:
            info = os.lstat(self._file)  # this runs for every message of every stream
            is_now = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
            if self._known is None or self._known[0] != is_now:
                self._known = (is_now, msgspec.json.decode(read_given(Path(self._file)), type=_File))
            return self._known[1]
        except FileNotFoundError:
            return _File()
        except (OSError, ValueError, RecursionError) as error:
            raise Refused(
                f"cannot read the web server's sign-in file {self._file}: {error}",
                hint=f"Run `rm {shlex.quote(str(self._file))}`, then sign in again in every browser.",
            ) from error


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
