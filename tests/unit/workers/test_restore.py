"""Names in the trash, parsed."""

import pytest

from llmc.workers.restore import Entry, parse_directory, parse_ref


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        (
            "refs/llmc/trash/adam/20261115T101612-1a2a-reset",
            ("adam", "20261115T101612-1a2a", "reset"),
        ),
        (
            "refs/llmc/trash/a-b-c/20261115T101612-1a2a-very-old",
            ("a-b-c", "20261115T101612-1a2a", "very-old"),
        ),
        ("refs/llmc/trash/somebody-elses", ("somebody-elses", "", "")),
        ("refs/llmc/trash/adam/mine", ("adam", "mine", "")),
    ],
)
def test_refs(ref: str, parts: tuple[str, str, str]) -> None:
    """Break: split at every dash; a reason or a worker with a dash is torn apart."""
    assert parse_ref(ref) == parts


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("adam-20261115T101612-1a2a", ("adam", "20261115T101612-1a2a")),
        ("a-b-20261115T101612-1a2a", ("a-b", "20261115T101612-1a2a")),
        ("junk", ("", "junk")),
    ],
)
def test_directories(name: str, parts: tuple[str, str]) -> None:
    """Break: split from the left."""
    assert parse_directory(name) == parts


def test_when() -> None:
    """Break: read the time as local time."""
    assert Entry("adam", "20261115T101612-1a2a").at_unix == 1794737772.0
    assert Entry("adam", "mine").at_unix is None
