"""A time, as it is shown."""

import time

from llmc.base.text import moment


def test_a_time_of_another_day_says_so() -> None:
    """Break: show only the time of day."""
    now = time.mktime((2026, 3, 1, 10, 33, 0, 0, 0, -1))
    assert moment(now - 60, now) == "10:32"
    assert moment(now + 1, now, "%H:%M:%S") == "10:33:01"
    assert moment(now + 86400, now) == "Mon 10:33"
    assert moment(now - 6 * 86400, now) == "Mon 10:33"
    assert moment(now + 7 * 86400, now) == "2026-03-08 10:33"
