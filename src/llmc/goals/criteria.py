"""Checks whether a goal is reached: runs the commands of its success criteria in a slot, on the default branch."""

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.proc import ShuttingDown
from llmc.goals.dispatch import Done
from llmc.goals.drive import goal_end
from llmc.goals.drive.goal_end import PASSED
from llmc.goals.drive.intents import Action
from llmc.goals.drive.rollup import commands
from llmc.goals.goals import new_id
from llmc.goals.model import Mode, Result, Tested
from llmc.goals.store.goal_store import GoalStore
from llmc.landing import validation
from llmc.repo import provision
from llmc.repo.project import Project

LOG = "criteria"
CHECK = "check"


def action(goal_id: str) -> Action:
    """The check as an action that can run in the background; one per goal."""
    return Action(
        dispatch_id=f"{CHECK}-{goal_id}",
        goal_id=goal_id,
        assignment_id="",
        work_node_id="",
        purpose=CHECK,
        mode=Mode.SPAWN,
        text="",
        agent_id="",
    )


def check(project: Project, store: GoalStore, goal_id: str) -> Done:
    """Run the commands and record the results. The store is not locked meanwhile; a killed check runs again."""
    view = store.view(goal_id)
    if not goal_end.wants_check(view):
        return Done(Result.OK, "no longer needed")
    wanted = commands(view.goal.success_criteria)
    commit = ""
    try:
        commit = provision.refresh_base(project)
        results = [_result(project, commit, command) for command in wanted]
    except ShuttingDown as error:
        return Done(None, str(error) or "llmc is stopping")
    except LlmcError as error:
        results = [_not_run(command, error) for command in wanted]
    with store.writing() as tx:
        now_view = tx.view(goal_id)
        if now_view is None or not goal_end.wants_check(now_view):
            return Done(Result.OK, "no longer needed")
        told = tx.crystallizations(goal_id)
        tx.apply(goal_end.checked(now_view, results, commit, now_unix(), lambda: new_id("C"), told))
    failed = [one.command for one in results if one.result != PASSED]
    return Done(Result.ERROR if failed else Result.OK, f"failed: {', '.join(failed)}" if failed else "")


def _result(project: Project, commit: str, command: str) -> Tested:
    try:
        done = validation.failing(project, LOG, commit, command)
    except ShuttingDown:
        raise
    except LlmcError as error:
        return _not_run(command, error)
    if done is None:
        return Tested(command=command, result=PASSED)
    last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "")
    said = f"failed with code {done.returncode}" + (f" ({last[:200]})" if last else "")
    return Tested(command=command, result=said)


def _not_run(command: str, error: LlmcError) -> Tested:
    return Tested(command=command, result=f"could not be run: {error.message}"[:500])
