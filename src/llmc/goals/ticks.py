"""The record of the last goal tick, in `.llmc/overseer/tick.json`.

`llmc status` reads it instead of the store, and requests for a tick wait for it. Imports no other goal code, to stay fast.
"""

import contextlib
from pathlib import Path

import msgspec

from llmc.base.errors import LlmcError
from llmc.base.files import private_dir, read_given, write_atomic
from llmc.repo.project import Project


class Glance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of goals, and of the leaves in active goals, without cancelled leaves."""

    active: int = 0
    done: int = 0
    total: int = 0
    questions: int = 0
    paused: int = 0
    completed: int = 0

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0


class Ticked(msgspec.Struct, frozen=True, rename="camel"):
    """What a tick did."""

    ok: bool
    did_work: bool = False
    actions: tuple[str, ...] = ()
    problem: str = ""
    #: None: not before something changes
    next_due: float | None = None


class TickRecord(Ticked, frozen=True, kw_only=True, rename="camel"):
    #: monotonic, to tell whether the tick started after it was requested
    began_monotonic: float
    ended_at: float
    pid: int
    reason: str
    goals: Glance = Glance()


def tick_file(project: Project) -> Path:
    return project.root.private / "overseer" / "tick.json"


def write_tick(project: Project, record: TickRecord) -> None:
    """Best effort: the tick's work is done anyway."""
    with contextlib.suppress(LlmcError, OSError):
        path = tick_file(project)
        private_dir(path.parent)
        write_atomic(path, msgspec.json.encode(record))


def last_tick(project: Project) -> TickRecord | None:
    """None: no tick yet, or unreadable."""
    try:
        return msgspec.json.decode(read_given(tick_file(project)), type=TickRecord)
    except (OSError, ValueError, RecursionError):
        return None
