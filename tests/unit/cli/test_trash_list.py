"""What `llmc trash list` prints."""

from pathlib import Path

from llmc.cli.clearing import _lines
from llmc.workers.restore import Entry


def test_the_trash_is_listed_in_columns() -> None:
    """Break: print each entry as wide as it is."""
    entries = [
        Entry("adam", "20261115T101612-1a2a", "reset", subject="One", work="One"),
        Entry(
            "charlotte", "odd", "nuke", subject="Two", work="Two", directory=Path("/trash/x"), size_bytes=2000
        ),
    ]
    first, second = _lines(entries, 2e9)
    assert first.index("One") == second.index("Two")
    assert first.index(" ago") < second.index("Two")
    assert second.endswith("Two  [2 KB in /trash/x]")


def test_an_entry_without_commits_says_so() -> None:
    """Break: print nothing, which looks like a commit without a message."""
    entry = Entry("adam", "20261115T101612-1a2a", "nuke", ref="refs/llmc/trash/x", without_commits=True)
    (line,) = _lines([entry], 2e9)
    assert line.endswith(" ago  no commits of its own")
