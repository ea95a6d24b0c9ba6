"""A lock file of git's, and when it is stale. Pure."""

from msgspec import Struct

#: a lock that no process uses is dead at once; this long a git may need to end
STALE_LOCK_S = 10.0


class GitLock(Struct, frozen=True):
    """A lock file of git's, in the root's clone or in the source."""

    path: str
    age_s: float
    in_use: bool = False
    of_source: bool = False

    @property
    def trouble(self) -> str:
        """What is wrong with it; "" while a command may still need it."""
        if self.in_use or self.age_s < STALE_LOCK_S:
            return ""
        return f"a git command that is gone left {self.path}, {self.age_s / 60:.0f} minutes ago"
