"""Fields that this version does not know survive a rewrite. Pure."""

import typing
from typing import Any

import msgspec


def keep_unknown(kind: Any, old: Any, new: Any) -> Any:
    """`new` (plain data of struct type `kind`) plus whatever `old` had that the type has no field for."""
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


def _dict_value(kind: Any) -> Any:
    if typing.get_origin(kind) is dict:
        return typing.get_args(kind)[1]
    return None
