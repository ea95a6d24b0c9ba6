"""What commands share: the fields of a result as JSON, and one action on several workers or tasks."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from llmc.base.errors import Refused
from llmc.cli.arguments import on_each
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
