"""Asks a planner, and answers with what it made or with why it made nothing; a planner never brings anybody down.

`claude -p` with a schema, or any command: the prompt on its standard input, JSON on its standard output. An answer
that is refused goes back with everything that is wrong with it, a few times; then there is no plan. No lock is held here.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from llmc.agents.print_mode import Tokens
from llmc.goals.drive.diagnosis import Diagnosis, check_diagnosis, diagnosis_schema
from llmc.goals.model import GoalView, PlannerRef
from llmc.goals.plan import plan_prompt as prompts
from llmc.goals.plan.plan import Plan, Provenance, Split
from llmc.goals.plan.plan_check import Problems, check_plan, check_split
from llmc.goals.plan.plan_prompt import PromptTemplate
from llmc.goals.plan.plan_schema import plan_schema, split_schema
from llmc.goals.plan.replan import merge_plan, room_for_split, settled_ids, split_leaf, wants_plan
from llmc.goals.planner_run import Failure, PlannerSetup, Silent, ask, known_as

T = TypeVar("T", Plan, Split, Diagnosis)

#: more repairs than this never helped anybody
MOST_REPAIRS = 5
#: so much of a refused answer is kept
OUTPUT_CHARS = 2000


class Attempt(Struct, frozen=True):
    """One answer: how long it took, what it cost, and what was wrong with it."""

    elapsed_s: float
    tokens: Tokens
    problems: tuple[str, ...] = ()
    #: the beginning of an answer that was refused
    output: str = ""


class Planned(Struct, Generic[T], frozen=True):
    """What the planner made: a plan, the parts of a leaf, a diagnosis."""

    made: T
    provenance: Provenance
    attempts: tuple[Attempt, ...]

    @property
    def tokens(self) -> Tokens:
        return sum((attempt.tokens for attempt in self.attempts), Tokens())


class PlanFailed(Struct, frozen=True):
    """Why there is nothing: for the event log, and for a person."""

    failure: Failure
    text: str
    hint: str = ""
    planner: PlannerRef = field(default_factory=PlannerRef)
    attempts: tuple[Attempt, ...] = ()

    @property
    def tokens(self) -> Tokens:
        return sum((attempt.tokens for attempt in self.attempts), Tokens())

    @property
    def validation_errors(self) -> tuple[str, ...]:
        return _errors(self.attempts)


class _Request(Struct, Generic[T], frozen=True):
    """One thing to ask for: the prompt, the shape of the answer, and who says whether it is one."""

    goal_id: str
    #: plan, replan, split or diagnose
    kind: str
    template: PromptTemplate
    inputs: Mapping[str, str]
    schema: Mapping[str, Any]
    check: Callable[[str], T | Problems]


def plan_goal(setup: PlannerSetup, view: GoalView) -> Planned[Plan] | PlanFailed:
    """The first plan of a goal."""
    if not wants_plan(view):
        return PlanFailed(Failure.NOT_NEEDED, "the goal has a plan already")
    limits = setup.limits
    return _planned(
        setup,
        _Request(
            goal_id=view.goal.goal_id,
            kind="plan",
            template=prompts.PLAN,
            inputs=prompts.plan_inputs(view.goal, limits),
            schema=plan_schema(limits),
            check=lambda text: check_plan(text, limits),
        ),
    )


def replan_goal(setup: PlannerSetup, view: GoalView, why: str) -> Planned[Plan] | PlanFailed:
    """Another plan in place of the one there is; one that would not fit beside what is done is repaired, too."""
    limits = setup.limits

    def check(text: str) -> Plan | Problems:
        plan = check_plan(text, limits, settled_ids(view))
        merged = merge_plan(view, plan, 0.0, why, limits=limits) if isinstance(plan, Plan) else plan
        return merged if isinstance(merged, tuple) else plan

    return _planned(
        setup,
        _Request(
            goal_id=view.goal.goal_id,
            kind="replan",
            template=prompts.REPLAN,
            inputs=prompts.replan_inputs(view, limits, why),
            schema=plan_schema(limits),
            check=check,
        ),
    )


def split_work(setup: PlannerSetup, view: GoalView, leaf_id: str, why: str) -> Planned[Split] | PlanFailed:
    """Smaller subtasks for a leaf that is too large; nobody is asked where there is no room for two."""
    most = room_for_split(view, leaf_id, setup.limits)
    if most < 2:
        return PlanFailed(
            Failure.NOT_NEEDED, f"{leaf_id} cannot be split: it is no open leaf, or there is no room"
        )

    def check(text: str) -> Split | Problems:
        split = check_split(text, most, view.nodes)
        merged = (
            split_leaf(view, leaf_id, split, 0.0, why, limits=setup.limits)
            if isinstance(split, Split)
            else split
        )
        return merged if isinstance(merged, tuple) else split

    return _planned(
        setup,
        _Request(
            goal_id=view.goal.goal_id,
            kind="split",
            template=prompts.SPLIT,
            inputs=prompts.split_inputs(view, view.nodes[leaf_id], most, why),
            schema=split_schema(most),
            check=check,
        ),
    )


def diagnose(setup: PlannerSetup, view: GoalView, leaf_id: str, seen: str) -> Planned[Diagnosis] | PlanFailed:
    """What to do about a leaf at which nothing moves, where the rules do not know."""
    if leaf_id not in view.nodes:
        return PlanFailed(Failure.NOT_NEEDED, f"the plan has no {leaf_id}")
    return _planned(
        setup,
        _Request(
            goal_id=view.goal.goal_id,
            kind="diagnose",
            template=prompts.DIAGNOSE,
            inputs=prompts.diagnose_inputs(view.nodes[leaf_id], seen),
            schema=diagnosis_schema(),
            check=check_diagnosis,
        ),
    )


def _planned(setup: PlannerSetup, request: _Request[T]) -> Planned[T] | PlanFailed:
    """Ask, and ask again with what was wrong, until there is an answer or no attempt is left."""
    prompt = first = request.template.filled(request.inputs)
    attempts: list[Attempt] = []
    model = ""
    for number in range(1, 2 + max(0, min(setup.max_repair_attempts, MOST_REPAIRS))):
        begun = time.monotonic()
        said = ask(setup, request.schema, _told(request, number), prompt)
        elapsed_s = time.monotonic() - begun
        model = said.model or model
        ref = request.template.ref(model or known_as(setup))
        if isinstance(said, Silent):
            attempts.append(Attempt(elapsed_s, said.tokens, (said.text,)))
            return PlanFailed(said.failure, said.text, said.hint, ref, tuple(attempts))
        found = request.check(said.text)
        if not isinstance(found, tuple):
            provenance = Provenance(ref, prompts.kept_inputs(request.inputs), said.text, _errors(attempts))
            return Planned(found, provenance, (*attempts, Attempt(elapsed_s, said.tokens)))
        problems = tuple(map(str, found))
        attempts.append(Attempt(elapsed_s, said.tokens, problems, said.text[:OUTPUT_CHARS]))
        prompt = prompts.repair_prompt(first, problems, said.text)
    text = f"no answer of the planner could be used ({len(attempts)} attempts); the last one: {attempts[-1].problems[0]}"
    hint = "Write the plan by hand, or give the goal a clearer problem statement and plan it again."
    return PlanFailed(Failure.INVALID, text, hint, ref, tuple(attempts))


def _errors(attempts: "list[Attempt] | tuple[Attempt, ...]") -> tuple[str, ...]:
    return tuple(
        f"attempt {number}: {problem}"
        for number, attempt in enumerate(attempts, start=1)
        for problem in attempt.problems
    )


def _told(request: _Request[T], attempt: int) -> dict[str, str]:
    """What a planner finds in its environment."""
    return {
        "LLMC_GOAL_ID": request.goal_id,
        "LLMC_PLAN_KIND": request.kind,
        "LLMC_PLAN_ATTEMPT": str(attempt),
        "LLMC_PLAN_SCHEMA": json.dumps(request.schema),
    }
