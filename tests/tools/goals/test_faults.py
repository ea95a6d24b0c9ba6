"""Kills and failures between a goal's intents and their outcomes: nothing is lost, nothing is done twice."""

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import on_postgres
from tests.support.goal_faults import POINTS, Run
from tests.support.goal_workshop import Clock

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = [
    on_postgres.PLAYED,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

#: every second point; all of them, and often, in `make soak`
FEW, MANY = range(0, len(POINTS), 2), 300


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory if possible: a kill, unlike a power cut, does not care, and fsync costs 10 ms."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir=memory) as made:
        yield Path(made)


def one_fault(number: int) -> str:
    """Every point in turn, before and after, killed or failing, at one of its first passes."""
    dice = random.Random(number)
    sides = ("before:kill", "after:kill", "before:fail", "after:fail")
    return f"{POINTS[number % len(POINTS)]}:{sides[number // len(POINTS) % 4]}:{dice.choice((1, 1, 1, 2, 3))}"


def survive(directory: Path, monkeypatch: pytest.MonkeyPatch, numbers: range) -> None:
    struck = 0
    for number in numbers:
        run = Run(directory / str(number), Clock().set_up(monkeypatch), number)
        fault = one_fault(number)
        try:
            run.drive(fault)
            run.check()
        except AssertionError as error:
            raise AssertionError(f"run {number}, {fault}: {error}") from error
        struck += run.struck
    assert struck > len(numbers) / 3, "the faults must strike"


@pytest.mark.req("3-029", "3-030", "3-031", "3-X22", "3-134")
def test_no_intent_is_lost_and_none_is_done_twice(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: act before the decision is stored (Runner._stored),
    or forget a dispatch whose file is gone (_task_of).
    """
    survive(directory, monkeypatch, FEW)


@pytest.mark.soak
@pytest.mark.req("3-030")
@pytest.mark.parametrize("part", range(10))
def test_three_hundred_runs(directory: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Break: as in the short one."""
    size = MANY // 10
    survive(directory, monkeypatch, range(part * size, (part + 1) * size))
