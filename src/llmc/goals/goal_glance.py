"""What the last tick of the goals did and saw, in a small file: `.llmc/overseer/tick.json`.

`llmc status` reads it in place of the store, and whoever asks for a tick sees by it that there was one.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmc.base.errors import LlmcError
from llmc.base.files import private_dir, read_given, write_atomic
from llmc.goals.drive.rollup import whole_progress
from llmc.goals.goal_concerns import Concerns, of_goal
from llmc.goals.model import GoalStatus, GoalView
from llmc.repo.project import Project

_GOING_ON = (GoalStatus.ACTIVE, GoalStatus.PAUSED)


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


class Counts:
    """Counts goals; only what changed is counted again."""

    def __init__(self) -> None:
        #: of each goal that is not over: the view it was counted in, leaves done, leaves in all, what needs a person
        self._known: dict[str, tuple[GoalView, int, int, Concerns]] = {}

    def glance(self, views: Mapping[str, GoalView]) -> Glance:
        going = {key: view for key, view in views.items() if view.goal.status in _GOING_ON}
        self._known = {key: self._counted(key, view) for key, view in going.items()}
        active = [row for row in self._known.values() if row[0].goal.status is GoalStatus.ACTIVE]
        return Glance(
            active=len(active),
            done=sum(row[1] for row in active),
            total=sum(row[2] for row in active),
            questions=sum(_questions(row[3]) for row in self._known.values()),
            paused=len(self._known) - len(active),
            completed=sum(view.goal.status is GoalStatus.COMPLETED for view in views.values()),
        )

    def concerns(self) -> list[Concerns]:
        """What needs a person, by goal, as of the last glance."""
        return [row[3] for row in self._known.values()]

    def _counted(self, goal_id: str, view: GoalView) -> tuple[GoalView, int, int, Concerns]:
        known = self._known.get(goal_id)
        if known is not None and known[0] is view:
            return known
        whole = whole_progress(view)
        return view, whole.done, whole.total, of_goal(view)


def _questions(found: Concerns) -> int:
    return sum(item["kind"] == "goal_question" for item in found.values())


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
