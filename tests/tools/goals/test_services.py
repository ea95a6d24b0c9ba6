"""The user's goal operations, below the command line: planning by any planner, and two users at once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.attention import raising
from llmc.base.errors import LlmcError, Refused
from llmc.config.goal_options import GoalPlanner
from llmc.goals import goals, planning, work
from llmc.goals.drive import goal_end
from llmc.goals.drive.clean import SecretRefused
from llmc.goals.drive.moves import criterion
from llmc.goals.goals import new_goal, open_store
from llmc.goals.model import Goal, GoalStatus, GoalView, PlannerRef
from llmc.goals.model import Tested as Ran
from llmc.goals.plan.plan import Limits, Plan, Provenance
from llmc.goals.plan.plan_text import read_plan
from llmc.goals.planning import Created
from llmc.records.store import Store
from llmc.repo.project import Project
from tests.support import on_postgres
from tests.support.goal_plans import small_plan


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return on_postgres.bare(tmp_path)


@dataclass
class Stub:
    """A planner that answers as it is told to."""

    answer: Callable[[GoalView], Plan]
    asked: int = 0
    file: Path | None = None

    def __call__(self, project: Project, view: GoalView, file: Path | None) -> tuple[Plan, Provenance]:
        self.asked += 1
        self.file = file
        return self.answer(view), Provenance(PlannerRef(model_ref="stub"))


PLAN = "# Import\n## Phase\n### First\naccept: it works\n### Second\naccept: it works too\n"


def two_tasks(view: GoalView) -> Plan:
    found = read_plan(PLAN, Limits())
    assert isinstance(found, Plan)
    return found


def types(project: Project, goal_id: str) -> list[str]:
    with open_store(project).reading() as found:
        return [event.type for _, event in found.events(goal_id)]


@pytest.mark.req("3-X17", "3-X25")
def test_a_goal_is_kept_and_then_planned(project: Project) -> None:
    """Break: plan before the goal is written."""
    seen: list[GoalView] = []

    def look(view: GoalView) -> Plan:
        seen.append(open_store(project).view(view.goal.goal_id))  # it is on disk, and the store is not locked
        return two_tasks(view)

    planner = Stub(look)
    made = planning.create(project, new_goal("Import"), planner)
    assert (made.planned, made.problem, planner.file) == (True, "", None)
    assert list(made.view.nodes) == ["P1", "T1.1", "T1.2"]
    assert made.view.goal.planner.model_ref == "stub"
    goal_id = made.view.goal.goal_id
    assert seen[0].goal.title == "Import"
    assert types(project, goal_id) == ["goal.created", "plan.generated"]
    with pytest.raises(Refused, match="has a plan"):
        planning.plan(project, goal_id, make_plan=planner)
    assert planner.asked == 1


@pytest.mark.req("3-X17")
def test_a_goal_is_kept_whatever_its_planner_does(project: Project) -> None:
    """Break: write the goal in the same transaction as its plan."""

    def fail(view: GoalView) -> Plan:
        raise LlmcError("the model is away", hint="Try later.")

    def crash(view: GoalView) -> Plan:
        raise RuntimeError("a bug")

    failed = planning.create(project, new_goal("Import"), Stub(fail))
    assert (failed.planned, failed.problem, failed.hint) == (False, "the model is away", "Try later.")
    goal_id = failed.view.goal.goal_id
    assert types(project, goal_id) == ["goal.created", "plan.failed"]
    with pytest.raises(RuntimeError):
        planning.create(project, new_goal("Export"), Stub(crash))
    with open_store(project).reading() as found:
        assert [one.goal.title for one in found.views()] == ["Import", "Export"]
        assert len(set(found.goal_ids())) == 2
    view = planning.plan(project, goal_id, make_plan=Stub(two_tasks))
    assert len(view.nodes) == 3


def test_of_two_plans_at_the_same_time_the_first_counts(project: Project) -> None:
    """Break: leave the second check of `nodes` out of `plan`."""
    goal_id = planning.create(project, new_goal("Import"), None).view.goal.goal_id

    def slow(view: GoalView) -> Plan:
        planning.plan(project, goal_id, make_plan=Stub(two_tasks))
        return two_tasks(view)

    with pytest.raises(Refused, match="in the meantime"):
        planning.plan(project, goal_id, make_plan=Stub(slow))
    assert types(project, goal_id).count("plan.generated") == 1


def test_what_the_user_does_while_the_goal_is_planned_counts(project: Project) -> None:
    """Break: merge the plan into the goal as it was before the planner ran."""

    def planned_while(act: Callable[[str], object]) -> tuple[Created, Goal]:
        def slow(view: GoalView) -> Plan:
            act(view.goal.goal_id)
            return two_tasks(view)

        made = planning.create(project, new_goal("Import"), Stub(slow))
        return made, open_store(project).view(made.view.goal.goal_id).goal

    _, goal = planned_while(lambda goal_id: goals.change(project, goal_id, {"budget_usd": 5.0}))
    assert (goal.budget_usd, goal.planner.model_ref) == (5.0, "stub")
    made, goal = planned_while(lambda goal_id: goals.pause(project, goal_id))
    assert (made.planned, goal.status) == (True, GoalStatus.PAUSED)
    made, goal = planned_while(lambda goal_id: goals.cancel(project, goal_id))
    assert (made.planned, goal.status, made.view.nodes) == (False, GoalStatus.CANCELLED, {})
    assert made.problem == f"cannot plan goal {goal.goal_id}: it is cancelled"

    def cancel_and_fail(goal_id: str) -> None:
        goals.cancel(project, goal_id)
        raise LlmcError("the model is away")

    _, goal = planned_while(cancel_and_fail)
    assert (goal.status, goal.asks) == (GoalStatus.CANCELLED, None)


def test_a_cancelled_goal_is_not_planned(project: Project) -> None:
    """Break: do not check the goal before asking the planner."""
    goal_id = planning.create(project, new_goal("Import"), None).view.goal.goal_id
    goals.cancel(project, goal_id)
    planner = Stub(two_tasks)
    with pytest.raises(Refused, match=r"cannot plan goal .*: it is cancelled"):
        planning.plan(project, goal_id, make_plan=planner)
    assert planner.asked == 0


def test_a_plan_answers_every_question_about_planning(tmp_path: Path) -> None:
    """Break: drop only the question about replanning in `_with_plan`."""
    project, file = planned_by("exit 3", tmp_path), tmp_path / "plan.md"
    Store(project.root).create()
    file.write_text(PLAN)
    goal_id = planning.create(project, new_goal("Import"), planning.first_plan).view.goal.goal_id
    (asked,) = work.open_questions(project)
    assert asked.reason.kind == "plan"
    planning.replan_by_hand(project, goal_id, "my own", file)
    assert (work.open_questions(project), raising.current(project)) == ([], [])


def test_another_plan_that_is_not_made_asks_a_person(tmp_path: Path) -> None:
    """As the first plan does.

    Break: only record the failure, and the goal continues as if no plan had been requested.
    """
    project, prompts = planned_by("cat; exit 3", tmp_path), tmp_path / "prompt"
    Store(project.root).create()
    goal_id = planning.create(project, new_goal("Import"), Stub(two_tasks)).view.goal.goal_id
    bad = tmp_path / "bad.md"
    bad.write_text("no plan")
    with pytest.raises(LlmcError):
        planning.replan_by_hand(project, goal_id, "no server", bad)
    assert work.open_questions(project) == [], "a file is its author's responsibility"
    with pytest.raises(LlmcError):
        planning.replan_by_hand(project, goal_id, "no server", None)
    (asked,) = work.open_questions(project)
    assert (asked.reason.kind, asked.reason.options[1]) == ("replan", "keep the current plan")
    assert "Replanning failed (reason for replanning: no server)" in asked.reason.question
    assert list(open_store(project).view(goal_id).nodes) == ["P1", "T1.1", "T1.2"], (
        "it continues with its current plan"
    )
    (item,) = raising.current(project)
    assert (item.kind, item.next) == ("goal_question", f'llmc answer {goal_id} "..."')

    for keep in ("2", "keep the plan there is"):  # the latter as an older llmc worded it
        work.answer(project, goal_id, keep)
        assert work.open_questions(project) == []
        with pytest.raises(LlmcError):
            planning.replan_by_hand(project, goal_id, "no server", None)
    with pytest.raises(LlmcError):
        work.answer(project, goal_id, "use files")
    assert "use files" in work.open_questions(project)[0].reason.text, "a hint is part of the request"
    (tmp_path / "plan.json").write_text(json.dumps(small_plan()))
    project = planned_by(f"cat > {prompts}; cat {tmp_path}/plan.json", tmp_path)
    work.answer(project, goal_id, "1")
    assert work.open_questions(project) == []
    assert raising.current(project) == []
    assert "no server. The user says: use files" in prompts.read_text()
    assert "T2.1" in open_store(project).view(goal_id).nodes


def planned_by(command: str, folder: Path) -> Project:
    made = on_postgres.bare(folder)
    planner = GoalPlanner(command=command, max_repair_attempts=0)
    wanted = replace(made.config.overseer, goals=replace(made.config.overseer.goals, planner=planner))
    return replace(made, config=replace(made.config, overseer=wanted))


def test_an_answer_counts_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: leave the check of `_questions` out of `answer`."""
    goal_id = planning.create(project, new_goal("Import"), Stub(two_tasks)).view.goal.goal_id
    work.block(project, "T1.1", reason="which?")
    work.block(project, "T1.2", reason="and this?")
    asked = work.open_questions(project)
    work.answer(project, "T1.1", "that")
    with pytest.raises(LlmcError, match="no open question"):
        work.answer(project, "T1.1", "this")
    # As it was for a user who looked before.
    monkeypatch.setattr(work, "open_questions", lambda project: asked)
    with pytest.raises(Refused, match="already been answered"):
        work.answer(project, "T1.1", "this")
    assert types(project, goal_id).count("work.answered") == 1


@pytest.mark.req("3-016")
def test_a_plan_that_a_person_wrote_is_refused_with_a_secret_in_it(project: Project, tmp_path: Path) -> None:
    """Break: `typed=False` in `plan`. From a machine's plan, only the secret is removed."""
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"

    def loose(view: GoalView) -> Plan:
        made = two_tasks(view)
        return replace(made, phases=(replace(made.phases[0], objective=f"push with {token}"),))

    with pytest.raises(SecretRefused, match=r"found a secret in the objective \(GitHub token"):
        planning.create(project, new_goal("Import"), Stub(loose), tmp_path / "plan.md")
    with open_store(project).reading() as found:
        assert found.goal_ids() == [], "a goal and its plan file are stored together or not at all"
    by_machine = planning.create(project, new_goal("Import"), Stub(loose))
    assert by_machine.view.nodes["P1"].objective == "push with [GitHub token removed]"


@pytest.mark.req("3-061")
def test_an_id_is_never_used_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: leave out the loop that checks whether the id is taken."""
    numbers = iter(["goal_1", "goal_1", "goal_1", "goal_2"])
    for module in (goals, planning):
        monkeypatch.setattr(module, "new_id", lambda kind: next(numbers))
    first = planning.create(project, new_goal("First"), None).view.goal.goal_id
    second = planning.create(project, new_goal("Second"), None).view.goal.goal_id
    assert (first, second) == ("goal_1", "goal_2")
    assert open_store(project).view("goal_1").goal.title == "First"


def test_a_goal_without_anything_left_asks_how_to_proceed(project: Project) -> None:
    """Break: leave `nothing_left` out of `_on_node`; or ask although another item is open."""
    made = planning.create(project, new_goal("Import"), Stub(two_tasks))
    goal_id = made.view.goal.goal_id
    work.override(project, "T1.1", goal_id, status="cancelled", reason="not this one")
    assert work.open_questions(project) == []
    work.override(project, "T1.2", goal_id, status="cancelled", reason="nor this one")
    (question,) = work.open_questions(project)
    assert (question.goal_id, question.reason.text) == (goal_id, "all plan items are cancelled")
    assert question.reason.options == ("plan it again", "cancel it")
    work.answer(project, question.id, "2")
    assert open_store(project).view(goal_id).goal.status is GoalStatus.CANCELLED
    assert work.open_questions(project) == []


def test_a_goal_without_anything_left_asks_until_it_has_work(tmp_path: Path) -> None:
    """A plan with the ids of cancelled items has nothing left either, and neither has the same plan once more.

    Break: leave `nothing_left` out of `_with_plan`.
    """
    project = planned_by(f"cat > /dev/null; cat {tmp_path}/plan.json", tmp_path)
    Store(project.root).create()
    (tmp_path / "plan.json").write_text(json.dumps(small_plan()))
    goal_id = planning.create(project, new_goal("Import"), planning.first_plan).view.goal.goal_id
    for node in open_store(project).view(goal_id).nodes.values():
        if node.node_id.startswith("P"):
            work.override(project, node.node_id, goal_id, status="cancelled", reason="not like this")
    (question,) = work.open_questions(project)
    work.answer(project, question.id, "plan it again")
    (question,) = work.open_questions(project)
    assert question.reason.text == "all plan items are cancelled"
    assert [item.kind for item in raising.current(project)] == ["goal_question"]
    _, revision = planning.replan_by_hand(project, goal_id, "once more", tmp_path / "plan.json")
    assert (revision.added, revision.changed) == ((), ())
    (question,) = work.open_questions(project)
    assert question.reason.options == ("plan it again", "cancel it")
    file = tmp_path / "other.md"
    file.write_text("# Import\n## P9: Phase\n### T9.1: First\naccept: it works\n")
    planning.replan_by_hand(project, goal_id, "another way", file)
    assert (work.open_questions(project), raising.current(project)) == ([], [])


def test_a_goal_whose_failing_command_is_removed_is_completed(project: Project) -> None:
    """Nothing would run or ask again. Break: return the change of `goals.change` unsettled."""
    project.store.create()
    fields = {"success_criteria": ("it is fast", criterion("false"))}
    goal_id = planning.create(project, new_goal("Import", **fields), Stub(two_tasks)).view.goal.goal_id
    for leaf in ("T1.1", "T1.2"):
        work.done(project, leaf, goal_id)
    failed = [Ran(command="false", result="failed with exit code 1")]
    ids = iter("123")
    open_store(project).update(
        goal_id, lambda view: goal_end.checked(view, failed, "", 1.0, ids.__next__, ())
    )
    assert [one.reason.kind for one in work.open_questions(project)] == ["criteria"]
    changed = goals.change(project, goal_id, {"success_criteria": ("it is fast", criterion("true"))})
    assert (changed.status, changed.checked) == (GoalStatus.ACTIVE, None), "its new command must run first"
    changed = goals.change(project, goal_id, {"success_criteria": ("it is fast",)})
    assert changed.status is GoalStatus.COMPLETED
    assert open_store(project).view(goal_id).goal == changed
    assert types(project, goal_id)[-2:] == ["goal.updated", "goal.completed"]
    assert (work.open_questions(project), raising.current(project)) == ([], [])
