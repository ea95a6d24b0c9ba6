"""The commands that agents may run, and those that the daemon runs for contained agents, which see no root. Pure."""

from collections.abc import Sequence

from llmc.base.text import pattern
from llmc.records.task import is_id

#: commands that agents may run
FOR_AGENTS = {"report": (), "status": (), "hook": (), "tasks": ("list", "show")}

_JSON = "--json"
_STATES = pattern(r"[a-z_,]{1,200}")


def shown_to_agents(argv: Sequence[str]) -> list[str] | None:
    """The command to run for an agent's request, made of known words only; None: agents may not run it."""
    words, options, state = [], set(), ""
    given = iter(argv)
    for word in given:
        name, _, value = word.partition("=")
        if name in ("--state", "-s"):
            state = value or next(given, "")
            if not _STATES.fullmatch(state):
                return None
        elif word.startswith("-"):
            options.add(word)
        else:
            words.append(word)
    match words:
        case ["status"] if options <= {_JSON} and not state:
            return ["status", *options]
        case ["tasks", "list"] if options <= {_JSON, "--all", "-a"}:
            return ["tasks", "list", *sorted(options), *(["--state", state] if state else [])]
        case ["tasks", "show", task] if options <= {_JSON} and not state and is_id(task):
            return ["tasks", "show", *options, "--", task]
    return None
