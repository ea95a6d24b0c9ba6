"""A plan before it is kept: phases, tasks and subtasks as somebody thought them up. Pure data."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from llmc.goals.model import (
    MAX_PHASES,
    MAX_SUBTASKS,
    MAX_TASKS,
    Node,
    NodeKind,
    NodeStatus,
    PlannerRef,
    Recovery,
)


class Limits(Struct, frozen=True):
    """How large a plan may be; never larger than the model allows."""

    phases: int = MAX_PHASES
    tasks: int = MAX_TASKS
    subtasks: int = MAX_SUBTASKS

    def __post_init__(self) -> None:
        for name, most in (("phases", MAX_PHASES), ("tasks", MAX_TASKS), ("subtasks", MAX_SUBTASKS)):
            force_setattr(self, name, max(1, min(getattr(self, name), most)))


DEFAULT_LIMITS = Limits()


class RiskLevel(StrEnum):
    LOW = "low"
    MED = "med"
    HIGH = "high"


class PlanNode(Struct, frozen=True):
    """A phase, a task or a subtask of a plan, with what is below it."""

    id: str
    kind: NodeKind
    name: str
    objective: str = ""
    outcome: str = ""
    acceptance: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()
    children: tuple["PlanNode", ...] = ()
    definition_of_done: str = ""
    suggested_agent_id: str = ""
    suggested_agent_type: str = ""
    required_tools: tuple[str, ...] = ()
    estimated_effort: str = ""
    risk_level: str = ""
    verify: str = ""
    #: the first step when nothing moves, and how long it may be silent; None: as for all work
    recovery: Recovery | None = None
    idle_after_ms: int | None = None
    #: somebody who wrote the plan says that it is done already
    done: bool = False

    def walk(self, parent: str = "") -> Iterator[tuple["PlanNode", str]]:
        """This node and all below it, each with the id of its parent."""
        yield self, parent
        for child in self.children:
            yield from child.walk(self.id)

    def is_done(self) -> bool:
        return all(child.is_done() for child in self.children) if self.children else self.done


class Plan(Struct, frozen=True):
    """What a planner, or a person, made of a goal."""

    title: str
    success_criteria: tuple[str, ...]
    constraints: tuple[str, ...]
    phases: tuple[PlanNode, ...]
    #: only a plan in Markdown has one
    problem_statement: str = ""

    def walk(self) -> Iterator[tuple[PlanNode, str]]:
        """Every node with the id of its parent, parents first."""
        for phase in self.phases:
            yield from phase.walk()


class Split(Struct, frozen=True):
    """What a leaf becomes that was too large."""

    subtasks: tuple[PlanNode, ...]


class Provenance(Struct, frozen=True):
    """Where a plan comes from: it is kept with the goal."""

    planner: PlannerRef
    inputs: Mapping[str, str] = field(default_factory=dict)
    raw_json: str = ""
    #: of every answer that was refused before this one
    validation_errors: tuple[str, ...] = ()


def nodes_of(plan: Plan, goal_id: str, now: float) -> tuple[Node, ...]:
    """The plan as records: what a node waits for, and the other way round, what waits for it."""
    found = [
        record_of(node, goal_id, parent, position, now)
        for parent, siblings in _families(plan)
        for position, node in enumerate(siblings)
    ]
    return with_blocks(found)


def _families(plan: Plan) -> Iterator[tuple[str, tuple[PlanNode, ...]]]:
    yield "", plan.phases
    for node, _ in plan.walk():
        yield node.id, node.children


def record_of(node: PlanNode, goal_id: str, parent: str, position: int, now: float) -> Node:
    """One node of a plan as it is kept, before anybody has begun it."""
    return Node(
        goal_id=goal_id,
        node_id=node.id,
        kind=node.kind,
        parent_id=parent,
        position=position,
        name=node.name,
        objective=node.objective,
        expected_outcome=node.outcome,
        acceptance_criteria=node.acceptance,
        definition_of_done=node.definition_of_done,
        depends_on=node.deps,
        suggested_agent_id=node.suggested_agent_id,
        suggested_agent_type=node.suggested_agent_type,
        required_tools=node.required_tools,
        estimated_effort=node.estimated_effort,
        risk_level=node.risk_level,
        verify=node.verify,
        recovery_policy=node.recovery,
        idle_after_ms=node.idle_after_ms,
        status=NodeStatus.DONE if node.is_done() else NodeStatus.TODO,
        created_at=now,
        updated_at=now,
        ended_at=now if node.is_done() else None,
    )


def with_blocks(nodes: list[Node]) -> tuple[Node, ...]:
    """The same records, `blocks` made from everybody's `depends_on`."""
    waiting: dict[str, list[str]] = {node.node_id: [] for node in nodes}
    for node in nodes:
        for needed in node.depends_on:
            waiting.get(needed, []).append(node.node_id)
    return tuple(replace(node, blocks=tuple(waiting[node.node_id])) for node in nodes)
