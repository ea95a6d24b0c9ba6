"""What a task pool command may answer."""

import json

import pytest

from llmc.tasks.rules.draft import Draft, Failed, NoTask, read_answer


@pytest.mark.req("0-057")
@pytest.mark.parametrize(
    ("code", "text", "failed"),
    [
        (0, "", False),
        (0, " \n\n", False),
        (4, "none of them is ready", False),
        (3, "", True),
        (1, "Do it", True),
        (124, "", True),
        (-9, "", True),
    ],
)
def test_exit_codes(code: int, text: str, failed: bool) -> None:
    """Break: treat 4 as a failure, or 3 as none."""
    answer = read_answer(code, text, "k")
    assert isinstance(answer, Failed if failed else NoTask)
    assert not isinstance(answer, Failed) or f"code {code}" in answer.reason


def test_text_becomes_a_task() -> None:
    """Break: leave the id line in the text."""
    assert read_answer(0, "Do it\n\nWith care.\nAnd soon.\n", "k") == Draft(
        "Do it", "With care.\nAnd soon.", key="k", by="task_pool_command"
    )
    assert read_answer(0, "id: T-1\n# Do it\n", "k") == Draft("Do it", key="T-1", by="task_pool_command")
    said = {"subject": "S", "description": "D", "priority": 0, "label": "db", "after": [3, "x"], "key": "T"}
    assert read_answer(0, json.dumps(said), "k") == Draft(
        "S", "D", 0, "db", ("3", "x"), key="T", by="task_pool_command"
    )
    assert read_answer(0, "{braces} begin a subject", "k") == Draft(
        "{braces} begin a subject", key="k", by="task_pool_command"
    )
    headed = read_answer(0, "id: T\n---\npriority: 1\nverify: make\n---\n# S\n", "k")
    assert isinstance(headed, Draft)
    assert (headed.priority, headed.verify, headed.subject, headed.key) == (1, "make", "S", "T")


@pytest.mark.parametrize(
    "text",
    [
        "id: T-1\n",
        '{"subject": ""}',
        '{"subject": 3}',
        '{"subject": "S", "priority": 9}',
        '{"subject": "S", "priority": true}',
        '{"subject": "S", "after": "3"}',
        '{"subject": "S", "label": "a b"}',
        '{"subject": "S", "titel": "T"}',
        "---\nprio: 1\n---\n# S",
    ],
)
def test_what_is_no_task_is_said(text: str) -> None:
    """Break: leave out drafts.check."""
    answer = read_answer(0, text, "k")
    assert isinstance(answer, Failed)
    assert answer.reason.startswith("the task pool command printed an invalid task: ")
