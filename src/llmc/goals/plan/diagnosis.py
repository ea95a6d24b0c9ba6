"""The diagnosis of a stall: the facts for the planner, and the actions that it may propose. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llmc.goals.model import Advice, Assignment, Crystallization, Event
from llmc.goals.plan.plan_check import Problem, bounded, parse, shape_problems

#: limits of a diagnosis
MAX_ACTIONS, MAX_OPTIONS = 3, 6
MAX_SENT = 20

_TEXT = {"type": "string", "maxLength": 2000, "pattern": "[^ \\t\\r\\n]"}
_OPTIONS = {"type": "array", "minItems": 1, "maxItems": MAX_OPTIONS, "items": {**_TEXT, "maxLength": 200}}


class Nudge(Struct, frozen=True, tag_field="type", tag="nudge"):
    """A message to the worker."""

    message: str


class Escalate(Struct, frozen=True, tag_field="type", tag="escalate"):
    """A question to the user."""

    question: str
    options: tuple[str, ...]


class Diagnosis(Struct, frozen=True):
    actions: tuple[Nudge | Escalate, ...]


def diagnosis_schema() -> dict[str, Any]:
    """The schema for the client; `check_diagnosis` also checks the fields of each type."""
    action = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["nudge", "escalate"]},
            "message": _TEXT,
            "question": _TEXT,
            "options": _OPTIONS,
        },
        "required": ["type"],
        "additionalProperties": False,
    }
    actions = {"type": "array", "minItems": 1, "maxItems": MAX_ACTIONS, "items": action}
    return {
        "type": "object",
        "properties": {"actions": actions},
        "required": ["actions"],
        "additionalProperties": False,
    }


_FIELDS = {"nudge": {"message"}, "escalate": {"question", "options"}}


def check_diagnosis(text: str) -> Diagnosis | tuple[Problem, ...]:
    """The diagnosis in a text, or all problems."""
    value, problems = parse(text)
    if value is None and problems:
        return bounded(problems)
    problems += shape_problems(value, diagnosis_schema())
    if not problems:
        problems = [
            found for index, action in enumerate(value["actions"]) for found in _fields(index, action)
        ]
    if problems:
        return bounded(problems)
    return msgspec.convert(value, Diagnosis)


def _fields(index: int, action: dict[str, Any]) -> list[Problem]:
    wanted, given = _FIELDS[action["type"]], action.keys() - {"type"}
    path = f"$.actions[{index}]"
    missing = [Problem(path, f"`{key}` is missing", False) for key in sorted(wanted - given)]
    return missing + [
        Problem(path, f"`{key}` is not allowed for type `{action['type']}`", False)
        for key in sorted(given - wanted)
    ]


def advice_of(found: Diagnosis, now: float) -> Advice:
    """The first message and the first question."""
    message = next((one.message for one in found.actions if isinstance(one, Nudge)), "")
    asked = next((one for one in found.actions if isinstance(one, Escalate)), Escalate("", ()))
    return Advice(ts=now, message=message, question=asked.question, options=asked.options)


def seen_of(
    assignment: Assignment, stalled: Event | None, told: Sequence[Crystallization], now: float
) -> str:
    """A stall as described to the planner: why, what was sent, and the worker's last report."""
    why = str(stalled.data.get("reason", "")) if stalled else ""
    rows = [f"{assignment.status}: {why}" if why else str(assignment.status)]
    rows += [
        f"{max(0.0, now - one.ts):.0f} s ago: {one.purpose}, {one.result}"
        + (f" ({one.notes})" if one.notes else "")
        for one in assignment.dispatch_history[-MAX_SENT:]
    ]
    if told:
        rows += [
            f"The worker last said: {told[-1].summary}",
            *(f"The worker needs: {one}" for one in told[-1].known_blockers),
        ]
    return "\n".join(rows)
