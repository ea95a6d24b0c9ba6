"""The input box on captured screens of the real client, plain and with styles."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llmc.agents.agent_events import Box, Composer
from llmc.agents.claude.screen import composer, holds

SCREENS = Path(__file__).parents[2] / "cases" / "screens"
EXPECTED = json.loads((SCREENS / "screens.json").read_text())
RULE = "─" * 80

#: in a plain capture they look like the user's draft, and then must count as one
SUGGESTIONS = {"fresh-suggestion"}


def read(name: str, kind: str) -> str:
    return (SCREENS / f"{name}.{kind}").read_text()


def draw(*box: str, above: str = "● done", below: str = "  ⏵⏵ bypass permissions on") -> str:
    return "\n".join([above, "", RULE, *box, RULE, below, ""])


@pytest.mark.parametrize("name", EXPECTED)
def test_styled_screens(name: str) -> None:
    """Breaks when `_is_suggestion` returns False, when `!` is not a prompt,
    or when colors are read as styles.
    """
    wanted = EXPECTED[name]
    assert composer(read(name, "ansi")) == Composer(Box(wanted["box"]), wanted.get("text", ""))


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - SUGGESTIONS))
def test_plain_screens(name: str) -> None:
    """Breaks when the prompt of bash mode (`!`) is unknown, or a queue's hint counts as a draft."""
    wanted = EXPECTED[name]
    assert composer(read(name, "txt")) == Composer(Box(wanted["box"]), wanted.get("text", ""))


@pytest.mark.parametrize("name", sorted(SUGGESTIONS))
def test_a_suggestion_without_styles_counts_as_a_draft(name: str) -> None:
    assert composer(read(name, "txt")).box is Box.DRAFT


def test_every_captured_screen_is_described() -> None:
    assert {path.stem for path in SCREENS.glob("*.txt")} == set(EXPECTED)
    assert {path.stem for path in SCREENS.glob("*.ansi")} == set(EXPECTED)


def test_an_empty_shell_prompt_is_not_an_empty_box() -> None:
    """Breaks when bash mode without text is EMPTY: the prompt would be run as a shell command."""
    assert composer(draw("!\u00a0")).box is Box.DRAFT


def test_a_dialog_that_begins_with_its_cursor_is_not_the_box() -> None:
    """Breaks when `❯` without the no-break space is taken as the prompt: Enter would answer the dialog."""
    assert composer(draw("❯ 1. Yes", "  2. No")).box is Box.ABSENT


@pytest.mark.parametrize("screen", ["", "\n\n", RULE, f"{RULE}\n{RULE}", "no box at all\n❯\u00a0text"])
def test_no_box(screen: str) -> None:
    assert composer(screen) == Composer(Box.ABSENT)


def test_a_pasted_rule_stays_inside_the_box() -> None:
    """Breaks when a rule may be indented."""
    assert composer(draw("❯\u00a0above", f"  {RULE}", "  below")).text == f"above\n{RULE}\nbelow"


def test_holds_our_header_or_a_placeholder_of_our_length() -> None:
    """Breaks when any placeholder counts as ours: Enter would send the user's own paste."""
    header, text = "[llmc task-1]", "[llmc task-1]\none\ntwo\n"
    assert holds(composer(draw(f"❯\u00a0{header}", "  one", "  two")), header, text)
    assert holds(composer(draw("❯\u00a0[Pasted text #3 +3 lines]")), header, text)
    assert not holds(composer(draw("❯\u00a0[Pasted text #3 +9 lines]")), header, text)
    assert not holds(composer(draw("❯\u00a0[llmc task-2]", "  one", "  two")), header, text)
    assert not holds(composer(draw("❯\u00a0see [Pasted text #3 +3 lines]")), header, text)
    assert not holds(composer(draw("❯\u00a0")), header, text)


def at(screen: str, column: int, row: int = 3) -> Box:
    return composer(screen, (column, row)).box


def test_only_the_cursor_at_its_start_makes_a_box_empty() -> None:
    """Breaks when the cursor is not checked: text would go after blanks, or into the user's search."""
    box = draw("❯\u00a0")
    assert at(box, 2) is Box.EMPTY
    assert at(box, 3) is Box.BLANK
    assert at(box, 2, row=5) is Box.ABSENT, "below the box: a history search"
    assert at(box, 0, row=0) is Box.ABSENT, "above it"
    assert {at(box, 2, row=2), at(box, 2, row=4)} == {Box.ABSENT}, "on its rules"
    assert at(draw("❯\u00a0", "  "), 2) is Box.DRAFT, "one key may not remove several lines"
    assert at(draw("❯\u00a0", "  "), 2, row=4) is Box.DRAFT
    assert at(draw("❯\u00a0found by a search"), 20, row=5) is Box.ABSENT
    assert at(draw("❯\u00a0words"), 7) is Box.DRAFT
    assert at(draw("❯\u00a0words"), 2) is Box.DRAFT, "the cursor may have been moved"


def test_a_suggestion_has_the_cursor_on_its_first_letter() -> None:
    """Breaks when dim text alone makes a box empty, wherever the cursor is."""
    screen = draw("❯\u00a0\x1b[7mT\x1b[0;2mry this\x1b[0m")
    assert at(screen, 2) is Box.EMPTY
    assert at(screen, 6) is Box.DRAFT


def test_the_hint_of_a_queue_without_colours() -> None:
    """Breaks when only dim words are the client's: with NO_COLOR a second message would be refused."""
    hint = "Press up to edit queued messages"
    screen = draw(f"❯\u00a0\x1b[7m{hint[0]}\x1b[0m{hint[1:]}")
    assert at(screen, 2) is Box.EMPTY
    assert at(screen, 2 + len(hint)) is Box.DRAFT


LINES = st.lists(
    st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=30), min_size=1
)


@given(LINES)
def test_a_draft_is_never_empty(lines: list[str]) -> None:
    """Breaks when a text like a hint or a suggestion is taken as the client's own."""
    text = "\n".join(lines)
    assume(text.strip() and text.strip() != "Press up to edit queued messages")
    box = composer(draw(f"❯\u00a0{lines[0]}", *(f"  {line}" for line in lines[1:])))
    assert box.box is Box.DRAFT
    assert box.text.split() == text.split()


@given(LINES, st.booleans())
def test_a_draft_is_never_empty_with_styles(lines: list[str], cursor_at_start: bool) -> None:
    """Breaks when the character under the cursor makes the rest of a draft a suggestion."""
    assume("\n".join(lines).strip())
    first = lines[0]
    if cursor_at_start:
        first = f"\x1b[7m{first[:1] or ' '}\x1b[0m\x1b[39m{first[1:]}"
    screen = draw(f"\x1b[38;5;246m❯\u00a0\x1b[39m{first}", *(f"  {line}" for line in lines[1:]))
    assert composer(screen).box is Box.DRAFT


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=2))
def test_what_is_dim_is_the_clients_own(text: str) -> None:
    """Breaks when only known suggestions are recognized."""
    screen = draw(f"❯\u00a0\x1b[7m{text[0]}\x1b[0;2m\x1b[39m{text[1:]}\x1b[0m")
    assert composer(screen) == Composer(Box.EMPTY)
