"""Texts of the list and the pane."""

import time

from llmc.tui.drawing import moment


def test_a_time_of_another_day_says_so() -> None:
    """Break: give the time of day alone."""
    now = time.mktime((2026, 3, 1, 10, 33, 0, 0, 0, -1))
    assert moment(now - 60, now) == "10:32"
    assert moment(now - 86400, now) == "yesterday 10:33"
    assert moment(now - 3 * 86400, now) == "2026-02-26 10:33"
