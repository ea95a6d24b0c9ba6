"""What workers and users are told: enough to continue, within bounds, and the same for the same facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.cli.goal_show import question_lines
from llmc.goals.drive import words
from llmc.goals.drive.by_hand import Question
from llmc.goals.model import BlockedReason, Crystallization, Dispatch, Evidence, Mode
from tests.support.goal_world import START, goal, plan
from tests.unit.goals.test_policy import assignment

NODES = plan(1, 1, 2)
LEAF = replace(
    NODES["S1.1.2"],
    objective="Parse dates",
    expected_outcome="parse_date() works",
    acceptance_criteria=("ISO dates parse", "others are refused"),
    verify="make test-dates",
)
GOAL = goal(title="Calendars", problem_statement="Dates are strings.", constraints=("no new dependency",))


@pytest.mark.req("3-X9")
def test_the_first_word_is_work() -> None:
    """Objective, outcome, criteria, command, place, what it builds on, how to report; and no status question.

    Break: return `nudge_text` from `Round.work_text`.
    """
    crystal = Crystallization(
        crystallization_id="C",
        goal_id="goal_1",
        level="subtask",
        created_at=START,
        summary="Added the tokenizer.",
        evidence=Evidence(commits=("1a2b3c4d5e6f7890",)),
    )
    text = words.work_text(
        GOAL,
        LEAF,
        [NODES["T1.1"], NODES["P1"]],
        [(NODES["S1.1.1"], crystal)],
        answer="Use UTC.",
        taken_over=True,
    )
    for part in (
        "Parse dates",
        "parse_date() works",
        "- ISO dates parse",
        "make test-dates",
        "Calendars",
        "Task T1.1",
        "no new dependency",
        "Added the tokenizer.",
        "1a2b3c4d5e6f",
        "Use UTC.",
        "Another worker started this",
        "llmc report",
        '"workNodeId": "S1.1.2"',
    ):
        assert part in text, part
    assert "Status check" not in text
    assert text == words.work_text(
        GOAL,
        LEAF,
        [NODES["T1.1"], NODES["P1"]],
        [(NODES["S1.1.1"], crystal)],
        answer="Use UTC.",
        taken_over=True,
    )


@pytest.mark.req("3-089", "3-101")
def test_the_nudge_asks_for_what_helps() -> None:
    """Status, next, blockers, DONE with evidence, and one fenced block. Break: leave a line out."""
    text = words.nudge_text(GOAL, LEAF)
    for part in ("Status:", "Next:", "Blockers:", "If finished: reply DONE", "summary", "evidence"):
        assert part in text
    assert text.count("```json") == 1
    for key in ("goalId", "workNodeId", "status", "summary", "next", "blockers", "evidence"):
        assert f'"{key}"' in text


def test_the_question_has_all_a_person_needs() -> None:
    asked = Dispatch(dispatch_id="D", ts=START, mode=Mode.SEND, purpose="nudge", instruction_hash="h")
    one = assignment("auto", "auto-1", dispatch_history=(asked, replace(asked, purpose="escalate")))
    reason = BlockedReason(kind="question", text="A or B?", question="Which?", options=("A", "B"))
    text = words.question_text(GOAL, LEAF, one, reason)
    for part in (
        "Calendars",
        "S1.1.2",
        "A or B?",
        "Which?",
        "1. A",
        "2. B",
        "Tried so far: status check to the worker",
        "answer A_1",
        "Previous questions: 1",
    ):
        assert part in text, part
    again = words.reminder_text(GOAL, LEAF, replace(one, reminders=2), reason)
    assert again.startswith("Reminder 2")


@given(st.text(max_size=50), st.integers(min_value=0, max_value=2_000))
def test_everything_has_its_bound(said: str, times: int) -> None:
    """However long the plan's texts are; and the instructions for reports are never cut."""
    long = (said or "x") * times
    leaf = replace(LEAF, objective=long, acceptance_criteria=(long, long), name=long)
    reason = BlockedReason(kind="k", text=long, question=long, options=(long,) * 20)
    text = words.work_text(GOAL, leaf, [], [(leaf, None)] * 30, answer=long)
    assert len(text.encode()) <= words.MAX_INSTRUCTION
    assert text.endswith("```")
    assert len(words.answer_text(GOAL, leaf, long).encode()) <= words.MAX_INSTRUCTION
    assert len(words.question_text(GOAL, leaf, assignment("auto"), reason).encode()) <= words.MAX_QUESTION
    assert len(words.reminder_text(GOAL, leaf, assignment("auto"), reason).encode()) <= words.MAX_QUESTION
    assert len(words.nudge_text(GOAL, leaf).encode()) <= words.MAX_INSTRUCTION


def test_a_cut_does_not_split_a_character() -> None:
    assert words.fit("ä" * 100, 21) == "ä" * 7 + " [...]"


def test_what_a_worker_needs_is_asked_in_its_own_words() -> None:
    """Break: put our own question into `blockers_reason`; the inbox would show that instead."""
    reason = words.blockers_reason(("Which dialects count?",), "it is stuck")
    asked = Question("A_1", "goal_1", "Calendars", "S1.1.2", "Dates", "A_1", reason, START)
    assert question_lines(asked, START + 5) == [
        "A_1  S1.1.2 Dates (Calendars), 5s ago",
        "    Which dialects count?",
        '    llmc answer A_1 "..."',
    ]
