"""Whether a text is a plan: JSON alone, of the right shape, within the limits, and a graph without circles. Pure.

A schema is the single source of a shape: the same dict goes to `claude -p --json-schema`. Only the keywords that
are used here are known; another one is a fault of ours, and raises.

What no schema can say (ids that are known, no cycles) is in `plan_graph.py`.

A node that waits for a phase or a task waits for every leaf of it. Leaves may be many, so the circles are looked for
among beginnings and ends: a group begins before its parts and ends after them, a leaf begins and ends at once.

Every problem is listed, each with its JSON path: a planner is told all of them at once.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from msgspec import Struct

from llmc.base.text import closest
from llmc.goals.model import NodeKind, Recovery
from llmc.goals.plan.plan import Limits, Plan, PlanNode, RiskLevel, Split

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


def json_lines(text: str) -> dict[str, int]:
    """The line in which each path of a JSON text begins; nothing where it is no JSON."""
    found: dict[str, int] = {"$": 1}
    stack: list[tuple[str, str | int]] = []  # the path of each open container, and the key or index within it
    line = 1
    path = "$"
    wants_key = False
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "{[":
            found.setdefault(path, line)
            stack.append((path, 0 if token == "[" else ""))
            wants_key = token == "{"
            path = f"{path}[0]" if token == "[" else path
        elif token in "}]":
            if not stack:
                return found
            stack.pop()
            wants_key = False
        elif token == "," and stack:
            base, at = stack[-1]
            wants_key = not isinstance(at, int)
            if isinstance(at, int):
                stack[-1] = (base, at + 1)
                path = f"{base}[{at + 1}]"
        elif token == ":":
            wants_key = False
        elif wants_key and stack:
            path = f"{stack[-1][0]}.{token[1:-1]}"
            found.setdefault(path, line)
        else:
            found.setdefault(path, line)
    return found


#: a longer answer is not read at all
MAX_CHARS = 1_000_000
#: of this many problems the rest is only counted
MAX_PROBLEMS = 100

Schema = Mapping[str, Any]


class Problem(Struct, frozen=True):
    """One thing that is wrong: where, as a JSON path, and what."""

    path: str
    text: str
    #: a schema alone would have found it
    of_shape: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class _Pairs:
    """Makes objects, and remembers the keys that came twice in one."""

    def __init__(self) -> None:
        self.twice: list[str] = []

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                self.twice.append(key)
            made[key] = value
        return made


def parse(text: str) -> tuple[Any, list[Problem]]:
    """The value, and why it is not JSON alone; with a problem at "$" there is no value."""
    if len(text) > MAX_CHARS:
        return None, [Problem("$", f"{len(text)} characters; at most {MAX_CHARS} are read", of_shape=False)]
    pairs = _Pairs()
    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return None, [Problem("$", _not_json(text, error), of_shape=False)]
    except (ValueError, RecursionError) as error:
        return None, [Problem("$", f"not JSON: {str(error)[:200]}", of_shape=False)]
    return value, [
        Problem("$", f"the key {_shown(key)} comes twice in one object", of_shape=False)
        for key in pairs.twice
    ]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno}, column {error.colno}"
    if text.lstrip().startswith("```"):
        return "it is wrapped in a Markdown fence; JSON alone is wanted"
    if not text.strip():
        return "it is empty"
    if not text.lstrip().startswith(("{", "[")):
        return "it begins with text; JSON alone is wanted"
    if error.msg == "Extra data":
        return f"something follows the JSON ({place}); JSON alone is wanted"
    return f"not JSON: {error.msg} ({place})"


def shape_problems(value: Any, schema: Schema, path: str = "$") -> list[Problem]:
    """Everything in which a value differs from a schema, in the order of the value."""
    return [*_problems(value, schema, path)]


def bounded(problems: list[Problem]) -> tuple[Problem, ...]:
    """At most so many, and how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    rest = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], Problem("$", f"and {rest} more problems"))


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
}
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_KNOWN = {
    *("type", "const", "enum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"),
    *("items", "properties", "required", "additionalProperties", "anyOf", "description"),
}


def _problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if unknown := schema.keys() - _KNOWN:
        raise ValueError(f"no such keyword of a schema: {', '.join(sorted(unknown))}")
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield Problem(path, f"must be {_named(kind)}, is {_of(value)}")
    elif "const" in schema and value != schema["const"]:
        yield Problem(path, f"must be {_shown(schema['const'])}, is {_shown(value)}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}, is {_shown(value)}")
    elif isinstance(value, str):
        yield from _of_text(value, schema, path)
    elif isinstance(value, list):
        yield from _of_array(value, schema, path)
    elif isinstance(value, dict):
        yield from _of_object(value, schema, path)


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":  # JSON has one kind of number: 1.0 is 1
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return isinstance(value, _TYPES[kind])


def _named(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _of(value: Any) -> str:
    return _NAMES.get(type(value), "a number")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _of_text(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        yield Problem(path, f"{len(value)} characters, at most {longest} are allowed")
    elif len(value) < schema.get("minLength", 0):
        yield Problem(path, "must not be empty")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        what = "must not be blank" if not value.strip() else f"{_shown(value)} does not fit"
        yield Problem(path, f"{what}: {schema['description']}" if "description" in schema else what)
    if any("\ud800" <= char <= "\udfff" for char in value):
        yield Problem(path, "half a character (a lone surrogate)", of_shape=False)


def _of_array(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    most = schema.get("maxItems")
    if most is not None and len(value) > most:
        yield Problem(path, f"{len(value)} entries, at most {most} are allowed")
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, "must not be empty")
    if schema.get("uniqueItems"):
        seen: list[Any] = []
        for item in value:
            if item in seen:
                yield Problem(path, f"{_shown(item)} comes twice")
            seen.append(item)
    for index, item in enumerate(value):
        yield from _problems(item, schema.get("items", {}), f"{path}[{index}]")


def _of_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Problem]:
    properties: Schema = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield Problem(path, f"`{key}` is missing")
    choices = [option["required"] for option in schema.get("anyOf", ())]
    if choices and not any(all(key in value for key in choice) for choice in choices):
        yield Problem(path, f"{' or '.join(f'`{key}`' for choice in choices for key in choice)} is missing")
    for key, item in value.items():
        if key in properties:
            yield from _problems(item, properties[key], f"{path}.{key}")
        elif schema.get("additionalProperties") is False:
            near = closest(key, properties)
            yield Problem(path, f"unknown key {_shown(key)}" + (f"; did you mean `{near}`?" if near else ""))


#: longer texts are refused, not cut
NAME_CHARS, TEXT_CHARS, LINE_CHARS = 120, 4000, 1000
#: so many criteria, constraints, dependencies or tools
MAX_LIST = 50

PlanSchema = dict[str, Any]

_ID = {
    "type": "string",
    "maxLength": 40,
    "pattern": "^[A-Za-z][A-Za-z0-9_.-]*(?![\\n])$",
    "description": "an id begins with a letter, then letters, digits, `.`, `_` and `-`",
}
_NAME = {
    "type": "string",
    "maxLength": NAME_CHARS,
    "pattern": "^[^\\r\\n]*[^ \\t\\r\\n][^\\r\\n]*(?![\\n])$",
    "description": "one line",
}
_TEXT = {"type": "string", "maxLength": TEXT_CHARS, "pattern": "[^ \\t\\r\\n]"}
_LINE = {"type": "string", "maxLength": LINE_CHARS, "pattern": "[^ \\t\\r\\n]"}
#: of what somebody is given to work on: its check, the first step when nothing moves, and how long it may be silent
_LEAF_FIELDS = {
    "verify": _LINE,
    "recoveryPolicy": {"type": "string", "enum": [str(step) for step in Recovery]},
    "idleAfter": {
        "type": "string",
        "pattern": "^[1-9][0-9]{0,5}[smh](?![\\n])$",
        "description": "a time such as 90s, 30m or 2h",
    },
}


def plan_schema(limits: Limits) -> PlanSchema:
    """A whole plan."""
    goal = {"title": {**_NAME, "maxLength": 200}, "successCriteria": _lines(), "constraints": _lines()}
    phases = {"type": "array", "minItems": 1, "maxItems": limits.phases, "items": _phase(limits)}
    return _object(
        {
            "planVersion": {"type": "integer", "const": 1},
            "goal": _object(goal, tuple(goal)),
            "phases": phases,
        },
        ("planVersion", "goal", "phases"),
    )


def split_schema(most: int) -> PlanSchema:
    """A leaf that is too large, as subtasks: at least two, or nothing was split."""
    subtasks = {"type": "array", "minItems": 2, "maxItems": most, "items": _subtask()}
    return _object(
        {"planVersion": {"type": "integer", "const": 1}, "subtasks": subtasks}, ("planVersion", "subtasks")
    )


def _phase(limits: Limits) -> PlanSchema:
    tasks = {"type": "array", "minItems": 1, "maxItems": limits.tasks, "items": _task(limits)}
    return _node({"tasks": tasks}, ("tasks",))


def _task(limits: Limits) -> PlanSchema:
    subtasks = {"type": "array", "maxItems": limits.subtasks, "items": _subtask()}
    return _node({"subtasks": subtasks, **_LEAF_FIELDS}, ())


def _subtask() -> PlanSchema:
    return _node(_LEAF_FIELDS, ())


def _node(more: PlanSchema, required: tuple[str, ...]) -> PlanSchema:
    properties = {
        "id": _ID,
        "name": _NAME,
        "objective": _TEXT,
        "outcome": _TEXT,
        "acceptance": {**_lines(), "minItems": 1},
        "deps": {"type": "array", "maxItems": MAX_LIST, "uniqueItems": True, "items": _ID},
        "definitionOfDone": _TEXT,
        "suggestedAgentId": _NAME,
        "suggestedAgentType": _NAME,
        "requiredTools": {"type": "array", "maxItems": MAX_LIST, "items": _NAME},
        "estimatedEffort": _NAME,
        "riskLevel": {"type": "string", "enum": [str(level) for level in RiskLevel]},
        **more,
    }
    either = [{"required": ["objective"]}, {"required": ["outcome"]}]
    return {**_object(properties, ("id", "name", "acceptance", *required)), "anyOf": either}


def _lines() -> PlanSchema:
    return {"type": "array", "maxItems": MAX_LIST, "items": _LINE}


def _object(properties: PlanSchema, required: tuple[str, ...]) -> PlanSchema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


#: so many circles are named
MAX_CYCLES = 20

#: the beginning (False) or the end (True) of a node
_Moment = tuple[str, bool]


class Wait(Struct, frozen=True):
    """What the graph has to know of one node."""

    id: str
    parent: str
    deps: tuple[str, ...]
    #: where it stands, for problems
    path: str


def graph_problems(waits: Sequence[Wait], elsewhere: frozenset[str] = frozenset()) -> list[Problem]:
    """Ids that come twice, dependencies that nobody knows or that are part of the node, and circles.

    `elsewhere`: ids that exist besides these, and may be waited for.
    """
    first: dict[str, Wait] = {}
    problems: list[Problem] = []
    # A node without an id is a problem of its shape; "" is also what is no part of anything.
    waits = [wait for wait in waits if wait.id]
    for wait in waits:
        if wait.id in first:
            text = f"the id {wait.id} is in {first[wait.id].path} already"
            problems.append(_sense(f"{wait.path}.id", text))
        first.setdefault(wait.id, wait)
    for wait in waits:
        problems += _of_deps(wait, first, elsewhere)
    return problems or _cycles(first)


def _sense(path: str, text: str) -> Problem:
    return Problem(path, text, of_shape=False)


def _of_deps(wait: Wait, known: Mapping[str, Wait], elsewhere: frozenset[str]) -> list[Problem]:
    problems = []
    for index, needed in enumerate(wait.deps):
        path = f"{wait.path}.deps[{index}]"
        if needed == wait.id:
            problems.append(_sense(path, f"{wait.id} cannot wait for itself"))
        elif needed not in known:
            if needed not in elsewhere:
                problems.append(_sense(path, f"no phase, task or subtask has the id {needed}"))
        elif needed in _ancestors(wait, known):
            problems.append(_sense(path, f"{wait.id} is part of {needed}, and cannot wait for it"))
        elif wait.id in _ancestors(known[needed], known):
            problems.append(_sense(path, f"{needed} is part of {wait.id}, which cannot wait for it"))
    return problems


def _ancestors(wait: Wait, known: Mapping[str, Wait]) -> list[str]:
    found: list[str] = []
    while wait.parent in known and wait.parent not in found:
        found.append(wait.parent)
        wait = known[wait.parent]
    return found


def _cycles(known: Mapping[str, Wait]) -> list[Problem]:
    """One problem for each circle; a circle is opened where it was found, to see the next one."""
    parents = {wait.parent for wait in known.values()}
    leaves = {id for id in known if id not in parents}
    before = _moments(known, leaves)
    problems: list[Problem] = []
    while len(problems) < MAX_CYCLES:
        try:
            TopologicalSorter(before).prepare()
            break
        except CycleError as error:
            circle: list[_Moment] = error.args[1]  # each is before the next, the first is the last
        path, opened = _kind_named(circle, known, leaves)
        problems.append(_sense(f"{known[opened[0]].path}.deps", f"a circle: {path}"))
        del before[(opened[0], False)][(opened[1], opened[1] not in leaves)]
    return problems


#: what has to come before each moment; dicts, so that the same plan has its problems in the same order
_Before = dict[_Moment, dict[_Moment, None]]


def _moments(known: Mapping[str, Wait], leaves: set[str]) -> _Before:
    before: _Before = {}
    for id, wait in known.items():
        begun = before.setdefault((id, False), {})
        begun |= {(needed, needed not in leaves): None for needed in wait.deps if needed in known}
        if wait.parent in known:
            begun[(wait.parent, False)] = None
            before.setdefault((wait.parent, True), {})[(id, id not in leaves)] = None
    return before


def _kind_named(
    circle: Sequence[_Moment], known: Mapping[str, Wait], leaves: set[str]
) -> tuple[str, tuple[str, str]]:
    """The circle as leaves that wait for each other, and one dependency of it."""
    opened = next(
        (later[0], earlier[0])
        for earlier, later in pairwise(circle)
        if not later[1] and earlier[0] in known[later[0]].deps
    )
    around = [id for id, _ in circle[:-1] if id in leaves][::-1]
    turn = around.index(min(around))
    around = around[turn:] + around[:turn]
    return " waits for ".join([*around, around[0]]), opened


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
