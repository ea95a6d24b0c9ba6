"""Checks plans: valid JSON, the right shape, within the limits, and no dependency cycles. Pure.

One schema defines the shape; the same dict goes to `claude -p --json-schema`. An unknown schema keyword raises.

A node that depends on a phase or a task depends on all of its leaves. To keep the graph small, the search for
cycles uses starts and ends: a parent starts before its children and ends after them; a leaf starts and ends at once.

All problems are returned, each with its JSON path, so that a planner can fix them in one go.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base.text import closest
from llmc.goals.drive.moves import bare
from llmc.goals.model import NodeKind, Recovery
from llmc.goals.plan.plan import BELOW, Limits, Plan, PlanNode, RiskLevel, Split

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


def json_lines(text: str) -> dict[str, int]:
    """The line at which each path of a JSON text starts; empty if it is not JSON."""
    found: dict[str, int] = {"$": 1}
    stack: list[tuple[str, str | int]] = []  # path of each open container, and its current key or index
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


MAX_CHARS = 1_000_000
MAX_PROBLEMS = 100

Schema = Mapping[str, Any]


class Problem(Struct, frozen=True):
    """One problem at a JSON path."""

    path: str
    text: str
    #: found by the schema alone
    of_shape: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def parse(text: str) -> tuple[Any, list[Problem]]:
    """The value and problems; if the text cannot be parsed, None and the problem."""
    if len(text) > MAX_CHARS:
        return None, [
            Problem("$", f"must be at most {MAX_CHARS} characters long, not {len(text)}", of_shape=False)
        ]
    twice: list[str] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                twice.append(key)
            made[key] = value
        return made

    try:
        value = json.loads(text, object_pairs_hook=object_of, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return None, [Problem("$", _not_json(text, error), of_shape=False)]
    except (ValueError, RecursionError) as error:
        return None, [Problem("$", f"the text is not valid JSON: {str(error)[:200]}", of_shape=False)]
    return value, [
        Problem("$", f"duplicate key {_shown(key)} in the same object", of_shape=False) for key in twice
    ]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno}, column {error.colno}"
    if text.lstrip().startswith("```"):
        return "the text is wrapped in a Markdown fence; expected only JSON"
    if not text.strip():
        return "the text is empty; expected JSON"
    if not text.lstrip().startswith(("{", "[")):
        return "the text does not start with JSON; expected only JSON"
    if error.msg == "Extra data":
        return f"there is text after the JSON ({place}); expected only JSON"
    return f"the text is not valid JSON: {error.msg} ({place})"


def shape_problems(value: Any, schema: Schema, path: str = "$") -> list[Problem]:
    """All differences between a value and a schema."""
    return [*_problems(value, schema, path)]


def bounded(problems: list[Problem]) -> tuple[Problem, ...]:
    """Cut to MAX_PROBLEMS, with a count of the rest."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    rest = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], Problem("$", f"and {rest} more problem{'s' if rest > 1 else ''}"))


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
        raise ValueError(f"unknown schema keyword: {', '.join(sorted(unknown))}")
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield Problem(path, f"must be {_named(kind)}, not {_of(value)}")
    elif "const" in schema and value != schema["const"]:
        yield Problem(path, f"must be {_shown(schema['const'])}, not {_shown(value)}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}, not {_shown(value)}")
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
        yield Problem(path, f"must be at most {longest} characters long, not {len(value)}")
    elif len(value) < schema.get("minLength", 0):
        yield Problem(path, "must not be empty")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        what = "must not be blank" if not value.strip() else f"{_shown(value)} is invalid"
        yield Problem(path, f"{what}; expected {schema['description']}" if "description" in schema else what)
    if any("\ud800" <= char <= "\udfff" for char in value):
        yield Problem(path, "invalid character (a lone surrogate)", of_shape=False)


def _of_array(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    most = schema.get("maxItems")
    if most is not None and len(value) > most:
        yield Problem(path, f"must have at most {most} entries, not {len(value)}")
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, "must not be empty")
    if schema.get("uniqueItems"):
        seen: list[Any] = []
        for item in value:
            if item in seen:
                yield Problem(path, f"duplicate entry {_shown(item)}")
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


NAME_CHARS, TEXT_CHARS, LINE_CHARS = 120, 4000, 1000
MAX_LIST = 50

PlanSchema = dict[str, Any]

_ID = {
    "type": "string",
    "maxLength": 40,
    "pattern": "^[A-Za-z][A-Za-z0-9_.-]*(?![\\n])$",
    "description": "a letter followed by letters, digits, `.`, `_` or `-`",
}
_NAME = {
    "type": "string",
    "maxLength": NAME_CHARS,
    "pattern": "^[^\\r\\n]*[^ \\t\\r\\n][^\\r\\n]*(?![\\n])$",
    "description": "a single line",
}
_TEXT = {"type": "string", "maxLength": TEXT_CHARS, "pattern": "[^ \\t\\r\\n]"}
_LINE = {"type": "string", "maxLength": LINE_CHARS, "pattern": "[^ \\t\\r\\n]"}
#: leaves only
_LEAF_FIELDS = {
    "verify": _LINE,
    "recoveryPolicy": {"type": "string", "enum": [str(step) for step in Recovery]},
    "idleAfter": {
        "type": "string",
        "pattern": "^[1-9][0-9]{0,5}[smh](?![\\n])$",
        "description": "a duration such as 90s, 30m or 2h",
    },
}


def plan_schema(limits: Limits) -> PlanSchema:
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
    """The schema of a split: at least two subtasks for a leaf."""
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


MAX_CYCLES = 20

#: the start (False) or the end (True) of a node
_Moment = tuple[str, bool]


class Wait(Struct, frozen=True):
    """A node of the dependency graph."""

    id: str
    parent: str
    deps: tuple[str, ...]
    path: str


def graph_problems(waits: Sequence[Wait], elsewhere: frozenset[str] = frozenset()) -> list[Problem]:
    """Duplicate ids, unknown dependencies, dependencies on parents or children, and cycles.

    `elsewhere`: other ids that may be depended on.
    """
    first: dict[str, Wait] = {}
    problems: list[Problem] = []
    # A missing id is a shape problem; "" also means no parent.
    waits = [wait for wait in waits if wait.id]
    for wait in waits:
        if wait.id in first:
            text = f"duplicate id {wait.id}, already used at {first[wait.id].path}"
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
            problems.append(_sense(path, f"{wait.id} cannot depend on itself"))
        elif needed not in known:
            if needed not in elsewhere:
                problems.append(_sense(path, f"no phase, task or subtask has the id {needed}"))
        elif needed in _ancestors(wait, known):
            problems.append(_sense(path, f"{wait.id} cannot depend on {needed}, which contains it"))
        elif wait.id in _ancestors(known[needed], known):
            problems.append(_sense(path, f"{wait.id} cannot depend on {needed}, which is part of it"))
    return problems


def _ancestors(wait: Wait, known: Mapping[str, Wait]) -> list[str]:
    found: list[str] = []
    while wait.parent in known and wait.parent not in found:
        found.append(wait.parent)
        wait = known[wait.parent]
    return found


def _cycles(known: Mapping[str, Wait]) -> list[Problem]:
    """One problem per dependency cycle; each found cycle is cut to find the next."""
    parents = {wait.parent for wait in known.values()}
    leaves = {id for id in known if id not in parents}
    before = _moments(known, leaves)
    problems: list[Problem] = []
    while len(problems) < MAX_CYCLES:
        try:
            TopologicalSorter(before).prepare()
            break
        except CycleError as error:
            circle: list[_Moment] = error.args[
                1
            ]  # each comes before the next, and the first is also the last
        path, opened = _cycle_text(circle, known, leaves)
        problems.append(_sense(f"{known[opened[0]].path}.deps", f"dependency cycle: {path}"))
        del before[(opened[0], False)][(opened[1], opened[1] not in leaves)]
    return problems


#: predecessors of each moment; dicts keep the order of problems stable
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


def _cycle_text(
    circle: Sequence[_Moment], known: Mapping[str, Wait], leaves: set[str]
) -> tuple[str, tuple[str, str]]:
    """The cycle as a chain of leaves, and one dependency in it."""
    opened = next(
        (later[0], earlier[0])
        for earlier, later in pairwise(circle)
        if not later[1] and earlier[0] in known[later[0]].deps
    )
    around = [id for id, _ in circle[:-1] if id in leaves][::-1]
    turn = around.index(min(around))
    around = around[turn:] + around[:turn]
    return " -> ".join([*around, around[0]]), opened


Problems = tuple[Problem, ...]

_KINDS = {"phases": NodeKind.PHASE, "tasks": NodeKind.TASK, "subtasks": NodeKind.SUBTASK}


def check_plan(text: str, limits: Limits, elsewhere: Iterable[str] = ()) -> Plan | Problems:
    """The plan in a text, or all problems.

    `elsewhere`: ids of finished work, which stays in any plan and may be depended on.
    """
    value, problems = parse(text)
    if value is None and problems:
        return bounded(problems)
    found = check_value(value, limits, elsewhere)
    if isinstance(found, Plan) and not problems:
        return found
    return bounded([*problems, *(() if isinstance(found, Plan) else found)])


def check_value(value: Any, limits: Limits, elsewhere: Iterable[str] = ()) -> Plan | Problems:
    value = completed(value)
    problems = shape_problems(value, plan_schema(limits))
    problems += graph_problems([*_waits(value, "phases", "$", "")], frozenset(elsewhere))
    problems += _of_groups(value)
    return bounded(problems) if problems else _plan(value)


def check_split(text: str, most: int, elsewhere: Iterable[str]) -> Split | Problems:
    """The subtasks for a leaf, or all problems.

    `elsewhere`: ids of the plan, which may be depended on but not reused.
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
        Problem(f"{wait.path}.id", f"id {wait.id} is already used in the plan", of_shape=False)
        for wait in waits
        if wait.id in taken
    ]
    return bounded(problems) if problems else Split(_nodes(value, "subtasks"))


def completed(value: Any) -> Any:
    """The plan with two fields filled in that planners often omit.

    A phase without criteria is accepted when its tasks are done; a subtask's objective defaults to its name.
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
    """Everything that looks like a node, so that graph problems are listed along with shape problems."""
    children = holder.get(key) if isinstance(holder, dict) else None
    for index, node in enumerate(children if isinstance(children, list) else ()):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str):
            continue
        here = f"{path}.{key}[{index}]"
        deps = node.get("deps")
        texts = [dep for dep in deps if isinstance(dep, str)] if isinstance(deps, list) else []
        yield Wait(node["id"], parent, tuple(dict.fromkeys(texts)), here)
        if below := BELOW.get(_KINDS[key]):
            yield from _waits(node, below, here, node["id"])


_NOT_OF_GROUPS = "not allowed on a task with subtasks; set it on the subtasks"


def _of_groups(value: Any) -> list[Problem]:
    """Leaf fields on tasks with subtasks: only leaves are dispatched and verified."""
    return [
        Problem(f"$.phases[{p}].tasks[{t}].{key}", _NOT_OF_GROUPS, False)
        for p, phase in enumerate(_list(value, "phases"))
        for t, task in enumerate(_list(phase, "tasks"))
        for key in _LEAF_FIELDS
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
    return tuple(_node_of(node, _KINDS[key]) for node in holder.get(key, ()))


def _node_of(node: dict[str, Any], kind: NodeKind) -> PlanNode:
    """A node that the schema has checked."""
    below = _nodes(node, BELOW[kind]) if kind in BELOW else ()
    more = {"idleAfterMs": _milliseconds(node["idleAfter"])} if "idleAfter" in node else {}
    made = msgspec.convert({**node, "kind": kind, "name": node["name"].strip(), **more}, PlanNode)
    return replace(made, children=below, verify=bare(made.verify))


def _milliseconds(text: str) -> int:
    """Milliseconds of `90s`, `30m` or `2h`, the forms that the schema allows."""
    return int(text[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000}[text[-1]]
