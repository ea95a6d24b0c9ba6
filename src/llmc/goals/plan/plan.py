"""A plan before it is kept: phases, tasks and subtasks, and its shape. Pure.

It follows from the plan alone, not from how far it is; so it can be kept while the plan stays the same.
"""

from collections.abc import Iterable, Iterator, Mapping
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


_KINDS = (NodeKind.PHASE, NodeKind.TASK, NodeKind.SUBTASK)


class Shape(Struct, frozen=True):
    """Leaves in plan order, everybody's children and parents, and the leaves each leaf waits for."""

    leaves: tuple[str, ...]
    children: Mapping[str, tuple[str, ...]]
    #: parents of a node, the nearest first
    parents: Mapping[str, tuple[str, ...]]
    #: what a leaf depends on by its own word or a parent's, as it is written in the plan
    needs: Mapping[str, tuple[str, ...]]
    leaf_set: frozenset[str] = field(default_factory=frozenset)

    def leaves_below(self, node_id: str) -> Iterator[str]:
        """The leaves of a part of the plan; of a leaf, itself."""
        below = self.children.get(node_id, ())
        if not below:
            yield node_id
        for child in below:
            yield from self.leaves_below(child)


def shape_of(nodes: Mapping[str, Node]) -> Shape:
    """The structure of a plan."""
    children: dict[str, list[Node]] = {}
    roots: list[Node] = []
    for node in nodes.values():
        siblings = children.setdefault(node.parent_id, []) if node.parent_id in nodes else roots
        siblings.append(node)
    parents: dict[str, tuple[str, ...]] = {}
    needs: dict[str, tuple[str, ...]] = {}
    leaves: list[str] = []

    def descend(siblings: list[Node], above: tuple[str, ...], needed_above: tuple[str, ...]) -> None:
        siblings.sort(key=_order)
        for node in siblings:
            node_id = node.node_id
            parents[node_id] = above
            needed = needed_above
            if node.depends_on:
                own = (dep for dep in node.depends_on if dep in nodes)
                needed = tuple(dict.fromkeys((*own, *needed_above)))
            if node_id in children:
                descend(children[node_id], (node_id, *above), needed)
            elif node.kind is not NodeKind.PHASE:
                leaves.append(node_id)
                needs[node_id] = needed

    for kind in _KINDS:
        descend([node for node in roots if node.kind is kind], (), ())
    kept = {parent: tuple([node.node_id for node in below]) for parent, below in children.items()}
    return Shape(tuple(leaves), kept, parents, needs, frozenset(leaves))


def _order(node: Node) -> tuple[int, str]:
    """Siblings are of one kind."""
    return node.position, node.node_id


def is_same_plan(before: Mapping[str, Node], now: Mapping[str, Node]) -> bool:
    """Whether the structure of both is the same, however far they are."""
    return before.keys() == now.keys() and all(
        node is before[node_id] or _place(node) == _place(before[node_id]) for node_id, node in now.items()
    )


def _place(node: Node) -> tuple[NodeKind, str, int, tuple[str, ...]]:
    return node.kind, node.parent_id, node.position, node.depends_on


def is_closed(node_id: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether nothing is left to do there: closed itself, by a person's word above it, or in all its leaves."""
    if not nodes[node_id].status.is_open or _closed_above(node_id, nodes, shape):
        return True
    below = shape.children.get(node_id, ())
    return bool(below) and all(is_closed(child, nodes, shape) for child in below)


def is_ready(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether a leaf can be worked on: all it waits for is closed, and no person holds it or a parent of it."""
    return bool(ready_among((leaf,), nodes, shape))


def ready_among(leaves: Iterable[str], nodes: Mapping[str, Node], shape: Shape) -> list[str]:
    """The leaves that can be worked on; what many of them wait for is looked at once."""
    barred: dict[tuple[str, ...], bool] = {}
    closed: dict[str, bool] = {}
    ready = []
    for leaf in leaves:
        above, needs = shape.parents[leaf], shape.needs.get(leaf, ())
        if above not in barred:
            barred[above] = any(_bars(nodes[parent]) for parent in above)
        if barred[above]:
            continue
        for dep in needs:
            if dep not in closed:
                closed[dep] = is_closed(dep, nodes, shape)
            if not closed[dep]:
                break
        else:
            ready.append(leaf)
    return ready


def _closed_above(node_id: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    return any(_closes(nodes[parent]) for parent in shape.parents[node_id])


def _closes(parent: Node) -> bool:
    """Whether by this alone everything below is closed."""
    return parent.status is NodeStatus.CANCELLED or (parent.overridden and parent.status is NodeStatus.DONE)


def _bars(parent: Node) -> bool:
    """Whether nothing below can begin: it is closed, or a person holds it."""
    return _closes(parent) or (parent.overridden and parent.status is NodeStatus.BLOCKED)
