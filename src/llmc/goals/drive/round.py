"""The working state of one decision about one goal. Pure."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.drive import intents, words
from llmc.goals.drive.intents import Action
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.liveness import Signals
from llmc.goals.drive.moves import move_assignment, move_node
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    Crystallization,
    DeliveryContext,
    Dispatch,
    Event,
    GoalView,
    Mode,
    Node,
    NodeStatus,
)
from llmc.goals.plan.plan import Shape, is_closed, shape_of
from llmc.goals.report import crystals as crystal_rules

R = TypeVar("R")


class Room(Struct, frozen=True):
    """What a tick may still do."""

    in_progress: int = 0
    dispatches: int = 0
    samples: int = 0


NO_ROOM = Room()


class Round:
    """Collects the changes; the caller's records are never modified."""

    def __init__(
        self,
        view: GoalView,
        policy: Policy,
        now: float,
        ids: Callable[[], str],
        crystals: Mapping[str, Crystallization],
        shape: Shape | None,
        room: Room,
        granted_until: float | None,
    ) -> None:
        self.view, self.goal, self.policy, self.now, self.ids = view, view.goal, policy, now, ids
        self.nodes, self.assignments = dict(view.nodes), dict(view.assignments)
        self.crystals = ChainMap[str, Crystallization]({}, cast(dict[str, Crystallization], crystals))
        self.room, self.granted_until = room, granted_until
        self.actions: list[Action] = []
        self.wants_samples: list[str] = []
        self.seen: dict[str, Signals] = {}
        self.of_session = Counter[str]()
        self._shape = shape
        self._new_crystals: list[Crystallization] = []
        self._events: list[Event] = []
        self._dues: list[float] = []

    @property
    def shape(self) -> Shape:
        if self._shape is None:
            self._shape = shape_of(self.view.nodes)
        return self._shape

    def put(self, assignment: Assignment, *events: Event) -> Assignment:
        self.assignments[assignment.assignment_id] = assignment
        self._events.extend(events)
        return assignment

    def note(self, assignment: Assignment, kind: str, **data: Any) -> None:
        """Add an event."""
        self._events.append(assignment.event(kind, self.now, data))

    def move(
        self,
        assignment: Assignment,
        to: AssignmentStatus,
        reason: str,
        blocked: BlockedReason | None = None,
        proof: Crystallization | None = None,
    ) -> Assignment:
        if assignment.status is to:
            return self.put(assignment)
        moved, event = move_assignment(assignment, to, self.now, reason=reason, blocked=blocked, proof=proof)
        freed = assignment.status.at_work - to.at_work
        self.room = replace(self.room, in_progress=self.room.in_progress + freed)
        return self.put(moved, event)

    def move_node(
        self,
        node: Node,
        to: NodeStatus,
        reason: str,
        blocked: BlockedReason | None = None,
        proof: Crystallization | None = None,
    ) -> Node:
        """Change the status, unless the user overrode it."""
        if node.status is to or node.overridden:
            return node
        moved, event = move_node(node, to, self.now, reason=reason, blocked=blocked, proof=proof)
        self.nodes[node.node_id] = moved
        self._events.append(event)
        return moved

    def send(
        self,
        assignment: Assignment,
        purpose: str,
        mode: Mode,
        text: str,
        delivery_context: DeliveryContext | None = None,
    ) -> Assignment:
        dispatch_id = self.ids()
        intended = intents.intend(assignment, dispatch_id, purpose, mode, text, self.now, delivery_context)
        kind = {intents.ESCALATE: "assignment.escalated", intents.REMINDER: "assignment.reminded"}
        return self._act(intended, intended.dispatch_history[-1], kind.get(purpose, "dispatch.intended"))

    def send_again(self, assignment: Assignment, dispatch: Dispatch, kind: str) -> Assignment:
        """Repeat an intent under the same id."""
        tried = intents.again(assignment, dispatch, self.now)
        entry = next(d for d in tried.dispatch_history if d.dispatch_id == dispatch.dispatch_id)
        return self._act(tried, entry, kind)

    def drop_pending(self, assignment: Assignment, why: str) -> Assignment:
        """Drop every pending intent, with a note in its record: an answer may be pending beside its question."""
        while (pending := assignment.pending) is not None:
            assignment = self.put(intents.given_up(assignment, pending, self.now, why))
            about = {"dispatchId": pending.dispatch_id, "purpose": pending.purpose}
            self.note(assignment, "dispatch.dropped", **about, reason=why)
        return assignment

    def _act(self, assignment: Assignment, dispatch: Dispatch, kind: str) -> Assignment:
        self.room = replace(self.room, dispatches=self.room.dispatches - 1)
        self.put(assignment)
        self.note(
            assignment,
            kind,
            dispatchId=dispatch.dispatch_id,
            purpose=dispatch.purpose,
            mode=dispatch.mode.value,
            attempts=dispatch.attempts,
        )
        node = self.nodes.get(assignment.work_node_id)
        self.actions.append(intents.action_for(self.goal, node, assignment, dispatch))
        return assignment

    def due(self, at: float | None) -> None:
        """Note when something is due."""
        if at is not None:
            self._dues.append(at)

    def later(self) -> None:
        self.due(self.now + self.policy.tick_every_s)

    def next_due(self) -> float | None:
        return min(self._dues, default=None)

    def work_text(self, node: Node, answer: str, taken_over: bool = False) -> str:
        """The instruction for a leaf, with the results of its dependencies."""
        parents = [self.nodes[parent] for parent in self.shape.parents[node.node_id]]
        built_on = [(self.nodes[dep], self.crystals.get(dep)) for dep in self.shape.needs[node.node_id]]
        said = "\n".join(dict.fromkeys(filter(None, (node.word, answer))))
        return words.work_text(self.goal, node, parents, built_on, said, taken_over)

    def crystallize(self, crystal: Crystallization) -> None:
        self.crystals[crystal.work_node_id] = crystal
        self._new_crystals.append(crystal)

    def crystallize_above(self, leaf: str) -> None:
        """Summarize every parent that this leaf completes."""
        for parent in self.shape.parents[leaf]:
            if not self._all_closed(self.shape.children[parent]):
                return
            self.crystallize(self._of_parts(self.nodes[parent], self.shape.children[parent]))
        phases = tuple(node_id for node_id, above in self.shape.parents.items() if not above)
        if self._all_closed(phases):
            self.crystallize(self._of_parts(None, phases))

    def _all_closed(self, parts: tuple[str, ...]) -> bool:
        return all(is_closed(part, self.nodes, self.shape) for part in parts)

    def _of_parts(self, node: Node | None, parts: tuple[str, ...]) -> Crystallization:
        rows = [(self._as_closed(part), self.crystals.get(part)) for part in parts]
        return crystal_rules.of_parts(self.ids(), self.goal, node, rows, self.now)

    def _as_closed(self, node_id: str) -> Node:
        """A parent as it will be after this round."""
        node = self.nodes[node_id]
        return node if node_id in self.shape.leaf_set else replace(node, status=NodeStatus.DONE)

    def change(self) -> Change:
        return Change(
            nodes=tuple(_changed(self.view.nodes, self.nodes)),
            assignments=tuple(_changed(self.view.assignments, self.assignments)),
            crystallizations=tuple(self._new_crystals),
            events=tuple(self._events),
        )


def _changed(before: Mapping[str, R], after: Mapping[str, R]) -> Iterator[R]:
    return (row for key, row in after.items() if row is not before.get(key) and row != before.get(key))
