"""The working state of one decision about a goal, and the intents stored before anything is sent. Pure."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.drive import ladder, words
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
    Goal,
    GoalView,
    Mode,
    Node,
    NodeStatus,
    Recovery,
    Result,
)
from llmc.goals.plan.plan import Shape, is_closed, shape_of

WORK, ANSWER, REMINDER, WITHDRAW, DIAGNOSE = "work", "answer", "reminder", "withdraw", "diagnose"
NUDGE, REPLAN, REASSIGN, ESCALATE = (
    step.value for step in (Recovery.NUDGE, Recovery.REPLAN, Recovery.REASSIGN, Recovery.ESCALATE)
)
MAX_NOTES = 500

#: results that may follow a result: proof after a timeout, completion after an acceptance
_LATER: Mapping[Result, tuple[Result, ...]] = {
    Result.PENDING: (Result.ACCEPTED, Result.OK, Result.TIMEOUT, Result.ERROR),
    Result.TIMEOUT: (Result.ACCEPTED, Result.OK),
    Result.ACCEPTED: (Result.OK,),
}


class Action(Struct, frozen=True):
    """An action; repeating it under the same id has no further effect."""

    dispatch_id: str
    goal_id: str
    assignment_id: str
    work_node_id: str
    purpose: str
    mode: Mode
    text: str = ""
    session_key: str = ""
    #: the action cannot have happened before this time
    decided_at: float = 0.0
    delivery_context: DeliveryContext | None = None
    #: earlier dispatches whose tasks are withdrawn first
    replaces: tuple[str, ...] = ()


def intend(
    assignment: Assignment,
    dispatch_id: str,
    purpose: str,
    mode: Mode,
    text: str,
    now: float,
    delivery_context: DeliveryContext | None = None,
) -> Assignment:
    """The assignment with an intent to send something."""
    dispatch = Dispatch(
        dispatch_id=dispatch_id,
        ts=now,
        mode=mode,
        purpose=purpose,
        session_key=assignment.session_key if mode is Mode.SEND else "",
        delivery_context=delivery_context,
        instruction_hash=words.instruction_hash(text),
    )
    intended = replace(
        assignment,
        dispatch_history=(*assignment.dispatch_history, dispatch),
        last_dispatch_at=now,
        updated_at=now,
    )
    if not dispatch.is_instruction:
        return intended
    return replace(intended, last_instruction_text=text, instruction_hash=dispatch.instruction_hash)


def is_pending(view: GoalView, dispatch_id: str) -> bool:
    known = (d for a in view.assignments.values() for d in a.dispatch_history)
    return any(d.dispatch_id == dispatch_id and d.result is Result.PENDING for d in known)


def again(assignment: Assignment, dispatch: Dispatch, now: float) -> Assignment:
    tried = replace(dispatch, result=Result.PENDING, attempts=dispatch.attempts + 1)
    return replace(with_dispatch(assignment, tried), last_dispatch_at=now, updated_at=now)


def with_dispatch(assignment: Assignment, dispatch: Dispatch) -> Assignment:
    history = tuple(
        dispatch if entry.dispatch_id == dispatch.dispatch_id else entry
        for entry in assignment.dispatch_history
    )
    return replace(assignment, dispatch_history=history)


def given_up(assignment: Assignment, dispatch: Dispatch, now: float, why: str) -> Assignment:
    """The assignment with an intent dropped as no longer needed."""
    closed = replace(dispatch, result=Result.ERROR, result_at=now, notes=why[:MAX_NOTES])
    return replace(with_dispatch(assignment, closed), updated_at=now)


def action_for(goal: Goal, node: Node | None, assignment: Assignment, dispatch: Dispatch) -> Action:
    """The action of an intent, from the records alone."""
    return Action(
        dispatch_id=dispatch.dispatch_id,
        goal_id=assignment.goal_id,
        assignment_id=assignment.assignment_id,
        work_node_id=assignment.work_node_id,
        purpose=dispatch.purpose,
        mode=dispatch.mode,
        text=_text_of(goal, node, assignment, dispatch),
        session_key=dispatch.session_key,
        decided_at=dispatch.ts,
        delivery_context=dispatch.delivery_context,
        replaces=_replaced(assignment, dispatch),
    )


def _text_of(goal: Goal, node: Node | None, assignment: Assignment, dispatch: Dispatch) -> str:
    if dispatch.is_instruction:
        return assignment.last_instruction_text
    if node is None or dispatch.purpose == WITHDRAW:
        return ""
    if dispatch.purpose == REPLAN:
        return words.replan_text(node)
    if dispatch.purpose == DIAGNOSE:
        return words.diagnose_text(node)
    if dispatch.purpose == NUDGE:
        return words.nudge_as_sent(goal, node, assignment.advice, dispatch.instruction_hash)
    # repeat the same text, without what was tried since
    index = assignment.dispatch_history.index(dispatch)
    then = replace(assignment, dispatch_history=assignment.dispatch_history[:index])
    reason = assignment.blocked_reason or BlockedReason(kind="stalled", text="no progress")
    say = words.reminder_text if dispatch.purpose == REMINDER else words.question_text
    return say(goal, node, then, reason)


def _replaced(assignment: Assignment, dispatch: Dispatch) -> tuple[str, ...]:
    """Earlier dispatches that this one replaces; a message to the same session replaces none."""
    if dispatch.purpose not in (WORK, REASSIGN, WITHDRAW) or dispatch.mode is not Mode.SPAWN:
        return ()
    index = assignment.dispatch_history.index(dispatch)
    return tuple(d.dispatch_id for d in assignment.dispatch_history[:index] if d.is_instruction)


def outcome(
    view: GoalView,
    dispatch_id: str,
    result: Result,
    now: float,
    policy: Policy,
    notes: str = "",
    run_id: str = "",
) -> Change:
    """Record an outcome; a repeated or late one changes nothing."""
    sent = ((a, d) for a in view.assignments.values() for d in a.dispatch_history)
    found = next((row for row in sent if row[1].dispatch_id == dispatch_id), None)
    if found is None or result not in _LATER.get(found[1].result, ()):
        return Change()
    assignment, dispatch = found
    entry = replace(
        dispatch, result=result, result_at=now, notes=notes[:MAX_NOTES], run_id=run_id or dispatch.run_id
    )
    settled = replace(with_dispatch(assignment, entry), updated_at=now)
    data = {
        "dispatchId": dispatch_id,
        "purpose": entry.purpose,
        "result": result.value,
        "attempts": entry.attempts,
        "notes": entry.notes,
    }
    events = [settled.event(f"dispatch.{result.value}", now, data)]
    if not result.is_good:
        wait_s = ladder.backoff_s(assignment.retry_count + 1, policy)
        settled = replace(settled, backoff_until=max(assignment.backoff_until or 0.0, now + wait_s))
    elif dispatch.is_instruction and run_id and dispatch is assignment.last_instruction:
        settled = replace(settled, run_id=run_id)
    elif dispatch.purpose == WITHDRAW and assignment.status.at_work:
        settled, event = move_assignment(
            settled, AssignmentStatus.QUEUED, now, reason="withdrawn before a worker claimed it"
        )
        # paused or blocked by the user: earlier attempts do not count
        settled = ladder.progressed(settled, now, now)
        settled = replace(settled, run_id="", session_key="", session_id="")
        events.append(event)
    return Change(assignments=(settled,), events=tuple(events))


R = TypeVar("R")


class Room(Struct, frozen=True):
    """The budget that a tick has left."""

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
        """Change the status, unless the user decided it: what they cancelled stays so, even if its work lands."""
        if node.status is to or node.overridden or node.status is NodeStatus.CANCELLED:
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
        intended = intend(assignment, dispatch_id, purpose, mode, text, self.now, delivery_context)
        kind = {ESCALATE: "assignment.escalated", REMINDER: "assignment.reminded"}
        return self._act(intended, intended.dispatch_history[-1], kind.get(purpose, "dispatch.intended"))

    def send_again(self, assignment: Assignment, dispatch: Dispatch, kind: str) -> Assignment:
        """Repeat an intent under the same id."""
        tried = again(assignment, dispatch, self.now)
        entry = next(d for d in tried.dispatch_history if d.dispatch_id == dispatch.dispatch_id)
        return self._act(tried, entry, kind)

    def drop_pending(self, assignment: Assignment, why: str) -> Assignment:
        """Drop and record every pending intent: an answer may be pending together with its question."""
        while (pending := assignment.pending) is not None:
            assignment = self.put(given_up(assignment, pending, self.now, why))
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
        self.actions.append(action_for(self.goal, node, assignment, dispatch))
        return assignment

    def due(self, at: float | None) -> None:
        """Note when something is due."""
        if at is not None:
            self._dues.append(at)

    def is_early(self, at: float) -> bool:
        """Whether `at` is in the future; if so, note it as due."""
        if at > self.now:
            self.due(at)
        return at > self.now

    def is_full(self) -> bool:
        """Whether no dispatch is left; if so, a later tick tries again."""
        if self.room.dispatches <= 0:
            self.later()
        return self.room.dispatches <= 0

    def expected(self, assignment: Assignment) -> Assignment:
        """The assignment with a full idle limit from now."""
        due = self.now + assignment.idle_after_s(self.policy.idle_after_s)
        return replace(assignment, expected_next_update_at=due)

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
        return words.of_parts(self.ids(), self.goal, node, rows, self.now)

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
