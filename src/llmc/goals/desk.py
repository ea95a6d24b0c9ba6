"""The memory of goal ticks: goals as last read, when each is due, and planners in the background.

It makes the cost of a tick depend on what changed and what is in progress, not on the size of the store.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future

from msgspec import Struct, field

from llmc.base.errors import StateError
from llmc.goals.dispatch import Done, in_words
from llmc.goals.drive.decide import Decided, at_work, has_business, watched
from llmc.goals.drive.intents import Action, Room
from llmc.goals.drive.moves import Progress, whole_progress
from llmc.goals.goals import Concerns, of_goal
from llmc.goals.model import GoalStatus, GoalView, Result
from llmc.goals.plan.plan import Shape, is_same_plan, shape_of
from llmc.goals.store.rows import Crystals, Reader
from llmc.goals.ticks import Glance


class _Kept(Struct):
    """A goal as last read, with facts derived from its records and its last decision."""

    view: GoalView
    crystals: Crystals
    has_business: bool
    #: leaves at work
    at_work: int
    #: time of the newest dispatch, and the number of dispatches with that time
    dispatched_at: float
    dispatched_then: int
    #: assignments whose activity can change at any time
    watched: tuple[str, ...]
    #: no decision since it was read
    is_new: bool = True
    #: when to decide again; None: not before its records change
    due: float | None = None
    #: decided while no slot was free
    is_hungry: bool = False
    shape: Shape | None = None
    #: None: not counted yet
    counted: tuple[Progress, Concerns] | None = None

    def count(self) -> tuple[Progress, Concerns]:
        """Progress and attention items, counted once after each change."""
        if self.counted is None:
            self.counted = whole_progress(self.view), of_goal(self.view)
        return self.counted


class Desk:
    """The goals that ticks look at."""

    def __init__(self) -> None:
        self._revision = -1
        self._file: tuple[int, int] | None = None
        self._kept: dict[str, _Kept] = {}
        #: unreadable goals, and why
        self.unreadable: dict[str, str] = {}

    def read(self, found: Reader) -> bool:
        """Read what was written since the last read; False if nothing was."""
        revision = found.revision()
        # a damaged store was set aside, or an older one is back
        if found.file != self._file or revision < self._revision:
            self._file, self._revision, self._kept, self.unreadable = found.file, -1, {}, {}
        if revision == self._revision:
            return False
        for goal_id in found.changed_since(self._revision):
            self.unreadable.pop(goal_id, None)
            try:
                self._read_goal(found, goal_id)
            except StateError as error:
                self._kept.pop(goal_id, None)
                self.unreadable[goal_id] = error.message
        self._revision = revision
        return True

    def _read_goal(self, found: Reader, goal_id: str) -> None:
        before = self._kept.get(goal_id)
        view = found.view_since(before.view, self._revision) if before else found.live_view(goal_id)
        if before and view and view.goal.budget_usd and not before.view.goal.budget_usd:
            view = found.live_view(goal_id)  # with a budget, closed assignments count, too
        if view is None:
            self._kept.pop(goal_id, None)
            return
        since = self._revision if before else -1
        crystals = found.latest_crystals(goal_id, before.crystals if before else None, since)
        self._kept[goal_id] = kept = _kept(view, crystals)
        if before and is_same_plan(before.view.nodes, view.nodes):
            kept.shape = before.shape

    def views(self) -> Mapping[str, GoalView]:
        return {goal_id: kept.view for goal_id, kept in self._kept.items()}

    def glance(self) -> Glance:
        kept = self._going_on()
        active = [one for one in kept if one.view.goal.status is GoalStatus.ACTIVE]
        return Glance(
            active=len(active),
            done=sum(one.count()[0].done for one in active),
            total=sum(one.count()[0].total for one in active),
            questions=sum(
                item["kind"] == "goal_question" for one in kept for item in one.count()[1].values()
            ),
            paused=len(kept) - len(active),
            completed=sum(one.view.goal.status is GoalStatus.COMPLETED for one in self._kept.values()),
        )

    def concerns(self) -> list[Concerns]:
        """Attention items, one dict per goal."""
        return [kept.count()[1] for kept in self._going_on()]

    def _going_on(self) -> list[_Kept]:
        return [kept for kept in self._kept.values() if kept.view.goal.status.goes_on]

    def goals(self) -> Collection[str]:
        return self._kept.keys() | self.unreadable.keys()

    def look_at_all(self) -> None:
        """Decide every goal again, such as after the limits changed."""
        for kept in self._kept.values():
            kept.is_new = True

    def forget(self, goal_id: str) -> None:
        """Discard all conclusions about a goal; the next tick decides again."""
        if goal_id in self._kept:
            self._kept[goal_id].is_new = True

    def open_views(self) -> list[GoalView]:
        return [kept.view for kept in self._kept.values() if kept.has_business]

    def busy(self, now: float) -> tuple[int, int]:
        """The number of leaves at work, and of dispatches made at `now`."""
        every = self._kept.values()
        working = sum(kept.at_work for kept in every if kept.view.goal.status is GoalStatus.ACTIVE)
        return working, sum(kept.dispatched_then for kept in every if kept.dispatched_at == now)

    def is_due(self, goal_id: str, now: float, room: Room) -> bool:
        """Whether a new decision can differ from the last: new records, activity, time, or free slots."""
        kept = self._kept[goal_id]
        if kept.is_new or kept.watched:
            return True
        return (kept.due is not None and kept.due <= now) or (kept.is_hungry and _has_room(room))

    def watched(self, goal_id: str) -> tuple[str, ...]:
        return self._kept[goal_id].watched

    def crystals(self, goal_id: str) -> Crystals:
        return self._kept[goal_id].crystals

    def shape(self, goal_id: str) -> Shape:
        kept = self._kept[goal_id]
        if kept.shape is None:
            kept.shape = shape_of(kept.view.nodes)
        return kept.shape

    def attended(self, goal_id: str, decided: Decided) -> None:
        kept = self._kept[goal_id]
        kept.is_new, kept.due, kept.is_hungry = False, decided.next_due, not _has_room(decided.room)

    def next_due(self, room: Room, now: float) -> float | None:
        """When the next tick is due if nothing changes."""
        known = [kept for kept in self._kept.values() if kept.has_business]
        if _has_room(room) and any(kept.is_hungry for kept in known):
            return now
        return min((kept.due for kept in known if kept.due is not None), default=None)


def _has_room(room: Room) -> bool:
    return room.in_progress > 0 and room.dispatches > 0


def _kept(view: GoalView, crystals: Crystals) -> _Kept:
    times = [a.last_dispatch_at for a in view.assignments.values() if a.last_dispatch_at is not None]
    newest = max(times, default=0.0)
    business = has_business(view)
    return _Kept(
        view,
        crystals,
        business,
        at_work(view),
        newest,
        times.count(newest),
        watched(view) if business else (),
    )


class Aside(Struct):
    """Runs long actions one at a time in a background thread."""

    pool: Executor
    #: called from the thread when an action ends
    tell: Callable[[], None]
    _begun: dict[str, tuple[Action, "Future[Done]"]] = field(default_factory=dict)

    def begin(self, action: Action, deed: Callable[[], Done]) -> bool:
        """Start an action unless it is already running; True if it was started."""
        if action.dispatch_id in self._begun:
            return False
        try:
            future = self.pool.submit(_caught, deed)
        except RuntimeError:
            return False  # shutting down; the intent is stored
        self._begun[action.dispatch_id] = action, future
        future.add_done_callback(lambda _: self.tell())
        return True

    def assignments(self) -> set[str]:
        """Assignments with a running action."""
        return {action.assignment_id for action, _ in self._begun.values()}

    def ended(self) -> Iterator[tuple[Action, Done]]:
        """Yield finished actions; each is dropped when the caller, having recorded it, asks for the next."""
        for dispatch_id, (action, future) in tuple(self._begun.items()):
            if future.done():
                yield action, Done(None, "stopped") if future.cancelled() else future.result()
                del self._begun[dispatch_id]


def _caught(deed: Callable[[], Done]) -> Done:
    try:
        return deed()
    except Exception as error:
        return Done(Result.ERROR, in_words(error))
