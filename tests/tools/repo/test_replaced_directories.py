"""A hidden process of an agent replaces a directory of its worktree with a link, while llmc works there.

Each test tries every moment. Break: use the path instead of the open directory (base/inside.py).
"""

import os
from pathlib import Path

import pytest

from llmc.base import inside
from llmc.base.files import remove_tree
from llmc.config.edit import set_value
from llmc.landing.prompts import conflict_prompt
from llmc.repo import copied_files, dead_locks, git, provision, serena, setup, trash, worktrees
from llmc.repo.project import Project
from llmc.sessions.rules import decide
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at, worker_of
from tests.support.swapped import never_elsewhere


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("tracked/note.txt", "tracked\n")
    source.commit(".gitignore", "*.env\n")
    source.write("deep/note.env", "from the source\n")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture
def worktree(project: Project) -> Path:
    return worker_of(project)[1].path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The user's directory, with every name that is used here."""
    place = tmp_path / "elsewhere"
    (place / "empty").mkdir(parents=True)
    (place / "inner").mkdir(mode=0o500)
    for name in ("note.txt", "note.env", "w1.lock", "project.yml"):
        (place / name).write_text("the user's\n")
    place.chmod(0o755)
    return place


def filled(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("of the agent\n")


def test_what_goes_to_the_trash(project: Project, worktree: Path, elsewhere: Path) -> None:
    deep, folder = worktree / "deep", project.root.trash / "w1-x"
    calls = never_elsewhere(
        deep,
        elsewhere,
        lambda: filled(deep, "note.txt"),
        lambda: trash.take_out(worktree, ["deep/note.txt"], folder),
    )
    assert len(calls) >= 2  # the directory is opened, and the file is moved
    assert (folder / "deep/note.txt").read_text() == "of the agent\n"


def test_a_directory_in_the_trash_that_an_agent_filled(
    project: Project, worktree: Path, elsewhere: Path
) -> None:
    """A nested repository was moved there before, with a link in it."""
    folder = project.root.trash / "w1-x"
    folder.mkdir(parents=True)
    (folder / "deep").symlink_to(elsewhere)
    filled(worktree / "deep", "new.txt")
    with pytest.raises(Exception, match=r"cannot move .*deep/new.txt"):
        trash.take_out(worktree, ["deep/new.txt"], folder)
    assert not (elsewhere / "new.txt").exists()
    assert (worktree / "deep/new.txt").exists()


def test_what_a_reset_removes(project: Project, worktree: Path, elsewhere: Path) -> None:
    deep = worktree / "deep"

    def mess() -> None:
        filled(deep, "note.txt")
        (deep / "empty").mkdir(exist_ok=True)

    calls = never_elsewhere(
        deep, elsewhere, mess, lambda: trash.remove_untracked(project.root, worktree, "w1", "reset", None)
    )
    assert len(calls) >= 4
    assert not deep.exists()


def test_what_a_reset_removes_from_a_submodule(project: Project, worktree: Path, elsewhere: Path) -> None:
    """An agent can replace a submodule's directory, too. Break: `return place` in `_top`."""
    lib = Repo(worktree / "tracked/lib")
    lib.commit("a.txt", "a\n")
    filled(elsewhere / "deep", "note.txt")
    calls = never_elsewhere(
        lib.path,
        elsewhere,
        lambda: filled(lib.path / "deep", "note.txt"),
        lambda: trash.remove_untracked(project.root, lib.path, "w1", "reset", None),
    )
    assert len(calls) >= 4


def test_a_file_that_is_written_again(worktree: Path, elsewhere: Path) -> None:
    def missing() -> None:
        filled(worktree / "tracked")
        (worktree / "tracked/note.txt").unlink(missing_ok=True)

    (elsewhere / "note.txt").unlink()
    never_elsewhere(
        worktree / "tracked",
        elsewhere,
        missing,
        lambda: provision._restore_missing(worktree, ["tracked/note.txt"]),
    )


def test_a_conflict_shows_no_file_elsewhere(project: Project, worktree: Path, elsewhere: Path) -> None:
    """Break: `read_text(worktree / name)` in landing/prompts.py: the agent would see the user's file."""
    record, repo = worker_of(project)
    (elsewhere / "note.txt").write_text("<<<<<<< ours\nof the user\n=======\nx\n>>>>>>> theirs\n")
    blob = repo.git("rev-parse", "HEAD:tracked/note.txt")
    rows = "".join(f"100644 {blob} {stage}\ttracked/note.txt\n" for stage in (1, 2, 3))
    git.git(worktree, "update-index", "--force-remove", "tracked/note.txt")
    git.git(worktree, "update-index", "--index-info", input=rows.encode())
    (worktree / "tracked").rename(worktree / "away")
    (worktree / "tracked").symlink_to(elsewhere)
    text, paths = conflict_prompt(project, record, decide.NO_BRANCH)
    assert paths == ("tracked/note.txt",)
    assert "of the user" not in text


def test_a_file_that_is_copied(project: Project, worktree: Path, elsewhere: Path) -> None:
    set_value(project.root.config, "repo.copy", '["*.env"]')
    project = setup.new_project(project.root)
    record = worker_of(project)[0]

    def old() -> None:
        filled(worktree / "deep", "note.env")
        os.utime(worktree / "deep/note.env", (1, 1))

    calls = never_elsewhere(
        worktree / "deep", elsewhere, old, lambda: copied_files.copy_files(project, record, worktree)
    )
    assert len(calls) >= 2
    assert (worktree / "deep/note.env").read_text() == "from the source\n"


def test_a_serena_project(
    project: Project, worktree: Path, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERENA_HOME", str(tmp_path / "serena"))
    set_value(project.root.config, "repo.serena", "true")
    project = setup.new_project(project.root)
    record = worker_of(project)[0]
    calls = never_elsewhere(
        worktree / ".serena",
        elsewhere,
        lambda: filled(worktree / ".serena", "project.yml"),
        lambda: serena.settle(project, record, worktree),
    )
    assert len(calls) >= 4
    assert "project_name" in (worktree / ".serena/project.yml").read_text()


def test_a_stale_lock(
    project: Project, worktree: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a contained worker, whose refs are its agent's."""
    monkeypatch.setattr(dead_locks, "WATCH_S", 0)
    refs = project.root.path / ".git/refs/heads/llmc"
    record = worker_of(project)[0]
    never_elsewhere(
        refs,
        elsewhere,
        lambda: filled(refs, "w1.lock"),
        lambda: worktrees.drop_dead_locks(project, record),
    )
    assert not (refs / "w1.lock").exists()


def test_a_cache_that_is_removed(tmp_path: Path, elsewhere: Path) -> None:
    """Not even the mode of a directory elsewhere changes."""
    cache = tmp_path / "cache"

    def made() -> None:
        filled(cache / "deep/inner", "note.txt")
        (cache / "deep").chmod(0o500)

    calls = never_elsewhere(cache / "deep", elsewhere, made, lambda: remove_tree(cache))
    assert len(calls) >= 4
    assert not cache.exists()


@pytest.mark.parametrize("name", ["../beside", "/etc/passwd", "a//b", "a/./b", ""])
def test_a_name_that_leads_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "beside").write_text("stays")
    (tmp_path / "top").mkdir()
    with pytest.raises(OSError, match="not a plain path"):
        inside.remove(tmp_path / "top", name)
    assert (tmp_path / "beside").exists()
