"""Regular expressions compiled on first use: a command needs few of those it imports. Light."""

import re
from typing import Any, cast


class _Later:
    """A pattern that is compiled on first use."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Like `re.compile`, which takes up to a millisecond."""
    return cast("re.Pattern[str]", _Later(text, flags))
