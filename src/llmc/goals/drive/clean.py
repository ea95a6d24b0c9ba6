"""Cleans a change before it is stored: no secrets, no oversized texts. Pure.

Findings name the kind and position of a secret, never its value. The rules find secrets pasted by accident, not hidden ones.
Text that the user typed is refused; text from agents is redacted and cut.
"""

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.model import Change, Event, Row

#: placeholders instead of a value
_PLACEHOLDER = re.compile(
    r"[$<{\[(%*]|\.\.\.|x{3,}|\*+|(?:your|my|the|some|example|changeme|redacted|placeholder|none|null|true|false)\b",
    re.IGNORECASE,
)
#: endings of names that hold a location or a count, not the secret itself
_NOT_ITSELF = re.compile(
    r"(?:file|path|dir|name|url|uri|id|type|ttl|limit|count|max|min|len|length|env|var|hash|expiry|timeout)$",
    re.IGNORECASE,
)
_SECRET_NAME = (
    r"(?:passwords?|passwd|passphrase|secrets?|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"auth[_-]?key|credentials?|client[_-]?secret)"
)


class Finding(Struct, frozen=True):
    """A secret in a text: its kind and position."""

    kind: str
    start: int
    end: int


class _Rule(Struct, frozen=True):
    """`group`: the secret within the match; `holds`: whether it really is one."""

    kind: str
    pattern: re.Pattern[str]
    group: int = 0
    holds: Callable[[re.Match[str]], bool] = lambda match: True


def _mixed(text: str) -> bool:
    """Whether a text mixes letters and digits, unlike ordinary words."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _is_value(match: re.Match[str]) -> bool:
    return not _PLACEHOLDER.match(match[1])


def _is_assigned(match: re.Match[str]) -> bool:
    """`DB_PASSWORD=hunter2` and `api_key: "ab12..."`, but neither `token = token` nor `MAX_TOKENS=4096`."""
    before = re.search(r"\w*\Z", match.string[max(0, match.start() - 80) : match.start()])
    name, value = (before[0] if before else "") + match[1], match[2]
    if _NOT_ITSELF.search(name) or _PLACEHOLDER.match(value) or value.startswith(("/", "~", "./")):
        return False
    if re.search(r"[()\[\]{}<>]", value) or re.fullmatch(r"[0-9]{1,6}", value):
        return False
    if name.upper() == name and "=" in match[0]:
        return True
    return len(value) >= 8 and _mixed(value)


def _is_phone(match: re.Match[str]) -> bool:
    return 8 <= sum(c.isdigit() for c in match[0]) <= 15


_RULES = (
    _Rule(
        "private key",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL
        ),
    ),
    _Rule("AWS key", re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b")),
    _Rule("GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})\b")),
    _Rule("GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}")),
    _Rule("Slack token", re.compile(r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}")),
    _Rule("Slack webhook", re.compile(r"https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,}")),
    _Rule("Anthropic key", re.compile(r"(?<![\w-])sk-ant-[A-Za-z0-9_-]{16,}")),
    _Rule(
        "API key",
        re.compile(r"(?<![\w-])sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
        holds=lambda match: _mixed(match[0]) and match[0].lower() != match[0],
    ),
    _Rule("API key", re.compile(r"\b(?:AIza[A-Za-z0-9_-]{35}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,})")),
    _Rule("API key", re.compile(r"\b(?:npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,})")),
    _Rule("JSON Web Token", re.compile(r"\beyJ[A-Za-z0-9_-]{10,500}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{5,}")),
    _Rule(
        "bearer token",
        re.compile(r"\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)", re.IGNORECASE),
        1,
        lambda match: _mixed(match[1]),
    ),
    _Rule(
        "authorization header",
        re.compile(r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|token|digest)\s+([^\s\"']{8,})", re.IGNORECASE),
        1,
        _is_value,
    ),
    _Rule("password in a URL", re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:([^\s/@]{1,400})@", re.IGNORECASE), 1, _is_value),
    _Rule(
        "password on a command line",
        re.compile(rf"--{_SECRET_NAME}[= ]\s*[\"']?([^\s\"']{{4,}})", re.IGNORECASE),
        1,
        lambda match: _is_value(match) and not match[1].startswith(("-", "/", "~")),
    ),
    _Rule(
        "password on a command line",
        re.compile(r"\bcurl\b[^\n|;]{0,400}?\s(?:-u|--user)[ =][\"']?[^\s:\"']+:([^\s\"']+)"),
        1,
        _is_value,
    ),
    _Rule(
        "cookie",
        re.compile(r"\b(?:set-)?cookie[\"']?\s*:\s*[\"']?([\w.%-]+=[^\s;\"']{8,}(?:;\s*[\w.%-]+=[^\s;\"']+)*)", re.IGNORECASE),
        1,
    ),
    _Rule(
        "secret value",
        re.compile(rf"({_SECRET_NAME}(?![a-z])\w{{0,80}})[\"']?\s*[:=]\s*[\"']?([^\s\"',;]{{4,}})", re.IGNORECASE),
        2,
        _is_assigned,
    ),
    _Rule(
        "phone number",
        re.compile(r"(?<![\w.+/=-])\+[1-9][0-9]{0,2}[ ./-]?(?:\(0?[0-9]{1,4}\)[ ./-]?)?[0-9]{1,5}(?:[ ./-]?[0-9]{2,5}){1,4}(?![\w-])"),
        holds=_is_phone,
    ),
    _Rule(
        "phone number",
        re.compile(r"(?<![\w.+/=-])(?:\([0-9]{3}\) ?|[0-9]{3}-)[0-9]{3}-[0-9]{4}(?![\w-])"),
        holds=_is_phone,
    ),
    _Rule(
        "phone number",
        re.compile(r"\b(?:tel|phone|mobile|whatsapp|signal|call)\b[^\w+\n]{1,3}(\+?[0-9][0-9() /.-]{6,}[0-9])", re.IGNORECASE),
        1,
        lambda match: 8 <= sum(c.isdigit() for c in match[1]) <= 15 and not re.match(r"[0-9]{4}-[0-9]{2}-", match[1]),
    ),
)  # fmt: skip


@lru_cache(maxsize=4096)
def scan(text: str) -> tuple[Finding, ...]:
    """Every secret in a text, in order; where two overlap, the first rule wins."""
    found: list[Finding] = []
    for rule in _RULES:
        for match in rule.pattern.finditer(text):
            start, end = match.span(rule.group)
            if rule.holds(match) and not any(start < other.end and other.start < end for other in found):
                found.append(Finding(rule.kind, start, end))
    return tuple(sorted(found, key=lambda one: one.start))


def redact(text: str) -> str:
    """The text with secrets replaced by `[GitHub token removed]`."""
    for finding in reversed(scan(text)):
        text = f"{text[: finding.start]}[{finding.kind} removed]{text[finding.end :]}"
    return text


R = TypeVar("R", bound=Row)

#: maximum bytes of a text, by field
CAPS = {
    "last_instruction_text": 16 * 1024,
    "problem_statement": 16 * 1024,
    "planner_inputs": 16 * 1024,
    "repo_context_snapshot": 8 * 1024,
    "raw_planner_output_json": 512 * 1024,
    "notes": 1024,
    "data": 1024,
}
CAP = 4 * 1024
#: maximum entries of a list of texts
MOST_ENTRIES = 500
#: maximum bytes of an event's data
MOST_DATA = 8 * 1024

#: keys are never changed: a bad one is refused
KEYS = frozenset(
    {
        *("goal_id", "node_id", "parent_id", "work_node_id", "assignment_id", "dispatch_id"),
        *("crystallization_id", "instruction_hash", "session_key", "session_id", "run_id", "run_ids"),
        *("message_ids", "spawned_by_key", "source_session_key", "agent_id", "suggested_agent_id"),
        *("depends_on", "blocks", "applied_updates", "added", "removed", "changed", "moved"),
        *("type", "level", "kind"),
    }
)
#: texts that are useless when cut
WHOLE = frozenset({"raw_planner_output_json"})
_KEY_CAP = 512


class SecretRefused(Refused):
    """Nothing was written."""


def clean(change: Change, *, typed: bool) -> Change:
    """The change, safe to store; `typed`: text that the user just wrote is refused rather than altered."""
    keep = check_typed if typed else _cleaned

    def each(rows: tuple[R, ...]) -> tuple[R, ...]:
        return tuple(mapped(row, keep) for row in rows)

    return replace(
        change,
        goal=mapped(change.goal, keep) if change.goal else None,
        nodes=each(change.nodes),
        assignments=each(change.assignments),
        crystallizations=each(change.crystallizations),
        events=tuple(_small(mapped(event, keep)) for event in change.events),
    )


def mapped(record: R, keep: Callable[[str, str], str]) -> R:
    """The record with `keep(field name, text)` applied to each text."""
    changed = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        new = _mapped_value(name, value, keep)
        if new is not value and new != value:
            changed[name] = new
    return replace(record, **changed) if changed else record


def _mapped_value(name: str, value: Any, keep: Callable[[str, str], str]) -> Any:
    match value:
        case Enum():
            return value
        case str():
            return keep(name, value)
        case tuple() | list():
            items = [_mapped_value(name, item, keep) for item in value]
            if len(items) > MOST_ENTRIES and name not in KEYS and all(isinstance(i, str) for i in items):
                left = len(items) - MOST_ENTRIES + 1
                items = [*items[: MOST_ENTRIES - 1], f"[{left} more]"]
            return type(value)(items)
        case dict():
            return {keep("key", str(key)): _mapped_value(name, item, keep) for key, item in value.items()}
        case Row():
            return mapped(value, keep)
        case float() if not isfinite(value):
            raise Refused(f"{_in_words(name)} must be a finite number, not {value}; nothing was saved")
        case _:
            return value


def check_typed(name: str, text: str) -> str:
    """The text as typed; refused if it contains a secret or is too long."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Refused(
            f"{_in_words(name)} must be valid UTF-8; nothing was saved",
            hint="Check your terminal's locale settings, then run the command again.",
        )
    if found := scan(text):
        raise SecretRefused(
            f"found a secret in {_in_words(name)} ({found[0].kind}, at character {found[0].start + 1}); nothing was saved",
            hint="Name the credential and say where it is stored, but leave out its value.",
        )
    most = _KEY_CAP if name in KEYS else CAPS.get(name, CAP)
    if len(text.encode("utf-8", "replace")) > most:
        raise Refused(
            f"{_in_words(name)} must be at most {most} bytes long; nothing was saved",
            hint="Put the text in a file in the repository and refer to that file.",
        )
    return text


def _cleaned(name: str, text: str) -> str:
    if name in KEYS or name == "key":
        return check_typed(name, text)
    text = redact(text)
    return check_typed(name, text) if name in WHOLE else cut(text, CAPS.get(name, CAP))


def cut(text: str, most: int) -> str:
    """Cut to `most` bytes, with a note about the rest."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    mark = f"\n[truncated: {len(data)} bytes in total]"
    return data[: most - len(mark)].decode("utf-8", "ignore") + mark


def _small(event: Event) -> Event:
    """Events stay small; details are in the records."""
    size = len(msgspec.json.encode(event.data))
    if size <= MOST_DATA:
        return event
    kept = {k: v for k, v in event.data.items() if len(msgspec.json.encode(v)) <= MOST_DATA // 16}
    return replace(event, data={**dict(list(kept.items())[:12]), "cut": f"{size} bytes in total"})


def _in_words(name: str) -> str:
    return f"the {name.replace('_', ' ')}"
