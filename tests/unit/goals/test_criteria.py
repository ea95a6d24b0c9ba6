"""A goal is reached when its plan is done and its verify commands pass; otherwise the user is asked."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.base.errors import UsageError
from llmc.goals.drive import goal_end
from llmc.goals.drive.by_hand import questions
from llmc.goals.drive.goal_end import CHECK_AGAIN, COMPLETE, wants_check
from llmc.goals.drive.moves import after, bare, commands, criterion, is_reached, settled
from llmc.goals.model import Asking, BlockedReason, Change, GoalStatus, GoalView, NodeStatus
from llmc.goals.model import Tested as Ran
from tests.support.goal_world import START, goal, plan

WANTED = ("it is fast", criterion("make test"), "`tox` passes.")
PASSED, FAILED = (
    Ran(command="make test", result="passed"),
    Ran(command="tox", result="failed with exit code 1"),
)


def worked_off(**fields: object) -> GoalView:
    """All items of the plan are done, and their parents follow."""
    nodes = {key: replace(node, status=NodeStatus.DONE) for key, node in plan(1, 1, 2).items()}
    view = GoalView(goal(success_criteria=WANTED, **fields), nodes)
    return after(view, settled(view, Change(), START))


def found(view: GoalView, *results: Ran) -> GoalView:
    numbers = iter("123456789")
    return after(view, goal_end.checked(view, results, "1a2b3c4d", START + 9, lambda: next(numbers), ()))


def test_which_criteria_have_a_command() -> None:
    assert commands(WANTED) == ("make test", "tox")
    assert commands(("make test passes", "`a` and `b` pass", "see `x` passes", "`x` passes fast", "``")) == ()


@given(st.text(alphabet="a` \n.", min_size=1).filter(lambda text: text.strip("` \n")))
@example('test "`date +%u`" -lt 6')
@example("`make test`")
@example("make lint\nmake test")
@example("a passes`` b")
def test_every_command_is_a_criterion_that_is_run(command: str) -> None:
    """What `criterion` writes, `commands` reads.

    Break: write every command in one backtick; or do not let a command span lines in `CODE`.
    """
    assert commands((criterion(command),)) == (bare(command),)
    assert not is_reached(goal(success_criteria=(criterion(command),)))


def test_a_command_written_as_code_is_that_command() -> None:
    """A shell would run the output of a command in backticks. Break: return the text as it is in `bare`."""
    assert [bare(text) for text in ("`make test`", " ``echo `date` `` ")] == ["make test", "echo `date`"]
    assert [bare(text) for text in ("`a` && `b`", "make `x`", "``")] == ["`a` && `b`", "make `x`", "``"]
    assert commands(("`a` and `b` passes", "`` `` passes", "` ` passes")) == ()


@pytest.mark.parametrize("command", ["", " \n", "``", "` `"])
def test_no_command_is_no_criterion(command: str) -> None:
    """Break: leave the check out of `criterion`, and the goal has a criterion that is never run."""
    with pytest.raises(UsageError, match="the verify command is empty"):
        criterion(command)


@pytest.mark.req("3-058")
def test_done_is_not_reached() -> None:
    """Break: let `is_reached` always return True; or ignore `asks` in `questions`."""
    view = worked_off()
    assert (view.goal.status, wants_check(view)) == (GoalStatus.ACTIVE, True)
    assert not wants_check(replace(view, goal=replace(view.goal, status=GoalStatus.PAUSED)))
    assert not wants_check(GoalView(view.goal, plan(1, 1, 1))), "while its plan is in progress"
    assert worked_off(checked=None).goal.status is GoalStatus.ACTIVE
    without = replace(view, goal=replace(view.goal, success_criteria=("it is fast",)))
    assert after(without, settled(without, Change(), START)).goal.status is GoalStatus.COMPLETED

    failing = found(view, PASSED, FAILED)
    assert (failing.goal.status, wants_check(failing)) == (GoalStatus.ACTIVE, False)
    (question,) = questions(failing)
    assert (question.id, question.work_node_id, question.reason.kind) == ("goal_1", "", "criteria")
    assert "are met at commit 1a2b3c4d: `tox` failed with exit code 1" in question.reason.question
    assert "make test" not in question.reason.question

    again = after(failing, goal_end.answered(failing, CHECK_AGAIN, START))
    assert (wants_check(again), questions(again)) == (True, [])
    for said in (COMPLETE, "complete it all the same"):  # the option of an older llmc's question
        by_hand = after(failing, goal_end.answered(failing, said, START))
        assert by_hand.goal.checked is not None
        assert (by_hand.goal.status, by_hand.goal.checked.by) == (GoalStatus.COMPLETED, "human")
    passing = found(again, PASSED, replace(FAILED, result="passed"))
    assert (passing.goal.status, is_reached(passing.goal)) == (GoalStatus.COMPLETED, True)


@pytest.mark.req("3-058", "3-X24")
def test_what_is_opened_again_is_checked_again() -> None:
    """Break: keep `checked` in `_rolled_goal`."""
    for view in (found(worked_off(), PASSED, FAILED), found(worked_off(), PASSED)):
        leaf = replace(view.nodes["S1.1.1"], status=NodeStatus.QUEUED)
        opened = after(view, settled(view, Change(nodes=(leaf,)), START))
        assert (opened.goal.status, opened.goal.checked, questions(opened)) == (GoalStatus.ACTIVE, None, [])
        done = Change(nodes=(replace(leaf, status=NodeStatus.DONE),))
        assert wants_check(after(opened, settled(opened, done, START)))


@pytest.mark.req("3-053", "3-075")
def test_the_handoff_says_what_was_run_and_what_is_left() -> None:
    """Break: leave `unchecked` out of the questions."""
    view = worked_off()
    change = goal_end.checked(view, [PASSED], "1a2b", START, lambda: "C_1", ())
    (crystal,) = change.crystallizations
    assert (crystal.work_node_id, crystal.evidence.tests_run) == ("", (PASSED,))
    assert crystal.current_state == "1 of 1 verify commands passed"
    assert crystal.open_questions == ("Is this success criterion met? it is fast",)


@pytest.mark.req("3-084", "3-X17")
def test_a_goal_without_a_plan_asks_and_one_with_a_plan_goes_on() -> None:
    """Break: ask even where there are nodes; or where the user's own file is not a plan."""
    empty = GoalView(goal())
    change = goal_end.failed(empty, "3 attempts", START)
    (question,) = questions(after(empty, change))
    assert (question.reason.kind, question.reason.options) == ("plan", ("plan it again", "cancel it"))
    for quiet in (
        goal_end.failed(GoalView(goal(), plan(1, 1, 1)), "3 attempts", START),
        goal_end.failed(empty, "line 3", START, asks=False),
    ):
        assert (quiet.goal, [event.type for event in quiet.events]) == (None, ["plan.failed"])
    assert goal_end.hinted(empty, "plan it again") == ""
    assert goal_end.hinted(GoalView(goal(problem_statement="P")), "only A") == "P\n\nThe user says: only A"


@pytest.mark.parametrize("criteria", [(), WANTED])
def test_a_completed_goal_asks_nothing(criteria: tuple[str, ...]) -> None:
    """Whether it has a verify command or not. Nothing can cancel a completed goal, as the question offers.

    Break: keep `asks` in `_rolled_goal`.
    """
    reason = BlockedReason(kind="replan", text="no server", options=("keep the current plan", "cancel it"))
    view = worked_off(asks=Asking(reason=reason, since=START))
    view = replace(view, goal=replace(view.goal, success_criteria=criteria))
    assert questions(view)
    completed = found(view, PASSED) if criteria else after(view, settled(view, Change(), START))
    assert (completed.goal.status, questions(completed)) == (GoalStatus.COMPLETED, [])
