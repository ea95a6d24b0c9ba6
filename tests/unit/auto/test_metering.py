"""Which tokens are new and whose they are: every token is counted once,
however often and whenever it is read.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.auto.rules.costs import Delta, Reading, measure
from llmc.base.names import TaskId
from llmc.records.worker import Assignment, Metered, Tokens


def tokens(count: int) -> Tokens:
    return Tokens(input_tokens=count, output_tokens=2 * count, cache_read_input_tokens=3 * count)


def task(name: str) -> Assignment:
    return Assignment(task_id=TaskId(name), claim=f"claim-{name}", since_unix=1.0)


def look(
    before: Metered, files: dict[str, dict[str, Tokens]], path: str, assignment: Assignment | None
) -> tuple[Metered, list[Delta]]:
    return measure(before, files.get(before.transcript, {}), Reading(path, files.get(path, {})), assignment)


LOOK, GROW, CLEAR = "look", "grow", "clear"
STEPS = st.lists(
    st.one_of(
        st.just((LOOK, "", 0)),
        st.tuples(st.just(GROW), st.sampled_from(["opus", "haiku"]), st.integers(1, 1000)),
        st.just((CLEAR, "", 0)),
    ),
    max_size=40,
)


@pytest.mark.req("5-001", "5-003")
@given(STEPS)
def test_every_token_is_told_once_and_to_the_task_that_used_it(steps: list[tuple[str, str, int]]) -> None:
    """Reads come at any time, and not at each /clear. Break: leave out `deltas` or `skipped` in measure()."""
    files: dict[str, dict[str, Tokens]] = {"c0": {}}
    number, (metered, _) = 0, look(Metered(), {}, "c0", task("t0"))
    used: Counter[tuple[str, str]] = Counter()
    told: Counter[tuple[str, str]] = Counter()
    for kind, model, count in [*steps, (GROW, "opus", 1), (LOOK, "", 0)]:
        path = f"c{number}"
        if kind == GROW:
            files[path][model] = files[path].get(model, Tokens()) + tokens(count)
            used[f"t{number}", model] += count
        elif kind == CLEAR:
            number += 1
            files[f"c{number}"] = {}
        else:
            last = int(metered.transcript[1:])
            skipped = [Reading(f"c{n}", files[f"c{n}"]) for n in range(last + 1, number)]
            here = Reading(path, files[path])
            metered, deltas = measure(metered, files[f"c{last}"], here, task(f"t{number}"), skipped)
            for delta in deltas:
                assert (delta.task and delta.task.id) in (None, f"t{delta.transcript[1:]}")
                told[f"t{delta.transcript[1:]}", delta.model] += delta.tokens.input_tokens
            if metered.claim == f"claim-t{number}":
                spent = {m: u.input_tokens for m, u in metered.spent.items()}
                assert spent == {m: n for (t, m), n in used.items() if t == f"t{number}"}
    assert told == used


def test_a_conversation_that_is_taken_up_again_counts_only_what_is_new() -> None:
    """Break: leave `counted` of the reading out of _moved()."""
    metered, _ = look(Metered(), {"d": {"opus": tokens(1)}}, "d", None)
    old = Reading("c", {"opus": tokens(50)}, {"opus": tokens(40)})
    metered, some = measure(metered, {"opus": tokens(1)}, old, None)
    assert [delta.tokens for delta in some] == [tokens(10)]
    assert metered.counted == {"opus": tokens(50)}


def test_a_second_look_finds_nothing_new() -> None:
    """Break: keep `counted` as it was in _grown()."""
    files = {"c": {"opus": tokens(5)}}
    metered, first = look(Metered(), files, "c", task("1"))
    assert [(d.task and d.task.id, d.model, d.tokens) for d in first] == [("1", "opus", tokens(5))]
    assert look(metered, files, "c", task("1")) == (metered, [])


def test_a_conversation_that_is_gone_says_nothing_and_may_come_back() -> None:
    """Break: count a missing model as zero."""
    files = {"c": {"opus": tokens(5)}}
    metered, _ = look(Metered(), files, "c", task("1"))
    assert look(metered, {}, "c", task("1")) == (metered, [])
    assert look(metered, files, "c", task("1")) == (metered, [])


def test_after_a_transcript_shrank_its_growth_counts_from_there() -> None:
    """Nothing negative, nothing twice, and not blind until the old size is reached.

    Break: keep the larger total.
    """
    metered, _ = look(Metered(), {"c": {"opus": tokens(100)}}, "c", task("1"))
    metered, none = look(metered, {"c": {"opus": tokens(10)}}, "c", task("1"))
    assert none == []
    metered, some = look(metered, {"c": {"opus": tokens(15)}}, "c", task("1"))
    assert [delta.tokens for delta in some] == [tokens(5)]
    assert metered.spent == {"opus": tokens(105)}


@pytest.mark.req("5-003")
def test_the_tail_of_a_task_that_ended_is_still_its_own() -> None:
    """The agent's last words come after its work has landed. Break: always charge the current assignment."""
    metered, _ = look(Metered(), {"c": {"opus": tokens(5)}}, "c", task("1"))
    metered, tail = look(metered, {"c": {"opus": tokens(6)}}, "c", None)
    assert [delta.task and delta.task.id for delta in tail] == ["1"]
    files = {"c": {"opus": tokens(7)}, "d": {}}
    metered, tail = look(metered, files, "d", task("2"))
    assert ([delta.task and delta.task.id for delta in tail], metered.claim) == (["1"], "claim-1")
    files = {"c": {"opus": tokens(8)}, "d": {"opus": tokens(1)}}
    metered, both = look(metered, files, "d", task("2"))
    assert [(delta.task and delta.task.id, delta.transcript) for delta in both] == [("1", "c"), ("2", "d")]
    assert (metered.transcript, metered.spent) == ("d", {"opus": tokens(1)})


def test_an_assignment_that_goes_on_in_another_conversation_keeps_its_sum() -> None:
    """A lost session must not give a task a second budget.

    Break: let `spent` always start at nothing in _moved().
    """
    metered, _ = look(Metered(), {"c": {"opus": tokens(5)}}, "c", task("1"))
    files = {"c": {"opus": tokens(6)}, "d": {"opus": tokens(10)}}
    metered, _ = look(metered, files, "d", task("1"))
    assert metered.spent == {"opus": tokens(16)}


def test_a_task_without_a_new_conversation_is_metered_from_its_second_look_on() -> None:
    """Otherwise its budget would never hold. Break: take the switch of owner out of measure()."""
    metered, _ = look(Metered(), {"c": {"opus": tokens(5)}}, "c", task("1"))
    metered, old = look(metered, {"c": {"opus": tokens(6)}}, "c", task("2"))
    assert [delta.task and delta.task.id for delta in old] == ["1"]
    metered, new = look(metered, {"c": {"opus": tokens(9)}}, "c", task("2"))
    assert [delta.task and delta.task.id for delta in new] == ["2"]
    assert metered.spent == {"opus": tokens(3)}


@pytest.mark.parametrize("assignment", [None, task("1")])
def test_no_conversation_is_nothing_used(assignment: Assignment | None) -> None:
    assert look(Metered(), {}, "", assignment) == (Metered(), [])
