"""Each screen handles each status: a new one must not silently fall back to a default."""

from collections.abc import Iterable

import pytest

from llmc.api import night_view, views
from llmc.cli import overview
from llmc.records.statuses import Status
from llmc.records.transitions import ALLOWED


@pytest.mark.parametrize(
    "table",
    [views._LOOK_OF_STATUS, night_view._STATES, overview.STYLES, {to for _, to in ALLOWED}],
    ids=["screens", "night", "status", "transitions"],
)
def test_every_status_is_in_the_table(table: Iterable[str]) -> None:
    """Break: take `error` out of the table."""
    assert set(map(str, table)) == set(map(str, Status))
