"""Plans: phases, tasks and subtasks, their structure, and which leaves are ready or waiting. Pure.

The structure depends on the plan alone, not on any status, so it can be cached until the plan changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from llmc.goals.model import (
    MAX_PHASES,
    MAX_SUBTASKS,
    MAX_TASKS,
    GoalView,
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

#: the JSON key of a node's children
BELOW = {NodeKind.PHASE: "tasks", NodeKind.TASK: "subtasks"}


class RiskLevel(StrEnum):
    LOW = "low"
    MED = "med"
    HIGH = "high"


class PlanNode(Struct, frozen=True, rename="camel"):
    """A phase, a task or a subtask of a plan, with its children."""

    id: str
    kind: NodeKind
    name: str
    objective: str = ""
    expected_outcome: str = field(default="", name="outcome")
    acceptance_criteria: tuple[str, ...] = field(default=(), name="acceptance")
    depends_on: tuple[str, ...] = field(default=(), name="deps")
    children: tuple["PlanNode", ...] = ()
    definition_of_done: str = ""
    suggested_agent_id: str = ""
    suggested_agent_type: str = ""
    required_tools: tuple[str, ...] = ()
    estimated_effort: str = ""
    risk_level: str = ""
    verify: str = ""
    #: None: the defaults
    recovery_policy: Recovery | None = None
    idle_after_ms: int | None = None
    #: marked done in the plan
    done: bool = False

    def is_done(self) -> bool:
        return all(child.is_done() for child in self.children) if self.children else self.done


class Plan(Struct, frozen=True):
    title: str
    success_criteria: tuple[str, ...]
    constraints: tuple[str, ...]
    phases: tuple[PlanNode, ...]
    #: Markdown plans only
    problem_statement: str = ""

    def walk(self) -> Iterator[tuple[PlanNode, str, str]]:
        """Every node, with its parent's id and its path in the JSON."""
        return _walk(self.phases, "", "$.phases")


def _walk(nodes: Iterable[PlanNode], parent: str, path: str) -> Iterator[tuple[PlanNode, str, str]]:
    for index, node in enumerate(nodes):
        here = f"{path}[{index}]"
        yield node, parent, here
        yield from _walk(node.children, node.id, f"{here}.{BELOW.get(node.kind, '')}")


class Split(Struct, frozen=True):
    subtasks: tuple[PlanNode, ...]


class Provenance(Struct, frozen=True):
    """Where a plan comes from; stored with the goal."""

    planner: PlannerRef
    inputs: Mapping[str, str] = field(default_factory=dict)
    raw_json: str = ""
    #: problems of all refused answers
    validation_errors: tuple[str, ...] = ()


#: fields that a plan and its records have in common
_CONTENT = (
    *(
        "kind",
        "name",
        "objective",
        "expected_outcome",
        "acceptance_criteria",
        "definition_of_done",
        "depends_on",
    ),
    *("suggested_agent_id", "suggested_agent_type", "required_tools", "estimated_effort", "risk_level"),
    *("verify", "recovery_policy", "idle_after_ms"),
)


def record_of(node: PlanNode, goal_id: str, parent: str, position: int, now: float) -> Node:
    """A node record for a node of a plan."""
    return Node(
        goal_id=goal_id,
        node_id=node.id,
        parent_id=parent,
        position=position,
        status=NodeStatus.DONE if node.is_done() else NodeStatus.TODO,
        created_at=now,
        updated_at=now,
        ended_at=now if node.is_done() else None,
        **{name: getattr(node, name) for name in _CONTENT},
    )


def with_blocks(nodes: list[Node]) -> tuple[Node, ...]:
    """The records with `blocks` filled from `depends_on`."""
    waiting: dict[str, list[str]] = {node.node_id: [] for node in nodes}
    for node in nodes:
        for needed in node.depends_on:
            waiting.get(needed, []).append(node.node_id)
    return tuple(replace(node, blocks=tuple(waiting[node.node_id])) for node in nodes)


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
        """The leaves below a node, or the node itself if it is a leaf."""
        below = self.children.get(node_id, ())
        if not below:
            yield node_id
        for child in below:
            yield from self.leaves_below(child)


def children_of(nodes: Mapping[str, Node]) -> dict[str, list[Node]]:
    """The children of each node, in order; phases are under ""."""
    found: dict[str, list[Node]] = {}
    for node in sorted(nodes.values(), key=lambda one: (one.position, one.node_id)):
        found.setdefault(node.parent_id if node.parent_id in nodes else "", []).append(node)
    return found


def walk(children: Mapping[str, Sequence[Node]], parent: str = "") -> Iterator[Node]:
    """Every node below a parent, in plan order."""
    for node in children.get(parent, ()):
        yield node
        yield from walk(children, node.node_id)


def shape_of(nodes: Mapping[str, Node]) -> Shape:
    children = children_of(nodes)
    roots = children.pop("", [])
    parents: dict[str, tuple[str, ...]] = {}
    needs: dict[str, tuple[str, ...]] = {}
    leaves: list[str] = []

    def descend(siblings: list[Node], above: tuple[str, ...], needed_above: tuple[str, ...]) -> None:
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

    for kind in NodeKind:
        descend([node for node in roots if node.kind is kind], (), ())
    kept = {parent: tuple([node.node_id for node in below]) for parent, below in children.items()}
    return Shape(tuple(leaves), kept, parents, needs, frozenset(leaves))


def is_same_plan(before: Mapping[str, Node], now: Mapping[str, Node]) -> bool:
    """Whether both have the same structure, regardless of status."""
    return before.keys() == now.keys() and all(
        node is before[node_id] or _place(node) == _place(before[node_id]) for node_id, node in now.items()
    )


def _place(node: Node) -> tuple[NodeKind, str, int, tuple[str, ...]]:
    return node.kind, node.parent_id, node.position, node.depends_on


def is_closed(node_id: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether nothing is left to do: it is closed, a parent closes it, or all its children are closed."""
    if not nodes[node_id].status.is_open or _closed_above(node_id, nodes, shape):
        return True
    below = shape.children.get(node_id, ())
    return bool(below) and all(is_closed(child, nodes, shape) for child in below)


def is_ready(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether a leaf can start: all dependencies are closed, and no parent is closed or blocked by the user."""
    return bool(ready_among((leaf,), nodes, shape))


def ready_among(leaves: Iterable[str], nodes: Mapping[str, Node], shape: Shape) -> list[str]:
    """Those of the leaves that can start."""
    barred: dict[tuple[str, ...], bool] = {}
    closed: dict[str, bool] = {}
    ready = []
    for leaf in leaves:
        above, needs = shape.parents[leaf], shape.needs.get(leaf, ())
        if above not in barred:
            barred[above] = is_barred(leaf, nodes, shape)
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


def is_barred(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    """Whether a parent is closed or blocked by the user, so that nothing below may start."""
    return any(_bars(nodes[parent]) for parent in shape.parents[leaf])


def _closed_above(node_id: str, nodes: Mapping[str, Node], shape: Shape) -> bool:
    for parent in shape.parents[node_id]:  # noqa: SIM110 (`any` is slower, and a tick asks this of every leaf)
        if _closes(nodes[parent]):
            return True
    return False


def _closes(parent: Node) -> bool:
    """Whether its own status closes everything below."""
    return parent.status is NodeStatus.CANCELLED or (parent.overridden and parent.status is NodeStatus.DONE)


def _bars(parent: Node) -> bool:
    """Whether nothing below may start: the parent is closed, or the user blocked it."""
    return _closes(parent) or (parent.overridden and parent.status is NodeStatus.BLOCKED)


class Waits(Struct, frozen=True):
    """The open leaves of a plan, in plan order."""

    #: ready and not assigned
    ready: tuple[str, ...]
    #: unmet dependencies of each leaf, as the plan names them
    waiting: Mapping[str, tuple[str, ...]]
    #: number of leaves that depend on each leaf, largest first
    holds_up: Mapping[str, int]


def waits_of(view: GoalView) -> Waits:
    shape, nodes = shape_of(view.nodes), view.nodes
    open_ = [leaf for leaf in shape.leaves if not is_closed(leaf, nodes, shape)]
    needs = {leaf: _open_needs(leaf, nodes, shape) for leaf in open_}
    return Waits(
        ready=tuple(leaf for leaf in open_ if nodes[leaf].status.is_waiting and is_ready(leaf, nodes, shape)),
        waiting={leaf: wanted for leaf, wanted in needs.items() if wanted},
        holds_up=_holds_up(needs, shape, set(open_)),
    )


def held_up_by(view: GoalView, node_id: str) -> int:
    """How many open leaves depend on a node, directly or not."""
    shape = shape_of(view.nodes)
    found = waits_of(view).holds_up
    return max((found.get(leaf, 0) for leaf in shape.leaves_below(node_id)), default=0)


def _open_needs(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> tuple[str, ...]:
    return tuple(dep for dep in shape.needs[leaf] if not is_closed(dep, nodes, shape))


def _holds_up(needs: Mapping[str, tuple[str, ...]], shape: Shape, open_: set[str]) -> dict[str, int]:
    """The number of dependents of each leaf; a dependency on a parent counts for all its open leaves."""
    behind: dict[str, set[str]] = {}
    for leaf, wanted in needs.items():
        for dep in wanted:
            for below in shape.leaves_below(dep):
                if below in open_:
                    behind.setdefault(below, set()).add(leaf)

    def reached(start: str) -> int:
        seen: set[str] = set()
        todo = list(behind.get(start, ()))
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += behind.get(one, ())
        return len(seen - {start})

    counts = {leaf: reached(leaf) for leaf in behind}
    return dict(sorted(counts.items(), key=lambda row: -row[1]))
