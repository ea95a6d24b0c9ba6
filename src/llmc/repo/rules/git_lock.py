"""A git lock file, and when it is stale. Pure."""

from msgspec import Struct

#: how long a git command may take to finish before an unused lock counts as stale
STALE_LOCK_S = 10.0


class GitLock(Struct, frozen=True):
    """A git lock file, in the root's clone or in the source."""

    path: str
    age_s: float
    in_use: bool = False
    of_source: bool = False

    @property
    def trouble(self) -> str:
        """Why it is stale; "" while a command may still need it."""
        if self.in_use or self.age_s < STALE_LOCK_S:
            return ""
        return f"stale git lock file {self.path}, {self.age_s / 60:.0f} minutes old"
