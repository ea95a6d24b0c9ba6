"""What a planner may say about a stall: nudge with a message, or ask a person. Anything else is refused. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from llmc.goals.model import Advice, Assignment, Crystallization, Event
from llmc.goals.plan.strict_json import Problem, bounded, parse, shape_problems

#: so many steps, so many options of a question
MAX_ACTIONS, MAX_OPTIONS = 3, 6
#: so many of the newest dispatches
MAX_SENT = 20

_TEXT = {"type": "string", "maxLength": 2000, "pattern": "[^ \\t\\r\\n]"}
_OPTIONS = {"type": "array", "minItems": 1, "maxItems": MAX_OPTIONS, "items": {**_TEXT, "maxLength": 200}}


class Nudge(Struct, frozen=True):
    """Say this to the worker."""

    message: str


class Escalate(Struct, frozen=True):
    """Ask a person this."""

    question: str
    options: tuple[str, ...]


class Diagnosis(Struct, frozen=True):
    actions: tuple[Nudge | Escalate, ...]


def diagnosis_schema() -> dict[str, Any]:
    """As a client is given it; which fields belong to which type, `check_diagnosis` knows."""
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
    """The actions that a text names, or everything that is wrong with it."""
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
    return Diagnosis(tuple(map(_action, value["actions"])))


def _fields(index: int, action: dict[str, Any]) -> list[Problem]:
    wanted, given = _FIELDS[action["type"]], action.keys() - {"type"}
    path = f"$.actions[{index}]"
    missing = [Problem(path, f"`{key}` is missing", False) for key in sorted(wanted - given)]
    return missing + [
        Problem(path, f"`{key}` does not belong to `{action['type']}`", False)
        for key in sorted(given - wanted)
    ]


def _action(action: dict[str, Any]) -> Nudge | Escalate:
    if action["type"] == "nudge":
        return Nudge(action["message"])
    return Escalate(action["question"], tuple(action["options"]))


def advice_of(found: Diagnosis, now: float) -> Advice:
    """The first of each kind: a worker is told one thing, and a person asked one."""
    message = next((one.message for one in found.actions if isinstance(one, Nudge)), "")
    asked = next((one for one in found.actions if isinstance(one, Escalate)), Escalate("", ()))
    return Advice(ts=now, message=message, question=asked.question, options=asked.options)


def seen_of(
    assignment: Assignment, stalled: Event | None, told: Sequence[Crystallization], now: float
) -> str:
    """What a planner is told of a stall: why it is one, what was sent, and what the worker last said."""
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
            *(f"It needs: {one}" for one in told[-1].known_blockers),
        ]
    return "\n".join(rows)
