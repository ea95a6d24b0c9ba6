"""What commands share: the fields of a result as JSON, and one action on several workers or tasks."""

import io
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import Struct

from llmc.base.errors import Refused, UsageError
from llmc.cli.arguments import confirm, on_each
from llmc.cli.output import plain


class Done(Struct, frozen=True):
    worker: str
    directory: Path | None
    files: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.files)


def test_a_result_is_its_own_fields_as_plain_data() -> None:
    """Break: print the struct without `enc_hook`, or leave `names` out."""
    done = Done("adam", Path("/trash/adam"), ("a.txt", "b\udcff"))
    assert plain(done) == {"worker": "adam", "directory": "/trash/adam", "files": ("a.txt", "b\udcff")}
    assert plain(Done("adam", None), "worker", "count") == {"worker": "adam", "count": 0}


def act(name: str) -> dict[str, Any]:
    if name == "baker":
        raise Refused("baker is on hold", hint="Run: llmc release baker")
    return {"worker": name}


def test_one_that_fails_does_not_stop_the_others() -> None:
    """Break: raise for each failure; or return at the first."""
    rows = list(on_each(["adam", "baker", "carol"], act, lambda name: {"worker": name}, alone=False))
    failed = {"worker": "baker", "error": "baker is on hold", "hint": "Run: llmc release baker"}
    assert rows == [{"worker": "adam"}, failed, {"worker": "carol"}]


def test_the_only_one_fails_as_an_error() -> None:
    """For a single worker, the exit code says more than a row. Break: leave `alone` out."""
    with pytest.raises(Refused, match="on hold"):
        list(on_each(["baker"], act, lambda name: {"worker": name}, alone=True))


class Keyboard(io.StringIO):
    """A terminal in which the user types an answer."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_yes_is_required_or_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: go on in a script that did not pass --yes; or refuse there what needs none."""
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(UsageError, match="this would remove adam; cannot prompt") as refused:
        confirm("Remove adam?", "this would remove adam", yes=False)
    assert refused.value.hint == "Pass --yes to confirm."
    confirm("Remove adam?", "this would remove adam", yes=True)
    confirm("Reset adam?", None, yes=False)


@pytest.mark.parametrize("what", ["this would remove adam", None])
def test_on_a_terminal_a_no_ends_the_command(what: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: do not ask on a terminal because a script needs no --yes."""
    monkeypatch.setattr("sys.stdin", Keyboard("n\ny\n"))
    with pytest.raises(click.Abort):
        confirm("Go on?", what, yes=False)
    confirm("Go on?", what, yes=False)
    confirm("Go on?", what, yes=True)
