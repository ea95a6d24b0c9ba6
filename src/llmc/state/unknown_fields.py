"""Fields that this version does not know survive a rewrite. Pure."""

import types
import typing
from typing import Any

import msgspec


def keep_unknown(kind: Any, old: Any, new: Any) -> Any:
    """`new` (plain data of struct type `kind`) plus whatever `old` had that the type has no field for.

    Where a struct names an `identity` field, `old` counts only while that field is the same.
    """
    kind = _unless_none(kind)
    if _is_struct(kind) and _is_other(kind, old, new):
        return new
    if _is_struct(kind) and isinstance(old, dict) and isinstance(new, dict):
        hints = typing.get_type_hints(kind)
        merged = {
            key: keep_unknown(hints[key], old.get(key), value) for key, value in new.items() if key in hints
        }
        return merged | {key: value for key, value in old.items() if key not in hints}
    value_kind = _dict_value(kind)
    if value_kind is not None and isinstance(old, dict) and isinstance(new, dict):
        return {key: keep_unknown(value_kind, old.get(key), value) for key, value in new.items()}
    return new


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unless_none(kind: Any) -> Any:
    """`X` for `X | None`."""
    some = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    return some[0] if isinstance(kind, types.UnionType) and len(some) == 1 else kind


def _is_other(kind: Any, old: Any, new: Any) -> bool:
    key = getattr(kind, "identity", None)
    return bool(key) and isinstance(old, dict) and isinstance(new, dict) and old.get(key) != new.get(key)


def _dict_value(kind: Any) -> Any:
    if typing.get_origin(kind) is dict:
        return typing.get_args(kind)[1]
    return None
