"""What a finding is: one problem, in words, with its fix. Pure."""

from collections.abc import Iterable

from msgspec import Struct

REPAIR = "fixable with --repair"

#: the parts of a report, in their order
GROUPS = (
    "programs",
    "configuration",
    "state",
    "daemon",
    "supervisor",
    "sessions",
    "workers",
    "tasks",
    "worktrees",
    "git",
    "source",
    "files",
)


class Finding(Struct, frozen=True):
    """One problem. `subject` is the session, branch or path it is about, where that is not the worker.

    `kind` and `group` are those of the check that made it; the walk over the checks fills them in.
    """

    text: str
    fix: str
    worker: str = ""
    subject: str = ""
    repairable: bool = False
    #: nothing can be written before it is fixed
    blocks: bool = False
    kind: str = ""
    group: str = ""

    @property
    def what(self) -> str:
        return f"{self.worker}: {self.text}" if self.worker else self.text

    @property
    def line(self) -> str:
        return f"{self.what} -> {self.fix}"

    def same_as(self, other: "Finding") -> bool:
        """Whether both are about the same thing; the words may differ."""
        return (self.kind, self.worker, self.subject) == (other.kind, other.worker, other.subject)


def fixable(text: str, how: str = "", *, worker: str = "", subject: str = "") -> Finding:
    """A problem that --repair fixes; `how` says what it does, where that is not plain."""
    return Finding(text, f"{REPAIR}{how}", worker, subject, repairable=True)


def summary(found: Iterable[Finding]) -> str:
    """The last line of a report."""
    every = list(found)
    if not every:
        return "no problems"
    mended = sum(finding.repairable for finding in every)
    return f"{len(every)} problem{'s' if len(every) > 1 else ''}, {mended} fixable with --repair"
