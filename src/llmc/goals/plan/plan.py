"""A plan before it is stored: phases, tasks and subtasks, and its structure. Pure.

The structure depends on the plan alone, not on any status, so it can be cached until the plan changes.
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
    """Limits of a plan; never above those of the model."""

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
    """A phase, a task or a subtask of a plan, with its children."""

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
    #: None: the defaults
    recovery: Recovery | None = None
    idle_after_ms: int | None = None
    #: marked done in the plan
    done: bool = False

    def walk(self, parent: str = "") -> Iterator[tuple["PlanNode", str]]:
        """This node and its descendants, each with its parent's id."""
        yield self, parent
        for child in self.children:
            yield from child.walk(self.id)

    def is_done(self) -> bool:
        return all(child.is_done() for child in self.children) if self.children else self.done


class Plan(Struct, frozen=True):
    title: str
    success_criteria: tuple[str, ...]
    constraints: tuple[str, ...]
    phases: tuple[PlanNode, ...]
    #: Markdown plans only
    problem_statement: str = ""

    def walk(self) -> Iterator[tuple[PlanNode, str]]:
        for phase in self.phases:
            yield from phase.walk()


class Split(Struct, frozen=True):
    subtasks: tuple[PlanNode, ...]


class Provenance(Struct, frozen=True):
    """Where a plan comes from; stored with the goal."""

    planner: PlannerRef
    inputs: Mapping[str, str] = field(default_factory=dict)
    raw_json: str = ""
    #: of all refused answers
    validation_errors: tuple[str, ...] = ()


def record_of(node: PlanNode, goal_id: str, parent: str, position: int, now: float) -> Node:
    """A node record for a node of a plan."""
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
    """The records with `blocks` filled from `depends_on`."""
    waiting: dict[str, list[str]] = {node.node_id: [] for node in nodes}
    for node in nodes:
        for needed in node.depends_on:
            waiting.get(needed, []).append(node.node_id)
    return tuple(replace(node, blocks=tuple(waiting[node.node_id])) for node in nodes)


_KINDS = (NodeKind.PHASE, NodeKind.TASK, NodeKind.SUBTASK)


class Shape(Struct, frozen=True):
    """The structure of a plan: leaves in plan order, children, parents and dependencies."""

    leaves: tuple[str, ...]
    children: Mapping[str, tuple[str, ...]]
    #: nearest first
    parents: Mapping[str, tuple[str, ...]]
    #: dependencies of a leaf and of its parents, as written in the plan
    needs: Mapping[str, tuple[str, ...]]
    leaf_set: frozenset[str] = field(default_factory=frozenset)

    def leaves_below(self, node_id: str) -> Iterator[str]:
        """The leaves of a node; a leaf's own is itself."""
        below = self.children.get(node_id, ())
        if not below:
            yield node_id
        for child in below:
            yield from self.leaves_below(child)


def shape_of(nodes: Mapping[str, Node]) -> Shape:
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
    return node.position, node.node_id


def is_same_plan(before: Mapping[str, Node], now: Mapping[str, Node]) -> bool:
    """Whether both have the same structure, whatever their status."""
    return before.keys() == now.keys() and all(
        node is before[node_id] or _place(node) == _place(before[node_id]) for node_id, node in now.items()
    )


def _place(node: Node) -> tuple[NodeKind, str, int, tuple[str, ...]]:
    return node.kind, node.parent_id, node.position, node.depends_on


def is_closed(node_id: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether nothing is left to do: closed itself, overridden above, or closed in all its leaves."""
    if not nodes[node_id].status.is_open or _closed_above(node_id, nodes, shape):
        return True
    below = shape.children.get(node_id, ())
    return bool(below) and all(is_closed(child, nodes, shape) for child in below)


def is_ready(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether a leaf can start: all dependencies are closed, and the user holds neither it nor a parent."""
    return bool(ready_among((leaf,), nodes, shape))


def ready_among(leaves: Iterable[str], nodes: Mapping[str, Node], shape: Shape) -> list[str]:
    """The leaves that can start."""
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
    """Whether its own status closes everything below."""
    return parent.status is NodeStatus.CANCELLED or (parent.overridden and parent.status is NodeStatus.DONE)


def _bars(parent: Node) -> bool:
    """Whether it is closed or held by the user."""
    return _closes(parent) or (parent.overridden and parent.status is NodeStatus.BLOCKED)
