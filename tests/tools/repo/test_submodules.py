"""Work in submodules: a checkout that moves a submodule leaves none of it behind."""

import shutil
from pathlib import Path

import pytest

from llmc.records.worker import WorkerRecord
from llmc.repo import provision, uncommitted
from llmc.repo.project import Project
from tests.support.fleet import in_soak
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    advance,
    make_library,
    make_project,
    project_at,
    run_git,
    worker_of,
)


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    make_library(source, place)
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return worker_of(project)


@pytest.fixture
def lib(worker: tuple[WorkerRecord, Worktree]) -> Worktree:
    return Worktree(worker[1].path / "lib")


def reset(project: Project, record: WorkerRecord) -> str | None:
    return provision.reset_in_place(project, record, provision.refresh_base(project), "test")


def pins(place: Worktree) -> list[str]:
    return place.git("for-each-ref", "--format=%(refname)", "refs/llmc/trash").splitlines()


def is_named(project: Project, commit: str) -> bool:
    """Whether HEAD or a ref of any repository in the root has this commit."""
    places = [
        found.parent for found in project.root.path.rglob("objects") if (found.parent / "HEAD").exists()
    ]
    flags = ["-c", "core.worktree=/", "log", "--all", "--format=%H"]
    return any(commit in run_git(project.root.path, f"--git-dir={at}", *flags) for at in places)


@pytest.mark.parametrize("work", ["a commit", *in_soak("a change", "a file")])
def test_work_in_a_submodule_goes_on_after_up(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree, work: str
) -> None:
    """The agent has not staged the submodule's new commit yet. Break: no `leave_work` in `furnish`."""
    record, _ = worker
    lib.git("checkout", "-q", "--detach")
    lib.git("commit", "-q", "--allow-empty", "-m", "Other")
    tip = lib.commit("lib.c", "by the agent\n")
    if work != "a commit":
        lib.git("branch", "-q", "pushed")
        lib.git("update-ref", "refs/remotes/origin/pushed", tip)
        lib.write("lib.c" if work == "a change" else "new.c", "changed\n")
    provision.provision(project, record)
    assert lib.head() == tip
    assert (lib.path / "lib.c").read_text() == ("changed\n" if work == "a change" else "by the agent\n")


def test_what_a_checkout_leaves_behind_in_a_submodule_is_pinned(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """As after a rebase. Break: `submodule update` without `_save` (repo/submodules.py)."""
    record, _ = worker
    lib.git("checkout", "-q", "--detach")
    at, tip = lib.head(), lib.commit("own.c", "by the agent\n")
    provision.furnish(project, record)
    assert lib.head() == at
    (ref,) = pins(lib)
    assert lib.head(ref) == tip


HIDDEN = ["no .gitmodules", "no checkout", "moved", *in_soak("no entry", "no .git", "not in the index")]


@pytest.mark.parametrize("how", HIDDEN)
def test_a_reset_finds_submodules_that_the_agent_hid(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree, how: str
) -> None:
    """Break: list the submodules from `.gitmodules`; or no `_save_what_is_left` (repo/submodules.py)."""
    record, worktree = worker
    at = lib.head()
    lib.git("checkout", "-q", "--detach")
    tip = lib.commit("own.c", "by the agent\n")
    match how:
        case "no .gitmodules":
            (worktree.path / ".gitmodules").unlink()
        case "no entry":
            worktree.write(".gitmodules", "")
        case "no checkout":
            shutil.rmtree(lib.path)
        case "no .git":
            (lib.path / ".git").unlink()
        case "moved":
            worktree.git("mv", "lib", "other")
        case _:
            worktree.git("rm", "-q", "--cached", "-f", "lib")
    reset(project, record)
    assert lib.head() == at
    assert (lib.path / "deep/inner/inner.c").read_text() == "1\n"
    assert uncommitted.tree_state(worktree.path).clean
    assert is_named(project, tip)


def test_a_repository_where_the_base_only_has_a_gitlink(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: leave it in place: git cannot check out its commit, so every reset fails."""
    source = Worktree(Path(project.source))
    source.git("update-index", "--add", "--cacheinfo", f"160000,{source.head()},vendor/x")
    source.git("commit", "-q", "-m", "A gitlink without .gitmodules")
    record, worktree = worker
    reset(project, record)
    tip = Repo(worktree.path / "vendor/x").commit("work.txt", "by the agent\n")
    assert reset(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    (kept,) = project.root.trash.glob("w1-*/vendor/x")
    assert run_git(kept, "rev-parse", "HEAD") == tip


def test_changes_in_a_submodule_of_a_submodule(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """Break: look only at the submodules of the worktree itself: the reset fails, as it is not clean."""
    record, worktree = worker
    inner = Worktree(lib.path / "deep/inner")
    inner.git("checkout", "-q", "--detach")
    tip = inner.commit("own.c", "by the agent\n")
    inner.write("inner.c", "changed\n")
    inner.write("new.c", "new\n")
    reset(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    (ref,) = pins(inner)
    assert inner.head(f"{ref}^") == tip
    assert inner.git("show", f"{ref}:inner.c") == "changed"
    assert inner.git("show", f"{ref}:new.c") == "new"


def test_a_commit_that_llmc_fetched_is_no_work(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """No branch has it. Break: no `_FETCHED` (repo/submodules.py): each reset pins it once more."""
    record, _ = worker
    source = Worktree(Path(project.source))
    library = Worktree(source.path.parent / "lib")
    tip = advance(source, library, "2\n")
    reset(project, record)
    advance(source, library, "3\n")
    reset(project, record)
    assert lib.git("show", "HEAD:lib.c") == "3"
    assert lib.head("HEAD^") == tip
    assert pins(lib) == []


def test_a_reset_pins_a_branch_of_a_submodule_once(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """Break: `trash.pin` without `tips`: no pin has the branch, and each reset makes another one."""
    record, _ = worker
    at = lib.head()
    lib.git("checkout", "-q", "-b", "topic")
    tip = lib.commit("own.c", "by the agent\n")
    lib.git("checkout", "-q", "--detach", at)
    reset(project, record)
    (ref,) = pins(lib)
    assert run_git(lib.path, "merge-base", tip, ref) == tip
    reset(project, record)
    assert pins(lib) == [ref]


def test_pins_in_a_submodule_of_a_lost_worktree(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """Break: `git worktree prune`, which deletes the submodule's repository with them."""
    record, worktree = worker
    lib.git("checkout", "-q", "--detach")
    tip = lib.commit("own.c", "by the agent\n")
    reset(project, record)
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    assert (lib.path / "deep/inner/inner.c").read_text() == "1\n"
    (kept,) = project.root.trash.glob("w1-*/w1/modules/lib")
    pinned = run_git(kept, "--git-dir", str(kept), "for-each-ref", "--contains", tip, "--format=%(refname)")
    assert pinned.startswith("refs/llmc/trash/w1/")


def test_a_submodule_that_git_skips_is_skipped(tmp_path: Path) -> None:
    """`update = none`, and no checkout of it. Break: go on after `git submodule update`, in the superproject then."""
    source = Repo(tmp_path / "src")
    make_library(source, tmp_path)
    source.git("config", "-f", ".gitmodules", "submodule.lib.update", "none")
    source.git("commit", "-qam", "Skip it")
    source.git("submodule", "deinit", "-q", "-f", "lib")
    shutil.rmtree(source.path / ".git/modules")
    record, worktree = add_worker(make_project(str(source.path), tmp_path / "root"))
    assert provision.provision(project_at(tmp_path / "root"), record) == []
    assert uncommitted.tree_state(worktree.path).clean


def test_a_reset_moves_a_submodule_itself(
    project: Project, worker: tuple[WorkerRecord, Worktree], lib: Worktree
) -> None:
    """Break: `submodule.recurse` of the user; git would move it before its commit is fetched."""
    record, worktree = worker
    worktree.git("submodule", "init", "-q")
    run_git(project.root.path, "config", "submodule.recurse", "true")
    source = Path(project.source)
    tip = advance(Worktree(source), Worktree(source.parent / "lib"), "2\n")
    reset(project, record)
    assert lib.head() == tip
    assert uncommitted.tree_state(worktree.path).clean
