"""Building blocks of the config model: checks, value types, and the base table."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from llmc.config.durations import parse_duration

#: longer timers would overflow in the operating system
_LONGEST_S = 365 * 86400.0


#: logs that are not a worker's (api/logs.py)
_LOGS = ("daemon", "overseer", "auto", "goals")


def check_worker_name(name: str) -> str | None:
    """The problem with this name, or None."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        return "a worker name must start with a lowercase letter, contain only lowercase letters, digits and dashes, and have at most 31 characters"
    if name in _LOGS or is_auto_name(name):
        return f'the name "{name}" is reserved'
    return None


def is_auto_name(name: str) -> bool:
    """Whether this is the name of an auto worker."""
    return re.fullmatch(r"auto-[0-9]+", name) is not None


def check_branch_name(name: str) -> str | None:
    """Reject only what is dangerous on a git command line; git checks the rest."""
    if name.startswith("-") or re.search(r"[\x00-\x20\x7f~^:?*\[\\]", name):
        return "not a valid branch name"
    return None


def _must_match(wanted: str, problem: str) -> Callable[[str], str | None]:
    return lambda value: None if re.fullmatch(wanted, value) else problem


check_env_name = _must_match(
    r"[A-Za-z_][A-Za-z0-9_]*",
    "an environment variable name may contain only letters, digits and underscores, and must not start with a digit",
)
check_env_pattern = _must_match(
    r"[A-Za-z_][A-Za-z0-9_]*\*?",
    "must be an environment variable name, or a prefix followed by *",
)
check_model_name = _must_match(r"[!-~]{1,200}", "a model name must not be empty or contain spaces")
#: the message does not repeat the value, which may be a secret
check_webhook = _must_match(r"(https?://[!-~]+)?", "a webhook must be an http:// or https:// URL")

check_database = _must_match(
    r"(postgres(ql)?://[!-~]+)?", "a database must be a postgresql:// URL without spaces"
)
check_node = _must_match(
    r"([a-z0-9][a-z0-9.-]{0,62})?",
    "a node name must start with a lowercase letter or a digit, contain only lowercase letters, digits, dots and dashes, and be at most 63 characters long",
)
check_remote = _must_match(
    r"(?!-)(?!https?://[^/]*@)[^\x00-\x20\x7f]*",
    "a git remote must be a path or a URL without spaces; an https:// URL must not contain a user name or password (use a git credential helper)",
)


check_place = _must_match(
    r"(/|~(?=/|$))(?!.*(^|/)\.\.(/|$))[^\x00]*",
    "must be an absolute path or start with ~/, and must not contain `..`",
)


def check_host_name(value: str) -> str | None:
    from llmc.base.hosts import check_host  # few configurations name one

    return check_host(value)


def check_no_nul(value: str) -> str | None:
    return "must not contain a NUL character" if "\0" in value else None


def check_can_be_typed(value: str) -> str | None:
    """Reject now what would be refused later, when the prompt is sent unattended."""
    bad = re.search(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]", value)
    return f"must not contain control characters (U+{ord(bad[0]):04X})" if bad else None


def as_array(value: object) -> object:
    """A single string means an array of one."""
    return [value] if isinstance(value, str) else value


def option(description: str, *, example: object = None, **more: Any) -> Meta:
    """An option with its limits; `parse`, `check` and `inherits` as in config/model.py."""
    extra: dict[str, Any] = {key: more.pop(key) for key in ("parse", "check", "inherits") if key in more}
    examples = None if example is None else [example]
    return Meta(description=description, examples=examples, extra=extra or None, **more)


def duration(description: str, *, gt: float | None = None, ge: float | None = None) -> Meta:
    """A duration in seconds, or text such as "15m"."""
    bounds = {"gt": gt, "ge": ge, "le": _LONGEST_S}
    return option(description, parse=parse_duration, extra_json_schema={"x-duration": True}, **bounds)


WorkerName = Annotated[str, Meta(extra={"check": check_worker_name})]
EnvName = Annotated[str, Meta(extra={"check": check_env_name})]
EnvPattern = Annotated[str, Meta(extra={"check": check_env_pattern})]
HostName = Annotated[str, Meta(extra={"check": check_host_name})]
#: text that can be passed to a program
Text = Annotated[str, Meta(extra={"check": check_no_nul})]
NonEmpty = Annotated[str, Meta(min_length=1)]
ModelName = Annotated[str, Meta(extra={"check": check_model_name, "placeholder": "<model>"})]
Dollars = Annotated[float, Meta(ge=0, le=1e9)]
Tokens = Annotated[int, Meta(ge=0, le=10**15)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of config.toml."""
