"""A plan that is imported again: nothing runs twice, and the order of the work is kept."""

from pathlib import Path

import pytest

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.errors import LlmcError, NotFound, Refused
from llmc.records.task_ledger import TaskLedger
from llmc.tasks import task_list
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.rules.draft import Draft
from llmc.tasks.task_list import Imported, add, overview, read_drafts


@pytest.fixture
def source(tmp_path: Path) -> ClaudeTasks:
    return ClaudeTasks(TaskFiles(tmp_path / "list"), TaskLedger(tmp_path / "tasks.jsonl"))


def write(plan: Path, **texts: str) -> Path:
    plan.mkdir(exist_ok=True)
    for name, text in texts.items():
        (plan / f"{name}.md").write_text(text)
    return plan


def import_all(source: ClaudeTasks, plan: Path, *, again: bool = False) -> Imported:
    return task_list.import_all(source, read_drafts([plan]), again=again)


def land(source: ClaudeTasks, *task_ids: str, removed: bool = True) -> None:
    """The tasks land; after the last one, the client removes their files."""
    for task_id in task_ids:
        claim = source.claim(source.key(task_id), "auto-1", source.one(source.key(task_id)).subject)
        assert claim is not None
        source.finish(claim, f"c0ffee{task_id}")
    for task_id in task_ids if removed else ():
        assert source.remove(source.key(task_id), lambda task: True)


def ids(found: Imported) -> tuple[list[str], list[str]]:
    return [task.id for task in found.added], [task.id for task in found.earlier]


def test_what_has_landed_is_not_imported_again(source: ClaudeTasks, tmp_path: Path) -> None:
    """Break: ask only the files what was imported; the client removes those of completed tasks."""
    plan = write(tmp_path / "plan", a="# A\n", b="---\nafter: a\n---\n# B\n")
    assert ids(import_all(source, plan)) == (["1", "2"], [])
    land(source, "1", "2")
    found = import_all(source, write(plan, c="---\nafter: b\n---\n# C\n"))
    assert ids(found) == (["3"], ["1", "2"])
    assert [task.subject for task in found.earlier] == ["A", "B"]
    assert overview(source).states == {"1": "completed", "2": "completed", "3": "ready"}
    assert ids(import_all(source, plan, again=True))[0] == ["4", "5", "6"]
    assert ids(import_all(source, plan)) == ([], ["4", "5", "6"]), "the newest of each"


def test_a_file_that_was_deleted_before_its_task_landed_is_imported_again(
    source: ClaudeTasks, tmp_path: Path
) -> None:
    """Break: skip what the ledger has ever created; the user has no other way to bring the task back."""
    plan = write(tmp_path / "plan", a="# A\n")
    import_all(source, plan)
    source.remove(source.key("1"), lambda task: True)
    assert ids(import_all(source, plan)) == (["2"], [])


def test_a_task_may_follow_one_that_has_landed(source: ClaudeTasks, tmp_path: Path) -> None:
    """Break: look for it among the files alone. Or write the dependency into the file: another root, or an
    import of the exported list, would wait for a task that does not exist.
    """
    add(source, Draft("One"))
    land(source, "1")
    two = add(source, Draft("Two", after=("1",)))
    (three,) = import_all(source, write(tmp_path / "plan", c="---\nafter: 1, 2\n---\n# C\n")).added
    assert (two.blocked_by, three.blocked_by) == ((), ("2",))
    assert (overview(source).problems, overview(source).states["2"]) == ([], "ready")
    with pytest.raises(NotFound, match="task 9 does not exist"):
        add(source, Draft("Nine", after=("9",)))


def test_before_a_task_of_an_earlier_import(source: ClaudeTasks, tmp_path: Path) -> None:
    """Break: pass only those names in `before` that are not in the same import."""
    plan = write(tmp_path / "plan", api="# API\n", ui="---\nafter: api\n---\n# UI\n")
    import_all(source, plan)
    found = import_all(source, write(plan, model="---\nbefore: api\n---\n# Model\n"))
    assert ids(found) == (["3"], ["1", "2"])
    assert overview(source).states == {"1": "waits", "2": "waits", "3": "ready"}
    with pytest.raises(LlmcError, match="dependency cycle"):
        import_all(source, write(plan, loop="---\nbefore: api\nafter: ui\n---\n# Loop\n"))
    assert set(source.listing().tasks) == {"1", "2", "3"}


@pytest.mark.parametrize("state", ["in progress", "completed", "gone"])
def test_nothing_comes_before_a_task_that_has_begun(source: ClaudeTasks, tmp_path: Path, state: str) -> None:
    """Break: accept an order that cannot be kept. The user decides whether the new task still makes sense."""
    plan = write(tmp_path / "plan", api="# API\n")
    import_all(source, plan)
    if state == "in progress":
        assert source.claim(source.key("1"), "auto-1", "API") is not None
    else:
        land(source, "1", removed=state == "gone")
    why = f"cannot come before task 1, which is already {state.replace('gone', 'completed')}"
    with pytest.raises(Refused, match=f"nothing was imported: model {why}"):
        import_all(source, write(plan, model="---\nbefore: api\n---\n# Model\n"))
    with pytest.raises(Refused, match=f"cannot add the task: it {why}"):
        add(source, Draft("Model", before=("1",)))
    assert set(source.listing().tasks) <= {"1"}


def test_names_that_are_numbers(source: ClaudeTasks, tmp_path: Path) -> None:
    """Break: resolve an id that was resolved already; it may also be the name of a new file."""
    import_all(source, write(tmp_path / "plan", a="# A\n", b="# B\n"))
    plan = write(tmp_path / "plan", **{"1": "# One\n", "c": "---\nafter: a, 1\n---\n# C\n"})
    added = {task.subject: task for task in import_all(source, plan).added}
    assert added["C"].blocked_by == ("1", added["One"].id), "a is task 1, and 1 is the new file"
