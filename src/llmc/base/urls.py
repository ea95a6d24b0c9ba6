"""URLs with a password in them: the one place that takes it out. Pure.

A source may be `https://user:secret@host/repo.git`. The whole of it is in config.toml alone. git gets the address without
the user, and asks for the rest (repo/git.py); whatever is written or shown goes through `scrub`.
"""

import re
from typing import Any, NamedTuple

_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/\s\"]*)@")


class Remote(NamedTuple):
    """The address of a repository, and who asks for it there; "" where the address does not say."""

    address: str
    user: str = ""
    password: str = ""


def split(url: str) -> Remote:
    """A URL of http(s) without its user; of everything else (a path, ssh) the user is part of the address."""
    found = _USERINFO.match(url)
    if found is None or found["scheme"].lower() not in ("http://", "https://"):
        return Remote(url)
    from urllib.parse import unquote  # slow to import, and few sources need it

    user, _, password = found["user"].partition(":")
    return Remote(found["scheme"] + url[found.end() :], unquote(user), unquote(password))


def scrub(text: str) -> str:
    """The text without passwords in URLs; a user of http(s) goes too, tokens are often written there."""
    if "@" not in text or "://" not in text:
        return text
    return _USERINFO.sub(_without_password, text)


def scrub_all(value: Any) -> Any:
    """The same for plain data, whatever is in it."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {key: scrub_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_all(item) for item in value]
    return value


def _without_password(found: re.Match[str]) -> str:
    user, colon, _ = found["user"].partition(":")
    if found["scheme"].lower() in ("http://", "https://"):
        return f"{found['scheme']}***@"
    return f"{found['scheme']}{user}:***@" if colon else found[0]
