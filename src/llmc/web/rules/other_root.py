"""Commands on the page of another root: each names that root, so that it works from any directory. Pure."""

import re
import shlex
from collections.abc import Iterable


class Naming:
    """Finds the commands in texts of ours; `names`: the first words of all commands."""

    def __init__(self, names: Iterable[str]) -> None:
        known = "|".join(map(re.escape, names))
        # What is quoted is an argument, and not a command of ours.
        self._command = re.compile(rf"(?<!\w)'[^']*'|(?<![\w/.-])llmc (?=(?:{known})\b)")

    def with_root(self, text: str, root: str) -> str:
        """The text with `--root` in each command; `root` is "" on the page of the server's own root."""
        if not root:
            return text
        named = f"llmc --root {shlex.quote(root)} "
        return self._command.sub(lambda found: named if found[0] == "llmc " else found[0], text)
