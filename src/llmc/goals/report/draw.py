"""Draws a goal's plan as a tree for the terminal, and as a Mermaid diagram. Pure.

Percentages come from the caller (drive/moves.py).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from llmc.base.text import cells, printable, shortened
from llmc.goals.drive.ladder import worker_of
from llmc.goals.model import Assignment, AssignmentStatus, GoalStatus, GoalView, Node, NodeKind, NodeStatus
from llmc.goals.plan.plan import children_of, walk

#: a text and its style: a color, "bold", "dim" or ""
Span = tuple[str, str]
Line = tuple[Span, ...]

#: limits of the width
LEAST_WIDTH, MOST_WIDTH = 40, 160
BAR_CELLS = 20
#: cells of a name that are always shown
LEAST_NAME = 16
MAX_WAITS = 4

STYLES = {
    NodeStatus.TODO: "dim",
    NodeStatus.QUEUED: "cyan",
    NodeStatus.IN_PROGRESS: "blue",
    NodeStatus.BLOCKED: "red",
    NodeStatus.DONE: "green",
    NodeStatus.CANCELLED: "dim",
}
MARKS = {
    NodeStatus.TODO: "·",
    NodeStatus.QUEUED: "○",
    NodeStatus.IN_PROGRESS: "●",
    NodeStatus.BLOCKED: "!",
    NodeStatus.DONE: "✓",
    NodeStatus.CANCELLED: "×",
}
_GOAL_STYLES = {
    GoalStatus.ACTIVE: "blue",
    GoalStatus.PAUSED: "yellow",
    GoalStatus.COMPLETED: "green",
    GoalStatus.CANCELLED: "dim",
    GoalStatus.ARCHIVED: "dim",
}


#: the nodes of a goal by parent, in order
Tree = Mapping[str, Sequence[Node]]


class PlanRow(Struct, frozen=True):
    """A plan item as a screen draws it."""

    node: Node
    #: the tree lines in front of it
    indent: str
    #: 0 for a phase
    depth: int
    mark: str
    #: its progress or status, its worker, its blocker or open dependencies
    end: Line


def plan_tree(view: GoalView, percent: Mapping[str, int], width: int) -> list[Line]:
    """The goal, its progress, and every node with status, worker, blocker or dependencies.

    `percent`: by node id, and of the goal under "". Lines fit into `width` cells.
    """
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    tree = children_of(view.nodes)
    lines = [_title(view, width), _progress(tree, percent.get("", 0))]
    if not view.nodes:
        lines.append((("no plan yet", "dim"),))
    lines += [_row(row, width) for row in plan_rows(view, percent)]
    return [_fitted(line, width) for line in lines]


def plan_rows(view: GoalView, percent: Mapping[str, int]) -> list[PlanRow]:
    """Every node of a plan, parents first."""
    tree, owners = children_of(view.nodes), owners_of(view)
    return [
        PlanRow(
            node,
            indent,
            depth,
            MARKS[node.status],
            tuple(_end(view, tree, owners.get(node.node_id), percent, node)),
        )
        for node, indent, depth in _branches(tree, "", "", 0)
    ]


def _title(view: GoalView, width: int) -> Line:
    goal = view.goal
    about = f"  {goal.goal_id}" + (f"  {goal.priority}" if goal.priority != "normal" else "")
    badge = f"[{goal.status}]"
    title = shortened(printable(goal.title), max(12, width - cells(about) - cells(badge) - 2))
    return (title, "bold"), ("  ", ""), (badge, _GOAL_STYLES[goal.status]), (about, "dim")


def _progress(tree: Tree, percent: int) -> Line:
    full = BAR_CELLS * max(0, min(percent, 100)) // 100
    counts = Counter(leaf.status for leaf in _leaves(tree))
    said = ", ".join(f"{counts[status]} {status}" for status in NodeStatus if status in counts)
    return ("█" * full, "green"), ("░" * (BAR_CELLS - full), "dim"), (f" {percent:3d}%  ", "bold"), (said, "")


def _leaves(tree: Tree) -> list[Node]:
    return [node for node in walk(tree) if node.node_id not in tree]


def _branches(tree: Tree, parent: str, indent: str, depth: int) -> Iterator[tuple[Node, str, int]]:
    """Every node below a parent, with its tree lines and its depth."""
    siblings = tree.get(parent, ())
    for node in siblings:
        last = node is siblings[-1]
        yield node, indent + ("└─ " if last else "├─ "), depth
        yield from _branches(tree, node.node_id, indent + ("   " if last else "│  "), depth + 1)


def _row(row: PlanRow, width: int) -> Line:
    """A plan item as a line; a long name is shortened before anything else."""
    node, end = row.node, row.end
    start: list[Span] = [
        (row.indent, "dim"),
        (row.mark, STYLES[node.status]),
        (f" {node.node_id} ", "dim"),
    ]
    taken = sum(cells(text) for text, _ in [*start, *end])
    name = shortened(printable(node.name), max(LEAST_NAME, width - taken))
    return (*start, (name, "bold" if node.kind is NodeKind.PHASE else ""), *end)


def _end(
    view: GoalView, tree: Tree, assignment: Assignment | None, percent: Mapping[str, int], node: Node
) -> list[Span]:
    spans: list[Span] = []
    if tree.get(node.node_id):
        spans.append((f"  {percent.get(node.node_id, 0)}%", STYLES[node.status]))
    elif node.status is not NodeStatus.TODO:
        spans.append((f"  [{node.status}]", STYLES[node.status]))
    spans += _about(view, node, assignment)
    return [*spans, ("  (set by the user)", "dim")] if node.overridden else spans


def _about(view: GoalView, node: Node, assignment: Assignment | None) -> list[Span]:
    """The worker and its status, the blocker, or open dependencies."""
    spans: list[Span] = []
    if assignment is not None:
        spans.append((f"  {owner_of(assignment)}", "bold"))
        if assignment.status in (AssignmentStatus.STALLED, AssignmentStatus.BLOCKED):
            spans.append((f" ({assignment.status})", "yellow"))
    reason = node.blocked_reason or (assignment.blocked_reason if assignment else None)
    if reason is not None and node.status is not NodeStatus.DONE:
        spans.append((f"  {printable(reason.question or reason.text)}", "red"))
    elif waits := open_waits(view, node):
        spans.append((f"  waits for {some(waits, MAX_WAITS)}", "dim"))
    return spans


def some(items: Sequence[str], most: int) -> str:
    """The first entries on one line, with a count of the others."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def open_waits(view: GoalView, node: Node) -> list[str]:
    """Open dependencies of a node that has not started."""
    if not node.status.is_waiting:
        return []
    found = [(id, view.nodes.get(id)) for id in node.depends_on]
    return [id for id, needed in found if needed is not None and needed.status is not NodeStatus.DONE]


def owners_of(view: GoalView) -> dict[str, Assignment]:
    """The open assignment of each node; the newest, if several."""
    live = [assignment for assignment in view.assignments.values() if assignment.status.is_open]
    return {a.work_node_id: a for a in sorted(live, key=lambda a: (a.created_at, a.assignment_id))}


def owner_of(assignment: Assignment) -> str:
    """The worker's name, or the pool until it is claimed."""
    return printable(worker_of(assignment.session_key) or f"pool {assignment.agent_id}")


def _fitted(line: Line, width: int) -> Line:
    fitted: list[Span] = []
    room = width
    for text, style in line:
        if room <= 0:
            break
        fitted.append((shortened(text, room), style))
        room -= cells(text)
    return tuple(fitted)


_MERMAID_STYLES = {
    NodeStatus.QUEUED: "fill:#cff,stroke:#088",
    NodeStatus.IN_PROGRESS: "fill:#cdf,stroke:#24c",
    NodeStatus.BLOCKED: "fill:#fcc,stroke:#c22",
    NodeStatus.DONE: "fill:#cfc,stroke:#282",
    NodeStatus.CANCELLED: "fill:#eee,stroke:#aaa,stroke-dasharray:4",
}


def mermaid(view: GoalView) -> str:
    """A flowchart: parents as groups, arrows from dependencies to dependents."""
    tree = children_of(view.nodes)
    names = {node.node_id: f"n{number}" for number, node in enumerate(walk(tree))}
    lines = ["flowchart LR", *_mermaid_nodes(tree, "", names, "  ")]
    for node in walk(tree):
        lines += [f"  {names[id]} --> {names[node.node_id]}" for id in node.depends_on if id in names]
    used = [status for status in _MERMAID_STYLES if any(leaf.status is status for leaf in _leaves(tree))]
    lines += [f"  classDef {status} {_MERMAID_STYLES[status]}" for status in used]
    return "\n".join(lines) + "\n"


def _mermaid_nodes(tree: Tree, parent: str, names: Mapping[str, str], indent: str) -> Iterator[str]:
    for node in tree.get(parent, ()):
        label = _mermaid_text(f"{node.node_id} {node.name}")
        if tree.get(node.node_id):
            yield f'{indent}subgraph {names[node.node_id]}["{label}"]'
            yield from _mermaid_nodes(tree, node.node_id, names, indent + "  ")
            yield f"{indent}end"
        else:
            styled = f":::{node.status}" if node.status in _MERMAID_STYLES else ""
            yield f'{indent}{names[node.node_id]}["{label}"]{styled}'


def _mermaid_text(text: str) -> str:
    """Inside quotes Mermaid only knows entities, and reads backticks as Markdown."""
    return re.sub(r'["#<>&`\\;]', lambda match: f"#{ord(match[0])};", shortened(printable(text), 60))
