"""The last tick of the goals, in `.llmc/overseer/tick.json`.

`llmc status` reads it in place of the store, and whoever asks for a tick sees by it that there was one. Light: it
imports nothing else of the goals.
"""

import contextlib
from pathlib import Path

import msgspec

from llmc.base.errors import LlmcError
from llmc.base.files import private_dir, read_given, write_atomic
from llmc.repo.project import Project


class Glance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The goals in numbers; leaves are those of active goals that were not cancelled."""

    active: int = 0
    done: int = 0
    total: int = 0
    questions: int = 0
    paused: int = 0
    completed: int = 0

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One tick, after its end."""

    #: by the clock of this machine that nobody can set: tells whether it began after it was asked for
    began_monotonic: float
    ended_at: float
    pid: int
    reason: str
    ok: bool
    did_work: bool
    actions: tuple[str, ...] = ()
    problem: str = ""
    next_due: float | None = None
    goals: Glance = Glance()


def tick_file(project: Project) -> Path:
    return project.root.private / "overseer" / "tick.json"


def write_tick(project: Project, record: TickRecord) -> None:
    """Best effort: a tick that cannot leave its mark has done its work all the same."""
    with contextlib.suppress(LlmcError, OSError):
        path = tick_file(project)
        private_dir(path.parent)
        write_atomic(path, msgspec.json.encode(record))


def last_tick(project: Project) -> TickRecord | None:
    """None: there was none yet, or its mark cannot be read."""
    try:
        return msgspec.json.decode(read_given(tick_file(project)), type=TickRecord)
    except (OSError, ValueError, RecursionError):
        return None
