"""An order from a screen: the command as one could have typed it, and what came of it. Pure."""

import shlex
from collections.abc import Callable

from msgspec import Struct

from llmc.base.errors import LlmcError
from llmc.records.items import command_in as command_in

#: how an outcome is coloured
GOOD, BAD, PLAIN = "good", "bad", "plain"


class Said(Struct, frozen=True):
    """One action and what came of it."""

    #: as one could type it
    command: str
    #: the receipt, the error, or the result, in one line
    outcome: str
    at_unix: float
    tone: str = PLAIN
    #: more of it, for the log
    detail: str = ""


#: shows a step while an operation runs
Show = Callable[[str], None]
#: an operation: what it says at its end
Act = Callable[[Show], Said]


def command_line(*words: str) -> str:
    """A command, quoted as a shell wants it."""
    return "llmc " + " ".join(shlex.quote(word) for word in words)


def failed(command: str, error: LlmcError, at: float) -> Said:
    """An error, with its hint and exit code."""
    first, _, rest = error.message.partition("\n")
    hint = f"  {error.hint}" if error.hint else ""
    return Said(
        command, f"{first}{hint}  (exit {int(error.exit_code)})", at, BAD, f"{rest}\n{error.hint}".strip()
    )
