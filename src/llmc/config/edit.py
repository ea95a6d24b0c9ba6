"""Get and set single options of config.toml. Keeps comments and layout; never writes an invalid file.

The only module that uses tomlkit, imported when something changes. Callers that write hold the lock (`locked`).
"""

import errno
import shlex
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from llmc.base import locks
from llmc.base.errors import ConfigError, NotFound, Refused, UsageError
from llmc.base.files import rewrite
from llmc.config.load import (
    EDIT_HINT,
    Found,
    bare,
    check,
    check_text,
    extra,
    fields,
    is_table,
    nearest,
    read_text,
    root_type,
    unusable,
)
from llmc.config.model import Config, Worker
from llmc.config.options import check_worker_name
from llmc.config.paths import Root
from llmc.config.schema import initial_text as initial_text
from llmc.config.schema import to_toml
from llmc.config.toml_text import (
    Data,
    append_table,
    changed,
    insert_key,
    join_key,
    lookup,
    remove_table,
    split_key,
    without,
)
from llmc.config.toml_text import Path as KeyPath

LOCK_S = 30.0
_SCHEMA_HINT = "Run `llmc config schema` to list the options."


def locked(root: Root) -> AbstractContextManager[None]:
    """Hold the lock of config.toml: two writers must not take back each other's change."""
    return locks.lock(root.lock("config"), locks.Rank.CONFIG, timeout_s=LOCK_S)


def get_value(config: Config, dotted: str) -> object:
    """The effective value, including defaults; a table is its Struct or dict."""
    parts = _split(dotted)
    kind = _kind_at(parts)
    value: Any = config
    for depth, part in enumerate(parts):
        value = value.get(part, msgspec.UNSET) if isinstance(value, dict) else getattr(value, part)
        if value is msgspec.UNSET:
            raise NotFound(f'"{join_key(parts[: depth + 1])}" is not configured', hint=_SCHEMA_HINT)
    inherited = extra(kind, "inherits")
    if value is None and not inherited:
        raise NotFound(f'"{join_key(parts)}" is not set and has no default', hint=_SCHEMA_HINT)
    return get_value(config, str(inherited)) if value is None else value


def set_value(path: Path, dotted: str, raw: str) -> Config:
    """Set one option; `raw` is TOML, or plain text if the option takes text."""
    parts = _split(dotted)
    text, data = _read(path)
    kind = _kind_at(parts)
    _refuse_unknown_worker(data, parts)
    value = _parse(raw, kind, parts)
    wanted = changed(data, parts, value)
    if lookup(data, parts) is msgspec.UNSET:
        edits = [lambda: insert_key(text, parts, to_toml(value)), lambda: _replaced(text, parts, value)]
    else:
        edits = [lambda: _replaced(text, parts, value)]
    return _save(path, text, parts, wanted, edits)


def unset_value(path: Path, dotted: str) -> Config:
    """Remove a key, known or unknown."""
    parts = _split(dotted)
    text, data = _read(path)
    if lookup(data, parts) is msgspec.UNSET:
        _kind_at(parts)
        return _save(path, text, parts, data, [lambda: text])
    if _is_known_table(parts):
        raise UsageError(
            f'"{join_key(parts)}" is a table and cannot be unset; unset one of its keys', hint=_SCHEMA_HINT
        )
    return _save(path, text, parts, without(data, parts), [lambda: _replaced(text, parts, msgspec.UNSET)])


def add_worker(path: Path, name: str, worker: Worker) -> Config:
    """Add `[workers.<name>]` with the values that differ from the defaults."""
    if problem := check_worker_name(name):
        raise UsageError(f'invalid worker name "{name}": {problem}')
    text, data = _read(path)
    parts = ("workers", name)
    if lookup(data, parts) is not msgspec.UNSET:
        raise Refused(f"worker {name} already exists in {path.name}", hint="Choose another name.")
    default = msgspec.to_builtins(Worker())
    table = {key: value for key, value in msgspec.to_builtins(worker).items() if value != default[key]}
    statements = [f"{key} = {to_toml(value)}" for key, value in table.items()]
    edits = [lambda: append_table(text, parts, statements), lambda: _replaced(text, parts, table)]
    return _save(path, text, parts, changed(data, parts, table), edits)


def remove_worker(path: Path, name: str) -> Config:
    """Remove `[workers.<name>]`."""
    text, data = _read(path)
    parts = ("workers", name)
    if lookup(data, parts) is msgspec.UNSET:
        known = data.get("workers")
        near = nearest(name, known if isinstance(known, dict) else ())
        raise NotFound(
            f"no worker {name} in {path.name}; {near}", hint="Run `llmc status` to see the workers."
        )
    edits = [lambda: remove_table(text, parts), lambda: _replaced(text, parts, msgspec.UNSET)]
    return _save(path, text, parts, without(data, parts), edits)


def _split(dotted: str) -> KeyPath:
    try:
        return split_key(dotted)
    except ValueError as error:
        raise UsageError(str(error), hint=_SCHEMA_HINT) from None


def _kind_at(parts: KeyPath) -> inspect.Type:
    """The type of a key; NotFound with the nearest key if unknown."""
    kind = root_type()
    for depth, part in enumerate(parts):
        match bare(kind):
            case inspect.StructType() as struct if part in fields(struct):
                kind, why = fields(struct)[part].type, ""
            case inspect.StructType() as struct:
                why = nearest(part, fields(struct), parts[:depth])
            case inspect.DictType(key_type=key, value_type=value):
                kind, why = value, _problem(part, key)
            case _:
                why = f"{join_key(parts[:depth])} is not a table"
        if why:
            raise NotFound(f'unknown option "{join_key(parts)}"; {why}', hint=_SCHEMA_HINT)
    return kind


def _is_known_table(parts: KeyPath) -> bool:
    try:
        return is_table(_kind_at(parts))
    except NotFound:
        return False


def _problem(value: object, kind: inspect.Type) -> str:
    found: Found = []
    check(value, kind, (), found)
    return found[0][1] if found else ""


def _parse(raw: str, kind: inspect.Type, parts: KeyPath) -> Any:
    """The first valid reading of `raw`: as TOML, else as plain text."""
    if is_table(kind):
        raise UsageError(
            f'"{join_key(parts)}" is a table and cannot be set; set one of its keys', hint=_SCHEMA_HINT
        )
    problems = []
    for value in (*_as_toml(raw), raw):
        if not (problem := _problem(value, kind)):
            return value
        problems.append(problem)
    raise UsageError(f"{join_key(parts)}: {problems[0]}", hint=_SCHEMA_HINT)


def _as_toml(raw: str) -> list[Any]:
    try:
        data = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):
        return []
    return [data["value"]] if len(data) == 1 else []


def _refuse_unknown_worker(data: Data, parts: KeyPath) -> None:
    """A misspelled name must not create a worker."""
    if parts[0] == "workers" and len(parts) > 1 and lookup(data, parts[:2]) is msgspec.UNSET:
        raise NotFound(f"no worker {parts[1]}", hint=f"Run `llmc add {shlex.quote(parts[1])}` to add it.")


def _read(path: Path) -> tuple[str, Data]:
    text = read_text(path)
    try:
        return text, tomllib.loads(text)
    except (ValueError, RecursionError):
        raise unusable(path, check_text(text, path.name)[1]) from None


def _replaced(text: str, parts: KeyPath, value: object) -> str:
    """The text with a key set to another value; msgspec.UNSET removes the key."""
    import tomlkit

    document = tomlkit.parse(text)
    node: Any = document
    for part in parts[:-1]:
        if part not in node:
            node[part] = {}
        node = node[part]
    if value is msgspec.UNSET:
        del node[parts[-1]]
    else:
        node[parts[-1]] = tomlkit.value(to_toml(value))
    return tomlkit.dumps(document)


def _save(path: Path, text: str, parts: KeyPath, wanted: Data, edits: list[Callable[[], str]]) -> Config:
    """Write the first edit that gives exactly the wanted data, if it is valid."""
    new = next((new for new in map(_attempt, edits) if new is not None and _means(new, parts, wanted)), None)
    if new is None:
        raise ConfigError(
            f"cannot change this option in {path} without changing other parts of the file",
            hint="Change the option with `llmc config edit`, then run `llmc config check`.",
        )
    config, problems = check_text(new, path.name, path.parent)
    if config is None:
        lines = "\n".join(f"{problem}" for problem in problems)
        raise ConfigError(
            f"{path} was not changed because the result would be invalid:\n{lines}", hint=EDIT_HINT
        )
    if new != text:
        write(path, new)
    return config


def write(path: Path, text: str) -> None:
    """Replace the whole file."""
    try:
        rewrite(path, text.encode())
    except UnicodeEncodeError:
        raise UsageError("the value is not valid UTF-8") from None
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"{'Free some space' if is_full else 'Check the owner and permissions of the file'}, then run the command again."
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def _attempt(edit: Callable[[], str]) -> str | None:
    from tomlkit.exceptions import TOMLKitError

    try:
        return edit()
    except (TOMLKitError, ValueError, LookupError, TypeError, AttributeError):
        return None  # tomlkit fails on some layouts, in various ways


def _means(text: str, parts: KeyPath, wanted: Data) -> bool:
    try:
        return _trimmed(tomllib.loads(text), parts) == _trimmed(wanted, parts)
    except ValueError:
        return False


def _trimmed(data: Data, parts: KeyPath) -> Data:
    """The data without empty tables around a key; an empty worker table stays."""
    for length in range(len(parts) - 1, 0, -1):
        is_worker = parts[0] == "workers" and length == 2
        if lookup(data, parts[:length]) == {} and not is_worker:
            data = without(data, parts[:length])
    return data
