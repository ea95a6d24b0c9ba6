"""Checks that run in parallel: their answers and errors arrive, and none outlives its block."""

import threading

import pytest

from llmc.base.clock import Aside
from llmc.base.errors import LlmcError


def test_both_sides_run_at_the_same_time() -> None:
    """Run in sequence, each would wait for the other forever."""
    meet = threading.Barrier(2, timeout=30)
    with Aside(meet.wait) as beside:
        meet.wait()
    assert beside.result() in (0, 1)


def test_an_error_arrives_where_the_answer_is_asked_for() -> None:
    def fails() -> None:
        raise LlmcError("no")

    with Aside(fails) as beside:
        pass
    with pytest.raises(LlmcError, match="no"):
        beside.result()


def test_the_block_ends_after_the_look_even_when_it_fails() -> None:
    go, ended = threading.Event(), []

    def look() -> None:
        go.wait(30)
        ended.append(True)

    def refused() -> None:
        with Aside(look):
            threading.Timer(0.01, go.set).start()
            raise LlmcError("refused")

    with pytest.raises(LlmcError):
        refused()
    assert ended == [True]


def test_one_that_nobody_began_runs_when_it_is_asked() -> None:
    asked: list[int] = []
    beside = Aside(lambda: asked.append(1))
    assert asked == []
    beside.result()
    beside.result()
    assert asked == [1]
