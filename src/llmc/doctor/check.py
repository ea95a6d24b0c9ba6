"""A check of `llmc doctor`: look at one thing, judge it, fix it; and a finding, one problem and its fix as text.

`look` changes nothing. `judge` is pure: the same facts always give the same findings. `fix` calls the function that
the rest of llmc uses for this, checks again under the lock, and pins work that would be lost.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from msgspec import Struct

from llmc.doctor.rules.facts import Facts, PaneState, WorkerFacts
from llmc.records.state import State
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project

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


#: how long to wait for a command or the daemon to release a worker
LOCK_S = 10.0


class Turn(IntEnum):
    """The order of repairs: what other repairs need comes first."""

    #: one bad record blocks changes to all others
    RECORDS = 0
    ROOT = 1
    CLONE = 2
    #: before git forgets worktrees
    LINKS = 3
    PRUNED = 4
    WORKTREES = 5
    RESETS = 6
    SESSIONS = 7
    TASKS = 8
    #: a recreated worktree needs its branch
    BRANCHES = 9


class Sight(Struct, frozen=True):
    """The input of a check: the root, and the facts collected so far."""

    project: Project
    facts: Facts
    state: State | None


class Repair(Struct, frozen=True):
    """The result of one repair."""

    finding: Finding
    done: bool
    text: str


class Check(Struct, frozen=True):
    """A possible problem with a root. `kind` is stable: scripts may match it."""

    kind: str
    group: str
    #: for the docs
    about: str
    #: gets everything that `look` returned
    judge: Callable[[Facts, tuple[Any, ...]], Iterable[Finding]]
    look: Callable[[Sight], Iterable[Any]] = lambda _: ()
    #: takes the subject of the finding, returns what was done
    fix: Callable[[Project, str], str] | None = None
    turn: Turn = Turn.ROOT
    #: any of git, tmux, clone, config, state; the check is skipped without them
    needs: tuple[str, ...] = ()
    #: runs after all others
    late: bool = False


DETACH = "a terminal is attached; detach it (C-b d, or C-b C-b d inside another tmux), then run `llmc doctor --repair`"


def held(worker: WorkerFacts, _: str) -> str:
    """Why a repair must not touch a worker on hold; "" if it may."""
    return (
        f"the worker is on hold; run `llmc release {worker.record.name}`, then `llmc doctor --repair`"
        if worker.record.held
        else ""
    )


def hands_off(worker: WorkerFacts, kind: str) -> str:
    """Why a repair must not touch a worker, and what to do first; "" if it may."""
    name = worker.record.name
    if why := held(worker, kind):
        return why
    if worker.attached:
        return DETACH
    # A stale index.lock may be what keeps `llmc accept` from finishing.
    if worker.record.accept is not None and kind != "index_lock":
        return (
            f"an earlier `llmc accept` did not finish; run `llmc accept {name}`, then `llmc doctor --repair`"
        )
    if worker.pane is PaneState.UNKNOWN:
        return "tmux did not answer; run `llmc doctor` again"
    return ""


class WorkerCheck(Struct, frozen=True):
    """A possible problem with one worker; checked again under its lock before the fix."""

    kind: str
    group: str
    about: str
    judge: Callable[[WorkerFacts], Iterable[Finding]]
    #: called with the worker's lock held
    fix: Callable[[Project, WorkerRecord], str] | None = None
    #: instead of `fix`: fixes all findings together
    fix_all: Callable[[Project, Facts, list[Finding]], list[Repair]] | None = None
    turn: Turn = Turn.WORKTREES
    #: why a repair must not touch the worker
    guard: Callable[[WorkerFacts, str], str] = hands_off
    #: check also while a command uses the worker, because that command cannot be the cause
    while_busy: bool = False
    #: start the agent afterwards
    starts: bool = False
