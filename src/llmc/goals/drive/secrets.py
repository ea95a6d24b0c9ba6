"""Finds what must not be kept: keys, tokens, passwords, cookies, phone numbers. Pure.

It names the kind and the place, never the value. It is made to find what is pasted by accident, not what is hidden.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

#: instead of a value: a variable, a template, or what stands for "something"
_PLACEHOLDER = re.compile(
    r"[$<{\[(%*]|\.\.\.|x{3,}|\*+|(?:your|my|the|some|example|changeme|redacted|placeholder|none|null|true|false)\b",
    re.IGNORECASE,
)
#: names that hold where a secret is, or how many tokens there are, not the secret
_NOT_ITSELF = re.compile(
    r"(?:file|path|dir|name|url|uri|id|type|ttl|limit|count|max|min|len|length|env|var|hash|expiry|timeout)$",
    re.IGNORECASE,
)
_SECRET_NAME = (
    r"(?:passwords?|passwd|passphrase|secrets?|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"auth[_-]?key|credentials?|client[_-]?secret)"
)


class Finding(Struct, frozen=True):
    """A secret in a text: its kind, and where it begins and ends."""

    kind: str
    start: int
    end: int


class _Rule(Struct, frozen=True):
    """`group`: the part of a match that is the secret itself; `holds`: whether it really is one."""

    kind: str
    pattern: re.Pattern[str]
    group: int = 0
    holds: Callable[[re.Match[str]], bool] = lambda match: True


def _mixed(text: str) -> bool:
    """Letters and digits, as words of a language never are."""
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
    _Rule("JSON web token", re.compile(r"\beyJ[A-Za-z0-9_-]{10,500}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{5,}")),
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
    """Every secret in a text, in order; of two that overlap the one whose rule comes first."""
    found: list[Finding] = []
    for rule in _RULES:
        for match in rule.pattern.finditer(text):
            start, end = match.span(rule.group)
            if rule.holds(match) and not any(start < other.end and other.start < end for other in found):
                found.append(Finding(rule.kind, start, end))
    return tuple(sorted(found, key=lambda one: one.start))


def redact(text: str) -> str:
    """The text without its secrets: `[GitHub token removed]` stands where one was."""
    for finding in reversed(scan(text)):
        text = f"{text[: finding.start]}[{finding.kind} removed]{text[finding.end :]}"
    return text
