"""Answer repeated questions about a transcript by reading only what is new since the last one."""

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from llmc.agents.claude.json_lines import Budget, Row, Rows
from llmc.agents.protocol import Prompt

#: how many answers this process remembers, over all conversations
MOST_REMEMBERED = 128
#: limits of each: far more than the user and llmc send in one conversation
MOST_TEXT = 2 << 20
MOST_WAITING = 1000
MOST_PROMPTS = 10_000


class Followed(ABC):
    """A fold over the rows of a file, and how far it was read."""

    needle = b""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.end = 0
        self._file: tuple[int, int] | None = None
        #: the file was read to its end
        self.is_whole = True

    def read_on(self, path: Path, open_file: Callable[[], BinaryIO]) -> None:
        try:
            found = os.lstat(path)
        except OSError:
            self._begin(None)
            return
        if self._file != (found.st_dev, found.st_ino) or found.st_size < self.end:
            self._begin((found.st_dev, found.st_ino))
        if found.st_size != self.end:
            self.read_rows(Rows(open_file, (self.needle,), self.end, Budget()))

    def read_rows(self, rows: Rows) -> None:
        for row in rows:
            self.take(row)
        self.end, self.is_whole = rows.end, not rows.is_cut

    def _begin(self, file: tuple[int, int] | None) -> None:
        """Start over: the file was replaced or removed."""
        self._file, self.end, self.is_whole = file, 0, True
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forget what was read."""

    @abstractmethod
    def take(self, row: Row) -> None:
        """Process the next row that contains the needle."""


class Queue(Followed):
    """The messages in the client's queue."""

    needle = b'"queue-operation"'

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.waiting: list[str] = []
        self._size = 0
        self.is_known = True

    def take(self, row: Row) -> None:
        """A row that removes a message does not always say which one; then it is the oldest."""
        content = row.get("content")
        match row.get("operation") if row.get("type") == "queue-operation" else "":
            case "":
                return  # another row, which quotes one
            case "enqueue":
                self.waiting.append(str(content)[:MOST_TEXT])
                self._size += len(self.waiting[-1])
            case "dequeue" | "remove" | "popOne" | "popAll":
                self._remove(content)
            case _:
                self.is_known = False
        if len(self.waiting) > MOST_WAITING or self._size > MOST_TEXT:  # no client has such a queue
            self.clear()
            self.is_known = False

    def _remove(self, content: object) -> None:
        if self.waiting:
            at = self.waiting.index(content) if isinstance(content, str) and content in self.waiting else 0
            self._size -= len(self.waiting.pop(at))


class Prompts(Followed):
    """The prompts that contain a text, the newest if there are too many."""

    def __init__(self, holding: str, text_of: Callable[[Row], str]) -> None:
        super().__init__()
        self.needle = holding.encode()
        self._text_of = text_of
        self.clear()

    def clear(self) -> None:
        self.found: list[Prompt] = []
        self._size = 0

    def take(self, row: Row) -> None:
        if text := self._text_of(row):
            self.found.append(Prompt(text, row.get("type") == "queue-operation"))
            self._size += len(text)
        while len(self.found) > (1 if self._size > MOST_TEXT else MOST_PROMPTS):
            self._size -= len(self.found.pop(0).text)


_F = TypeVar("_F", bound=Followed)
_remembered: OrderedDict[tuple[Path, str], Followed] = OrderedDict()
_choosing = threading.Lock()


def remembered(path: Path, about: str, make: Callable[[], _F]) -> _F:
    """The fold of an earlier look at this file, or a new one. Use it under its lock."""
    with _choosing:
        found = _remembered.pop((path, about), None) or make()
        _remembered[path, about] = found
        if len(_remembered) > MOST_REMEMBERED:
            _remembered.popitem(last=False)
    return cast(_F, found)
