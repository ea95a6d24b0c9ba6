"""Fields that this version does not know survive a rewrite. Pure."""

import types
import typing
from functools import cache
from typing import Any

import msgspec


def keep_unknown(kind: Any, old: Any, new: Any) -> Any:
    """`new` (plain data of struct type `kind`) plus whatever `old` had that the type has no field for.

    Where a struct names an `identity` field, `old` counts only while that field is the same.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    if _is_struct(kind):
        return new if _is_other(kind, old, new) else _merge_struct(kind, old, new)
    if typing.get_origin(kind) is dict:
        value_kind = typing.get_args(kind)[1]
        return {key: keep_unknown(value_kind, old.get(key), value) for key, value in new.items()}
    return new


def _merge_struct(kind: Any, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    known, nested = _fields(kind)
    merged = dict(new)
    for key, value_kind in nested.items():
        merged[key] = keep_unknown(value_kind, old.get(key), new[key])
    return merged | {key: value for key, value in old.items() if key not in known}


@cache
def _fields(kind: Any) -> tuple[frozenset[str], dict[str, Any]]:
    """All fields of a struct, and those that hold structs themselves."""
    hints = {key: _unless_none(hint) for key, hint in typing.get_type_hints(kind).items()}
    nested = {key: hint for key, hint in hints.items() if _is_struct(hint) or typing.get_origin(hint) is dict}
    return frozenset(hints), nested


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unless_none(kind: Any) -> Any:
    """`X` for `X | None`."""
    some = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    return some[0] if isinstance(kind, types.UnionType) and len(some) == 1 else kind


def _is_other(kind: Any, old: dict[str, Any], new: dict[str, Any]) -> bool:
    key: str = getattr(kind, "identity", "")
    return bool(key) and old.get(key) != new.get(key)
