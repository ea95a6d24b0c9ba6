"""The commands that goals tell the user to run: they work, whatever else is in the store."""

import shlex
from pathlib import Path

import pytest

from llmc.api import goal_views
from llmc.attention import raising
from llmc.base.errors import LlmcError, UsageError
from llmc.cli.goal_show import question_row
from llmc.goals import planning, work
from llmc.goals.goals import new_goal, of_goal, open_store
from llmc.goals.model import AssignmentStatus
from llmc.goals.store.goal_store import Damaged
from llmc.records.store import Store
from llmc.repo.project import Project
from tests.support import on_postgres
from tests.support.goal_records import GOAL, assignment, node, view_of

PLAN = "# Import\n## Phase\n### First\naccept: it works\n### Second\naccept: it works too\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = on_postgres.bare(tmp_path)
    Store(made.root).create()
    return made


def created(project: Project, title: str, folder: Path) -> str:
    file = folder / "plan.md"
    file.write_text(PLAN)
    made = planning.create(project, new_goal(title), planning.first_plan, file)
    return made.view.goal.goal_id


def test_the_same_item_of_two_goals_is_two_questions(project: Project, tmp_path: Path) -> None:
    """Each is on the attention list, and its command answers it.

    Break: leave the goal out of `question_key`, or out of `Question.command`.
    """
    both = [created(project, title, tmp_path) for title in ("Import", "Export")]
    for goal_id in both:
        work.block(project, "T1.1", goal_id, reason="which server?")
    shown = {item.who: item.next for item in raising.current(project)}
    assert shown == {goal_id: f'llmc answer T1.1 --goal {goal_id} "..."' for goal_id in both}
    listed = {one.goal_id: question_row(one)["next"] for one in work.open_questions(project)}
    assert {goal_id: f'{command} "..."' for goal_id, command in listed.items()} == shown
    with pytest.raises(UsageError, match="matches several questions") as refused:
        work.answer(project, "T1.1", "the new one")
    assert all(f"`{command} ...`" in refused.value.hint for command in listed.values())
    for command in listed.values():
        _, _, question_id, _, goal_id = shlex.split(command)
        work.answer(project, question_id, "the new one", goal_id)
    assert (work.open_questions(project), raising.current(project)) == ([], [])


@on_postgres.GOAL_FILE
def test_a_goal_that_cannot_be_read_is_not_none(project: Project, tmp_path: Path) -> None:
    """`goal show` without an ID must not say "there are no goals": creating one sets the damaged file aside.

    Break: read the store itself in `the_goal`.
    """
    assert _refused(project) == "there are no goals"
    goal_id = created(project, "Import", tmp_path)
    assert goal_views.the_goal(project, None) == goal_id
    store = open_store(project)
    with store.writing() as tx:
        tx.db.execute("UPDATE goals SET payload = '{}'")
    assert _refused(project) == f"cannot read any goal: {goal_id}"
    store.path.write_bytes(b"no database " * 1000)
    with pytest.raises(Damaged):
        goal_views.the_goal(project, None)


def _refused(project: Project) -> str:
    with pytest.raises(LlmcError) as refused:
        goal_views.the_goal(project, None)
    return refused.value.message


def test_why_work_has_stalled_is_about_its_own_goal() -> None:
    """Break: leave --goal out of the command in `of_goal`."""
    view = view_of(
        node("P1"), node("T1.1"), node("S1.1.1"), assignments=(assignment(AssignmentStatus.STALLED),)
    )
    (item,) = of_goal(view).values()
    assert item["next"] == f"llmc goal why S1.1.1 --goal {GOAL}"
