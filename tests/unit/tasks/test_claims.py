"""What a claim and its end change in a task's file, and what they leave alone."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.agents.claude.task_files import edited, parse
from llmc.base.names import TaskId, TaskKey
from llmc.records.books import Books, Claim, Made
from llmc.records.task import Task, TaskStatus
from llmc.tasks.rules import claims


def in_file(
    rule: Callable[..., Task | None], raw: dict[str, Any], *given: Any, **named: Any
) -> dict[str, Any] | None:
    """What a rule makes of a task, as its file says it afterwards."""
    before = parse("7", raw)
    after = rule(before, *given, **named)
    return None if after is None else edited(raw, before, after)


SEVEN = TaskKey("list", TaskId("7"))
OURS = Claim("c1", SEVEN, "auto-1")
RAW: dict[str, Any] = {
    "id": "7",
    "subject": "S",
    "description": "D",
    "status": "pending",
    "blocks": [],
    "blockedBy": [],
    "new": {"a": [1]},
    "metadata": {"label": "ui", "llmc": {"verify": "make"}},
}
TAKEN: dict[str, Any] = {
    **RAW,
    "status": "in_progress",
    "owner": "auto-1",
    "metadata": {"label": "ui", "llmc": {"verify": "make", "claim": "c1"}},
}


@pytest.mark.req("4-042", "4-046")
def test_a_free_task_is_taken() -> None:
    """Break: take one that has an owner, or is no longer pending."""
    assert in_file(claims.taken, RAW, OURS) == TAKEN
    for free in (None, ""):
        raw = {**RAW, "owner": free}
        assert in_file(claims.taken, raw, OURS) == TAKEN
    for change in ({"owner": "somebody"}, {"status": "in_progress"}, {"status": "completed"}):
        raw = {**RAW, **change}
        assert in_file(claims.taken, raw, OURS) is None


@pytest.mark.req("4-060", "4-063")
def test_the_end_of_a_claim() -> None:
    """Break: check only the owner's name; every root has an auto-1."""
    assert in_file(claims.released, TAKEN, OURS) == RAW
    assert in_file(claims.done, TAKEN, OURS) == {**RAW, "status": "completed"}
    kept = in_file(claims.released, TAKEN, OURS, hold="quarantined")
    assert kept is not None
    assert kept["metadata"]["llmc"] == {"verify": "make", "hold": "quarantined"}
    assert parse("7", kept).waits_for_a_person == "quarantined"
    assert in_file(claims.set_by_user, kept, seen=parse("7", kept)) == RAW
    other = Claim("c2", SEVEN, "auto-1")
    assert in_file(claims.released, TAKEN, other) is None
    assert in_file(claims.done, TAKEN, other) is None
    assert in_file(claims.still_at_it, TAKEN, other) is None


def test_a_claim_that_a_client_lost_is_still_ours() -> None:
    """A client writes back the metadata it read before we claimed.

    Break: identify it only by the claim's id.
    """
    lost = {**TAKEN, "metadata": RAW["metadata"]}
    assert in_file(claims.still_at_it, lost, OURS) == TAKEN
    ended = in_file(claims.done, lost, OURS)
    assert ended is not None
    assert (ended["status"], "owner" in ended) == ("completed", False)
    others = {**lost, "owner": "auto-99"}
    assert in_file(claims.done, others, OURS) is None


def test_an_agent_that_calls_its_task_completed() -> None:
    raw = {**TAKEN, "status": "completed", "owner": ""}
    assert in_file(claims.still_at_it, raw, OURS) == TAKEN


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_a_claim_and_its_end_leave_no_trace(metadata: dict[str, Any]) -> None:
    """Break: drop what llmc does not know."""
    for known in ("llmc", "label"):  # these are checked
        metadata.pop(known, None)
    raw = {**RAW, "metadata": metadata}
    taken = in_file(claims.taken, raw, OURS)
    assert taken is not None
    task = parse("7", taken)
    assert (task.status, task.owner, task.claim) == (TaskStatus.IN_PROGRESS, "auto-1", "c1")
    assert in_file(claims.released, taken, OURS) == raw


UNOWNED: dict[str, Any] = {**RAW, "status": "in_progress"}


@pytest.mark.req("4-066")
@pytest.mark.parametrize(
    ("change", "books", "at_work", "free"),
    [
        ({}, Books(), (), True),
        ({"owner": None}, Books(), (), True),
        ({"owner": "auto-1"}, Books(), (), False),
        ({"status": "pending"}, Books(), (), False),
        ({"status": "completed"}, Books(), (), False),
        ({"metadata": {"llmc": {"claim": "of another root"}}}, Books(), (), False),
        ({}, Books(claims={"auto-1": OURS}), (), False),
        # An agent marks a task that it made for itself.
        ({}, Books(made={SEVEN: Made("adam")}), ("adam",), False),
        ({}, Books(made={SEVEN: Made("adam")}), ("baker",), True),
        ({"metadata": {"llmc": {"by": {"worker": "adam", "root": "/other"}}}}, Books(), (), False),
    ],
)
def test_what_nobody_has(change: dict[str, Any], books: Books, at_work: tuple[str, ...], free: bool) -> None:
    """Break: free what an agent is working on, or what another root has claimed."""
    assert claims.is_abandoned(parse("7", {**UNOWNED, **change}), SEVEN, books, at_work) is free


def test_it_is_pending_again_and_what_keeps_it_back_stays() -> None:
    """Break: free it as a user's command does: a task that failed too often would start again."""
    held = {**UNOWNED, "metadata": {"llmc": {"hold": "quarantined"}}}
    assert in_file(claims.pending_again, held) == {**held, "status": "pending"}
    owned = {**UNOWNED, "owner": "auto-1"}
    assert in_file(claims.pending_again, owned) is None, "it was claimed in the meantime"
