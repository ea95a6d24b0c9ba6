"""Ways to land a commit on the default branch, immediately or after hours elsewhere.

Accept makes and validates the commit, and lands it only through this protocol. A way that takes long (a pull request)
returns a receipt: the accept then waits in its journal, without a lock and without a process.
"""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from llmc.base.names import TaskKey
from llmc.landing import default_branch
from llmc.repo.project import Project


class Offer(Struct, frozen=True):
    """A commit to land, made on top of `base`."""

    worker: str
    commit: str
    base: str
    #: the checkout that was just checked (default_branch.check_source); None: to be checked
    checked: Path | None = None
    #: its task and claim, if it has one
    task: TaskKey | None = None
    claim: str = ""
    #: for `undo` on any machine: the prompt of the work, and the commit that this one reverts
    prompt: str = ""
    reverts: str = ""


class Landed(Struct, frozen=True):
    """It is on the branch, to be confirmed by `verify`.

    `commit` is the offered one, or the one that the other side made of it (a squash); the clone has it.
    """

    commit: str


class Waits(Struct, frozen=True):
    """The landing is pending. The receipt is all that `poll` needs, in any process; `about` is for the user."""

    receipt: str
    about: str = ""


class SentBack(Struct, frozen=True):
    """It was rejected: the worker gets the reason."""

    reason: str


class NotLanded(Struct, frozen=True):
    """It has not landed, and will not by itself: it must be submitted again, in its turn."""


class Landing(Protocol):
    """A way to land. Each call can be repeated: after a crash its outcome is unknown.

    `poll` keeps waiting on a temporary error, such as a network failure.
    """

    def begin(self, project: Project, offer: Offer) -> Landed | Waits:
        """Submit the commit; the caller holds the merge lock. An earlier offer is found again, not repeated.

        Raises default_branch.BaseMoved, SourceBusy with nothing touched, or ClaimLost if another machine has the task.
        """
        ...

    def poll(self, project: Project, offer: Offer, receipt: str) -> Landed | Waits | SentBack | NotLanded:
        """The outcome; no lock is held, so it lands nothing. Raises what `begin` raises."""
        ...

    def verify(self, project: Project, commit: str) -> bool:
        """Whether the branch has the commit, or all of its changes, according to the source."""
        ...

    def spread(self, project: Project, offer: Offer) -> str | None:
        """Pass a landed commit on to other repositories; returns the problem, if any. May run again after a crash."""
        ...


class FastForward:
    """Fast-forward the branch, or fail without a change; it never waits."""

    def begin(self, project: Project, offer: Offer) -> Landed | Waits:
        default_branch.land(project, offer.worker, offer.commit, offer.base, checked=offer.checked)
        return Landed(offer.commit)

    def poll(self, project: Project, offer: Offer, receipt: str) -> Landed | Waits | SentBack | NotLanded:
        return Landed(offer.commit)

    def verify(self, project: Project, commit: str) -> bool:
        return default_branch.is_landed(project, commit)

    def spread(self, project: Project, offer: Offer) -> str | None:
        return default_branch.push_onward(project)


_WAY: Landing = FastForward()


def way_of(project: Project) -> Landing:
    """The way to land in this project."""
    shared = project.shared
    if shared is None:
        return _WAY
    from llmc.landing.remote import RemoteLanding

    return RemoteLanding(shared)
