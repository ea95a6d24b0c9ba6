"""The rules about tasks: files, graph, choice, context."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.agents.claude.task_files import BadTask, parse
from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.draft import BadContext, Context, of, read_contexts, task_text
from llmc.tasks.rules.graph import Dangling, choose, completed_ids, cycle, dangling, needs, states, unblocks

RAW: dict[str, Any] = {
    "id": "7",
    "subject": "Do it",
    "description": "With care",
    "status": "pending",
    "blocks": ["9"],
    "blockedBy": ["3", "5"],
}


def task(number: int | str, **fields: Any) -> Task:
    status = TaskStatus(fields.pop("status", "pending"))
    metadata = {key: fields.pop(key) for key in ("priority", "label", "llmc") if key in fields}
    return Task(TaskId(str(number)), f"Task {number}", "", status, metadata=metadata, **fields)


def ids(*numbers: int) -> tuple[TaskId, ...]:
    return tuple(TaskId(str(number)) for number in numbers)


@pytest.mark.req("4-007", "4-008")
@pytest.mark.parametrize("owner", [None, "", "auto-1"])
def test_a_file_is_read(owner: str | None) -> None:
    """Break: require a field that the client leaves out."""
    found = parse("7", {**RAW, "owner": owner, "metadata": None, "activeForm": "Doing it", "new": [1]})
    assert (found.id, found.subject, found.status) == ("7", "Do it", TaskStatus.PENDING)
    assert (found.blocks, found.blocked_by, found.owner) == (("9",), ("3", "5"), owner or "")


@pytest.mark.req("4-007", "4-092")
@pytest.mark.parametrize("name", ["id", "subject", "description", "status", "blocks", "blockedBy"])
def test_a_missing_field_is_named(name: str) -> None:
    """Break: leave one of the six out of `parse`."""
    with pytest.raises(BadTask, match=f"`{name}` is missing"):
        parse("7", {key: value for key, value in RAW.items() if key != name})


@pytest.mark.req("4-007", "4-009")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "8"}, "`id` is '8', but the file is named '7'"),
        ({"id": 7}, "`id` is not a string"),
        ({"status": "open"}, "`status` is 'open'"),
        ({"blockedBy": "3"}, "`blockedBy` is not a list"),
        ({"blocks": [3]}, "`blocks` is not a list"),
        ({"owner": 1}, "`owner` is not a string"),
        ({"metadata": []}, None),
        ({"metadata": "x"}, "`metadata` is not an object"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], words: str | None) -> None:
    """Break: accept any text as a status, or any id as the file's."""
    if words is None:
        assert parse("7", {**RAW, **change}).metadata == {}
        return
    with pytest.raises(BadTask, match=words):
        parse("7", {**RAW, **change})


def test_no_object_is_no_task() -> None:
    for raw in ([], "text", None, 3):
        with pytest.raises(BadTask, match="not a JSON object"):
            parse("7", raw)


@pytest.mark.req("4-010")
@pytest.mark.parametrize(
    ("value", "priority"),
    [(0, 0), (4, 4), (9, 4), (-1, 0), ("1", 3), (None, 3), (True, 3), (2.0, 2), ([], 3)],
)
def test_priority(value: object, priority: int) -> None:
    """Break: treat a missing priority as 0, or leave the limits open."""
    assert task(1, priority=value).priority == priority


@pytest.mark.req("4-011")
@pytest.mark.parametrize("label", ["a b", "a.b", "ü", "[ui]", " ", 5, ["ui"], True])
@pytest.mark.parametrize("status", ["pending", "in_progress"])
def test_a_label_is_the_name_of_a_table(label: object, status: str) -> None:
    """Break: check labels only where llmc writes them; a file from elsewhere could have any."""
    with pytest.raises(BadTask, match=r"`metadata\.label` is"):
        parse("7", {**RAW, "status": status, "metadata": {"label": label}})
    assert parse("7", {**RAW, "status": "completed", "metadata": {"label": label}}), "completed is final"


@pytest.mark.parametrize("model", ["two words", "--settings", "a\nb", 7])
def test_a_model_that_cannot_be_one_is_said(model: object) -> None:
    """It becomes an argument of the client. Break: pass on what starts like an option."""
    with pytest.raises(BadTask, match=r"`metadata\.llmc\.model` is"):
        parse("7", {**RAW, "metadata": {"llmc": {"model": model}}})
    assert (
        parse("7", {**RAW, "metadata": {"llmc": {"model": "claude-opus-5-5[1m]"}}}).model
        == "claude-opus-5-5[1m]"
    )


@pytest.mark.req("4-011")
@pytest.mark.parametrize("label", [None, "", "ui", "UI_2-b"])
def test_a_label_that_can_be_used(label: str | None) -> None:
    assert parse("7", {**RAW, "metadata": {"label": label}}).label == (label or "")


@pytest.mark.req("4-022")
def test_an_edge_counts_from_either_side() -> None:
    """Break: check only `blockedBy`."""
    edges = needs([task(1, blocks=ids(2)), task(2), task(3, blocked_by=ids(2))])
    assert edges == {"1": frozenset(), "2": {"1"}, "3": {"2"}}


@pytest.mark.req("4-023")
@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([task(1, blocked_by=ids(1))], {"1"}),
        ([task(1, blocks=ids(2)), task(2, blocks=ids(1))], {"1", "2"}),
        ([task(1, blocked_by=ids(2)), task(2, blocked_by=ids(3)), task(3, blocked_by=ids(2))], {"2", "3"}),
        ([task(1, blocked_by=ids(2)), task(2, blocks=ids(1))], set()),
    ],
)
def test_cycles(tasks: list[Task], expected: set[str]) -> None:
    """Break: miss a task that waits for itself."""
    assert set(cycle(needs(tasks))) == expected


def test_a_long_chain_is_no_problem() -> None:
    chain = [task(n, blocked_by=ids(n - 1) if n else ()) for n in range(5000)]
    assert cycle(needs(chain)) == ()
    assert cycle(needs([*chain, task("x", blocks=ids(0), blocked_by=ids(4999))]))[0] == "0"


@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_a_cycle_is_found_exactly_when_there_is_one(pairs: set[tuple[int, int]]) -> None:
    """Break: mark a task as done when it is entered instead of when it is left."""
    tasks = [task(n, blocked_by=ids(*(b for a, b in pairs if a == n))) for n in range(13)]
    edges = needs(tasks)
    found = cycle(edges)
    for here, following in zip(found, [*found[1:], *found[:1]], strict=True):
        assert following in edges[here]
    left = dict(edges)
    while free := [name for name, waits in left.items() if not waits & left.keys()]:
        for name in free:
            del left[name]
    assert bool(found) == bool(left)


@pytest.mark.req("4-024")
def test_dangling() -> None:
    """Break: count a completed task's history against it."""
    tasks = [
        task(1, blocked_by=ids(8)),
        task(2, status="completed", blocked_by=ids(9)),
        task(3, blocked_by=ids(7)),
    ]
    assert dangling(tasks, {"7"}) == [Dangling(TaskId("1"), TaskId("8"))]


def test_what_unblocks_most() -> None:
    edges = needs(
        [task(1), task(2, blocked_by=ids(1)), task(3, blocked_by=ids(2)), task(4, blocked_by=ids(2))]
    )
    assert unblocks(edges) == {"1": 3, "2": 2}
    assert unblocks(edges, ids(2, 3)) == {"2": 2, "3": 0}


@pytest.mark.req("4-021")
def test_ready() -> None:
    """Break: leave one of the conditions out."""
    tasks = [
        task(1),
        task(2, owner="auto-1"),
        task(3, status="in_progress"),
        task(4, blocked_by=ids(3)),
        task(5, status="completed"),
        task(6, blocked_by=ids(5)),
        task(7, llmc={"hold": "quarantined"}),
        task(8, blocked_by=ids(100)),
        task(9, blocked_by=ids(200)),
        task(10),
    ]
    done = completed_ids(tasks, {"100", "10"})
    found = states(tasks, needs(tasks), done)
    assert [task for task, state in found.items() if state == "ready"] == ["1", "6", "8"]


@pytest.mark.req("4-025", "4-026", "4-027", "4-028")
def test_choice_by_label_then_priority_then_number() -> None:
    """Break: put the number before the priority, or compare numbers as text."""
    tasks = [task(10, priority=1), task(2, priority=1), task(3, priority=0, label="ui"), task(4, label="api")]
    assert choose(tasks, {"ui"}) == tasks[1]
    assert choose(tasks, set()) == tasks[2]
    assert choose([tasks[2], tasks[3]], {"ui"}) == tasks[3]
    assert choose([tasks[2]], {"ui"}) == tasks[2]
    assert choose([], set()) is None


@given(st.lists(st.text("0123456789ab", min_size=1, max_size=4), unique=True))
def test_the_order_of_ids_is_total(names: list[str]) -> None:
    ordered = sorted(names, key=in_order)
    numbers = [int(name) for name in ordered if name.isdigit()]
    assert numbers == sorted(numbers)
    assert ordered[: len(numbers)] == [name for name in ordered if name.isdigit()]


CONTEXTS = read_contexts(
    {"default": {"prologue": "Before", "epilogue": "After"}, "ui": {"prologue": "\nOf the UI.\n"}}
)


@pytest.mark.req("4-070", "4-071")
@pytest.mark.parametrize(
    ("label", "context"),
    [("ui", Context("\nOf the UI.\n", "")), ("api", CONTEXTS["default"]), ("", CONTEXTS["default"])],
)
def test_the_context_of_a_label(label: str, context: Context) -> None:
    """Break: fill in from the default what a label's table leaves out."""
    assert of(task(1, label=label), CONTEXTS) == context
    assert of(task(1, label=label), {}) == Context()


@pytest.mark.req("4-072")
def test_parts_that_are_empty_leave_no_gap() -> None:
    """Break: join the empty parts, too."""
    one = Task(TaskId("1"), "Subject", "Line one\n\n  line two\n", TaskStatus.PENDING)
    assert task_text(one, CONTEXTS["ui"]) == "Of the UI.\n\nSubject\n\nLine one\n\n  line two"
    assert task_text(task(1), Context("", " \n")) == "Task 1"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"ui": "text"}, "must be a table"),
        ({"ui": {"prolog": ""}}, "unknown key `prolog`"),
        ({"ui": {"epilogue": 1}}, "must be a string"),
    ],
)
def test_a_bad_context_says_what_is_wrong(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(BadContext, match=words):
        read_contexts(raw)
