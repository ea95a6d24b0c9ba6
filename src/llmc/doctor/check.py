"""What a check of `llmc doctor` is: how to look at one thing, how to judge it, how to fix it.

`look` changes nothing and returns what it saw. `judge` is pure: the same facts always give the same findings.
`fix` does it through the one function that does such a thing anyway, looks once more under the lock that it needs,
and pins what would be lost.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from msgspec import Struct

from llmc.doctor.rules.facts import Facts, PaneState, WorkerFacts
from llmc.doctor.rules.findings import Finding
from llmc.records.state import State
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project


class Turn(IntEnum):
    """When a repair is made: what the others need comes first."""

    #: one bad record keeps all others from being changed
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
    #: a worktree that is made again needs its branch
    BRANCHES = 9


class Sight(Struct, frozen=True):
    """What a check looks at: the root, and what was already seen of it."""

    project: Project
    facts: Facts
    state: State | None


class Repair(Struct, frozen=True):
    """What became of one finding."""

    finding: Finding
    done: bool
    text: str


class Check(Struct, frozen=True):
    """Something about a root that can be wrong. `kind` is stable: scripts may match it."""

    kind: str
    group: str
    #: for the reference
    about: str
    #: of all that `look` saw
    judge: Callable[[Facts, tuple[Any, ...]], Iterable[Finding]]
    look: Callable[[Sight], Iterable[Any]] = lambda _: ()
    #: takes the subject of the finding, and says what was done
    fix: Callable[[Project, str], str] | None = None
    turn: Turn = Turn.ROOT
    #: of git, tmux, clone, config, state: without it nothing is looked at and nothing said
    needs: tuple[str, ...] = ()
    #: looks after all others
    late: bool = False


def held(worker: WorkerFacts, _: str) -> str:
    """Why a repair must not touch a worker that a person keeps; "" when it may."""
    return f"it is held; first `llmc release {worker.record.name}`" if worker.record.held else ""


def hands_off(worker: WorkerFacts, kind: str) -> str:
    """Why a repair must not touch a worker, and what to do first; "" when it may."""
    name = worker.record.name
    if why := held(worker, kind):
        return why
    if worker.attached:
        return "somebody is attached to it; detach first (C-b d, or C-b C-b d inside another tmux)"
    if (
        worker.record.accept is not None and kind != "index_lock"
    ):  # it may be what keeps the accept from ending
        return f"its accept comes first: `llmc accept {name}`"
    if worker.pane is PaneState.UNKNOWN:
        return "tmux gave no answer; try again"
    return ""


class WorkerCheck(Struct, frozen=True):
    """Something about one worker that can be wrong; looked at again under its lock before it is fixed."""

    kind: str
    group: str
    about: str
    judge: Callable[[WorkerFacts], Iterable[Finding]]
    #: is called with the worker's lock held
    fix: Callable[[Project, WorkerRecord], str] | None = None
    #: in place of `fix`, all of them at once
    fix_all: Callable[[Project, Facts, list[Finding]], list[Repair]] | None = None
    turn: Turn = Turn.WORKTREES
    #: why the worker must be left alone
    guard: Callable[[WorkerFacts, str], str] = hands_off
    #: even while a command is at work on the worker: it cannot be that command's doing
    while_busy: bool = False
    #: its agent is started afterwards
    starts: bool = False
