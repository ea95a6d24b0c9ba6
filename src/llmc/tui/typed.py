"""Commands that the user types on the screen. Pure, except for the functions passed in."""

import shlex
from collections.abc import Callable, Sequence
from itertools import takewhile

from msgspec import Struct

from llmc.base.errors import UsageError


def words_of(line: str) -> list[str]:
    """The words of a command line without `llmc`; raises UsageError if a quote is not closed."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"cannot parse the command: {error}", hint="Close the quote, or escape it."
        ) from None
    return words[1:] if words[:1] == ["llmc"] else words


class Typed(Struct, frozen=True):
    """How to run and complete a typed command line, which omits `llmc`."""

    argv: Callable[[Sequence[str]], list[str]]
    #: returns the exit code and output; stops the command once the given function returns true
    run: Callable[[Sequence[str], Callable[[], bool]], tuple[int, str]]
    #: whether a command needs the terminal for itself
    needs_terminal: Callable[[Sequence[str]], bool]
    #: completions of the last word
    completions: Callable[[str], list[str]]

    def completed(self, line: str) -> tuple[str, list[str]]:
        """The line, completed as far as it is unambiguous, and the choices if it is ambiguous."""
        found = self.completions(line)
        head, _, last = line.rpartition(" ")
        begun = f"{head} " if head else ""
        if len(found) == 1:
            return f"{begun}{found[0]} ", []
        letters = zip(*found, strict=False)
        common = "".join(one[0] for one in takewhile(lambda one: len(set(one)) == 1, letters))
        return f"{begun}{common}" if len(common) > len(last) else line, found
