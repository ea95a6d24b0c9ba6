"""The config.toml that `llmc init` writes: what was chosen, and every other option as a comment."""

from llmc.config.keys import quoted
from llmc.config.model import Defaults
from llmc.config.schema import Option, reference

_TOP = """\
# Configuration of llmc. A line "# name = value" shows an option that is not set; take the "# " away to set it.
# 'llmc config check' finds mistakes, 'llmc config set KEY VALUE' keeps these comments.
# A duration is a number of seconds, or text like "15m".
"""


#: what stands in the example of a table that can be there several times
_EXAMPLES = {"<name>": "adam", "<model>": "claude-opus"}


def initial_text(source: str, default_branch: str, agent: str, task_list_id: str = "") -> str:
    """Generated from the model, so that it cannot name an option that does not exist."""
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
