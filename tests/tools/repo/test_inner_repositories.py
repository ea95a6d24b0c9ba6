"""Repositories that an agent puts into its worktree: git would enter them. Their targets never change."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.repo import git, own_repos, provision
from llmc.repo.project import Project
from tests.support.contained import needs_bubblewrap
from tests.support.repos import Repo, Worktree, add_worker, make_project, run_git


@pytest.fixture(params=["linked", pytest.param("contained", marks=needs_bubblewrap)])
def is_contained(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "contained")


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "source")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "root")


Add = Callable[[str], Worktree]


@pytest.fixture
def add(project: Project, is_contained: bool) -> Add:
    def one(name: str) -> Worktree:
        record, made = add_worker(project, name)
        provision.settle_repository(project, record, contained=is_contained)
        return made

    return one


def gitlink(worktree: Worktree, name: str) -> Path:
    """What git treats as a submodule."""
    run_git(worktree.path, "update-index", "--add", "--cacheinfo", f"160000,{worktree.head()},{name}")
    return worktree.path / name


def files_of(*places: Path) -> dict[str, bytes]:
    """All files there."""
    found = (Path(folder, name) for place in places for folder, _, names in os.walk(place) for name in names)
    return {str(path): path.read_bytes() for path in found if path.name != "index"}


def look(worktree: Worktree) -> None:
    git.git(worktree.path, "status", check=False)


def test_a_link_to_a_repository_of_the_user(tmp_path: Path, add: Add) -> None:
    """Break: no `_has_no_link` in repo/clone_guard.py: the user's `.git` would be moved away."""
    mine, worktree = Repo(tmp_path / "mine"), add("w1")
    mine.commit("x", "x\n")
    run_git(mine.path, "config", "core.hooksPath", ".husky")
    before = files_of(mine.path)
    gitlink(worktree, "sub").symlink_to(mine.path)
    gitlink(worktree, "deep/sub")
    (worktree.path / "deep").symlink_to(mine.path.parent)
    look(worktree)
    assert files_of(mine.path) == before


def test_git_is_not_run_behind_a_link(tmp_path: Path, project: Project) -> None:
    """Break: no check of the first directory in `_repository` (repo/clone_guard.py)."""
    mine, (_, worktree) = Repo(tmp_path / "mine"), add_worker(project)
    mine.commit("x", "x\n")
    run_git(mine.path, "config", "core.hooksPath", ".husky")
    (worktree.path / "sub").symlink_to(mine.path)
    with pytest.raises(Exception, match="behind a symbolic link"):
        git.git(worktree.path / "sub", "status")
    assert run_git(mine.path, "config", "core.hooksPath") == ".husky"


def test_settings_that_are_elsewhere(add: Add) -> None:
    """Break: follow `commondir` of an inner repository: another worker's work would be replaced."""
    worktree, other = add("w1"), add("w2")
    other.write("config/routes.rb", "work of w2\n")
    before = files_of(other.path)
    inner = gitlink(worktree, "sub") / ".git"
    inner.mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "commondir").write_text("../../../w2\n")
    look(worktree)
    assert files_of(other.path) == before


def test_attributes_that_are_elsewhere(tmp_path: Path, add: Add) -> None:
    """Break: no check of `info` in `_is_whole` (repo/clone_guard.py)."""
    worktree, mine = add("w1"), tmp_path / "mine"
    mine.mkdir()
    (mine / "attributes").write_text("* filter=mine\n")
    inner = Repo(gitlink(worktree, "sub"))
    inner.commit("x", "x\n")
    (inner.path / ".git/info").rename(inner.path / ".git/kept")
    (inner.path / ".git/info").symlink_to(mine)
    look(worktree)
    assert (mine / "attributes").read_text() == "* filter=mine\n"


@pytest.mark.parametrize("where", ["entry", "modules", "repository", "slot"])
def test_what_belongs_to_another_worker(project: Project, add: Add, is_contained: bool, where: str) -> None:
    """Break: repair whatever a pointer in this root names."""
    worktree, other = add("w1"), add("w2")
    root = project.root.path
    theirs = own_repos.path_of(root, "w2") if is_contained else root / ".git/worktrees/w2"
    place = {"modules": theirs / "modules/lib", "slot": root / ".git/worktrees/01"}.get(where, theirs)
    if where in ("modules", "slot"):
        place.parent.mkdir(exist_ok=True)
        run_git(root, "init", "-q", f"--separate-git-dir={place}", str(other.path / "lib"))
    before = files_of(theirs, place, other.path)
    name = "w2" if where == "entry" else "sub"
    gitlink(worktree, name).mkdir()
    (worktree.path / name / ".git").write_text(f"gitdir: {place}\n")
    look(worktree)
    assert files_of(theirs, place, other.path) == before


@pytest.mark.parametrize(
    "text", ["gitdir:  x\n", "gitdir: x\ny\n", "gitdir: x\r\n", "gitdir: x", "gitdir:x\n"]
)
def test_a_pointer_that_git_did_not_write_is_not_followed(
    project: Project, tmp_path: Path, text: str
) -> None:
    """git and the guard could read it differently. Break: parse it in `_led_to` (repo/clone_guard.py)."""
    _, worktree = add_worker(project)
    inner = Repo(gitlink(worktree, "sub"))
    inner.commit("f", "one\n")
    inner.write(".gitattributes", "* filter=e\n")
    inner.write("f", "two\n")
    for name in ("x", " x", "x\ny", "x\r"):
        run_git(inner.path, "clone", "-q", "--bare", ".git", name)
        run_git(inner.path / name, "config", "core.bare", "false")
        run_git(inner.path / name, "config", "filter.e.clean", f"touch {tmp_path}/ran; cat")
    (inner.path / ".git").rename(inner.path / "kept")
    (inner.path / ".git").write_text(text)
    look(worktree)
    assert not (tmp_path / "ran").exists()
    assert not os.path.lexists(inner.path / ".git")
    assert [item.kind for item in project.store.read().attention.values()] == ["git_config"]


@pytest.mark.parametrize("name", ["index", "logs/HEAD", "refs/heads/main", "objects/ab"])
def test_what_git_would_write_through_a_link(project: Project, tmp_path: Path, name: str) -> None:
    """A formerly contained worker may have left it. Break: no `_has_links` in repo/clone_guard.py."""
    _, worktree = add_worker(project)
    inner = Repo(gitlink(worktree, "sub"))
    inner.commit("f", "one\n")
    path = inner.path / ".git" / name
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "theirs")
    look(worktree)
    assert not os.path.lexists(inner.path / ".git")
    assert not (tmp_path / "theirs").exists()
