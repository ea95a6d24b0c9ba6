"""A lane: one round at a time, a requested patrol is not forgotten, and nothing runs after its end."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llmc.base.errors import LockTimeout
from llmc.daemon import lanes
from llmc.daemon.lanes import Lane
from tests.support.waiting import wait_until


class Work:
    """Rounds that last until they are released."""

    def __init__(self) -> None:
        self.rounds: list[bool] = []
        self.at_once = self.most_at_once = 0
        self.go = threading.Semaphore(0)
        self.busy = 0

    def __call__(self, name: str, patrol: bool) -> None:
        self.rounds.append(patrol)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.go.acquire(timeout=10)
        self.at_once -= 1
        if self.busy:
            self.busy -= 1
            raise LockTimeout("somebody else has it")


async def until(count: int, work: Work) -> None:
    await asyncio.get_running_loop().run_in_executor(None, wait_until, lambda: len(work.rounds) >= count)


@pytest.mark.req("1-081")
def test_patrols_that_come_during_a_round_are_one_more_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a poke starts its own round, or a patrol is lost while a command has the worker."""
    monkeypatch.setattr(lanes, "RETRY_S", 0.01)
    work = Work()

    async def scenario() -> None:
        with ThreadPoolExecutor(8) as pool:
            lane = Lane("w1", "root", work, pool, logging.getLogger("test"))
            lane.poke()
            await until(1, work)
            for _ in range(5):
                lane.poke(patrol=True)
                await asyncio.sleep(0)
            work.go.release()
            await until(2, work)
            work.busy = 1
            work.go.release()
            await until(3, work)
            lane.poke(patrol=True)
            await lane.stop()
            work.go.release()

    asyncio.run(scenario())
    assert work.rounds == [False, True, True], "the third merged with the second; none after the end"
    assert work.most_at_once == 1


def test_an_error_that_nobody_thought_of_is_told_once_and_is_over_after_a_good_round() -> None:
    """Break: leave `_say` out of the boundary; the worker is stuck, without any report."""
    told: list[tuple[str, str]] = []
    rounds: list[str] = []

    def work(name: str, patrol: bool) -> None:
        rounds.append(name)
        if len(rounds) in (2, 3):
            raise ZeroDivisionError("nobody thought of it")

    def tell(name: str, error: Exception | None) -> None:
        told.append((name, str(error)))
        if len(told) == 2:
            raise OSError("the disk is full")

    async def scenario() -> None:
        with ThreadPoolExecutor(2) as pool:
            lane = Lane("w1", "root", work, pool, logging.getLogger("test.lanes"), tell)
            for count in range(1, 6):
                lane.poke()
                wait = asyncio.get_running_loop().run_in_executor
                await wait(None, wait_until, lambda count=count: len(rounds) >= count)
            await lane.stop()

    logging.getLogger("test.lanes").disabled = True
    asyncio.run(scenario())
    assert told == [
        ("w1", "None"),
        ("w1", "nobody thought of it"),
        ("w1", "nobody thought of it"),
        ("w1", "None"),
    ]
