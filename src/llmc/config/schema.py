"""The options of config.toml as data: for docs, editors, and the file that `llmc init` writes."""

import json
from collections.abc import Iterator

import msgspec
from msgspec import NODEFAULT, inspect

from llmc.config.load import bare, expected, extra, fields, is_table, root_type
from llmc.config.model import Config, Defaults
from llmc.config.toml_text import Path, join_key, quoted


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option; `default` and `example` are TOML, or empty."""

    key: str
    type: str
    default: str
    description: str
    example: str = ""


def json_schema() -> dict[str, object]:
    """A JSON Schema of config.toml, for editors."""
    schema = json.loads(json.dumps(msgspec.json.schema(Config)))
    for table in schema["$defs"].values():
        for option in table["properties"].values():
            if option.pop("x-duration", False):
                option["type"] = ["number", "string"]
    assert isinstance(schema, dict)
    return schema


def reference() -> list[Option]:
    """Every option, in order of the model; `workers.<name>.model` means any worker."""
    return list(_options(root_type(), ()))


def plain(value: object) -> object:
    """A configuration value as data, without unset keys."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    return value


def to_toml(value: object) -> str:
    """A value as TOML; ValueError if TOML cannot represent it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < 1e15:
            return f"{int(value)}"
        case int() | float():
            return f"{value}"
        case str() if "\n" in value and "\r" not in value:
            # No run of three quotes may survive, and a first newline right after the opening is dropped.
            lines = (quoted(line)[1:-1] for line in value.split("\n"))
            return '"""\n' + "\n".join(lines) + '"""'
        case str():
            return quoted(value)
        case list() | tuple():
            return "[" + ", ".join(to_toml(item) for item in value) + "]"
        case dict():
            pairs = (f"{join_key([key])} = {to_toml(item)}" for key, item in value.items())
            return "{ " + ", ".join(pairs) + " }" if value else "{}"
        case _:
            raise ValueError(f"cannot write {value!r} as TOML")


def _options(kind: inspect.Type, path: Path) -> Iterator[Option]:
    match bare(kind):
        case inspect.StructType() as struct:
            for name, field in fields(struct).items():
                if is_table(field.type):
                    yield from _options(field.type, (*path, name))
                else:
                    yield _option((*path, name), field)
        case inspect.DictType(key_type=key, value_type=value):
            yield from _options(value, (*path, str(extra(key, "placeholder") or "<name>")))


def _option(path: Path, field: inspect.Field) -> Option:
    about = field.type.extra_json_schema or {} if isinstance(field.type, inspect.Metadata) else {}
    default = field.default if field.default is not NODEFAULT else None
    if field.default_factory is not NODEFAULT:
        default = field.default_factory()
    examples = about.get("examples") or [None]
    kind = "duration" if about.get("x-duration") else expected(field.type)
    return Option(
        key=".".join(path),
        type=kind.removeprefix("a ").removeprefix("an "),
        default="" if default is None else to_toml(default),
        description=about.get("description", ""),
        example="" if examples[0] is None else to_toml(examples[0]),
    )


_TOP = """\
# Configuration for llmc. Commented-out lines show the default or an example; remove the leading "# " to set an option.
# `llmc config check` finds errors; `llmc config set KEY VALUE` keeps these comments.
# A duration is a number of seconds or a string such as "15m".
"""


#: example names for tables that can occur several times
_EXAMPLES = {"<name>": "adam", "<model>": "claude-opus"}


def initial_text(source: str, default_branch: str, agent: str, task_list_id: str = "") -> str:
    """The config.toml of a new root."""
    chosen = {"repo.source": quoted(source), "repo.default_branch": quoted(default_branch)}
    if task_list_id:
        chosen["auto.task_list_id"] = quoted(task_list_id)
    if agent != Defaults().agent:
        chosen["defaults.agent"] = quoted(agent)
    tables: dict[str, list[Option]] = {}
    for option in reference():
        tables.setdefault(option.key.rpartition(".")[0], []).append(option)
    return _TOP + "".join(_table(name, options, chosen) for name, options in tables.items())


def _table(name: str, options: list[Option], chosen: dict[str, str]) -> str:
    place, _, placeholder = name.rpartition(".")
    example = _EXAMPLES.get(placeholder)
    header = f"# [{place}.{example}]" if example else f"[{name}]"
    return "\n".join(["", header, *(_lines(option, chosen) for option in options), ""])


def _lines(option: Option, chosen: dict[str, str]) -> str:
    name = option.key.rpartition(".")[2]
    note = f"# {option.description}."
    if option.key in chosen:
        return f"{note}\n{name} = {chosen[option.key]}"
    is_empty = option.default in ("", '""', "[]", "{}")
    return f"{note}\n# {name} = {(option.example if is_empty else '') or option.default}"
