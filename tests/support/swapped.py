"""A hidden process of an agent, which replaces a directory with a link just before llmc uses it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from llmc.base.errors import LlmcError
from tests.support.repos import snapshot

#: watchers to call at each file operation
_watching: list[Callable[[tuple[object, ...]], None]] = []


@cache
def _watch_calls() -> None:
    """Once per process: Python cannot remove an audit hook."""

    def told(event: str, args: tuple[object, ...]) -> None:
        if _watching and (event == "open" or event.startswith(("os.", "shutil."))):
            watcher = _watching.pop()  # its own calls do not count
            watcher(args)

    sys.addaudithook(told)


@contextmanager
def _swapped(folder: Path, by: Path, turn: int) -> Iterator[list[str]]:
    """Just before the `turn`-th call that names it, or a file in it,
    `folder` becomes a link; yields whether it did.
    """
    names = {folder.name, *os.listdir(by)}
    seen: list[str] = []
    done: list[str] = []

    def look(args: tuple[object, ...]) -> None:
        words = [os.fspath(arg) for arg in args if isinstance(arg, str | Path)]
        seen.extend(word for word in words[:1] if {*word.split("/")} & names)
        if len(seen) < turn:
            _watching.append(look)
            return
        os.rename(folder, _aside(folder))
        folder.symlink_to(by)
        done.append(seen[-1])

    _watch_calls()
    _watching[:] = [look]
    try:
        yield done
    finally:
        _watching.clear()


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.aside")


def never_elsewhere(
    folder: Path, elsewhere: Path, make: Callable[[], object], act: Callable[[], object]
) -> list[str]:
    """Act with the directory replaced at the first call about it, then at the second,
    and so on; returns these calls.

    Its replacement has files of the same names; they must stay. The action may fail,
    as it did not find its files.
    """
    before, mode = snapshot(elsewhere), elsewhere.stat().st_mode
    calls: list[str] = []
    while True:
        make()
        with _swapped(folder, elsewhere, len(calls) + 1) as done, suppress(OSError, LlmcError):
            act()
        assert (snapshot(elsewhere), elsewhere.stat().st_mode) == (before, mode), f"after {calls}, at {done}"
        if not done:
            return calls
        calls += done
        if os.path.islink(folder):
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        if _aside(folder).exists():
            os.rename(_aside(folder), folder)
