"""Whether a text is a plan: JSON alone, of the right shape, within the limits, and a graph without circles. Pure.

Every problem is listed, each with its JSON path: a planner is told all of them at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from llmc.goals.model import NodeKind, Recovery
from llmc.goals.plan.plan import Limits, Plan, PlanNode, Split
from llmc.goals.plan.plan_graph import Wait, graph_problems
from llmc.goals.plan.plan_schema import plan_schema, split_schema
from llmc.goals.plan.strict_json import Problem, bounded, parse, shape_problems

Problems = tuple[Problem, ...]

_BELOW = {NodeKind.PHASE: "tasks", NodeKind.TASK: "subtasks"}
_KINDS = {"phases": NodeKind.PHASE, "tasks": NodeKind.TASK, "subtasks": NodeKind.SUBTASK}


def check_plan(text: str, limits: Limits, elsewhere: Iterable[str] = ()) -> Plan | Problems:
    """The plan that a text is, or everything that is wrong with it.

    `elsewhere`: ids of finished work that stays whatever the plan says, and may be waited for.
    """
    value, problems = parse(text)
    if value is None and problems:
        return bounded(problems)
    found = check_value(value, limits, elsewhere)
    if isinstance(found, Plan) and not problems:
        return found
    return bounded([*problems, *(() if isinstance(found, Plan) else found)])


def check_value(value: Any, limits: Limits, elsewhere: Iterable[str] = ()) -> Plan | Problems:
    """The same for JSON that has been read already."""
    value = completed(value)
    problems = shape_problems(value, plan_schema(limits))
    problems += graph_problems([*_waits(value, "phases", "$", "")], frozenset(elsewhere))
    problems += _of_groups(value)
    return bounded(problems) if problems else _plan(value)


def check_split(text: str, most: int, elsewhere: Iterable[str]) -> Split | Problems:
    """The subtasks that a leaf is to become, or everything that is wrong with them.

    `elsewhere`: the ids of the plan. They may be waited for, and must not be used again.
    """
    value, problems = parse(text)
    if value is None and problems:
        return bounded(problems)
    taken = frozenset(elsewhere)
    value = _each(value, "subtasks", _completed_subtask)
    problems += shape_problems(value, split_schema(most))
    waits = [*_waits(value, "subtasks", "$", "")]
    problems += graph_problems(waits, taken)
    problems += [
        Problem(f"{wait.path}.id", f"the plan has a {wait.id} already", of_shape=False)
        for wait in waits
        if wait.id in taken
    ]
    return bounded(problems) if problems else Split(_nodes(value, "subtasks"))


def completed(value: Any) -> Any:
    """The plan with the two things that the document's own example leaves out, though it demands them.

    A phase without criteria is accepted when its tasks are; the objective of a subtask is its name. Nothing else is
    filled in, and what is no plan stays as it is.
    """
    return _each(value, "phases", _completed_phase)


def _completed_phase(phase: dict[str, Any]) -> dict[str, Any]:
    phase = {"acceptance": ["All its tasks are done."], **phase}
    full: dict[str, Any] = _each(phase, "tasks", lambda task: _each(task, "subtasks", _completed_subtask))
    return full


def _completed_subtask(subtask: dict[str, Any]) -> dict[str, Any]:
    said = "objective" in subtask or "outcome" in subtask or "name" not in subtask
    return subtask if said else {**subtask, "objective": subtask["name"]}


def _each(holder: Any, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if not isinstance(holder, dict) or not isinstance(holder.get(key), list):
        return holder
    return {**holder, key: [change(one) if isinstance(one, dict) else one for one in holder[key]]}


def _waits(holder: Any, key: str, path: str, parent: str) -> Iterator[Wait]:
    """The graph of whatever has the shape of one, so that its problems are listed beside those of the shape."""
    children = holder.get(key) if isinstance(holder, dict) else None
    for index, node in enumerate(children if isinstance(children, list) else ()):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str):
            continue
        here = f"{path}.{key}[{index}]"
        deps = node.get("deps")
        texts = [dep for dep in deps if isinstance(dep, str)] if isinstance(deps, list) else []
        yield Wait(node["id"], parent, tuple(dict.fromkeys(texts)), here)
        if below := _BELOW.get(_KINDS[key]):
            yield from _waits(node, below, here, node["id"])


#: what only a leaf can have, and why
_OF_LEAVES = {
    "verify": "a task with subtasks is not verified itself; its subtasks are",
    "recoveryPolicy": "nobody works on a task with subtasks itself; say it of its subtasks",
    "idleAfter": "nobody works on a task with subtasks itself; say it of its subtasks",
}


def _of_groups(value: Any) -> list[Problem]:
    """Only what is dispatched is driven and lands, and only what lands is verified."""
    return [
        Problem(f"$.phases[{p}].tasks[{t}].{key}", why, False)
        for p, phase in enumerate(_list(value, "phases"))
        for t, task in enumerate(_list(phase, "tasks"))
        for key, why in _OF_LEAVES.items()
        if _list(task, "subtasks") and key in task
    ]


def _list(holder: Any, key: str) -> list[Any]:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []


def _plan(value: dict[str, Any]) -> Plan:
    goal = value["goal"]
    return Plan(
        title=goal["title"].strip(),
        success_criteria=tuple(goal["successCriteria"]),
        constraints=tuple(goal["constraints"]),
        phases=_nodes(value, "phases"),
    )


def _nodes(holder: dict[str, Any], key: str) -> tuple[PlanNode, ...]:
    kind = _KINDS[key]
    return tuple(
        PlanNode(
            id=node["id"],
            kind=kind,
            name=node["name"].strip(),
            objective=node.get("objective", ""),
            outcome=node.get("outcome", ""),
            acceptance=tuple(node["acceptance"]),
            deps=tuple(node.get("deps", ())),
            children=_nodes(node, _BELOW[kind]) if kind in _BELOW else (),
            definition_of_done=node.get("definitionOfDone", ""),
            suggested_agent_id=node.get("suggestedAgentId", ""),
            suggested_agent_type=node.get("suggestedAgentType", ""),
            required_tools=tuple(node.get("requiredTools", ())),
            estimated_effort=node.get("estimatedEffort", ""),
            risk_level=node.get("riskLevel", ""),
            verify=node.get("verify", ""),
            recovery=Recovery(node["recoveryPolicy"]) if "recoveryPolicy" in node else None,
            idle_after_ms=_milliseconds(node["idleAfter"]) if "idleAfter" in node else None,
        )
        for node in holder.get(key, ())
    )


def _milliseconds(text: str) -> int:
    """`90s`, `30m` or `2h`, as the schema has it."""
    return int(text[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000}[text[-1]]
