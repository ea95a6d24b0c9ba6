"""Plans for tests: random valid ones, and an independent implementation of JSON Schema."""

import re
from typing import Any

from hypothesis import strategies as st

from llmc.goals.model import Node
from llmc.goals.plan.plan import Plan, record_of, with_blocks

Json = dict[str, Any]


def node(id: str, **more: Any) -> Json:
    return {"id": id, "name": f"Name of {id}", "objective": "Do it", "acceptance": ["It works"], **more}


def plan(*phases: Json, **goal: Any) -> Json:
    return {
        "planVersion": 1,
        "goal": {"title": "Ship it", "successCriteria": ["It ships"], "constraints": [], **goal},
        "phases": list(phases),
    }


def nodes_of(plan: Plan, goal_id: str, now: float) -> tuple[Node, ...]:
    """A plan as its stored records."""
    families = [("", plan.phases), *((node.id, node.children) for node, *_ in plan.walk())]
    found = [
        record_of(node, goal_id, parent, position, now)
        for parent, siblings in families
        for position, node in enumerate(siblings)
    ]
    return with_blocks(found)


def small_plan() -> Json:
    """Two phases; the first has a task with two subtasks and one without."""
    parts = [node("S1.1.1"), node("S1.1.2", deps=["S1.1.1"], verify="make check")]
    first = node("P1", tasks=[node("T1.1", subtasks=parts), node("T1.2", deps=["T1.1"])])
    return plan(first, node("P2", deps=["P1"], tasks=[node("T2.1", riskLevel="high")]))


@st.composite
def plans(draw: st.DrawFn, most: int = 3) -> Json:
    """A plan in which every item waits only for earlier ones."""
    earlier: list[str] = []  # groups and leaves that are complete

    def made(kind: str, place: str) -> Json:
        deps = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        found = node(f"{kind}{place}", deps=deps)
        below = {"P": ("T", "tasks", 1), "T": ("S", "subtasks", 0)}.get(kind)
        if below:
            children, key, least = below
            count = draw(st.integers(least, most))
            found[key] = [made(children, f"{place}.{n}") for n in range(1, count + 1)]
        earlier.append(found["id"])
        return found

    return plan(*(made("P", str(n)) for n in range(1, draw(st.integers(1, most)) + 1)))


def all_nodes(value: Json) -> list[tuple[Json, list[str]]]:
    """Every node, with the ids of its ancestors."""
    found: list[tuple[Json, list[str]]] = []

    def walk(items: list[Json], above: list[str]) -> None:
        for item in items:
            found.append((item, above))
            walk([*item.get("tasks", []), *item.get("subtasks", [])], [*above, item["id"]])

    walk(value["phases"], [])
    return found


def leaf_graph(value: Json) -> dict[str, set[str]]:
    """Which leaf waits for which, spelled out."""
    nodes = all_nodes(value)
    leaves = [item["id"] for item, _ in nodes if not item.get("tasks") and not item.get("subtasks")]
    above = {item["id"]: [*ids, item["id"]] for item, ids in nodes}
    below = {item["id"]: [leaf for leaf in leaves if item["id"] in above[leaf]] for item, _ in nodes}
    waits: dict[str, set[str]] = {leaf: set() for leaf in leaves}
    for item, _ in nodes:
        for needed in item.get("deps", []):
            for leaf in below[item["id"]]:
                waits[leaf].update(below[needed])
    return waits


def has_circle(waits: dict[str, set[str]]) -> bool:
    """Whether something is left after repeatedly removing what waits for nothing."""
    left = {id: set(needed) for id, needed in waits.items()}
    while free := [id for id, needed in left.items() if not needed & left.keys()]:
        for id in free:
            del left[id]
    return bool(left)


def fits(value: Any, schema: Json) -> bool:
    """Whether a value fits a schema, according to the JSON Schema specification."""
    types = {"object": dict, "array": list, "string": str, "boolean": bool}
    kind = schema.get("type")
    if kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            return False
    elif kind and not isinstance(value, types[kind]):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        long_enough = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)
        return long_enough and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
    if isinstance(value, list):
        unique = not schema.get("uniqueItems") or all(
            value[i] != value[j] for i in range(len(value)) for j in range(i)
        )
        sized = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9)
        return unique and sized and all(fits(item, schema.get("items", {})) for item in value)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False and not value.keys() <= properties.keys()
        missing = not set(schema.get("required", ())) <= value.keys()
        unchosen = "anyOf" in schema and not any(fits(value, option) for option in schema["anyOf"])
        return not (closed or missing or unchosen) and all(
            fits(item, properties[key]) for key, item in value.items() if key in properties
        )
    return True
