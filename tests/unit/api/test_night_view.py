"""The series of a night: the steps of its charts, and what each one counts."""

import pytest

from llmc.api.night_view import MOST_STEPS, night_of
from llmc.reports.rules.digest_parts import Facts, digest

SINCE = 1_000_000.0
HOUR = 3600.0


@pytest.mark.parametrize(
    ("length_s", "steps", "step_s"),
    [
        (HOUR + 0.4, 12, 300),  # the digest itself took a moment: no step in the future
        (4 * HOUR, 48, 300),
        (5 * HOUR, 5, HOUR),
        (12 * HOUR, 12, HOUR),
        (12.5 * HOUR, 13, HOUR),
        (7 * 24 * HOUR, 42, 4 * HOUR),
        (365 * 24 * HOUR, MOST_STEPS, 365 * 24 * HOUR / MOST_STEPS),
        (0, 1, 300),
    ],
)
def test_steps_fill_the_period(length_s: float, steps: int, step_s: float) -> None:
    """Break: round up to a whole hour, so that the last hour is drawn as the first half of two."""
    until = SINCE + length_s
    spent = {"action": "usage_recorded", "ts": until, "cost": 0.5}
    night = night_of(digest([], SINCE, until, Facts()), [spent], until)
    assert (len(night.starts), night.step_s) == (steps, pytest.approx(step_s))
    assert night.starts[0] == SINCE
    assert night.cost[-1] == 0.5
    assert sum(night.cost) == 0.5
