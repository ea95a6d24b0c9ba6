"""What of a plan could begin now, what waits for what, and what keeps the most from beginning. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from llmc.goals.model import GoalView, Node, NodeStatus
from llmc.goals.plan.shape import Shape, is_closed, is_ready, shape_of


class Waits(Struct, frozen=True):
    """The open leaves of a plan, in its order."""

    #: could be worked on, and nobody has them yet
    ready: tuple[str, ...]
    #: of each leaf that cannot begin: what it waits for, as the plan names it
    waiting: Mapping[str, tuple[str, ...]]
    #: of each open leaf that others wait for, directly or not: how many those are; the most first
    holds_up: Mapping[str, int]


def waits_of(view: GoalView) -> Waits:
    shape, nodes = shape_of(view.nodes), view.nodes
    open_ = [leaf for leaf in shape.leaves if not is_closed(leaf, nodes, shape)]
    needs = {leaf: _open_needs(leaf, nodes, shape) for leaf in open_}
    idle = (NodeStatus.TODO, NodeStatus.QUEUED)
    return Waits(
        ready=tuple(leaf for leaf in open_ if nodes[leaf].status in idle and is_ready(leaf, nodes, shape)),
        waiting={leaf: wanted for leaf, wanted in needs.items() if wanted},
        holds_up=_holds_up(needs, shape, set(open_)),
    )


def held_up_by(view: GoalView, node_id: str) -> int:
    """How many open leaves wait for a part of the plan, directly or not."""
    shape = shape_of(view.nodes)
    found = waits_of(view).holds_up
    return max((found.get(leaf, 0) for leaf in shape.leaves_below(node_id)), default=0)


def _open_needs(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> tuple[str, ...]:
    return tuple(dep for dep in shape.needs[leaf] if not is_closed(dep, nodes, shape))


def _holds_up(needs: Mapping[str, tuple[str, ...]], shape: Shape, open_: set[str]) -> dict[str, int]:
    """Who waits for each leaf in the end; a part of the plan is waited for in all its open leaves."""
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
