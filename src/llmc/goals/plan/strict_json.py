"""JSON that a model wrote, read strictly: every difference from a schema is named with its path. Pure.

A schema is the single source of a shape: the same dict goes to `claude -p --json-schema`. Only the keywords that
are used here are known; another one is a fault of ours, and raises.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

#: a longer answer is not read at all
MAX_CHARS = 1_000_000
#: of this many problems the rest is only counted
MAX_PROBLEMS = 100

Schema = Mapping[str, Any]


class Problem(Struct, frozen=True):
    """One thing that is wrong: where, as a JSON path, and what."""

    path: str
    text: str
    #: a schema alone would have found it
    of_shape: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class _Pairs:
    """Makes objects, and remembers the keys that came twice in one."""

    def __init__(self) -> None:
        self.twice: list[str] = []

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                self.twice.append(key)
            made[key] = value
        return made


def parse(text: str) -> tuple[Any, list[Problem]]:
    """The value, and why it is not JSON alone; with a problem at "$" there is no value."""
    if len(text) > MAX_CHARS:
        return None, [Problem("$", f"{len(text)} characters; at most {MAX_CHARS} are read", of_shape=False)]
    pairs = _Pairs()
    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return None, [Problem("$", _not_json(text, error), of_shape=False)]
    except (ValueError, RecursionError) as error:
        return None, [Problem("$", f"not JSON: {str(error)[:200]}", of_shape=False)]
    return value, [
        Problem("$", f"the key {_shown(key)} comes twice in one object", of_shape=False)
        for key in pairs.twice
    ]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno}, column {error.colno}"
    if text.lstrip().startswith("```"):
        return "it is wrapped in a Markdown fence; JSON alone is wanted"
    if not text.strip():
        return "it is empty"
    if not text.lstrip().startswith(("{", "[")):
        return "it begins with text; JSON alone is wanted"
    if error.msg == "Extra data":
        return f"something follows the JSON ({place}); JSON alone is wanted"
    return f"not JSON: {error.msg} ({place})"


def shape_problems(value: Any, schema: Schema, path: str = "$") -> list[Problem]:
    """Everything in which a value differs from a schema, in the order of the value."""
    return [*_problems(value, schema, path)]


def bounded(problems: list[Problem]) -> tuple[Problem, ...]:
    """At most so many, and how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    rest = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], Problem("$", f"and {rest} more problems"))


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
}
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_KNOWN = {
    *("type", "const", "enum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"),
    *("items", "properties", "required", "additionalProperties", "anyOf", "description"),
}


def _problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if unknown := schema.keys() - _KNOWN:
        raise ValueError(f"no such keyword of a schema: {', '.join(sorted(unknown))}")
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield Problem(path, f"must be {_named(kind)}, is {_of(value)}")
    elif "const" in schema and value != schema["const"]:
        yield Problem(path, f"must be {_shown(schema['const'])}, is {_shown(value)}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}, is {_shown(value)}")
    elif isinstance(value, str):
        yield from _of_text(value, schema, path)
    elif isinstance(value, list):
        yield from _of_array(value, schema, path)
    elif isinstance(value, dict):
        yield from _of_object(value, schema, path)


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":  # JSON has one kind of number: 1.0 is 1
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return isinstance(value, _TYPES[kind])


def _named(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _of(value: Any) -> str:
    return _NAMES.get(type(value), "a number")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _of_text(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        yield Problem(path, f"{len(value)} characters, at most {longest} are allowed")
    elif len(value) < schema.get("minLength", 0):
        yield Problem(path, "must not be empty")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        what = "must not be blank" if not value.strip() else f"{_shown(value)} does not fit"
        yield Problem(path, f"{what}: {schema['description']}" if "description" in schema else what)
    if any("\ud800" <= char <= "\udfff" for char in value):
        yield Problem(path, "half a character (a lone surrogate)", of_shape=False)


def _of_array(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    most = schema.get("maxItems")
    if most is not None and len(value) > most:
        yield Problem(path, f"{len(value)} entries, at most {most} are allowed")
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, "must not be empty")
    if schema.get("uniqueItems"):
        seen: list[Any] = []
        for item in value:
            if item in seen:
                yield Problem(path, f"{_shown(item)} comes twice")
            seen.append(item)
    for index, item in enumerate(value):
        yield from _problems(item, schema.get("items", {}), f"{path}[{index}]")


def _of_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Problem]:
    properties: Schema = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield Problem(path, f"`{key}` is missing")
    choices = [option["required"] for option in schema.get("anyOf", ())]
    if choices and not any(all(key in value for key in choice) for choice in choices):
        yield Problem(path, f"{' or '.join(f'`{key}`' for choice in choices for key in choice)} is missing")
    for key, item in value.items():
        if key in properties:
            yield from _problems(item, properties[key], f"{path}.{key}")
        elif schema.get("additionalProperties") is False:
            near = get_close_matches(key, list(properties), n=1)
            yield Problem(
                path, f"unknown key {_shown(key)}" + (f"; did you mean `{near[0]}`?" if near else "")
            )
