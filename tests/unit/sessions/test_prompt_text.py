"""The text of a prompt before it is typed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.base.errors import UsageError
from llmc.base.names import PromptId, carries, header_id
from llmc.sessions.rules.prompt_text import MAX_TYPED_BYTES, normalise, too_long, typed

#: everything a user may paste, including control characters and half emojis
ANYTHING = st.text(st.characters(codec=None, exclude_categories=[]), max_size=60)
PROMPT_IDS = st.builds(
    lambda kind, mark: PromptId(f"{kind}-{mark}"),
    st.sampled_from(["task", "message", "reject", "conflict", "review"]),
    st.text("0123456789abcdef", min_size=1, max_size=12),
)


def normalised(text: str) -> str | None:
    try:
        return normalise(text)
    except UsageError:
        return None


@given(ANYTHING)
def test_normalise_is_idempotent_and_leaves_nothing_a_terminal_acts_on(text: str) -> None:
    """Breaks when rstrip comes before the tabs are replaced, or a control character is not matched."""
    once = normalised(text)
    if once is None:
        return
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in once if char != "\n")
    assert once == once.rstrip() != ""


@given(st.characters(categories=["Cc", "Cs"]).filter(lambda char: char not in "\t\r\n"), st.integers(0, 5))
def test_a_control_character_is_refused_with_its_line(char: str, line: int) -> None:
    """Breaks when the line is counted from 0, or before CRLF becomes one newline."""
    with pytest.raises(UsageError, match=rf"U\+{ord(char):04X}\) on line {line + 1}$"):
        normalise("one\r\n" * line + f"bad {char} here\nmore")


def test_tabs_line_ends_and_composition() -> None:
    assert normalise("a\tb\r\nc\rd\n") == "a    b\nc\nd"
    assert normalise("cafe\u0301 \t\n\n") == "caf\u00e9"
    assert normalise("  indented\n\n\nkept") == "  indented\n\n\nkept"


@pytest.mark.parametrize("text", ["", " ", "\n\t\r\n", "\u3000"])
def test_an_empty_prompt_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        normalise(text)


@given(PROMPT_IDS, ANYTHING)
def test_what_is_typed_names_its_id(prompt_id: PromptId, text: str) -> None:
    """Breaks when the header is not the first line: a header quoted in the text would be read instead."""
    body = normalised(text) or "x"
    pasted = typed(prompt_id, f"{body}\n[llmc task-0]")
    assert header_id(pasted) == prompt_id
    assert pasted.startswith("[llmc ")
    assert pasted.endswith("\n")


@given(ANYTHING.filter(lambda text: "[llmc " not in text))
def test_a_person_s_prompt_has_no_id(text: str) -> None:
    assert header_id(text) is None


@pytest.mark.parametrize("text", ["see [llmc task-1]", "[llmc task-1] please", "[llmc ]", "[llmc Task-1]"])
def test_a_mention_is_not_a_header(text: str) -> None:
    assert header_id(text) is None


@pytest.mark.parametrize(
    "before", [" ", "  \n", "\u00a0", "[Image #2]", "[Image #1] [Image #12] ", "[Pasted text #3 +4 lines]"]
)
@given(PROMPT_IDS, ANYTHING)
def test_what_a_client_puts_before_the_header_changes_nothing(
    before: str, prompt_id: PromptId, text: str
) -> None:
    """Breaks when the prompt must start with the header: it would be unconfirmed, and sent twice."""
    arrived = before + typed(prompt_id, normalised(text) or "x")
    assert header_id(arrived) == prompt_id
    assert carries(arrived, prompt_id)


@pytest.mark.parametrize("before", ["words", "half a thought", "[Image #1] see "])
def test_a_prompt_that_was_joined_to_other_words_is_still_that_prompt(before: str) -> None:
    """Breaks when only a separate prompt counts: the agent has its text, and a retry would duplicate it."""
    assert carries(before + typed(PromptId("task-1a"), "x"), PromptId("task-1a"))
    assert header_id(before + typed(PromptId("task-1a"), "x")) is None


@given(PROMPT_IDS, ANYTHING)
def test_a_header_that_is_quoted_further_down_is_no_receipt(prompt_id: PromptId, text: str) -> None:
    """Breaks when any line counts: an agent that quotes a prompt would acknowledge it."""
    first = (normalised(text) or "x").partition("\n")[0] or "x"
    for quoted in (
        f"{first}\n[llmc {prompt_id}]\ndo it",
        f"<task-notification>\n[llmc {prompt_id}]",
        typed(PromptId("message-x"), f"[llmc {prompt_id}]"),
    ):
        assert not carries(quoted, prompt_id)
        assert header_id(quoted) != prompt_id


def test_the_id_of_one_prompt_is_not_that_of_another() -> None:
    """Breaks when the id is matched without its brackets."""
    assert not carries("[llmc task-1a2]\nx", PromptId("task-1a"))


def test_length_is_counted_in_bytes() -> None:
    """Breaks when characters are counted."""
    assert not too_long("a" * MAX_TYPED_BYTES)
    assert too_long("a" * (MAX_TYPED_BYTES + 1))
    assert too_long("\u00e9" * (MAX_TYPED_BYTES // 2 + 1))
