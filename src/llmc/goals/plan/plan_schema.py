"""The shape of a plan as a JSON schema: what `claude -p --json-schema` is given, and what every plan is checked by. Pure.

What no schema can say (ids that are known, no cycles) is in `plan_graph.py`.
"""

from typing import Any

from llmc.goals.model import Recovery
from llmc.goals.plan.plan import Limits, RiskLevel

#: longer texts are refused, not cut
NAME_CHARS, TEXT_CHARS, LINE_CHARS = 120, 4000, 1000
#: so many criteria, constraints, dependencies or tools
MAX_LIST = 50

Schema = dict[str, Any]

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
_OF_LEAVES = {
    "verify": _LINE,
    "recoveryPolicy": {"type": "string", "enum": [str(step) for step in Recovery]},
    "idleAfter": {
        "type": "string",
        "pattern": "^[1-9][0-9]{0,5}[smh](?![\\n])$",
        "description": "a time such as 90s, 30m or 2h",
    },
}


def plan_schema(limits: Limits) -> Schema:
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


def split_schema(most: int) -> Schema:
    """A leaf that is too large, as subtasks: at least two, or nothing was split."""
    subtasks = {"type": "array", "minItems": 2, "maxItems": most, "items": _subtask()}
    return _object(
        {"planVersion": {"type": "integer", "const": 1}, "subtasks": subtasks}, ("planVersion", "subtasks")
    )


def _phase(limits: Limits) -> Schema:
    tasks = {"type": "array", "minItems": 1, "maxItems": limits.tasks, "items": _task(limits)}
    return _node({"tasks": tasks}, ("tasks",))


def _task(limits: Limits) -> Schema:
    subtasks = {"type": "array", "maxItems": limits.subtasks, "items": _subtask()}
    return _node({"subtasks": subtasks, **_OF_LEAVES}, ())


def _subtask() -> Schema:
    return _node(_OF_LEAVES, ())


def _node(more: Schema, required: tuple[str, ...]) -> Schema:
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


def _lines() -> Schema:
    return {"type": "array", "maxItems": MAX_LIST, "items": _LINE}


def _object(properties: Schema, required: tuple[str, ...]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
