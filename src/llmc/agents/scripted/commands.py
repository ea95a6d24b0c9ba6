"""What a submitted text means to the client. Pure."""

import re

EXIT_WORDS = ("exit", "quit", ":q", ":q!", ":wq", ":wq!")

#: slash commands with an effect of their own
ACTIONS = {
    "clear": "clear",
    "reset": "clear",
    "new": "clear",
    "compact": "compact",
    "exit": "exit",
    "quit": "exit",
}
#: slash commands that open a panel
PANELS = (
    "add-dir",
    "agents",
    "config",
    "cost",
    "help",
    "hooks",
    "mcp",
    "model",
    "permissions",
    "resume",
    "status",
)

_COMMAND = re.compile(r"/([A-Za-z0-9:_-]+)(?=\s|$)")


def kind(text: str) -> str:
    """`prompt`, `bash`, `clear`, `compact`, `exit`, `panel` or `unknown`."""
    if text.strip() in EXIT_WORDS:
        return "exit"
    if text.startswith("!"):
        return "bash"
    name = slash_name(text)
    if not name:
        return "prompt"
    return ACTIONS.get(name) or ("panel" if name in PANELS else "unknown")


def slash_name(text: str) -> str:
    """The command a text calls; a path such as /etc/passwd is plain text."""
    match = _COMMAND.match(text)
    return match[1] if match else ""
