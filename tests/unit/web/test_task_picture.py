"""Tasks as a picture: each to the right of its dependencies, whatever a task list says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmc.web.rules import task_picture


def task(id: str, *after: str, status: str = "pending") -> dict[str, Any]:
    return {"id": id, "subject": f"Do {id}", "state": "ready", "status": status, "after": list(after)}


def test_each_task_is_right_of_what_it_needs_and_the_longest_chain_is_marked() -> None:
    """Break: use the layer of its first dependency, not of the last."""
    shown = task_picture.picture([task("1"), task("2", "1"), task("3", "1", "2"), task("4")])
    assert shown is not None
    at = {box.id: box.x // (task_picture.BOX_WIDTH + task_picture.GAP_X) for box in shown.boxes}
    assert at == {"1": 0, "2": 1, "3": 2, "4": 0}
    assert [(line.x1 < line.x2, line.critical) for line in shown.lines] == [
        (True, True),
        (True, False),
        (True, True),
    ]
    assert len({(box.x, box.y) for box in shown.boxes}) == 4


def test_nothing_to_draw() -> None:
    assert task_picture.picture([]) is None
    assert task_picture.picture([task("1"), task("2")]) is None
    assert task_picture.picture([task("1", status="completed"), task("2", "1")]) is None
    assert (
        task_picture.picture([task(str(n), *(["0"] if n else [])) for n in range(task_picture.MOST + 1)])
        is None
    )


IDS = st.sampled_from(["1", "2", "3", "10", "²", "x", "<b>"])


@given(st.dictionaries(IDS, st.lists(IDS, max_size=4), max_size=7))
def test_any_list_is_drawn_or_left_out(after: dict[str, list[str]]) -> None:
    """Cycles, too, and a task that needs itself.

    Break: recursion; `int` of an id that `isdigit` calls a number.
    """
    shown = task_picture.picture([task(id, *needs) for id, needs in after.items()])
    if shown is not None:
        assert {box.id for box in shown.boxes} == set(after)
        assert len({(box.x, box.y) for box in shown.boxes}) == len(after)
