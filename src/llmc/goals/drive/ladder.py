"""Chooses the next recovery step of an assignment without progress, and when. Pure.

nudge -> resend -> replan -> reassign -> escalate. Steps count until there is progress. After the escalation only a few
reminders follow.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.drive.liveness import INSTRUCTIONS
from llmc.goals.drive.policy import HOME, Policy, may_supervise
from llmc.goals.model import (
    Advice,
    Assignment,
    Crystallization,
    Dispatch,
    Event,
    Mode,
    Node,
    NodeKind,
    Recovery,
    Result,
)
from llmc.goals.plan.plan_check import Problem, bounded, parse, shape_problems

#: limits of a diagnosis
MAX_ACTIONS, MAX_OPTIONS = 3, 6
MAX_SENT = 20

_TEXT = {"type": "string", "maxLength": 2000, "pattern": "[^ \\t\\r\\n]"}
_OPTIONS = {"type": "array", "minItems": 1, "maxItems": MAX_OPTIONS, "items": {**_TEXT, "maxLength": 200}}


class Nudge(Struct, frozen=True):
    """A message to the worker."""

    message: str


class Escalate(Struct, frozen=True):
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
    """The first message and the first question."""
    message = next((one.message for one in found.actions if isinstance(one, Nudge)), "")
    asked = next((one for one in found.actions if isinstance(one, Escalate)), Escalate("", ()))
    return Advice(ts=now, message=message, question=asked.question, options=asked.options)


def seen_of(
    assignment: Assignment, stalled: Event | None, told: Sequence[Crystallization], now: float
) -> str:
    """A stall as told to a planner: why, what was sent, and the worker's last report."""
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


LADDER = (Recovery.NUDGE, Recovery.RESEND, Recovery.REPLAN, Recovery.REASSIGN, Recovery.ESCALATE)

#: dispatches beyond `max_retries` between two marks of progress: the first, two steps, the escalation
BEYOND_RETRIES = 4
#: a leaf with more criteria is too large
MANY_CRITERIA = 5


class Situation(Struct, frozen=True):
    reachable: bool
    #: nobody to nudge
    failed: bool = False


def next_step(assignment: Assignment, node: Node, situation: Situation, policy: Policy) -> Recovery:
    """The first step from the assignment's own entry upwards that applies and is not used up."""
    if assignment.retry_count >= policy.max_retries + BEYOND_RETRIES - 2:
        return Recovery.ESCALATE
    entry = LADDER.index(assignment.recovery_policy)
    # an unconfirmed instruction is sent again before anything else
    if entry <= LADDER.index(Recovery.RESEND) and _fits(Recovery.RESEND, assignment, node, situation, policy):
        return Recovery.RESEND
    for step in LADDER[entry:]:
        if _fits(step, assignment, node, situation, policy):
            return step
    return Recovery.ESCALATE


def in_doubt(assignment: Assignment) -> bool:
    """Whether the last instruction may not have arrived."""
    last = last_instruction(assignment)
    return last is not None and last.result in (Result.TIMEOUT, Result.ERROR)


def last_instruction(assignment: Assignment) -> Dispatch | None:
    return next((d for d in reversed(assignment.dispatch_history) if d.purpose in INSTRUCTIONS), None)


def episode(assignment: Assignment) -> tuple[Dispatch, ...]:
    """Dispatches since the last progress."""
    mark = assignment.last_progress_at
    if mark is None:
        return assignment.dispatch_history
    return tuple(d for d in assignment.dispatch_history if d.ts > mark)


def backoff_s(step: int, policy: Policy) -> float:
    """The wait after the n-th step in a row: doubles up to the cap."""
    doublings = min(max(step, 1) - 1, 32)
    return min(policy.backoff_max_s, policy.backoff_base_s * 2.0**doublings)


def not_before(assignment: Assignment, instruction_hash: str, policy: Policy) -> float:
    """The earliest time for this instruction: after the backoff, and not the same text again too soon."""
    until = assignment.backoff_until or 0.0
    same = [
        sent_at(assignment, d) for d in assignment.dispatch_history if d.instruction_hash == instruction_hash
    ]
    return max(until, max(same) + policy.min_resend_interval_s) if same else until


def sent_at(assignment: Assignment, dispatch: Dispatch) -> float:
    """When a dispatch was last tried; capped by the assignment's own last try, which survives a clock set back."""
    tried = max(dispatch.ts, dispatch.result_at or dispatch.ts)
    return tried if assignment.last_dispatch_at is None else min(tried, assignment.last_dispatch_at)


def stepped(assignment: Assignment, policy: Policy, now: float) -> Assignment:
    """Count one step, and back off."""
    steps = assignment.retry_count + 1
    return replace(
        assignment,
        retry_count=steps,
        last_retry_at=now,
        backoff_until=now + backoff_s(steps, policy),
        updated_at=now,
    )


def progressed(assignment: Assignment, at: float, now: float) -> Assignment:
    """Reset all recovery counters."""
    return replace(
        assignment,
        retry_count=0,
        last_retry_at=None,
        backoff_until=None,
        reminders=0,
        advice=None,
        last_progress_at=max(at, assignment.last_progress_at or at),
        updated_at=now,
    )


def reminder_due(assignment: Assignment, policy: Policy) -> float | None:
    """When the next reminder is due; None: never."""
    asked = last_question(assignment)
    if asked is None or assignment.reminders >= policy.max_reminders:
        return None
    if asked.result in (Result.ERROR, Result.TIMEOUT):
        return assignment.backoff_until or sent_at(assignment, asked)
    return sent_at(assignment, asked) + policy.reminder_every_s


def last_question(assignment: Assignment) -> Dispatch | None:
    return next((d for d in reversed(assignment.dispatch_history) if d.mode is Mode.ESCALATE), None)


def unskewed(assignment: Assignment, policy: Policy, now: float) -> Assignment:
    """Move times that a clock set back left in the future back to now."""

    def past(at: float | None) -> float | None:
        return at if at is None or at <= now else now

    def soon(at: float | None, within_s: float) -> float | None:
        return at if at is None or at <= now + within_s else now + within_s

    return replace(
        assignment,
        last_dispatch_at=past(assignment.last_dispatch_at),
        last_observed_activity_at=past(assignment.last_observed_activity_at),
        last_progress_at=past(assignment.last_progress_at),
        last_retry_at=past(assignment.last_retry_at),
        backoff_until=soon(assignment.backoff_until, policy.backoff_max_s),
    )


def _fits(step: Recovery, assignment: Assignment, node: Node, situation: Situation, policy: Policy) -> bool:
    tried = episode(assignment)
    if step is Recovery.NUDGE:
        nudges = sum(d.purpose == Recovery.NUDGE.value for d in tried)
        return situation.reachable and not situation.failed and nudges < policy.max_retries
    if step is Recovery.RESEND:
        last = last_instruction(assignment)
        return in_doubt(assignment) and last is not None and last.attempts <= policy.max_retries
    if any(d.purpose == step.value for d in tried):
        return False
    if step is Recovery.REPLAN:
        return policy.planner and is_too_large(node)
    if step is Recovery.REASSIGN:
        return may_supervise(HOME, policy) and (assignment.agent_id == HOME or policy.allow_cross_agent)
    return True


def is_too_large(node: Node) -> bool:
    """Whether splitting could help."""
    return (
        node.kind is NodeKind.TASK
        or node.risk_level == "high"
        or len(node.acceptance_criteria) > MANY_CRITERIA
    )
