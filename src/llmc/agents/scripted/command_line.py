"""The command line of the scripted agent, with the client's flags.

Written by hand: argparse alone costs 15 ms of the start.
"""

VERSION = "2.1.325"
MODELS = {name: f"claude-{name}-5-5" for name in ("opus", "sonnet", "haiku")}

_SWITCHES = {
    "--dangerously-skip-permissions": "skip_permissions",
    "--continue": "resume_latest",
    "-c": "resume_latest",
    "--version": "show_version",
    "-v": "show_version",
}
_VALUES = {
    "--model": "model",
    "--permission-mode": "permission_mode",
    "--settings": "settings",
    "--session-id": "session_id",
    "--resume": "resume",
    "-r": "resume",
    "--append-system-prompt": "append_system_prompt",
}
_VARIADIC = {
    "--allowedTools": "allowed_tools",
    "--allowed-tools": "allowed_tools",
    "--disallowedTools": "disallowed_tools",
    "--disallowed-tools": "disallowed_tools",
}


class UsageError(Exception):
    """The command line cannot be run; the text is what the client would print."""


class Options:
    """What the command line asked for."""

    def __init__(self) -> None:
        self.model = "opus"
        self.permission_mode = "default"
        self.skip_permissions = False
        self.resume_latest = False
        self.show_version = False
        self.settings = ""
        self.session_id = ""
        self.resume = ""
        self.append_system_prompt = ""
        self.allowed_tools: list[str] = []
        self.disallowed_tools: list[str] = []
        self.prompt = ""

    @property
    def model_name(self) -> str:
        return MODELS.get(self.model, self.model)

    @property
    def mode(self) -> str:
        return "bypassPermissions" if self.skip_permissions else self.permission_mode

    def allows(self, tool: str) -> bool:
        return tool not in self.disallowed_tools


def parse(argv: list[str]) -> Options:
    """Read the flags; a variadic flag eats every word up to the next flag, a prompt included, as in the client."""
    chosen = Options()
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            chosen.prompt = " ".join(words)
            break
        flag, equals, value = word.partition("=")
        if flag in _SWITCHES and not equals:
            setattr(chosen, _SWITCHES[flag], True)
        elif flag in _VALUES:
            if not equals:
                value = _next_value(flag, words)
            setattr(chosen, _VALUES[flag], value)
        elif flag in _VARIADIC:
            taken = [value] if equals else _take_values(flag, words)
            getattr(chosen, _VARIADIC[flag]).extend(_tools(taken))
        elif word.startswith("-"):
            raise UsageError(f"error: unknown option '{word}'")
        else:
            chosen.prompt = word
    return chosen


def _next_value(flag: str, words: list[str]) -> str:
    if not words:
        raise UsageError(f"error: option '{flag} <value>' argument missing")
    return words.pop(0)


def _take_values(flag: str, words: list[str]) -> list[str]:
    taken = [_next_value(flag, words)]
    while words and not words[0].startswith("-"):
        taken.append(words.pop(0))
    return taken


def _tools(values: list[str]) -> list[str]:
    return [name for value in values for name in value.replace(",", " ").split()]
