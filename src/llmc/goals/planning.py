"""Plans goals: create, plan, replan, split a leaf, diagnose a stall."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from llmc.auto.rules import costs
from llmc.base import locks
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused, UsageError
from llmc.base.locks import Rank
from llmc.goals import planner
from llmc.goals.dispatch import Done
from llmc.goals.drive import goal_end
from llmc.goals.drive.clean import check_typed
from llmc.goals.drive.intents import REPLAN, Action, is_pending
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.moves import HUMAN, settled
from llmc.goals.goals import after_change, new_id, open_store, session_key
from llmc.goals.model import AssignmentStatus, Change, Goal, GoalView, PlannerRef, PlanRevision, Result
from llmc.goals.plan.diagnosis import advice_of, seen_of
from llmc.goals.plan.plan import Limits, Plan, Provenance
from llmc.goals.plan.plan_text import read_plan
from llmc.goals.plan.replan import merge_plan, replan_wait_s, split_leaf
from llmc.goals.planner import PlanFailed, Planned, PlannerSetup
from llmc.goals.store.goal_store import AnyGoalStore
from llmc.records.worker import Spent
from llmc.repo.project import Project, agent_for

#: the worker name under which `llmc usage` lists planning
PLANNER = "planner"
_SPLIT_WHY = "no progress; the work may be too large"


#: returns a plan and its origin, or raises LlmcError; does not lock the goal store, so the goal may change meanwhile
Planner = Callable[[Project, GoalView, Path | None], tuple[Plan, Provenance]]


class Created(Struct, frozen=True):
    """A stored goal, planned or not."""

    view: GoalView
    planned: bool
    problem: str = ""
    hint: str = ""


def first_plan(project: Project, view: GoalView, file: Path | None) -> tuple[Plan, Provenance]:
    """The plan from a file or from the configured planner."""
    return plan_from_file(project, file) if file else _asked(project, view)


def create(
    project: Project,
    goal: Goal,
    make_plan: Planner | None,
    plan_file: Path | None = None,
    on_kept: Callable[[Goal], None] = lambda goal: None,
) -> Created:
    """Store the goal, call `on_kept`, then plan it with `make_plan`. If that fails, the goal stays unplanned.

    With a plan from a file, goal and plan are stored together or not at all.
    """
    store, now = open_store(project), goal.created_at
    origin = replace(goal.origin, source_session_key=session_key(project, goal.origin.source_session_key))
    goal = replace(goal, origin=origin, repo_context_snapshot=planner.repo_context(project))
    with store.writing() as tx:
        while tx.goal(goal.goal_id) is not None:
            goal = replace(goal, goal_id=new_id("goal"))
        created = goal.event("goal.created", now, {"title": goal.title, "actor": HUMAN})
        tx.apply(Change(goal=goal, events=(created,)), typed=True)
        if make_plan is not None and plan_file is not None:
            made = make_plan(project, GoalView(goal), plan_file)
            tx.apply(_with_plan(project, GoalView(goal), made, _first_why(plan_file)), typed=True)
    on_kept(goal)
    if make_plan is None:
        return Created(GoalView(goal), planned=False)
    if plan_file is not None:
        project.wake()
        return Created(store.view(goal.goal_id), planned=True)
    try:
        view = plan(project, goal.goal_id, make_plan=make_plan)
    except LlmcError as error:
        hint = (
            error.hint
            or f"To try again: llmc goal plan {goal.goal_id} (or pass your own plan with --from FILE)"
        )
        return Created(store.view(goal.goal_id), planned=False, problem=error.message, hint=hint)
    return Created(view, planned=True)


def plan(
    project: Project, goal_id: str, file: Path | None = None, make_plan: Planner = first_plan
) -> GoalView:
    """Plan a goal that has no plan; a failure is recorded in the goal."""
    store = open_store(project)
    view = store.view(goal_id)
    _check_is_open(view, "plan")
    if view.nodes:
        raise Refused(
            f"goal {goal_id} already has a plan",
            hint=f'To replace it: llmc goal plan {goal_id} --replan --why "..."',
        )
    view = with_repo_context(project, view)
    try:
        made = make_plan(project, view, file)
    except LlmcError as error:
        why = error.message

        def fail(now: GoalView) -> Change:
            # The author of a file sees the error; a planner's failure becomes a question.
            asks = file is None and not now.goal.status.is_over
            return goal_end.failed(now, why, now_unix(), asks=asks)

        store.update(goal_id, fail)
        after_change(project, store)
        raise

    def write(now: GoalView) -> Change:
        _check_is_open(now, "plan")
        if now.nodes:
            raise Refused(
                f"the new plan was not saved: another process planned goal {goal_id} in the meantime",
                hint=f"Run `llmc goal show {goal_id}` to see the plan.",
            )
        return _with_plan(project, _seen_as(now, view), made, _first_why(file))

    # A file counts as typed: a secret in it is refused, not removed.
    store.update(goal_id, write, typed=file is not None)
    after_change(project, store)
    return store.view(goal_id)


def _first_why(file: Path | None) -> str:
    return f"read from {file.name}" if file else "first plan"


def with_repo_context(project: Project, view: GoalView) -> GoalView:
    """The goal with a current summary of the repository, or the previous one."""
    seen = planner.repo_context(project) or view.goal.repo_context_snapshot
    return replace(view, goal=replace(view.goal, repo_context_snapshot=seen))


def setup_of(project: Project) -> PlannerSetup:
    wanted = project.config.overseer.goals.planner
    source = Path(project.source)
    agent = agent_for(project)
    plans = agent.one_shot() is not None
    return PlannerSetup(
        cwd=source if source.is_dir() else project.root.path,
        command=wanted.command,
        agent=agent.pinned() if plans else None,
        model=wanted.model,
        timeout_s=wanted.timeout,
        max_repair_attempts=wanted.max_repair_attempts,
        limits=limits_of(project),
        stopping=project.stopping,
    )


def limits_of(project: Project) -> Limits:
    wanted = project.config.overseer.goals.planner
    return Limits(wanted.max_plan_phases, wanted.max_tasks_per_phase, wanted.max_subtasks_per_task)


def has_planner(project: Project) -> bool:
    """Whether there is a planner: a configured command, or an agent that can plan (the scripted one cannot)."""
    return bool(project.config.overseer.goals.planner.command) or agent_for(project).one_shot() is not None


def policy_of(project: Project) -> Policy:
    goals = project.config.overseer.goals
    return Policy(
        tick_every_s=goals.tick_every,
        idle_after_s=goals.idle_after,
        max_retries=goals.max_retries,
        min_resend_interval_s=goals.min_resend_interval,
        backoff_base_s=goals.backoff.base,
        backoff_max_s=goals.backoff.max,
        max_in_progress=goals.max_in_progress,
        max_reminders=goals.reminders,
        allow_agents=goals.policy.allow_agents,
        allow_cross_agent=goals.policy.allow_cross_agent,
        planner=has_planner(project),
        diagnose=goals.planner.diagnose and has_planner(project),
    )


def check_can_plan(project: Project, goal_id: str) -> None:
    if not has_planner(project):
        raise LlmcError(
            "the scripted agent cannot plan",
            hint=f"Write the plan and pass it with `llmc goal plan {goal_id} --from FILE`, or set a planner with `llmc config set overseer.goals.planner.command COMMAND`.",
        )


def perform(project: Project, store: AnyGoalStore, action: Action) -> Done:
    """Split a leaf, or ask for advice about a stall, which the next tick follows. One planner at a time.

    The store is not locked while the planner runs, so the goal may change meanwhile.
    """
    deed = _split if action.purpose == REPLAN else _diagnose
    try:
        with locks.lock(project.root.lock("goal-planner"), Rank.PLANNER, timeout_s=0.0):
            view = store.view(action.goal_id)
            if not is_pending(view, action.dispatch_id):
                return Done(None, "already done by another process")
            return deed(project, store, action, view)
    except LockTimeout as error:
        return Done(None, error.message)


def _diagnose(project: Project, store: AnyGoalStore, action: Action, view: GoalView) -> Done:
    with store.reading() as kept:
        stalled = kept.last_event("assignment.stalled", action.assignment_id)
        told = [
            one for one in kept.crystallizations(action.goal_id) if one.work_node_id == action.work_node_id
        ]
    seen = seen_of(view.assignments[action.assignment_id], stalled, told, now_unix())
    found = planner.diagnose(setup_of(project), view, action.work_node_id, seen)
    _record(project, action.goal_id, found)
    if isinstance(found, PlanFailed):
        return Done(Result.ERROR, found.text)
    advice = advice_of(found.made, now_unix())

    def write(now_view: GoalView) -> Change:
        one = now_view.assignments[action.assignment_id]
        return Change(assignments=(replace(one, advice=advice),))

    wants = [
        word
        for word, said in (
            ("a message to the worker", advice.message),
            ("a question for you", advice.question),
        )
        if said
    ]
    return _used(store, action, write, f"the planner suggests {' and '.join(wants) or 'nothing'}")


def _split(project: Project, store: AnyGoalStore, action: Action, view: GoalView) -> Done:
    if replan_wait_s(view.goal.plan_revision_history, now_unix()) > 0:
        return Done(Result.ERROR, "the plan has changed too often recently")
    found = planner.split_work(setup_of(project), view, action.work_node_id, _SPLIT_WHY)
    _record(project, action.goal_id, found)
    if isinstance(found, PlanFailed):
        return Done(Result.ERROR, found.text)

    def write(now_view: GoalView) -> Change:
        leaf, limits = action.work_node_id, limits_of(project)
        change = split_leaf(now_view, leaf, found.made, now_unix(), _SPLIT_WHY, found.provenance, limits)
        if not isinstance(change, Change):
            raise UsageError("; ".join(map(str, change))[:1000])
        return settled(now_view, change, now_unix())

    said = f"split {action.work_node_id} into {len(found.made.subtasks)} subtasks"
    try:
        return _used(store, action, write, said)
    except (UsageError, NotFound) as error:
        return Done(Result.ERROR, error.message)


def _used(store: AnyGoalStore, action: Action, write: Callable[[GoalView], Change], outcome: str) -> Done:
    """Store what the planner made for a stall, if the stall is still there when the planner answers."""
    _, change = store.update(
        action.goal_id, lambda now: write(now) if _still_wanted(now, action) else Change()
    )
    if change.is_empty():
        return Done(Result.ERROR, "not used: the work resumed or changed while the planner ran")
    return Done(Result.OK, outcome)


def _still_wanted(view: GoalView, action: Action) -> bool:
    one = view.assignments.get(action.assignment_id)
    is_stalled = one is not None and one.status is AssignmentStatus.STALLED
    return is_stalled and is_pending(view, action.dispatch_id)


def _record(project: Project, goal_id: str, found: Planned[Any] | PlanFailed) -> None:
    """Record the planner's usage in the event log, with its goal."""
    if found.spent == Spent():
        return
    about: dict[str, Any] = {"worker": PLANNER, "task_id": None, "goal_id": goal_id, "claude_session_id": ""}
    about |= {"model": found.planner.model_ref, "cost": found.spent.cost, **asdict(found.spent.tokens)}
    with project.store.transaction() as tx:
        tx.emit(costs.ACTION, **about)


def _asked(project: Project, view: GoalView, why: str | None = None) -> tuple[Plan, Provenance]:
    """Ask the planner for a first plan or, with `why`, for a replacement."""
    check_can_plan(project, view.goal.goal_id)
    setup = setup_of(project)
    found = planner.plan_goal(setup, view) if why is None else planner.replan_goal(setup, view, why)
    _record(project, view.goal.goal_id, found)
    if isinstance(found, PlanFailed):
        raise LlmcError(found.text, hint=found.hint)
    return found.made, found.provenance


def plan_from_file(project: Project, file: Path) -> tuple[Plan, Provenance]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    is_json = file.suffix.lower() == ".json"
    plan = read_plan(text, limits_of(project), fallback_title=file.stem, is_json=is_json)
    if not isinstance(plan, Plan):
        lines = "\n".join(f"{file.name}:{problem}" for problem in plan)
        raise UsageError(
            f"{file.name} is not a valid plan:\n{lines}",
            hint="Fix the file, then run the command again. For the format, run `llmc goal plan --help`.",
        )
    return plan, Provenance(PlannerRef(model_ref="by hand"), {"file": file.name})


def replan_by_hand(
    project: Project, goal_id: str, why: str, file: Path | None
) -> tuple[GoalView, PlanRevision]:
    """The goal with its new plan, and what changed. The store is not locked while the planner runs."""
    why = check_typed("reason", why).strip() or (
        "read from " + file.name if file else "requested by the user"
    )
    store = open_store(project)
    view = store.view(goal_id)
    _check_is_open(view, "replan")
    try:
        _replace_plan(project, store, view, why, file)
    except LlmcError as error:
        failed, at = error.message, now_unix()
        # As with a first plan: only a planner's failure becomes a question.
        store.update(goal_id, lambda now: goal_end.not_replanned(now, why, failed, at, asks=file is None))
        raise
    finally:
        after_change(project, store)
    after = store.view(goal_id)
    history = after.goal.plan_revision_history
    if len(history) == len(view.goal.plan_revision_history):
        return after, PlanRevision(ts=now_unix(), why=why)
    return after, history[-1]


def _replace_plan(project: Project, store: AnyGoalStore, view: GoalView, why: str, file: Path | None) -> None:
    view = with_repo_context(project, view)
    made = plan_from_file(project, file) if file else _asked(project, view, why)

    def write(now_view: GoalView) -> Change:
        _check_is_open(now_view, "replan")
        return _with_plan(project, _seen_as(now_view, view), made, why)

    # A file counts as typed: a secret in it is refused, not removed.
    store.update(view.goal.goal_id, write, typed=file is not None)


def _seen_as(now_view: GoalView, planned: GoalView) -> GoalView:
    """The goal as it is now, with the summary of the repository that its plan was made from."""
    snapshot = planned.goal.repo_context_snapshot
    return replace(now_view, goal=replace(now_view.goal, repo_context_snapshot=snapshot))


def _with_plan(project: Project, view: GoalView, made: tuple[Plan, Provenance], why: str) -> Change:
    """The change that gives the goal, as it is now, this plan, and answers its question about planning."""
    (plan, provenance), now, goal = made, now_unix(), view.goal
    if goal.asks is not None and goal.asks.reason.kind in (goal_end.PLAN, goal_end.REPLAN):
        goal = replace(goal, asks=None)
    view = replace(view, goal=goal)
    change = merge_plan(view, plan, now, why, provenance, limits_of(project))
    if not isinstance(change, Change):
        raise UsageError("; ".join(map(str, change))[:2000], hint="Fix the plan, then run the command again.")
    change = settled(view, replace(change, goal=change.goal or goal), now)
    return goal_end.nothing_left(view, change, now)  # what was cancelled stays so under its former id


def _check_is_open(view: GoalView, act: str) -> None:
    if view.goal.status.is_over:
        raise Refused(
            f"cannot {act} goal {view.goal.goal_id}: it is {view.goal.status}",
            hint="To create a new goal: llmc goal create --title ...",
        )
