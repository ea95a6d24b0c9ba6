"""Remove passwords from URLs. Pure.

A source may be `https://user:secret@host/repo.git`. Only config.toml has the full URL. git gets the address without
the user, and asks for credentials (repo/git.py); everything written or shown goes through `scrub`.
"""

import re
from typing import Any, NamedTuple

_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/\s\"]*)@")


class Remote(NamedTuple):
    """The address of a repository, and its user; "" if the address has none."""

    address: str
    user: str = ""
    password: str = ""


def split(url: str) -> Remote:
    """An http(s) URL without its user; elsewhere (a path, ssh) the user is part of the address."""
    found = _USERINFO.match(url)
    if found is None or found["scheme"].lower() not in ("http://", "https://"):
        return Remote(url)
    from urllib.parse import unquote  # slow to import, and rarely needed

    user, _, password = found["user"].partition(":")
    return Remote(found["scheme"] + url[found.end() :], unquote(user), unquote(password))


def scrub(text: str) -> str:
    """The text without passwords in URLs, and without http(s) users, which may be tokens."""
    if "@" not in text or "://" not in text:
        return text
    return _USERINFO.sub(_without_password, text)


def scrub_all(value: Any) -> Any:
    """`scrub` for plain data."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {key: scrub_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_all(item) for item in value]
    return value


def database_address(url: str) -> str:
    """A PostgreSQL URL without its password and its options: user, host and database."""
    scheme, between, rest = url.partition("://")
    place, _, query = rest.partition("?")
    who, at, where = place.rpartition("@")
    socket = _options(query).get("host", "")
    return f"{scheme}{between}{who.partition(':')[0]}{at}{where}{f'?host={socket}' if socket else ''}"


def database_secrets(url: str) -> list[str]:
    """A PostgreSQL URL and the passwords in it, as written and decoded, longest first: no text may show them."""
    from urllib.parse import unquote

    place, _, query = url.partition("://")[2].partition("?")
    given = [place.rpartition("@")[0].partition(":")[2]]
    given += [value for name, value in _options(query).items() if "pass" in name]
    found = {url, *given, *map(unquote, given)} - {""}
    return sorted(found, key=len, reverse=True)


def _options(query: str) -> dict[str, str]:
    found = (part.partition("=") for part in query.split("&") if part)
    return {name: value for name, _, value in found}


def _without_password(found: re.Match[str]) -> str:
    user, colon, _ = found["user"].partition(":")
    if found["scheme"].lower() in ("http://", "https://"):
        return f"{found['scheme']}***@"
    return f"{found['scheme']}{user}:***@" if colon else found[0]
