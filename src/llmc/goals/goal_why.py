"""Finds what an id means, an assignment, a part of a plan or a goal, and lets the rules say why it stands where it does."""

import time

from llmc.base.clock import now_unix
from llmc.base.errors import NotFound
from llmc.config.durations import format_duration
from llmc.goals.drive.rollup import progress
from llmc.goals.drive.transitions import OPEN_ASSIGNMENT
from llmc.goals.goal_runner import policy_of
from llmc.goals.goal_work import view_with
from llmc.goals.goals import open_store
from llmc.goals.model import Assignment, GoalView
from llmc.goals.report.why import Clock, Why, why_assignment, why_goal, why_node
from llmc.goals.store.rows import Reader
from llmc.repo.project import Project


def why(project: Project, id: str, goal_id: str = "") -> Why:
    """From the store alone: nobody is asked, and nothing is observed."""
    store = open_store(project)
    with store.reading() as found:
        if store.damage:
            raise store.damaged()
        if found.goal(id) is not None:
            view = found.view(id)
            assert view is not None
            return why_goal(view, progress(view)[""].percent)
        return _of_part(project, found, id, goal_id)


def _of_part(project: Project, found: Reader, id: str, goal_id: str) -> Why:
    given = found.assignment(id)
    if given is None:
        view = view_with(found, id, goal_id)
        given = _newest(view, id)
        if given is None:
            return why_node(view, view.nodes[id])
    elif (of_goal := found.view(given.goal_id)) is not None:
        view = of_goal
    else:
        raise NotFound(
            f"the goal {given.goal_id} of {id} is gone", hint="`llmc overseer events` has what was."
        )
    return why_assignment(
        view,
        given,
        found.last_event("assignment.stalled", given.assignment_id),
        found.crystallizations(given.goal_id),
        policy_of(project),
        clock(now_unix()),
    )


def _newest(view: GoalView, node_id: str) -> Assignment | None:
    """Who has a part of the plan; else who had it last."""
    ours = [one for one in view.assignments.values() if one.work_node_id == node_id]
    return max(ours, key=lambda one: (one.status in OPEN_ASSIGNMENT, one.created_at), default=None)


def clock(now: float) -> Clock:
    """Ages, and times to come with the hour of the day."""

    def to_come(at: float) -> str:
        hour = time.strftime("%H:%M:%S", time.localtime(at))
        return (
            f"in {format_duration(at - now)} ({hour})" if at > now + 0.5 else f"with the next tick ({hour})"
        )

    return Clock(now, lambda at: f"{format_duration(max(0.0, now - at))} ago", to_come)
