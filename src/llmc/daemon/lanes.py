"""Lanes: what is done for one worker is done one after another, for different workers at the same time.

A lane is a task of the event loop that sleeps until it is poked, and does its (blocking) work in a thread of the
daemon's own pool. The pool has a thread for every lane, so a long command holds up its own worker only.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from llmc.base import progress
from llmc.base.errors import LlmcError, LockTimeout
from llmc.base.proc import ShuttingDown

#: when to look again at a worker whose lock was taken
RETRY_S = 1.0


def lane_name(worker: str) -> str:
    return f"the lane of {worker}"


class Lane:
    """The queue of one worker; pokes that come while it works are answered by one more round."""

    def __init__(
        self,
        name: str,
        work: Callable[[str, bool], None],
        pool: ThreadPoolExecutor,
        log: logging.Logger,
        tell: Callable[[str, Exception | None], None] = lambda name, error: None,
    ) -> None:
        """`tell`: is told of an error, and with None that a round went well after it."""
        self.name = name
        self._tell = tell
        self._has_failed = True  # in the daemon before this one, for all that is known
        self._work = work
        self._pool = pool
        self._log = log
        self._poked = asyncio.Event()
        self._patrol_due = False
        self._task = asyncio.create_task(self._run())

    def poke(self, *, patrol: bool = False) -> None:
        """Work, soon; with `patrol`, by the rules of patrol too."""
        self._patrol_due |= patrol
        self._poked.set()

    async def stop(self) -> None:
        """Let the round that runs finish, then end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._poked.wait()
            self._poked.clear()
            patrol, self._patrol_due = self._patrol_due, False
            loop = asyncio.get_running_loop()
            done = await asyncio.shield(loop.run_in_executor(self._pool, self._round, patrol))
            if not done:
                loop.call_later(RETRY_S, partial(self.poke, patrol=patrol))

    def _round(self, patrol: bool) -> bool:
        """Whether it could be done: False while a command holds the worker's lock."""
        try:
            with progress.watched(lane_name(self.name)):
                self._work(self.name, patrol)
            self._say(None)
        except LockTimeout:
            # The command wakes us when it is done; one that is killed cannot, so we look again by ourselves.
            return False
        except ShuttingDown:
            pass  # what was given up is in state; the next daemon does it
        except LlmcError as error:
            self._log.info(
                error.message, extra={"action": "lane_problem", "worker": self.name, "hint": error.hint}
            )
            self._say(error)
        except Exception as error:
            self._log.exception(
                "bug in a lane", extra={"action": "lane_failed", "worker": self.name, "cause": "bug"}
            )
            self._say(error)
        return True

    def _say(self, error: Exception | None) -> None:
        """A person is told, once; that this fails must not end the lane."""
        if error is None and not self._has_failed:
            return
        try:
            self._tell(self.name, error)
            self._has_failed = error is not None
        except Exception:
            self._log.info("nobody was told", extra={"action": "lane_problem", "worker": self.name})
