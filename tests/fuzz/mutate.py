"""Hostile versions of good input, from a seed: from cut emoji, full disks, agents or attackers."""

import copy
import json
from random import Random
from typing import Any

#: stands for ten thousand brackets, which no encoder writes
_DEEP = "@deep@"

#: what no field expects
HOSTILE: tuple[Any, ...] = (
    *("\ud83d", "a\udc00b", "\u2028", "\u2029", "\x85", "\x1b[2J\x1b]0;x\x07", "\x00", "\u202e", "\ufeff"),
    *(
        "../../x",
        "..",
        ".",
        "/etc/passwd",
        "",
        " ",
        "\n",
        "a\nb",
        "x" * 5000,
        "9" * 5000,
        "-1",
        "%s{}",
        "'\"`$(id)",
    ),
    *(float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 10**400, -(10**20), 2**63, 0, -1, 0.5),
    *(None, True, False, [], {}, [[]], {"": ""}, [None], ["1", 2, {}], {"a": {"b": {"c": []}}}, _DEEP),
)
_BYTES = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\x00",
    b"\n",
    b"{",
    b"[",
    b'"',
    b",",
    b"\\u",
    b"\xef\xbb\xbf",
    b"\r",
    b"\xc2\x85",
)
_WHOLE = (
    b"",
    b"\n",
    b"null",
    b"[]",
    b'"x"',
    b"NaN",
    b"\x00" * 100,
    b"[" * 10_000,
    b'{"a":' * 10_000,
    b"\xff\xfe{\x00}\x00",
)


def text(dice: Random) -> str:
    """Some text."""
    value = dice.choice(HOSTILE)
    return value if isinstance(value, str) and value != _DEEP else str(value)[:200]


def document(dice: Random, good: Any) -> bytes:
    """One document: mostly with a wrong shape somewhere, sometimes with wrong bytes."""
    if dice.random() < 0.08:
        return dice.choice(_WHOLE)
    value = copy.deepcopy(good)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        value = _changed(dice, value)
    data = _encoded(value)
    return mangled(dice, data) if dice.random() < 0.15 else data


def mangled(dice: Random, data: bytes) -> bytes:
    """The same with some of its bytes lost, duplicated or replaced."""
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + dice.choice(_BYTES) + data[at:]
            case 2:
                data = data[:at] + data[at + dice.randrange(1, 20) :]
            case 3:
                data = data[:at] + data[max(0, at - 30) :]
    return data


def _encoded(value: Any) -> bytes:
    written = json.dumps(value, ensure_ascii=True)
    return written.replace(f'"{_DEEP}"', "[" * 10_000 + "]" * 10_000).encode()


def _changed(dice: Random, value: Any) -> Any:
    """Replace one part of it with something else."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        match dice.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, text(dice): dice.choice(HOSTILE)}
            case _:
                return {**value, key: _changed(dice, value[key])}
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], _changed(dice, value[at]), *value[at + 1 :]]
    return dice.choice(HOSTILE)
