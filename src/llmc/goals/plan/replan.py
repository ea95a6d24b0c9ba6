"""Replaces a plan or splits a leaf: what stays, what changes, what is removed. Pure.

If the result would not be a valid plan, the problems are returned and nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from llmc.goals.drive.words import of_node
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Crystallization,
    Event,
    Goal,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
    PlanRevision,
)
from llmc.goals.plan.plan import (
    DEFAULT_LIMITS,
    Limits,
    Plan,
    PlanNode,
    Provenance,
    Split,
    children_of,
    record_of,
    with_blocks,
)
from llmc.goals.plan.plan_check import Problem, Wait, bounded, graph_problems

#: most revisions kept with the goal; the events have all of them
MAX_REVISIONS = 100
WHY_CHARS = 1000


def change_of(
    view: GoalView,
    after: Mapping[str, Node],
    moved: Mapping[str, str],
    now: float,
    why: str,
    provenance: Provenance | None,
) -> Change:
    """The change that makes this the plan; empty if nothing differs."""
    former = {new: old for old, new in moved.items()}
    regrouped = _regrouped(view.nodes, after, former)
    nodes = {id: _reset(node, now) if id in regrouped else node for id, node in after.items()}
    same = {id: view.nodes.get(former.get(id, id)) for id in nodes}
    revision = PlanRevision(
        ts=now,
        why=why[:WHY_CHARS],
        added=tuple(id for id in nodes if same[id] is None),
        removed=tuple(id for id in view.nodes if id not in nodes and id not in moved),
        changed=tuple(id for id, node in nodes.items() if _differs(same[id], node)),
        moved=dict(moved),
    )
    if not (revision.added or revision.removed or revision.changed or moved):
        return Change()
    nodes = {id: replace(n, updated_at=now) if id in revision.changed else n for id, n in nodes.items()}
    assignments = _assignments(view, nodes, moved, now)
    events = [_plan_event(view, revision), *_restarted(view, nodes, former, now)]
    events += [event for _, event in assignments]
    return Change(
        goal=_goal(view.goal, revision, provenance, now),
        nodes=tuple(node for id, node in nodes.items() if node != view.nodes.get(id)),
        assignments=tuple(assignment for assignment, _ in assignments),
        crystallizations=tuple(_done_already(view, nodes, same, now)),
        events=tuple(events),
        removed_nodes=tuple(id for id in view.nodes if id not in nodes),
    )


def _regrouped(before: Mapping[str, Node], after: Mapping[str, Node], former: Mapping[str, str]) -> set[str]:
    """Leaves that became parents, and parents that became leaves: they are no longer in progress."""
    old, new = children_of(before), children_of(after)
    return {id for id in after if (was := former.get(id, id)) in before and (was in old) != (id in new)}


def _reset(node: Node, now: float) -> Node:
    if not node.status.is_open or node.status is NodeStatus.TODO:
        return node
    return replace(node, status=NodeStatus.TODO, blocked_reason=None, updated_at=now)


def _differs(old: Node | None, new: Node) -> bool:
    """Whether the content of a node differs; parent, position and dependents do not count."""
    if old is None:
        return False
    neutral = {"node_id": "", "position": 0, "blocks": (), "updated_at": 0.0, "parent_id": ""}
    return replace(old, **neutral) != replace(new, **neutral)


def _assignments(
    view: GoalView, after: Mapping[str, Node], moved: Mapping[str, str], now: float
) -> list[tuple[Assignment, Event]]:
    """Assignments that follow their node to a new id, and those that are cancelled."""
    found = []
    groups = children_of(after)
    for assignment in view.assignments.values():
        node_id = moved.get(assignment.work_node_id, assignment.work_node_id)
        reason = _why_over(node_id, after, groups) if assignment.status.is_open else ""
        if reason:
            found.append(_cancelled(assignment, node_id, reason, now))
        elif node_id != assignment.work_node_id:
            new = replace(assignment, work_node_id=node_id, updated_at=now)
            found.append((new, new.event("assignment.moved", now, {"from": assignment.work_node_id})))
    return found


def _why_over(node_id: str, after: Mapping[str, Node], groups: Collection[str]) -> str:
    if node_id not in after:
        return f"{node_id} is not in the new plan"
    if node_id in groups:
        return f"{node_id} was split into subtasks"
    if after[node_id].status is NodeStatus.DONE:
        return f"{node_id} is marked done in the new plan"
    return ""


def _cancelled(assignment: Assignment, node_id: str, reason: str, now: float) -> tuple[Assignment, Event]:
    new = replace(
        assignment,
        work_node_id=node_id,
        status=AssignmentStatus.CANCELLED,
        blocked_reason=None,
        expected_next_update_at=None,
        backoff_until=None,
        updated_at=now,
    )
    return new, new.event("assignment.cancelled", now, {"from": str(assignment.status), "reason": reason})


def _plan_event(view: GoalView, revision: PlanRevision) -> Event:
    """`plan.generated` for the first plan, `plan.revised` for later ones."""
    data = {
        "why": revision.why,
        "added": list(revision.added),
        "removed": list(revision.removed),
        "changed": list(revision.changed),
        "moved": revision.moved,
    }
    return view.goal.event("plan.revised" if view.nodes else "plan.generated", revision.ts, data)


def _restarted(
    view: GoalView, after: Mapping[str, Node], former: Mapping[str, str], now: float
) -> list[Event]:
    events = []
    for id, node in after.items():
        old = view.nodes.get(former.get(id, id))
        before = old.status if old is not None else NodeStatus.TODO
        if before is not node.status:
            said = "marked done in the plan" if node.status is NodeStatus.DONE else "changed in the plan"
            events.append(node.event(f"work.{node.status}", now, {"from": str(before), "reason": said}))
    return events


def _done_already(
    view: GoalView, after: Mapping[str, Node], same: Mapping[str, Node | None], now: float
) -> list[Crystallization]:
    """Summaries for items that the plan marks done."""
    return [
        of_node(f"plan:{view.goal.goal_id}:{id}:{now:.3f}", node, now, summary="Marked done in the plan.")
        for id, node in after.items()
        if node.status is NodeStatus.DONE and ((old := same[id]) is None or old.status is not NodeStatus.DONE)
    ]


def _goal(goal: Goal, revision: PlanRevision, provenance: Provenance | None, now: float) -> Goal:
    history = (*goal.plan_revision_history, revision)[-MAX_REVISIONS:]
    goal = replace(goal, updated_at=now, plan_revision_history=history)
    if provenance is None:
        return goal
    return replace(
        goal,
        planner=provenance.planner,
        planner_inputs=dict(provenance.inputs),
        raw_planner_output_json=provenance.raw_json,
        validation_errors=provenance.validation_errors,
    )


#: limits of automatic replans: time since any revision, and most revisions per day
REPLAN_EVERY_S, MAX_REPLANS_A_DAY = 1800.0, 6
_DAY_S = 86400.0


Problems = tuple[Problem, ...]


def replan_wait_s(history: Sequence[PlanRevision], now: float) -> float:
    """Seconds until the rules may replan, 0 for now; the user may at any time.

    A revision that lies in the future, because the clock was set back, counts as new.
    """
    ages = sorted(max(0.0, now - revision.ts) for revision in history)
    since_last = REPLAN_EVERY_S - ages[0] if ages else 0.0
    of_today = [age for age in ages if age < _DAY_S]
    full = _DAY_S - of_today[MAX_REPLANS_A_DAY - 1] if len(of_today) >= MAX_REPLANS_A_DAY else 0.0
    return max(0.0, since_last, full)


def current_id(goal: Goal, node_id: str) -> str:
    """The current id of a node after replans."""
    for revision in goal.plan_revision_history:
        node_id = revision.moved.get(node_id, node_id)
    return node_id


def settled_ids(view: GoalView) -> frozenset[str]:
    """Ids that stay in any new plan, and may be depended on."""
    return frozenset(id for id, node in view.nodes.items() if not node.status.is_open)


def merge_plan(
    view: GoalView,
    plan: Plan,
    now: float,
    why: str,
    provenance: Provenance | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Change | Problems:
    """Set the goal's plan, or replace it."""
    places = {node.id: (node, parent, path) for node, parent, path in plan.walk()}
    if problems := _contradictions(view, places):
        return bounded(problems)
    moved = _moved(view.nodes, places)
    if problems := _used_before(view, [id for id in places if id not in moved.values()]):
        return bounded(problems)
    after = _planned(view, places, moved, now)
    after |= _kept(view.nodes, after, moved)
    found = _arranged(after, moved, list(places))
    if problems := [*_too_many(found, limits), *_graph(found)]:
        return bounded(problems)
    return change_of(_with_goal(view, plan), found, moved, now, why, provenance)


def room_for_split(view: GoalView, leaf_id: str, limits: Limits) -> int:
    """How many subtasks a leaf may be split into; below 2 it cannot be split."""
    leaf = view.nodes.get(leaf_id)
    children = children_of(view.nodes)
    if leaf is None or not leaf.status.is_open or leaf.kind is NodeKind.PHASE or leaf_id in children:
        return 0
    if leaf.kind is NodeKind.TASK:
        return limits.subtasks
    return limits.subtasks - (len(children[leaf.parent_id]) - 1)


def split_leaf(
    view: GoalView,
    leaf_id: str,
    split: Split,
    now: float,
    why: str,
    provenance: Provenance | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Change | Problems:
    """Split a leaf: a task gets subtasks, a subtask is replaced by several."""
    if (most := room_for_split(view, leaf_id, limits)) < len(split.subtasks):
        text = f"{leaf_id} cannot be split into {len(split.subtasks)} subtasks; at most {most} are allowed"
        return (Problem("$.subtasks", text, False),)
    if problems := _used_before(view, [part.id for part in split.subtasks]):
        return bounded(problems)
    leaf = view.nodes[leaf_id]
    parts = [record_of(part, leaf.goal_id, _parent_of_parts(leaf), 0, now) for part in split.subtasks]
    after = dict(view.nodes)
    if leaf.kind is NodeKind.SUBTASK:
        del after[leaf_id]
        names = tuple(part.node_id for part in parts)
        after = {id: _waiting_for(node, leaf_id, names) for id, node in after.items()}
        parts = [replace(part, depends_on=_union(leaf.depends_on, part.depends_on)) for part in parts]
    order = _order_with(view, leaf, [part.node_id for part in parts])
    found = _arranged(after | {part.node_id: part for part in parts}, {}, order)
    if problems := [*_too_many(found, limits), *_graph(found)]:
        return bounded(problems)
    return change_of(view, found, {}, now, why, provenance)


def _parent_of_parts(leaf: Node) -> str:
    return leaf.node_id if leaf.kind is NodeKind.TASK else leaf.parent_id


def _waiting_for(node: Node, gone: str, instead: tuple[str, ...]) -> Node:
    if gone not in node.depends_on:
        return node
    return replace(node, depends_on=_union((id for id in node.depends_on if id != gone), instead))


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))


def _order_with(view: GoalView, leaf: Node, parts: list[str]) -> list[str]:
    """Ids in order, with the new subtasks in the leaf's position."""
    ordered = sorted(view.nodes.values(), key=lambda node: node.position)
    return [id for node in ordered for id in (parts if node.node_id == leaf.node_id else [node.node_id])]


#: by id: the node, its parent's id, and its path
_Places = Mapping[str, tuple[PlanNode, str, str]]


def _contradictions(view: GoalView, places: _Places) -> list[Problem]:
    """Ids whose kind changes, and additions to finished items."""
    problems = []
    for id, (node, parent, path) in places.items():
        old = view.nodes.get(id)
        if old is not None and old.kind is not node.kind:
            problems.append(Problem(f"{path}.id", f"{id} is already a {old.kind} in the plan", False))
        above = view.nodes.get(parent)
        if old is None and above is not None and not above.status.is_open:
            text = f"{parent} is {above.status}; new work cannot be added to it"
            problems.append(Problem(path, text, False))
    return problems


def _used_before(view: GoalView, ids: Iterable[str]) -> list[Problem]:
    """Problems with new items that use a renamed node's former id, which still means that node."""
    now = {id: current_id(view.goal, id) for id in ids if id not in view.nodes}
    return [
        Problem("$", f"id {id} was already used for {other}; use a new id for new work", False)
        for id, other in now.items()
        if other != id
    ]


def _moved(old: Mapping[str, Node], places: _Places) -> dict[str, str]:
    """Nodes that unambiguously got a new id: same kind and name."""
    gone = [(_sameness(n.kind, n.name), id) for id, n in old.items() if id not in places and n.status.is_open]
    new = [(_sameness(n.kind, n.name), id) for id, (n, _, _) in places.items() if id not in old]
    return {
        was: next(id for same, id in new if same == key)
        for key, was in gone
        if [same for same, _ in gone].count(key) == 1 == [same for same, _ in new].count(key)
    }


def _sameness(kind: NodeKind, name: str) -> tuple[str, str]:
    return str(kind), " ".join(name.casefold().split())


def _planned(view: GoalView, places: _Places, moved: Mapping[str, str], now: float) -> dict[str, Node]:
    """The nodes of the new plan: finished ones unchanged, open ones with their status, and new ones."""
    former = {new: old for old, new in moved.items()}
    found: dict[str, Node] = {}
    for id, (node, parent, _) in places.items():
        old = view.nodes.get(former.get(id, id))
        new = record_of(node, view.goal.goal_id, parent, 0, now)
        if old is None:
            found[id] = new
        elif not old.status.is_open:
            found[id] = old
        else:
            found[id] = _going_on(old, new, now)
    return found


def _going_on(old: Node, new: Node, now: float) -> Node:
    """The new content of a node, with its current status."""
    if new.status is NodeStatus.DONE:
        return replace(new, created_at=old.created_at, started_at=old.started_at, updated_at=now)
    return replace(
        new,
        status=old.status,
        overridden=old.overridden,
        blocked_reason=old.blocked_reason,
        word=old.word,
        # the user's settings stay unless the new plan has its own
        recovery_policy=new.recovery_policy or old.recovery_policy,
        idle_after_ms=new.idle_after_ms or old.idle_after_ms,
        created_at=old.created_at,
        updated_at=old.updated_at,
        started_at=old.started_at,
        ended_at=old.ended_at,
    )


def _kept(old: Mapping[str, Node], after: Mapping[str, Node], moved: Mapping[str, str]) -> dict[str, Node]:
    """Finished nodes that the new plan does not list, and their parents."""
    kept: dict[str, Node] = {}
    for settled in old.values():
        node: Node | None = settled if not settled.status.is_open else None
        while node is not None:
            if node.node_id not in after and node.node_id not in moved:
                kept[node.node_id] = node
            node = old.get(node.parent_id)
    return kept


def _arranged(after: Mapping[str, Node], moved: Mapping[str, str], order: list[str]) -> dict[str, Node]:
    """The nodes with new ids in parents and dependencies, and with positions and `blocks`."""
    rank = {id: place for place, id in enumerate(order)}
    tidy = []
    for node in after.values():
        parent = moved.get(node.parent_id, node.parent_id)
        deps = [moved.get(id, id) for id in node.depends_on]
        if not node.status.is_open or node.node_id not in rank:  # its dependencies may no longer exist
            deps = [id for id in deps if id in after]
        tidy.append(replace(node, parent_id=parent, depends_on=tuple(dict.fromkeys(deps))))
    # items that only the old plan had come first
    tidy.sort(key=lambda node: (rank.get(node.node_id, -1), node.position, node.node_id))
    seen: dict[str, int] = {}
    placed = []
    for node in tidy:
        position = seen.get(node.parent_id, 0)
        seen[node.parent_id] = position + 1
        placed.append(replace(node, position=position))
    return {node.node_id: node for node in with_blocks(placed)}


def _too_many(found: Mapping[str, Node], limits: Limits) -> list[Problem]:
    """The limits apply to the resulting plan, finished items included."""
    most = {NodeKind.PHASE: limits.phases, NodeKind.TASK: limits.tasks, NodeKind.SUBTASK: limits.subtasks}
    families: dict[tuple[str, NodeKind], list[Node]] = {}
    for node in found.values():
        families.setdefault((node.parent_id, node.kind), []).append(node)
    problems = []
    for (parent, kind), family in families.items():
        if len(family) > most[kind]:
            stays = sum(not node.status.is_open for node in family)
            where = parent or "the goal"
            text = f"{where} would have {len(family)} {kind}s ({stays} finished); at most {most[kind]} are allowed"
            problems.append(Problem("$", text, False))
    return problems


def _graph(found: Mapping[str, Node]) -> list[Problem]:
    return graph_problems([Wait(n.node_id, n.parent_id, n.depends_on, n.node_id) for n in found.values()])


def _with_goal(view: GoalView, plan: Plan) -> GoalView:
    """The goal, filled in from the plan where the user left it open; success criteria of both are kept.

    A later plan adds no criteria, since the user may have removed some.
    """
    goal = view.goal
    both = tuple(dict.fromkeys([*goal.success_criteria, *plan.success_criteria]))
    goal = replace(
        goal,
        success_criteria=goal.success_criteria if view.nodes and goal.success_criteria else both,
        constraints=goal.constraints or plan.constraints,
        problem_statement=goal.problem_statement or plan.problem_statement,
    )
    return GoalView(goal, view.nodes, view.assignments)
