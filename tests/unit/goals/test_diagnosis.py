"""What a planner may say about a stall."""

import json

import pytest

from llmc.goals.plan.diagnosis import Diagnosis, Escalate, Nudge, check_diagnosis


@pytest.mark.req("3-087")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"actions": []}, "$.actions: must not be empty"),
        ({"actions": [{"type": "kill"}]}, '$.actions[0].type: must be one of nudge, escalate, not "kill"'),
        ({"actions": [{"type": "nudge"}]}, "$.actions[0]: `message` is missing"),
        (
            {"actions": [{"type": "nudge", "message": "m", "question": "q"}]},
            "$.actions[0]: `question` is not allowed for type `nudge`",
        ),
        ({"actions": [{"type": "escalate", "question": "q"}]}, "$.actions[0]: `options` is missing"),
        (
            {"actions": [{"type": "escalate", "question": "q", "options": []}]},
            "$.actions[0].options: must not be empty",
        ),
        (
            {"actions": [{"type": "nudge", "message": "m"}] * 4},
            "$.actions: must have at most 3 entries, not 4",
        ),
        ({"actions": [{"type": "nudge", "message": "m"}], "why": "x"}, '$: unknown key "why"'),
    ],
)
def test_only_nudges_and_questions_are_a_diagnosis(value: object, said: str) -> None:
    """Break: leave `_fields` out, or let the schema accept more keys."""
    found = check_diagnosis(json.dumps(value))
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [said]


@pytest.mark.req("3-087")
def test_a_diagnosis_is_its_actions() -> None:
    """Break: drop all but the first action."""
    actions = [
        {"type": "nudge", "message": "Say how far you are"},
        {"type": "escalate", "question": "A or B?", "options": ["A", "B"]},
    ]
    expected = Diagnosis((Nudge("Say how far you are"), Escalate("A or B?", ("A", "B"))))
    assert check_diagnosis(json.dumps({"actions": actions})) == expected
    assert isinstance(check_diagnosis("nudge them"), tuple)
