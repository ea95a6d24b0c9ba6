"""Commands that the user types on the screen. Pure, except for the functions passed in."""

import contextlib
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


def parted(line: str) -> tuple[str, list[str], str]:
    """The line up to its last word, the words there without `llmc`, and the last word, even if a quote is open."""
    for at in reversed([0, *(at for at, char in enumerate(line, 1) if char.isspace())]):
        begun = line[:at]
        with contextlib.suppress(ValueError):  # a quote is open: the last word begins before it
            words = shlex.split(begun)
            if shlex.split(f"{begun}x") == [*words, "x"]:  # the space is no part of a word
                return begun, words[1:] if words[:1] == ["llmc"] else words, _unquoted(line[at:])
    raise AssertionError("the empty line has no quotes")


def _unquoted(word: str) -> str:
    """A word without its quotes, of which the last may be open."""
    begun = word.removesuffix("\\")  # it would escape what comes next
    for tried in (word, begun, f"{word}'", f'{word}"', f'{begun}"'):
        with contextlib.suppress(ValueError):
            return "".join(shlex.split(tried))
    return begun


def _quoted(word: str) -> str:
    """A word as a shell takes it; only the value of an option is quoted."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{option}{equals}{shlex.quote(value) if value else ''}"


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
        begun, _, last = parted(line)
        if len(found) == 1:
            return f"{begun}{_quoted(found[0])}" + " " * (not found[0].endswith("/")), []
        letters = zip(*found, strict=False)
        common = "".join(one[0] for one in takewhile(lambda one: len(set(one)) == 1, letters))
        return f"{begun}{_quoted(common)}" if len(common) > len(last) else line, found
