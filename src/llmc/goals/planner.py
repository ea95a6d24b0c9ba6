"""Asks a planner for a plan, a split or a diagnosis; failures are returned, not raised.

The planner is `claude -p` with a schema, or any command: prompt on stdin, JSON on stdout. An invalid answer goes back with
all its problems, a few times. The goal store is never locked here.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from llmc.agents.protocol import Agent, OneShot
from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.goals.model import GoalView, PlannerRef
from llmc.goals.plan import plan_prompt as prompts
from llmc.goals.plan.diagnosis import Diagnosis, check_diagnosis, diagnosis_schema
from llmc.goals.plan.plan import DEFAULT_LIMITS, Limits, Plan, Provenance, Split
from llmc.goals.plan.plan_check import Problems, check_plan, check_split, plan_schema, split_schema
from llmc.goals.plan.replan import merge_plan, room_for_split, settled_ids, split_leaf
from llmc.goals.plan.repo_summary import MANIFESTS, READMES, RepoFacts, snapshot
from llmc.records.items import LOG_IN
from llmc.records.worker import Spent
from llmc.repo import git, provision
from llmc.repo.project import Project

ERROR_CHARS = 500


class Failure(StrEnum):
    #: the goal has a plan, or the leaf cannot be split or is gone
    NOT_NEEDED = "not_needed"
    #: the program cannot be started
    MISSING = "missing"
    #: killed: too slow, or too much output
    OVERRAN = "overran"
    FAILED = "failed"
    #: API errors: not logged in, usage limit, others
    AUTH = "auth"
    LIMIT = "limit"
    API = "api"
    #: no valid answer, repairs included
    INVALID = "invalid"


class PlannerSetup(Struct, frozen=True):
    """The configured planner and its limits."""

    cwd: Path
    #: shell command; "": the agent itself
    command: str = ""
    agent: Agent | None = None
    #: "": the client's default
    model: str = ""
    timeout_s: float = 600.0
    most_bytes: int = 2_000_000
    max_repair_attempts: int = 2
    limits: Limits = DEFAULT_LIMITS
    env: Mapping[str, str] = field(default_factory=dict)
    stopping: Callable[[], bool] | None = None


class Said(Struct, frozen=True):
    """An answer, not checked yet."""

    text: str
    spent: Spent
    model: str


class Silent(Struct, frozen=True):
    """No answer."""

    failure: Failure
    text: str
    hint: str = ""
    spent: Spent = field(default_factory=Spent)
    model: str = ""


def ask(
    setup: PlannerSetup, schema: Mapping[str, Any], told: Mapping[str, str], prompt: str
) -> Said | Silent:
    asks = setup.agent.one_shot() if setup.agent is not None and not setup.command else None
    env = {**proc.command_env(), **setup.env, **told}
    try:
        if asks is None:
            argv = ["/bin/sh", "-c", setup.command]
        else:
            argv, env = asks.argv(schema, setup.model), asks.environment(env)
        done = proc.run_bounded(
            argv,
            cwd=setup.cwd,
            env={key: value for key, value in env.items() if key not in _NOT_FOR_IT},
            input=prompt.encode("utf-8", "replace"),
            timeout_s=setup.timeout_s,
            most_bytes=setup.most_bytes,
            stopping=setup.stopping,
        )
    except proc.Overran as error:
        return Silent(Failure.OVERRAN, _named(setup, error.message))
    except (LlmcError, OSError) as error:
        return Silent(Failure.MISSING, f"cannot start the planner: {error}", getattr(error, "hint", ""))
    return _of_command(setup, done) if asks is None else _of_client(asks, done)


#: a planner is not a worker, even if a worker's process started us
_NOT_FOR_IT = ("LLMC_WORKER", "LLMC_INSTANCE", "LLMC_INDEX")


def known_as(setup: PlannerSetup) -> str:
    """The planner's name in the records; for a command only its program, since the line may contain a key."""
    if not setup.command:
        return setup.model or (setup.agent.name if setup.agent else "")
    program = next((word for word in setup.command.split() if "=" not in word), "")
    return f"command:{program.rpartition('/')[2][:80]}"


def _who(setup: PlannerSetup) -> str:
    return f"the planner `{known_as(setup).removeprefix('command:')}`"


def _named(setup: PlannerSetup, message: str) -> str:
    """Name the configured command, not the shell."""
    return message.replace("`/bin/sh`", _who(setup)) if setup.command else message


def _of_command(setup: PlannerSetup, done: proc.Done) -> Said | Silent:
    if done.ok:
        return Said(done.stdout.strip(), Spent(), known_as(setup))
    failure = Failure.MISSING if done.returncode == 127 else Failure.FAILED
    return Silent(failure, _ended(_who(setup), done))


def _of_client(asks: OneShot, done: proc.Done) -> Said | Silent:
    answer = asks.answer(done.stdout)
    if answer is None:
        return Silent(Failure.FAILED, _ended("the planner", done))
    if answer.error or not done.ok:
        failure = _STATUSES.get(answer.status, Failure.API if answer.status else Failure.FAILED)
        text = f"the planner failed: {answer.error[:ERROR_CHARS] or f'exit code {done.returncode}'}"
        return Silent(failure, text, _HINTS.get(failure, ""), answer.spent, answer.model)
    return Said(answer.text, answer.spent, answer.model)


_STATUSES = {401: Failure.AUTH, 403: Failure.AUTH, 429: Failure.LIMIT}
_HINTS = {Failure.AUTH: f"Log in again with `{LOG_IN}`, then run the command again."}


def _ended(who: str, done: proc.Done) -> str:
    tail = (done.stderr.strip() or done.stdout.strip())[-ERROR_CHARS:]
    return f"{who} exited with code {done.returncode}" + (f": {tail}" if tail else " without any output")


#: most characters read from a file
MOST_CHARS = 64 * 1024


def repo_context(project: Project) -> str:
    """Summary of the repository; "" without a commit. Never raises: a goal can do without it."""
    try:
        with contextlib.suppress(LlmcError):  # if it fails, use the last fetched state
            provision.refresh_base(project)
        commit = git.resolve(project.root.path, project.base)
        return snapshot(_facts(project, commit)) if commit else ""
    except (LlmcError, OSError):
        return ""


def _facts(project: Project, commit: str) -> RepoFacts:
    root, repo = project.root.path, project.config.repo
    listing = ["ls-tree", "-r", "-z", "--name-only", commit]
    files = git.listed(root, *listing, most_bytes=git.MOST_OF_BASE)
    readme = next((name for name in READMES if name in files), "")
    return RepoFacts(
        commit=commit,
        branch=repo.default_branch,
        files=tuple(files),
        readme=_text(project, commit, readme) if readme else "",
        manifests={name: _text(project, commit, name) for name in MANIFESTS if name in files},
        setup=repo.setup,
        validate=repo.validate,
    )


def _text(project: Project, commit: str, name: str) -> str:
    """The start of a file; "" if git cannot show it, such as a submodule."""
    done = git.git(project.root.path, "cat-file", "blob", f"{commit}:{name}", check=False, timeout_s=60)
    return done.stdout[:MOST_CHARS] if done.ok else ""


T = TypeVar("T", Plan, Split, Diagnosis)

#: more repairs do not help
MOST_REPAIRS = 5


class Attempt(Struct, frozen=True):
    """One attempt: its cost and problems."""

    spent: Spent
    problems: tuple[str, ...] = ()


class _Asked(Struct, frozen=True, kw_only=True):
    attempts: tuple[Attempt, ...] = ()

    @property
    def spent(self) -> Spent:
        return sum((attempt.spent for attempt in self.attempts), Spent())


class Planned(_Asked, Generic[T], frozen=True):
    """The result: a plan, a split or a diagnosis."""

    made: T
    provenance: Provenance

    @property
    def planner(self) -> PlannerRef:
        return self.provenance.planner


class PlanFailed(_Asked, frozen=True):
    """A failure, for the event log and the user."""

    failure: Failure
    text: str
    hint: str = ""
    planner: PlannerRef = field(default_factory=PlannerRef)


class _Request(Struct, Generic[T], frozen=True):
    """A request: the prompt, the schema of the answer, and its check."""

    goal_id: str
    #: plan, replan, split or diagnose
    kind: str
    template: prompts.PromptTemplate
    inputs: Mapping[str, str]
    schema: Mapping[str, Any]
    check: Callable[[str], T | Problems]


def plan_goal(setup: PlannerSetup, view: GoalView) -> Planned[Plan] | PlanFailed:
    if view.nodes:
        return PlanFailed(Failure.NOT_NEEDED, "the goal already has a plan")
    limits = setup.limits
    inputs, schema = prompts.plan_inputs(view.goal, limits), plan_schema(limits)
    check = partial(check_plan, limits=limits)
    return _planned(setup, _Request(view.goal.goal_id, "plan", prompts.PLAN, inputs, schema, check))


def replan_goal(setup: PlannerSetup, view: GoalView, why: str) -> Planned[Plan] | PlanFailed:
    """A replacement plan; one that does not fit finished work goes back to the planner, too."""
    limits = setup.limits

    def check(text: str) -> Plan | Problems:
        plan = check_plan(text, limits, settled_ids(view))
        merged = merge_plan(view, plan, 0.0, why, limits=limits) if isinstance(plan, Plan) else plan
        return merged if isinstance(merged, tuple) else plan

    inputs, schema = prompts.replan_inputs(view, limits, why), plan_schema(limits)
    return _planned(setup, _Request(view.goal.goal_id, "replan", prompts.REPLAN, inputs, schema, check))


def split_work(setup: PlannerSetup, view: GoalView, leaf_id: str, why: str) -> Planned[Split] | PlanFailed:
    """Smaller subtasks for a leaf, if there is room for two."""
    most = room_for_split(view, leaf_id, setup.limits)
    if most < 2:
        text = f"{leaf_id} cannot be split: it is not open, has children, or belongs to a task with the maximum number of subtasks"
        return PlanFailed(Failure.NOT_NEEDED, text)

    def check(text: str) -> Split | Problems:
        split = check_split(text, most, view.nodes)
        if not isinstance(split, Split):
            return split
        merged = split_leaf(view, leaf_id, split, 0.0, why, limits=setup.limits)
        return merged if isinstance(merged, tuple) else split

    inputs, schema = prompts.split_inputs(view, view.nodes[leaf_id], most, why), split_schema(most)
    return _planned(setup, _Request(view.goal.goal_id, "split", prompts.SPLIT, inputs, schema, check))


def diagnose(setup: PlannerSetup, view: GoalView, leaf_id: str, seen: str) -> Planned[Diagnosis] | PlanFailed:
    """Ask what to do about a stall that the rules cannot resolve."""
    if leaf_id not in view.nodes:
        return PlanFailed(Failure.NOT_NEEDED, f"{leaf_id} is not in the plan")
    inputs = prompts.diagnose_inputs(view.nodes[leaf_id], seen)
    asked = (view.goal.goal_id, "diagnose", prompts.DIAGNOSE, inputs, diagnosis_schema(), check_diagnosis)
    return _planned(setup, _Request(*asked))


def _planned(setup: PlannerSetup, request: _Request[T]) -> Planned[T] | PlanFailed:
    """Ask, and send back invalid answers with all problems, until one is valid or no attempt is left."""
    prompt = first = request.template.filled(request.inputs)
    attempts: list[Attempt] = []
    model = ""
    for number in range(1, 2 + max(0, min(setup.max_repair_attempts, MOST_REPAIRS))):
        said = ask(setup, request.schema, _told(request, number), prompt)
        model = said.model or model
        ref = request.template.ref(model or known_as(setup))
        if isinstance(said, Silent):
            attempts.append(Attempt(said.spent, (said.text,)))
            return PlanFailed(said.failure, said.text, said.hint, ref, attempts=tuple(attempts))
        found = request.check(said.text)
        if not isinstance(found, tuple):
            provenance = Provenance(ref, prompts.kept_inputs(request.inputs), said.text, _errors(attempts))
            return Planned(found, provenance, attempts=(*attempts, Attempt(said.spent)))
        problems = tuple(map(str, found))
        attempts.append(Attempt(said.spent, problems))
        prompt = prompts.repair_prompt(first, problems, said.text)
    tries = "1 attempt" if len(attempts) == 1 else f"{len(attempts)} attempts"
    text = f"the planner did not return a valid answer in {tries}; last problem: {attempts[-1].problems[0]}"
    goal_id = request.goal_id
    hint = f"Clarify the problem statement with `llmc goal update {goal_id} --problem TEXT`, then run `llmc goal plan {goal_id}` again; or pass your own plan with `llmc goal plan {goal_id} --from FILE`."
    return PlanFailed(Failure.INVALID, text, hint, ref, attempts=tuple(attempts))


def _errors(attempts: "list[Attempt] | tuple[Attempt, ...]") -> tuple[str, ...]:
    return tuple(
        f"attempt {number}: {problem}"
        for number, attempt in enumerate(attempts, start=1)
        for problem in attempt.problems
    )


def _told(request: _Request[T], attempt: int) -> dict[str, str]:
    """The planner's environment variables."""
    return {
        "LLMC_GOAL_ID": request.goal_id,
        "LLMC_PLAN_KIND": request.kind,
        "LLMC_PLAN_ATTEMPT": str(attempt),
        "LLMC_PLAN_SCHEMA": json.dumps(request.schema),
    }
