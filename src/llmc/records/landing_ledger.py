"""The ledger of landings that the machines of a fleet share: its rows and its protocol. Pure."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from llmc.base.names import TaskKey


class Entry(Struct, frozen=True):
    """A commit that may land, written before it is pushed."""

    commit: str
    worker: str
    #: None for work without a task: no other node can hold it
    task: TaskKey | None = None
    #: of the claim: a later holder of the task has a higher one
    token: int = 0
    prompt: str = ""
    #: the commit that this one reverts
    reverts: str = ""
    #: set by the ledger, from its own clock
    at_unix: float = 0.0


class LandingLedger(Protocol):
    """The landings of all machines. Each call raises Unreachable if there is no answer, and can be repeated."""

    def agree(self, fence: str, branch: str) -> tuple[str, str]:
        """The fence and the branch of all machines; these, if no machine has given any, or none of them is left."""
        ...

    def enter(self, entry: Entry) -> None:
        """Write an entry, or raise ClaimLost if its task has a newer token. The check and the write are one transaction."""
        ...

    def entered(self, task: TaskKey) -> list[Entry]:
        """The entries of a task, by every holder, and those that revert them."""
        ...

    def among(self, commits: Sequence[str]) -> list[Entry]:
        """The entries of those commits."""
        ...

    def turn(
        self, timeout_s: float, stopping: Callable[[], bool] | None = None
    ) -> AbstractContextManager[None]:
        """Hold the turn to land, first come, first served for all machines. It passes on if the holder dies or sleeps.

        Raises LockTimeout, or ShuttingDown once `stopping` returns true. The turn only avoids wasted work; the fence
        and the tokens decide what may land.
        """
        ...

    def token_of(self, claim: str) -> int:
        """The token of a claim of the task source."""
        ...

    def take_post_accept(self, task: TaskKey) -> str | None:
        """Claim the post-accept command of a landed task for this machine; returns the worker that landed it.

        None if another machine runs the command, or it has finished.
        """
        ...

    def end_post_accept(self, task: TaskKey) -> None:
        """Record that the command has finished: other machines may land."""
        ...
