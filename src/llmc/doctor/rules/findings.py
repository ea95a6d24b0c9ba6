"""A finding: one problem and its fix, as text. Pure."""

from collections.abc import Iterable

from msgspec import Struct

REPAIR = "fixable with --repair"

#: the sections of a report, in order
GROUPS = (
    "programs",
    "configuration",
    "containment",
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
    """One problem. `subject` is the session, branch or path, if the problem is not about a worker.

    `kind` and `group` come from the check; `diagnose` fills them in.
    """

    text: str
    fix: str
    worker: str = ""
    subject: str = ""
    repairable: bool = False
    #: blocks all writes until fixed
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
        """Whether both are about the same problem; the text may differ."""
        return (self.kind, self.worker, self.subject) == (other.kind, other.worker, other.subject)


def fixable(text: str, how: str = "", *, worker: str = "", subject: str = "") -> Finding:
    """A problem that --repair fixes; `how` says what the repair does, if that is not obvious."""
    return Finding(text, f"{REPAIR}{how}", worker, subject, repairable=True)


def summary(found: Iterable[Finding]) -> str:
    """The last line of the report."""
    every = list(found)
    if not every:
        return "no problems"
    count = sum(finding.repairable for finding in every)
    return f"{len(every)} problem{'s' if len(every) > 1 else ''}, {count} fixable with --repair"
