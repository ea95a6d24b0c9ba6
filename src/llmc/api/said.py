"""An action from a screen: the command that the user could have typed, and its outcome. Pure."""

import shlex
from collections.abc import Callable

from msgspec import Struct

from llmc.base.errors import LlmcError
from llmc.records.items import command_in as command_in

#: how an outcome is colored
GOOD, BAD, PLAIN = "good", "bad", "plain"


class Said(Struct, frozen=True):
    """One action and its outcome."""

    #: as the user could type it
    command: str
    #: the receipt, the error, or the result, in one line
    outcome: str
    at_unix: float
    tone: str = PLAIN
    #: details, for the log
    detail: str = ""


#: shows a step while an operation runs
Show = Callable[[str], None]
#: an operation; returns its outcome
Act = Callable[[Show], Said]


def command_line(*words: str) -> str:
    """A command line, quoted for the shell."""
    return "llmc " + " ".join(shlex.quote(word) for word in words)


def failed(command: str, error: LlmcError, at: float) -> Said:
    """An error, with its hint and exit code."""
    first, _, rest = error.message.partition("\n")
    hint = f"  {error.hint}" if error.hint else ""
    return Said(
        command, f"{first}{hint}  (exit {int(error.exit_code)})", at, BAD, f"{rest}\n{error.hint}".strip()
    )
