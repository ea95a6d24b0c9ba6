"""Tasks as users write and see them."""

import pytest

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus
from llmc.tasks.rules.draft import BadDraft, Draft, check, from_markdown, in_order, new_task, typed
from llmc.tasks.rules.graph import mermaid, needs, states, tree

WRITTEN = """---
priority: 1
label: db
after: 3, setup
verify: make test: all
---
# Add the model

Text with `code`.

- a list
"""


def test_a_markdown_file() -> None:
    assert from_markdown(WRITTEN.replace("\n", "\r\n"), "model") == Draft(
        subject="Add the model",
        description="Text with `code`.\n\n- a list",
        priority=1,
        label="db",
        after=("3", "setup"),
        verify="make test: all",
        name="model",
    )
    assert from_markdown("Just a line\n", "x") == Draft(subject="Just a line", name="x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the subject is missing"),
        ("---\npriority: 1\n", "is not closed"),
        ("---\nprio: 1\n---\n# X", "line 2: unknown key `prio`; known keys: name, "),
        ("---\npriority 1\n---\n# X", "line 2: expected `key: value`, got 'priority 1'"),
        ("---\npriority: high\n---\n# X", "priority must be an integer, not 'high'"),
        ("---\npriority: 7\n---\n# X", "priority must be between 0 and 4, not 7"),
        ("---\nlabel: a b\n---\n# X", "invalid label 'a b': a label may contain only"),
    ],
)
def test_a_bad_one_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(BadDraft, match=words):
        from_markdown(text, "x")


def test_what_is_added_is_a_task() -> None:
    draft = check(Draft("S", "D", priority=0, label="ui", after=("a",), before=("9",), verify="v", model="m"))
    task = new_task(draft, lambda name: TaskId({"a": "1"}.get(name, name)))
    assert (task.blocked_by, task.blocks, task.priority, task.label) == (("1",), ("9",), 0, "ui")
    assert task.metadata["llmc"] == {"verify": "v", "model": "m", "by": "person"}
    assert new_task(Draft("S"), TaskId).metadata == {"llmc": {"by": "person"}}


def test_drafts_in_order() -> None:
    drafts = [
        Draft("C", name="c", after=("b", "7")),
        Draft("A", name="a", before=("b",)),
        Draft("B", name="b"),
    ]
    assert [draft.name for draft in in_order(drafts)] == ["a", "b", "c"]
    with pytest.raises(BadDraft, match="dependency cycle: a, b"):
        in_order([Draft("A", name="a", after=("b",)), Draft("B", name="b", after=("a",))])
    with pytest.raises(BadDraft, match="dependency cycle: a"):
        in_order([Draft("A", name="a", after=("a",))])


def task(number: int, *after: int, status: str = "pending", **more: object) -> Task:
    ids = tuple(TaskId(str(other)) for other in after)
    return Task(TaskId(str(number)), f"Task {number}", "", TaskStatus(status), blocked_by=ids, **more)  # type: ignore[arg-type]


TASKS = [
    task(1, status="completed"),
    task(2, 1, owner="auto-1", status="in_progress"),
    task(3, 1),
    task(4, 2, 3),
    task(10, metadata={"llmc": {"hold": "quarantined"}}),
]
EDGES = needs(TASKS)
STATES = states(TASKS, EDGES, {"1"})


def test_the_tree() -> None:
    """Break: put a task below its first dependency instead of the deepest."""
    assert tree(TASKS, EDGES, STATES) == [
        "1 completed  Task 1",
        "├─ 2 in_progress  Task 2",
        "└─ 3 ready  Task 3",
        "   └─ 4 waits  Task 4  (also after 2)",
        "10 quarantined  Task 10",
    ]


def test_a_tree_with_a_circle_and_with_something_missing_still_has_every_task() -> None:
    tasks = [task(1, 2), task(2, 1), task(3, 99)]
    edges = needs(tasks)
    lines = tree(tasks, edges, states(tasks, edges, ()))
    assert lines == ["1 waits  Task 1  (after 2)", "└─ 2 waits  Task 2", "3 waits  Task 3  (after 99)"]


def test_the_diagram() -> None:
    odd = [Task(TaskId("1"), 'Say "hi"\nnow', "", TaskStatus.PENDING), task(2, 1, 99)]
    edges = needs(odd)
    assert mermaid(odd, edges, states(odd, edges, ())) == [
        "flowchart TD",
        '    t0["1: Say #quot;hi#quot; now (ready)"]',
        '    t1["2: Task 2 (waits)"]',
        "    t0 --> t1",
    ]


def test_the_first_line_of_what_is_typed_is_the_subject() -> None:
    """Break: use a whole text as the subject, which every list shows on one line."""
    assert typed("Add the model") == Draft("Add the model")
    assert typed("  Add the model\n\nWith a key.\nAnd an index.\n") == Draft(
        "Add the model", "With a key.\nAnd an index."
    )
    assert typed("\n\nAdd it\n") == Draft("Add it")
