"""The statuses of a worker, and every group of them that code asks for. Pure, and light enough for the hot commands."""

from enum import StrEnum


class Status(StrEnum):
    """The status of a worker."""

    #: no agent is running
    OFFLINE = "offline"
    #: ready for a task
    IDLE = "idle"
    #: busy with a task
    WORKING = "working"
    #: stopped and needs your input
    NEEDS_INPUT = "needs_input"
    #: committed and waiting for review
    NEEDS_REVIEW = "needs_review"
    #: reviewing its own work before you do
    REVIEWING = "reviewing"
    #: working on changes you requested
    REJECTED = "rejected"
    #: resolving conflicts with the default branch
    REBASING = "rebasing"
    #: reported that nothing needs to change
    NO_CHANGES = "no_changes"
    #: stopped by a failure; needs a command from you
    ERROR = "error"

    @property
    def is_free(self) -> bool:
        """Whether it is ready for a task, with nothing left of the last one."""
        return self in FREE

    @property
    def is_live(self) -> bool:
        """Whether it has an agent, as far as known."""
        return self in LIVE

    @property
    def is_busy(self) -> bool:
        """Whether its agent is working on a task."""
        return self in BUSY

    @property
    def is_under_way(self) -> bool:
        """Whether a task was started, and its agent has not finished."""
        return self in UNDER_WAY


#: the groups, as tuples: `in` works for plain data, hashable or not, and a member equals its string
FREE = (Status.IDLE, Status.NO_CHANGES)
LIVE = tuple(status for status in Status if status not in (Status.OFFLINE, Status.ERROR))
BUSY = (Status.WORKING, Status.REJECTED, Status.REVIEWING)
#: busy, or resolving conflicts
AT_WORK = (*BUSY, Status.REBASING)
UNDER_WAY = (*AT_WORK, Status.NEEDS_INPUT)
