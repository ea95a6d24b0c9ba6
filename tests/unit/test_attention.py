"""The attention list: one list, most urgent first; what was raised stays until it is cleared."""

from pathlib import Path

import pytest

from llmc.attention.items import Facts
from llmc.attention.listing import attention
from llmc.cli.overview import attention_lines
from llmc.cli.views import status_view
from llmc.config.paths import Root
from llmc.state.store import Store


def plain(text: str, style: str) -> str:
    return text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(Root(tmp_path))
    store.create()
    return store


def raised(severity: str, since: float) -> dict[str, object]:
    return {"kind": "person", "severity": severity, "who": "adam", "since_unix": since, "text": "a draft"}


def test_the_most_urgent_and_then_the_oldest_comes_first() -> None:
    """Break: sort by key only."""
    state = {"attention": {"a": raised("notice", 1), "b": raised("blocked", 9), "c": raised("blocked", 5)}}
    assert [item.key for item in attention(state, Facts(0.0))] == ["c", "b", "a"]


@pytest.mark.parametrize("row", [{}, {"severity": "dreadful", "since_unix": None}, {"who": 3, "text": ["x"]}])
def test_a_row_that_a_newer_llmc_wrote_is_shown_all_the_same(row: dict[str, object]) -> None:
    (item,) = attention({"attention": {"k": row}}, Facts(0.0))
    assert (item.key, item.severity) == ("k", "waiting")


def test_what_is_raised_again_keeps_its_age_and_is_told_once(store: Store) -> None:
    """Break: raise_item takes `now` each time."""
    for text in ("a draft", "a draft", "another draft"):
        with store.transaction() as tx:
            tx.raise_item("person:adam", kind="person", severity="blocked", who="adam", text=text)
    state = store.read()
    assert state.recent_events[-1]["action"] == "attention_raised"
    assert state.attention["person:adam"].text == "another draft"
    assert store.read().event_seq == 2
    with store.transaction() as tx:
        tx.clear_item("person:adam")
        tx.clear_item("person:adam")
    assert store.read().attention == {}
    assert store.read().event_seq == 3


def test_every_surface_of_status_has_it() -> None:
    state = {"attention": {"person:adam": {**raised("blocked", 100), "next": "llmc attach adam"}}}
    view = status_view("/root", state, Facts(0.0))
    assert view["attention"][0]["key"] == "person:adam"
    text = "\n".join(attention_lines(view["attention"], 160, 80, plain))
    assert "blocked  1m" in text
    assert "adam: a draft" in text
    assert "next: llmc attach adam" in text


def test_hostile_text_draws_nothing() -> None:
    row = {**raised("blocked", 100), "text": "\x1b]0;owned\x07\u2028x", "next": "\x1b[2J"}
    lines = attention_lines(
        status_view("/root", {"attention": {"k": row}}, Facts(0.0))["attention"], 0, 80, plain
    )
    assert not any("\x1b" in line or "\u2028" in line for line in lines)
