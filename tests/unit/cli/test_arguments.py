"""What commands share: the fields of a result as JSON, and one action on several workers or tasks."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import Struct

from llmc.base.errors import Refused, UsageError
from llmc.cli.app import cli
from llmc.cli.arguments import confirm, on_each, open_editor, parse_end, text_to_send
from llmc.cli.output import plain
from tests.support.command_tree import context


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


def options(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        ctx = context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from options(found)


def test_no_option_takes_a_number_that_is_not_finite() -> None:
    """`nan` is in every range, and `inf` in a range without an end. Break: click.FloatRange in any command."""
    numbers = [one for one in options(cli) if isinstance(one.type, click.types.FloatParamType)]
    assert {"max_cost", "interval", "budget"} <= {one.name for one in numbers}
    for one in numbers:
        for text in ("nan", "inf", "-inf", "1e999"):
            with pytest.raises(click.BadParameter, match=r"range|finite"):
                one.type.convert(text, one, None)


@pytest.mark.parametrize("text", ["0001-01-01", "1e300", "9999999d", "25:00", "soon"])
def test_an_end_that_is_not_in_the_calendar_is_refused(text: str) -> None:
    """Break: `timestamp()` outside of the try."""
    with pytest.raises(UsageError, match=f"--until: invalid time '{text}'") as refused:
        parse_end(text, 1_800_000_000.0)
    assert "07:30" in refused.value.hint


@pytest.mark.parametrize(
    ("editor", "why"),
    [
        ("nosuch-editor", "not installed"),
        ('vim "', "No closing quotation"),
        ("/", "failed to start"),
        ("false", "exited with code 1"),
    ],
)
def test_an_editor_that_does_not_run_is_the_users_error(
    editor: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: start the editor with subprocess; or split its command outside of the try."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    with pytest.raises(UsageError, match=why) as refused:
        open_editor(tmp_path / "draft", "Nothing was sent.")
    assert editor in refused.value.message
    assert "Nothing was sent." in refused.value.hint


def test_a_text_that_is_not_utf8_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: click.edit, which removes the file and ends with UnicodeDecodeError; or keep a draft without a change."""
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(b'caf\\xe9')"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VISUAL", f'{sys.executable} -c "{script}"')
    with pytest.raises(UsageError, match="not UTF-8") as refused:
        text_to_send(None, None, "task")
    (kept,) = tmp_path.iterdir()
    assert str(kept) in refused.value.hint
    assert kept.read_bytes() == b"caf\xe9"
    kept.unlink()
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(UsageError, match="exited with code 1"):
        text_to_send(None, None, "task")
    assert list(tmp_path.iterdir()) == []
