"""Another plan for a goal because a person wants one: what is done stays, and what changed is told."""

from pathlib import Path

from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, UsageError
from llmc.goals import goal_concerns, planner
from llmc.goals.drive import unplanned
from llmc.goals.drive.clean import check_typed
from llmc.goals.drive.rollup import settled
from llmc.goals.goal_planning import check_can_plan, limits_of, plan_from_file, record_planning, setup_of
from llmc.goals.goals import open_store, with_repo_context
from llmc.goals.model import Change, GoalStatus, GoalView, PlanRevision
from llmc.goals.plan.plan import Plan, Provenance
from llmc.goals.plan.replan import merge_plan
from llmc.goals.planner import PlanFailed
from llmc.goals.store.store import GoalStore
from llmc.repo.project import Project


def replan(project: Project, goal_id: str, why: str, file: Path | None) -> tuple[GoalView, PlanRevision]:
    """The goal with its new plan, and what became different. The planner runs while nobody holds the store."""
    why = check_typed("why", why).strip() or (
        "read from " + file.name if file else "a person wants another plan"
    )
    store = open_store(project)
    view = store.view(goal_id)
    _check_is_open(view)
    try:
        _replanned(project, store, view, why, file)
    except LlmcError as error:
        failed, at = error.message, now_unix()
        # As with a first plan: a file is in the hands of its author, of a planner's failure a person has to know.
        store.update(goal_id, lambda now: unplanned.not_replanned(now, why, failed, at, asks=file is None))
        raise
    finally:
        project.wake()
        goal_concerns.after_a_word(project, store)
    after = store.view(goal_id)
    history = after.goal.plan_revision_history
    if len(history) == len(view.goal.plan_revision_history):
        return after, PlanRevision(ts=now_unix(), why=why)
    return after, history[-1]


def _replanned(project: Project, store: GoalStore, view: GoalView, why: str, file: Path | None) -> None:
    view = with_repo_context(project, view)
    plan, provenance = plan_from_file(project, file) if file else _asked(project, view, why)

    def write(now_view: GoalView) -> Change:
        _check_is_open(now_view)
        now = now_unix()
        seen = replace(now_view.goal, repo_context_snapshot=view.goal.repo_context_snapshot)
        now_view = replace(now_view, goal=unplanned.replanned(seen))
        change = merge_plan(now_view, plan, now, why, provenance, limits_of(project))
        if not isinstance(change, Change):
            raise UsageError("; ".join(map(str, change))[:2000], hint="Fix the plan, then try again.")
        if change.goal is None:
            change = replace(change, goal=now_view.goal)
        return settled(now_view, change, now)

    # What a person wrote into a file is as good as typed: a secret in it is refused, not taken out.
    store.update(view.goal.goal_id, write, typed=file is not None)


def _check_is_open(view: GoalView) -> None:
    if view.goal.status in (GoalStatus.CANCELLED, GoalStatus.ARCHIVED):
        raise Refused(
            f"goal {view.goal.goal_id} is {view.goal.status}", hint="Make a new one: `llmc goal create`."
        )


def _asked(project: Project, view: GoalView, why: str) -> tuple[Plan, Provenance]:
    check_can_plan(project)
    found = planner.replan_goal(setup_of(project), view, why)
    if isinstance(found, PlanFailed):
        record_planning(project, view.goal.goal_id, found.planner, found.tokens)
        raise LlmcError(found.text, hint=found.hint)
    record_planning(project, view.goal.goal_id, found.provenance.planner, found.tokens)
    return found.made, found.provenance
