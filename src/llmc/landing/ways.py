"""Ways to land: how one commit gets onto the default branch, at once or after hours somewhere else.

Accept makes and validates the commit, and knows no more than this protocol of how it lands. A way that cannot answer at
once (a pull request) gives a receipt: the accept then waits in its journal, without a lock and without a process.
"""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from llmc.landing import fast_forward
from llmc.repo.project import Project


class Offer(Struct, frozen=True):
    """One commit that is to land, made on top of `base`."""

    worker: str
    commit: str
    base: str
    #: where the source was looked at a moment ago (fast_forward.check_source); None: it has to be looked at
    checked: Path | None = None


class Landed(Struct, frozen=True):
    """It is on the branch; `verify` has the last word."""


class Waits(Struct, frozen=True):
    """It is on its way. The receipt is all that `poll` needs, also in another process; `about` is for people."""

    receipt: str
    about: str = ""


class SentBack(Struct, frozen=True):
    """It will not land as it is: the worker hears why."""

    reason: str


class Landing(Protocol):
    """A way to land. Each call can be repeated: after a crash nobody knows whether it was answered.

    An error that passes by itself (a network) is no error of `poll`: it waits on.
    """

    def begin(self, project: Project, offer: Offer) -> Landed | Waits:
        """Hand the commit over; the caller holds the merge lock. An offer made before is found again, not made twice.

        Raises fast_forward.BaseMoved, or SourceBusy with nothing touched.
        """
        ...

    def poll(self, project: Project, offer: Offer, receipt: str) -> Landed | Waits | SentBack:
        """What became of it; no lock is held."""
        ...

    def verify(self, project: Project, commit: str) -> bool:
        """Whether the branch has the commit, or all of what it changes, as the source itself says."""
        ...


class FastForward:
    """The branch moves to the commit, or nothing happens; it never waits."""

    def begin(self, project: Project, offer: Offer) -> Landed | Waits:
        fast_forward.land(project, offer.worker, offer.commit, offer.base, checked=offer.checked)
        return Landed()

    def poll(self, project: Project, offer: Offer, receipt: str) -> Landed | Waits | SentBack:
        return Landed()

    def verify(self, project: Project, commit: str) -> bool:
        return fast_forward.is_landed(project, commit)


_WAY: Landing = FastForward()


def way_of(project: Project) -> Landing:
    """How work lands in this project."""
    return _WAY
