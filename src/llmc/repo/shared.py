"""What the machines of a fleet share: the remote that they land on, and the ledger of what lands there."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from llmc.base.names import TaskKey

if TYPE_CHECKING:
    from llmc.records.landing_entry import Entry
    from llmc.repo.rules.fence import Remote


class Ledger(Protocol):
    """The landings of all machines. Each call raises Unreachable if there is no answer, and can be repeated."""

    def enter(self, entry: "Entry") -> None:
        """Write an entry, or raise ClaimLost if its task has a newer token. The check and the write are one transaction."""
        ...

    def entered(self, task: TaskKey) -> "list[Entry]":
        """The entries of a task, by every holder, and those that revert them."""
        ...

    def among(self, commits: Sequence[str]) -> "list[Entry]":
        """The entries of those commits."""
        ...

    def turn(
        self, timeout_s: float, stopping: Callable[[], bool] | None = None
    ) -> AbstractContextManager[None]:
        """First come, first served among all machines: only the holder lands. It passes on when its holder dies or sleeps.

        Raises LockTimeout, or ShuttingDown once `stopping` returns true. It saves work that would be wasted; the fence and the tokens decide what may land.
        """
        ...

    def token_of(self, claim: str) -> int:
        """The token of a claim of the task source."""
        ...


class Shared(Struct, frozen=True):
    remote: "Remote"
    ledger: Ledger
