"""Work that is restored to a worker comes with its task."""

from pathlib import Path

import pytest

from llmc.config.paths import Root
from llmc.repo import provision, trash
from llmc.repo.project import Project
from llmc.workers import restore
from tests.support.repos import Repo, add_worker, make_library, make_project, worker_of

TASK = {
    "current_prompt": "Follow the house rules.\n\nGreet by name, " + "at length " * 1000,
    "current_subject": "Greet by name",
    "task_prompt": "task-af64c3c12c",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    source = Repo(tmp_path / "src")
    source.commit("a.txt")
    project = make_project(str(source.path), tmp_path / "root")
    for name in ("w1", "w2"):
        add_worker(project, name)
    with project.store.transaction() as tx:
        tx.update("w1", **TASK)
    return project


def reset(project: Project) -> restore.Entry:
    """What `llmc reset w1` does to its worktree and its record."""
    record, _ = worker_of(project, "w1")
    ref = provision.reset_in_place(project, record, provision.refresh_base(project), "reset")
    assert ref is not None
    with project.store.transaction() as tx:
        tx.update("w1", **dict.fromkeys(TASK, ""))
    return restore.find(project, ref)


def task_of(project: Project, name: str) -> dict[str, str]:
    record = project.store.worker(name)
    return {field: getattr(record, field) for field in TASK}


def files(root: Root) -> list[Path]:
    return [path for path in root.private.rglob("*") if "house rules" in _text(path)]


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if path.is_file() else ""


@pytest.mark.parametrize("work", ["commit", "files"])
def test_work_comes_back_with_its_task(project: Project, work: str) -> None:
    """Break: name the trash entry instead of the task; cut the task as in an event; drop the prompt's id."""
    _, worktree = worker_of(project, "w1")
    if work == "commit":
        worktree.commit("b.txt")
    else:
        worktree.write("b.txt")
    entry = reset(project)
    restore.restore_to_worker(project, entry, "w2")
    assert task_of(project, "w2") == TASK
    assert (worker_of(project, "w2")[1].path / "b.txt").exists()


def test_work_without_a_known_task_is_named_by_its_entry(project: Project) -> None:
    """An entry of an older llmc, or of work that no task asked for. Break: leave the id of w2's last task."""
    with project.store.transaction() as tx:
        tx.update("w1", **dict.fromkeys(TASK, ""))
        tx.update("w2", task_prompt="task-earlier")
    worker_of(project, "w1")[1].commit("b.txt")
    entry = reset(project)
    restore.restore_to_worker(project, entry, "w2")
    prompt = f"Continue {entry.name}, restored from the trash"
    assert task_of(project, "w2") == {**dict.fromkeys(TASK, ""), "current_prompt": prompt}


def test_the_task_goes_with_the_entry(project: Project) -> None:
    """Break: leave the task's text behind when its entry is pruned."""
    worker_of(project, "w1")[1].commit("b.txt")
    entry = reset(project)
    assert len(files(project.root)) == 1
    restore.remove(project, [entry])
    assert files(project.root) == []


def test_work_is_saved_without_its_task_if_that_cannot_be_written(project: Project) -> None:
    """Break: let the task stop the pin; work is worth more."""
    project.root.trash_tasks.write_text("not a directory")
    worker_of(project, "w1")[1].commit("b.txt")
    entry = reset(project)
    assert entry.commit
    restore.restore_to_worker(project, entry, "w2")
    assert task_of(project, "w2")["current_prompt"].startswith("Continue w1/")


def test_a_damaged_task_does_not_stop_a_restore(project: Project) -> None:
    worker_of(project, "w1")[1].commit("b.txt")
    entry = reset(project)
    (file,) = files(project.root)
    file.write_text("{")
    restore.restore_to_worker(project, entry, "w2")
    assert task_of(project, "w2")["current_prompt"].startswith("Continue w1/")


def test_a_pin_in_a_submodule_leaves_no_task(tmp_path: Path) -> None:
    """Its ref is in the submodule, so no entry would ever take the text away."""
    source = Repo(tmp_path / "src")
    make_library(source, tmp_path)
    project = make_project(str(source.path), tmp_path / "root")
    record, worktree = add_worker(project)
    provision.provision(project, record)
    with project.store.transaction() as tx:
        tx.update("w1", **TASK)
    (folder,) = [path.parent for path in worktree.path.glob("*/.git")]
    (folder / "new.txt").write_text("new\n")
    trash.pin(project.root, folder, "w1", "test")
    assert files(project.root) == []
