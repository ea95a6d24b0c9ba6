"""Read config.toml: a typed Config, or every problem in it; and warnings about conflicting settings.

msgspec stops at the first problem, so the checks here go through the parsed table themselves.
"""

import functools
import math
import operator
import os
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from llmc.base.errors import ConfigError, NotFound
from llmc.base.text import closest
from llmc.config.durations import format_duration
from llmc.config.model import Config
from llmc.config.toml_text import Path as KeyPath
from llmc.config.toml_text import join_key, line_of, quoted

Found = list[tuple[KeyPath, str]]
_Number = inspect.IntType | inspect.FloatType
_BOUNDS: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
    ("gt", "greater than", operator.gt),
    ("ge", "at least", operator.ge),
    ("lt", "less than", operator.lt),
    ("le", "at most", operator.le),
)


@functools.cache
def root_type() -> inspect.Type:
    return inspect.type_info(Config)


def bare(kind: inspect.Type) -> inspect.Type:
    """The type without its description."""
    return bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def extra(kind: inspect.Type, name: str) -> object:
    """The `extra` of an option in model.py."""
    return (kind.extra or {}).get(name) if isinstance(kind, inspect.Metadata) else None


def fields(kind: inspect.StructType) -> dict[str, inspect.Field]:
    return {field.encode_name: field for field in kind.fields}


def is_table(kind: inspect.Type) -> bool:
    """Whether it has its own `[header]`; a dict of plain values is an option."""
    inner = bare(kind)
    if isinstance(inner, inspect.DictType):
        return is_table(inner.value_type)
    return isinstance(inner, inspect.StructType)


def check(value: object, kind: inspect.Type, path: KeyPath, found: Found) -> object:
    """The value with durations in seconds; problems are appended to `found`."""
    before = len(found)
    parse = extra(kind, "parse")
    if callable(parse):
        try:
            value = parse(value)
        except ValueError as error:
            found.append((path, str(error)))
            return value
    value = _check_bare(value, bare(kind), path, found)
    test = extra(kind, "check")
    if callable(test) and len(found) == before and (problem := test(value)):
        found.append((path, str(problem)))
    return value


def nearest(key: str, known: Iterable[str], table: KeyPath = ()) -> str:
    """The end of a sentence about an unknown key; with `table`, known keys are shown with its name."""
    names = {name.lower(): join_key((*table, name)) for name in known}
    if near := closest(key.lower(), names, 0.5):
        return f'did you mean "{names[near]}"?'
    return f"expected one of: {', '.join(sorted(names.values()))}" if names else "none are defined"


def expected(kind: inspect.Type) -> str:
    """A type, for error messages."""
    match bare(kind):
        case inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case inspect.UnionType(types=types):
            return " or ".join(expected(one) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            words = expected(item).removeprefix("a ").removeprefix("an ")
            return f"an array of {words}" if words.startswith('"') else f"an array of {words}s"
        case inspect.StructType() | inspect.DictType():
            return "a table"
        case other:
            return _WORDS.get(type(other), "another type")


_WORDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "a string",
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
}


def _check_bare(value: object, kind: inspect.Type, path: KeyPath, found: Found) -> object:
    match kind, value:
        case inspect.StructType(), dict():
            return _check_struct(value, kind, path, found)
        case inspect.DictType(), dict():
            return _check_dict(value, kind, path, found)
        case ((inspect.VarTupleType() | inspect.ListType()), list()):
            return [check(item, kind.item_type, (*path, str(i)), found) for i, item in enumerate(value)]
        case inspect.UnionType(), _:
            return _check_union(value, kind, path, found)
        case ((inspect.IntType() | inspect.FloatType()), _) if _is_number(value, kind):
            return _check_number(value, kind, path, found)
        case inspect.StrType(), str():
            return _check_str(value, kind, path, found)
        case inspect.BoolType(), bool():
            return value
        case inspect.LiteralType(), str() | int() if value in kind.values:
            return value
    found.append((path, f"expected {expected(kind)}, got {_described(value)}"))
    return value


def _check_struct(table: dict[str, object], kind: inspect.StructType, path: KeyPath, found: Found) -> object:
    known = fields(kind)
    for key in table.keys() - known.keys():
        found.append(((*path, key), f"unknown key; {nearest(key, known)}"))
    checked = {}
    for name, field in known.items():
        inner = (*path, name)
        if name in table:
            checked[name] = check(table[name], field.type, inner, found)
        elif field.required and isinstance(bare(field.type), inspect.StructType):
            checked[name] = check({}, field.type, inner, found)  # reports its missing keys
        elif field.required:
            found.append((inner, f"missing; expected {expected(field.type)}"))
    return checked


def _check_dict(table: dict[str, object], kind: inspect.DictType, path: KeyPath, found: Found) -> object:
    for key in table:
        check(key, kind.key_type, (*path, key), found)
    return {key: check(item, kind.value_type, (*path, key), found) for key, item in table.items()}


def _check_union(value: object, kind: inspect.UnionType, path: KeyPath, found: Found) -> object:
    """Check against the first type that fits; if none does, report one problem for the union or its only type."""
    choices = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
    for one in choices:
        problems: Found = []
        checked = check(value, one, path, problems)
        if not problems:
            return checked
    found.extend(
        problems if len(choices) == 1 else [(path, f"expected {expected(kind)}, got {_described(value)}")]
    )
    return value


def _is_number(value: object, kind: _Number) -> TypeGuard[float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and isinstance(kind, inspect.FloatType))


def _check_number(value: float, kind: _Number, path: KeyPath, found: Found) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        found.append((path, f"expected a finite number, got {value}"))
        return value
    for name, words, holds in _BOUNDS:
        bound = getattr(kind, name)
        if bound is not None and not holds(value, bound):
            found.append((path, f"must be {words} {bound:.15g}, got {_described(value)}"))
    return value


def _check_str(value: str, kind: inspect.StrType, path: KeyPath, found: Found) -> object:
    if kind.min_length and len(value) < kind.min_length:
        found.append((path, "must not be empty"))
    elif kind.pattern and not re.search(kind.pattern, value):
        found.append((path, f"{_described(value)} does not match {kind.pattern}"))
    return value


def _described(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "a table"
        case list():
            return "an array"
        case str():
            return _short(quoted(value))
        case int() if abs(value) >= 10**18:
            return "a huge number"
        case int() | float():
            return f"{value}"
        case _:
            return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:56]}..."


EDIT_HINT = "Fix the file with `llmc config edit`, then run `llmc config check`."


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with a config file; `key` is empty if the file is not TOML."""

    file: str
    key: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


def load_config(path: Path) -> Config:
    """The configuration at `path`; raises NotFound or ConfigError."""
    config, problems = check_text(read_text(path), path.name, path.parent)
    if config is None:
        raise unusable(path, problems)
    return config


def check_text(text: str, file: str, root: Path | None = None) -> tuple[Config | None, list[Problem]]:
    """A Config, or all problems in order of their lines. `root`: must not overlap the paths in `sandbox`."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return None, [_syntax_problem(str(error), text, file)]
    found: Found = []
    checked = check(data, root_type(), (), found)
    if found:
        return None, _problems(found, text, file)
    try:
        config = _fitted(msgspec.convert(checked, Config), data)
    except msgspec.ValidationError as error:  # a constraint that `check` does not know
        return None, [Problem(file=file, key="", line=None, message=str(error))]
    opened = [] if root is None else opened_places(config, root)
    return (None, _problems(opened, text, file)) if opened else (config, [])


def _problems(found: Found, text: str, file: str) -> list[Problem]:
    problems = [
        Problem(file=file, key=join_key(path), line=line_of(text, path), message=message)
        for path, message in found
    ]
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.key))


def opened_places(config: Config, root: Path) -> Found:
    """Entries of `sandbox.read` or `sandbox.write` that overlap the root, or of `sandbox.write` the source."""
    if not config.sandbox.read and not config.sandbox.write:
        return []
    ours = {str(root): "the root", os.path.realpath(root): "the root"}
    source = os.path.expanduser(config.repo.source)
    theirs = {os.path.realpath(source): "the source repository"} if os.path.isabs(source) else {}
    kinds = (("read", config.sandbox.read, ours), ("write", config.sandbox.write, {**theirs, **ours}))
    found: Found = []
    for kind, places, kept in kinds:
        for number, place in enumerate(places):
            names = {os.path.normpath(os.path.expanduser(place)), os.path.realpath(os.path.expanduser(place))}
            problems = (_overlap(name, one, what) for name in sorted(names) for one, what in kept.items())
            if problem := next(filter(None, problems), ""):
                found.append((("sandbox", kind, str(number)), f"{quoted(place)} {problem}"))
    return found


def _overlap(place: str, kept: str, what: str) -> str:
    if kept == place or kept.startswith(place.rstrip("/") + "/"):
        return f"must not contain {what} ({kept})"
    return f"must be outside {what} ({kept})" if place.startswith(f"{kept}/") else ""


def _fitted(config: Config, data: dict[str, Any]) -> Config:
    """Extend the default stall timeout so that goal recovery has enough time."""
    overseer = config.overseer
    if not overseer.goals.enabled or "stall_timeout_secs" in data["overseer"]:
        return config
    stall_s = max(overseer.stall_timeout_secs, 2 * overseer.goals.recovery_s())
    return replace(config, overseer=replace(overseer, stall_timeout_secs=stall_s))


def unusable(path: Path, problems: list[Problem]) -> ConfigError:
    """The error that lists all problems."""
    lines = "\n".join(f"{problem}" for problem in problems)
    return ConfigError(f"{path} is invalid:\n{lines}", hint=EDIT_HINT)


def check_bytes(data: bytes, file: str, root: Path | None = None) -> tuple[Config | None, list[Problem]]:
    """Like `check_text`, for a file that may not be text."""
    try:
        return check_text(data.decode(), file, root)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [Problem(file=file, key="", line=line, message="not valid UTF-8")]


def read_text(path: Path) -> str:
    """The text, with its line endings."""
    data = read_bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise unusable(path, check_bytes(data, path.name)[1]) from None


def read_bytes(path: Path) -> bytes:
    """The file, which may not be text."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"file not found: {path}", hint="Run `llmc init` to create a root.") from None
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="Check the owner and permissions of the file, then run the command again.",
        ) from error


def _syntax_problem(said: str, text: str, file: str) -> Problem:
    """Take the line from the message of tomllib."""
    place = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", said)
    if place is None:
        return Problem(file=file, key="", line=None, message=f"invalid TOML: {said}")
    line = int(place[1]) if place[1] else text.rstrip("\n").count("\n") + 1
    return Problem(file=file, key="", line=line, message=f"invalid TOML: {said[: place.start()]}")


def advice(config: Config) -> list[str]:
    """Warnings, one line each, with the fix."""
    return [text for text in (_stall_before_the_ladder(config), *_missing_places(config)) if text]


def _missing_places(config: Config) -> list[str]:
    """Warnings about paths in `sandbox.read` and `sandbox.write` that do not exist."""
    named = (("read", config.sandbox.read), ("write", config.sandbox.write))
    return [
        f"sandbox.{kind} names {place}, which does not exist. Fix: create it, or remove the entry with `llmc config edit`"
        for kind, places in named
        for place in places
        if not os.path.exists(os.path.expanduser(place))
    ]


def _stall_before_the_ladder(config: Config) -> str:
    """Warn if the supervisor would restart the daemon while goals recover a silent worker."""
    goals, stall_s = config.overseer.goals, config.overseer.stall_timeout_secs
    needs_s = goals.recovery_s()
    if not goals.enabled or stall_s > needs_s:
        return ""
    return (
        f"overseer.stall_timeout_secs ({format_duration(stall_s)}) is too short: goal recovery takes up to "
        f"{format_duration(needs_s)} ((max_retries + 2) x idle_after in overseer.goals), so the supervisor would restart the "
        f"daemon first. Fix: llmc config set overseer.stall_timeout_secs {2 * needs_s:.0f}"
    )
