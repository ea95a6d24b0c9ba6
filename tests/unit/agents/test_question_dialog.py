"""The dialog of a question: recognized completely, or not at all."""

from pathlib import Path

import pytest

from llmc.agents.agent_events import Shown
from llmc.agents.claude.hooks import asked
from llmc.agents.claude.screen import recognise
from llmc.records.hook_events import HookEvent

RULE = "─" * 40
SCREEN = f"""❯ [llmc task-1]
  @ask Which colour?
{RULE}
 ☐ Question

Which colour?

❯ 1. Yes
     Say Yes
  2. No
     Say No
  3. Type something.
{RULE}
  4. Chat about this

Enter to select · ↑/↓ to navigate · Esc to cancel
"""
TYPED = (
    SCREEN.replace("❯ 1.", "  1.")
    .replace("  3. Type something.", "❯ 3. blue")
    .replace("navigate ·", "navigate · ctrl+g to edit ·")
)
OPTIONS = ("Yes", "No")


def test_what_clients_draw_is_recognised() -> None:
    assert recognise(SCREEN, "Which colour?", OPTIONS) == Shown("", in_free_line=False)
    assert recognise(TYPED, "Which colour?", OPTIONS) == Shown("blue", in_free_line=True)
    captured = Path(__file__).parents[2] / "cases/screens/question-open.txt"
    assert recognise(captured.read_text(), "Which colour?", OPTIONS) == Shown("", in_free_line=False)
    wrapped = SCREEN.replace("\nWhich colour?\n\n❯", "\nWhich\ncolour?\n\n❯")
    assert recognise(wrapped, "Which colour?", OPTIONS) is not None


HINT = SCREEN.replace("❯ 1.", "  1.").replace("  3. Type", "❯ 3. Type")
#: the column and row of the hint's first letter
AT_START = (5, HINT.split("\n").index("❯ 3. Type something."))


def test_the_cursor_tells_the_hint_from_a_draft() -> None:
    """Break: go by the words, or by the first of them; or read the first line of a draft only."""
    column, row = AT_START
    assert recognise(HINT, "Which colour?", OPTIONS, AT_START) == Shown("", in_free_line=True)
    same_words = recognise(HINT, "Which colour?", OPTIONS, (column + len("Type something."), row))
    assert same_words == Shown("Type something.", in_free_line=True)
    longer = HINT.replace("something.", "something else")
    assert recognise(longer, "Which colour?", OPTIONS, AT_START) == Shown("Type something else", True)
    left = longer.replace("❯ 3.", "  3.").replace("  1.", "❯ 1.")
    assert recognise(left, "Which colour?", OPTIONS, (0, row - 4)) == Shown("Type something else", False)
    for first in ("Type something.", "blue"):
        lines = HINT.replace("Type something.", f"{first}\n     or green")
        assert recognise(lines, "Which colour?", OPTIONS, AT_START) == Shown(f"{first}\nor green", True)
    styled = HINT.replace("Type something.", "\x1b[7mT\x1b[0;2mype something.\x1b[0m")
    assert recognise(styled, "Which colour?", OPTIONS, AT_START) == Shown("", in_free_line=True)


@pytest.mark.parametrize(
    "screen",
    [
        "",
        SCREEN.replace("Which colour?\n\n", "Which size?\n\n"),
        SCREEN.replace("  2. No\n", "  2. Never\n"),
        SCREEN.replace("  2. No\n", ""),
        SCREEN.replace("  3. Type something.\n", ""),
        SCREEN.replace("     Say No\n", "     2. No\n"),
        SCREEN.replace("Enter to select", "Enter to confirm"),
        SCREEN + "\n❯ a prompt\n",
        "Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel",
        (Path(__file__).parents[2] / "cases/screens/rewind-dialog.txt").read_text(),
        (Path(__file__).parents[2] / "cases/screens/fresh-idle.txt").read_text(),
    ],
    ids=range(11),
)  # fmt: skip
def test_anything_else_is_not(screen: str) -> None:
    """A key in the wrong dialog could grant permission by accident.

    Break: leave out any check of `recognise`.
    """
    assert recognise(screen, "Which colour?", OPTIONS) is None


def event(tool: str, given: object) -> HookEvent:
    payload = {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": given}
    return HookEvent(id="1000000000-1.json", worker="adam", instance="i", payload=payload)


def question(
    text: object = "Which?", options: object = ({"label": "A"}, {"label": "B"}), several: bool = False
) -> dict[str, object]:
    return {
        "question": text,
        "options": list(options) if isinstance(options, tuple) else options,
        "multiSelect": several,
    }


def test_one_question_with_known_options_can_be_answered() -> None:
    found = asked(event("AskUserQuestion", {"questions": [question()]}))
    assert (found.text, found.options, found.answerable) == ("Which?", ("A", "B"), True)


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("AskUserQuestion", {"questions": [question(), question("And?")]}, "Which? / And?"),
        ("AskUserQuestion", {"questions": [question(several=True)]}, "Which?"),
        ("AskUserQuestion", {"questions": [question(options=[{"label": 3}])]}, "Which?"),
        ("AskUserQuestion", {"questions": [question(options=[])]}, "Which?"),
        ("AskUserQuestion", {"questions": [question(options=[{"label": "A", "preview": "a"}])]}, "Which?"),
        ("AskUserQuestion", {"questions": "?"}, "a question without text"),
        ("AskUserQuestion", None, "a question without text"),
        ("Bash", {"command": "rm -rf x", "description": "d"}, "Bash: rm -rf x"),
        ("Write", {"file_path": "/etc/x"}, "Write: /etc/x"),
        ("Odd", {"a": 1}, 'Odd: {"a": 1}'),
        ("Odd", [1], "Odd: permission"),
    ],
)
def test_whatever_else_is_asked_is_shown_and_left_to_a_person(tool: str, given: object, text: str) -> None:
    """Break: treat several questions, or a permission, as answerable."""
    found = asked(event(tool, given))
    assert (found.text, found.answerable, found.options) == (text, False, ())
