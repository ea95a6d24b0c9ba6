"""A root to be broken, and commands run on it in this process: like `llmc`, without a new interpreter."""

import contextlib
import io
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from llmc.__main__ import _run
from tests.support.fleet import Fleet

#: in an error of llmc's own that no one expected
BUG = "internal error: "


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Grounds:
    """A fleet with two workers, none of them running."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.root = fleet.root
        self.tasks = fleet.dir / "tasks/plan"
        self.tasks.mkdir(parents=True, exist_ok=True)

    def llmc(self, *argv: str) -> Said:
        """Run one command; it may refuse, but must not crash."""
        out, err = _stream(), _stream("backslashreplace")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = int(_run([*argv]))
            except BrokenPipeError:  # click's answer to an empty command line, among others
                code = 1
            except BaseException:
                code = 99
                traceback.print_exc(file=err)
        said = Said(code, _text(out), _text(err))
        assert code != 99, f"llmc {argv!r}\n{said.err}"
        if BUG in said.err or BUG in said.out:
            raise AssertionError(f"llmc {argv!r}\n{said.err[-2000:]}\n{self._story(argv)}")
        return said

    def _story(self, argv: tuple[str, ...]) -> str:
        """The traceback, from a second run."""
        err = _stream("backslashreplace")
        with contextlib.redirect_stdout(_stream()), contextlib.redirect_stderr(err):
            _run(["--debug", *argv])
        return _text(err)[-4000:]


class Unchanged:
    """Files that must not be written."""

    def __init__(self, *paths: Path) -> None:
        self._before = {path: path.read_bytes() for path in paths}

    def check(self) -> None:
        for path, before in self._before.items():
            assert path.read_bytes() == before, f"{path} was written to"


@contextlib.contextmanager
def environment(fleet: Fleet) -> Iterator[None]:
    """This process is where the fleet's commands run."""
    before, cwd = dict(os.environ), os.getcwd()
    kept = {name: value for name, value in before.items() if name.startswith("PYTEST")}
    os.environ.clear()
    os.environ.update({**kept, **fleet.env, "LLMC_ROOT": str(fleet.root)})
    os.chdir(fleet.source)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        os.chdir(cwd)


def _stream(errors: str = "strict") -> io.TextIOWrapper:
    """As Python opens standard output: invalid text cannot be written to it; to standard error it can."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(errors="replace")
