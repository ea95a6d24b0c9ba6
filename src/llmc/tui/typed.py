"""Commands that the user types on the screen. Pure but for what it is given."""

from collections.abc import Callable
from itertools import takewhile

from msgspec import Struct


class Typed(Struct, frozen=True):
    """How a typed command line is run and completed; `llmc` is left out of it."""

    argv: Callable[[str], list[str]]
    #: exit code and output; ended once what it is given says so
    run: Callable[[str, Callable[[], bool]], tuple[int, str]]
    #: whether it needs the terminal for itself
    needs_terminal: Callable[[str], bool]
    #: how the last word can go on
    completions: Callable[[str], list[str]]

    def completed(self, line: str) -> tuple[str, list[str]]:
        """The line as far as it is certain, and the choices where it is not."""
        found = self.completions(line)
        head, _, last = line.rpartition(" ")
        begun = f"{head} " if head else ""
        if len(found) == 1:
            return f"{begun}{found[0]} ", []
        letters = zip(*found, strict=False)
        common = "".join(one[0] for one in takewhile(lambda one: len(set(one)) == 1, letters))
        return f"{begun}{common}" if len(common) > len(last) else line, found
