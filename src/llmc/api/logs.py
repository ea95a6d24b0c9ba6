"""The logs of a root, including rotated files."""

from collections import deque
from pathlib import Path

from llmc.base.log_reader import LogReader, archives
from llmc.config.paths import Root
from llmc.records.store import Store

DAEMON = "daemon"
#: logs that do not belong to a worker: name and file
OTHERS = {
    DAEMON: "daemon.jsonl",
    "overseer": "overseer.log",
    "auto": "auto.log",
    "task_pool": "task_pool.log",
    "post_accept": "post_accept.log",
    "goals": "goals.log",
}


class Log:
    """One log: its last lines, then what is added."""

    def __init__(self, root: Root, name: str, lines: int) -> None:
        self.path = root.logs / OTHERS[name] if name in OTHERS else root.log(Store(root).worker(name).name)
        self._lines = lines
        self._reader = LogReader(str(self.path), after=_before_the_last(self.path, lines))

    def exists(self) -> bool:
        return self.path.exists() or bool(archives(str(self.path)))

    def last_lines(self) -> bytes:
        """The last lines, including an incomplete one."""
        kept: deque[bytes] = deque(maxlen=self._lines)
        rest = b""
        for chunk in self._reader.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            kept.extend(line + b"\n" for line in whole)
        if rest:
            kept.append(rest)
        return b"".join(kept)

    def more(self) -> bytes:
        """What was added since."""
        return self._reader.read()


def _before_the_last(path: Path, lines: int) -> int:
    """The number of the latest rotated file that is not needed for this many lines."""
    found = _count(str(path))
    for number, archive in reversed(archives(str(path))):
        if found >= lines:
            return number
        found += _count(archive)
    return 0


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0
