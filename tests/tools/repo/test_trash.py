"""Nothing is ever deleted: what a pin saves, and what it leaves alone."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmc.base.errors import LlmcError, ToolFailed
from llmc.repo import project as glance
from llmc.repo import trash
from llmc.repo.project import Project
from llmc.workers import restore
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_project,
    project_at,
    run_git,
    snapshot,
    tree,
    worker_of,
)


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.write("run.sh").chmod(0o755)
    for name in ("kept.txt", "changed.txt", "deleted.txt", "staged.txt", "run.sh"):
        source.write(name, f"{name}\n")
    source.git("add", "-A")
    source.commit(".gitignore", "*.cache\n")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture
def worktree(project: Project) -> Worktree:
    return worker_of(project)[1]


def pin(project: Project, worktree: Worktree, **options: object) -> str:
    return trash.pin(project.root, worktree.path, "w1", "test", **options)  # type: ignore[arg-type]


def status(worktree: Worktree) -> str:
    return worktree.git("status", "--porcelain=v1", "-uall")


def make_mess(worktree: Worktree) -> None:
    """Every way to have uncommitted work."""
    worktree.write("changed.txt", "changed\n")
    (worktree.path / "deleted.txt").unlink()
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    worktree.write("new file.txt", "new\n")
    worktree.write("deep/er/\u00fc\nn.txt", "odd\n")
    worktree.write("tool.sh", "#!/bin/sh\n").chmod(0o755)
    (worktree.path / "link").symlink_to("nowhere/at all")
    worktree.write("build.cache", "ignored\n")


def test_a_pin_keeps_every_kind_of_change(project: Project, worktree: Worktree) -> None:
    """Breaks when `add` has no --all (untracked and deleted are lost)."""
    make_mess(worktree)
    ref = pin(project, worktree)
    assert ref.startswith("refs/llmc/trash/w1/")
    assert ref.endswith("-test")
    kept = tree(worktree.path, ref)
    assert kept["changed.txt"] == "changed"
    assert kept["staged.txt"] == "staged"
    assert kept["new file.txt"] == "new"
    assert kept["deep/er/\u00fc\nn.txt"] == "odd"
    assert kept["link"] == "nowhere/at all"
    assert "deleted.txt" not in kept
    assert "build.cache" not in kept
    assert worktree.git("rev-parse", f"{ref}^") == worktree.head()
    modes = worktree.git("ls-tree", ref, "tool.sh", "link", "run.sh")
    assert [line.split()[0] for line in modes.splitlines()] == ["120000", "100755", "100755"]


def test_a_pin_touches_neither_worktree_nor_index(project: Project, worktree: Worktree) -> None:
    """Breaks when the pin uses the worktree's own index: what an agent staged would change."""
    make_mess(worktree)
    before = (snapshot(worktree.path), status(worktree), worktree.git("ls-files", "-s"), worktree.head())
    pin(project, worktree)
    assert (
        snapshot(worktree.path),
        status(worktree),
        worktree.git("ls-files", "-s"),
        worktree.head(),
    ) == before
    left = Path(worktree.git("rev-parse", "--absolute-git-dir"))
    assert not [
        path.name
        for path in left.iterdir()
        if path.name.startswith("llmc-") and "provisioned" not in path.name
    ]


def test_a_clean_worktree_is_pinned_as_it_is(project: Project, worktree: Worktree) -> None:
    tip = worktree.commit("work.txt")
    assert worktree.head(pin(project, worktree)) == tip


def test_what_was_staged_and_then_changed_is_kept_too(project: Project, worktree: Worktree) -> None:
    """Breaks when only files are saved: a version that exists only in the index would be lost."""
    worktree.write("staged.txt", "first version\n")
    worktree.write("gone.txt", "staged, then removed\n")
    worktree.git("add", "staged.txt", "gone.txt")
    worktree.write("staged.txt", "second version\n")
    (worktree.path / "gone.txt").unlink()
    ref = pin(project, worktree)
    assert tree(worktree.path, ref)["staged.txt"] == "second version"
    staged = tree(worktree.path, f"{ref}^2")
    assert (staged["staged.txt"], staged["gone.txt"]) == ("first version", "staged, then removed")


def test_huge_files_and_nested_repositories_are_moved(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when only the top of an untracked directory is checked, or git is given a nested repository."""
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 1000)
    worktree.write("data/huge.bin", "x" * 1001)
    worktree.write("data/small.bin", "x" * 1000)
    worktree.write("data/\u00fc *.bin", "y" * 1001)
    inner = Repo(worktree.path / "data/vendor/lib")
    inner.commit("lib.c")
    inner.write("uncommitted.c")
    Repo(worktree.path / "unborn")
    ref = pin(project, worktree)
    assert tree(worktree.path, ref).keys() & {"data/small.bin", "data/huge.bin"} == {"data/small.bin"}
    assert not any(name.startswith(("data/vendor", "unborn")) for name in tree(worktree.path, ref))
    [folder] = list(project.root.trash.iterdir())
    assert (folder / "data/huge.bin").read_text() == "x" * 1001
    assert (folder / "data/\u00fc *.bin").exists()
    assert (folder / "data/vendor/lib/uncommitted.c").exists()
    assert run_git(folder / "data/vendor/lib", "log", "--format=%s") == "Add lib.c"
    assert (folder / "unborn/.git").is_dir()
    assert status(worktree) == "?? data/small.bin"
    assert project.root.trash.stat().st_mode & 0o077 == 0


def test_a_tracked_file_may_be_huge(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 10)
    worktree.write("changed.txt", "x" * 100)
    assert tree(worktree.path, pin(project, worktree))["changed.txt"] == "x" * 100


def test_files_that_git_converts_are_kept_byte_for_byte(project: Project, worktree: Worktree) -> None:
    """Line ends, `$Id$` and encodings. Break: believe that a commit has what the file had; or copy what git restores."""
    worktree.commit(
        ".gitattributes",
        "*.txt text=auto\n*.id ident\n*.bat text eol=crlf\n*.u16 working-tree-encoding=UTF-16\n",
    )
    made = {
        "changed.txt": b"one\r\ntwo\nthree\r\n",
        'deep/\u00fc\n"x".txt': b"a\r\nb\n",
        "mine.id": b"$Id: my own text $\n",
        "tool.bat": b"echo\r\n",
        "plain.txt": b"plain\n",
    }
    for name, data in made.items():
        worktree.write(name).write_bytes(data)
    (worktree.path / "link.txt").symlink_to("changed.txt")
    ref = pin(project, worktree)
    folder = trash.folder_of(project.root, ref)
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert kept == {"changed.txt", 'deep/\u00fc\n"x".txt', "mine.id"}
    assert {name: (folder / name).read_bytes() for name in kept} == {name: made[name] for name in kept}
    assert {*made, "link.txt"} <= tree(worktree.path, ref).keys()
    copied = restore.restore_directory(restore.find(project, ref), project.root.path.parent / "copied")
    assert (copied / "changed.txt").read_bytes() == made["changed.txt"]
    left = trash.remove_untracked(project.root, worktree.path, "w1", "reset", None)
    assert left is not None
    assert (trash.folder_of(project.root, left) / "mine.id").read_bytes() == made["mine.id"]
    assert not (worktree.path / "mine.id").exists()


def test_a_pin_of_a_sparse_checkout(project: Project, worktree: Worktree) -> None:
    """Break: let git skip what is outside of it, or take what it left out for deleted."""
    worktree.commit("docs/deep/left-out.txt", "left out\n")
    worktree.commit("docs/deep/changed.txt", "as committed\n")
    worktree.git("sparse-checkout", "set", "src")
    worktree.write("docs/deep/changed.txt", "changed\n")
    worktree.write("docs/new.txt", "new\n")
    (worktree.path / "changed.txt").unlink()
    kept = tree(worktree.path, pin(project, worktree))
    assert kept["docs/deep/changed.txt"] == "changed"
    assert kept["docs/new.txt"] == "new"
    assert kept["docs/deep/left-out.txt"] == "left out"
    assert "changed.txt" not in kept


def test_a_pin_that_lacks_a_file_is_none(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever makes git leave out a file. Break: believe `git add`."""
    make_mess(worktree)
    lie(monkeypatch, tmp_path, 'case "$*" in *" add "*|*update-index*) exit 0;; esac')
    with pytest.raises(LlmcError, match=r"git did not save .*changed.txt"):
        pin(project, worktree)
    assert run_git(project.root.path, "for-each-ref", "refs/llmc/trash") == ""


def test_a_pin_in_the_middle_of_a_conflict(project: Project, worktree: Worktree) -> None:
    base = worktree.head()
    worktree.commit("changed.txt", "one\n")
    worktree.git("branch", "other", base)
    worktree.git("checkout", "-q", "other")
    worktree.commit("changed.txt", "two\n")
    worktree.git("merge", "llmc/w1", check=False)
    assert "<<<<<<<" in tree(worktree.path, pin(project, worktree))["changed.txt"]


def test_the_branch_is_kept_when_head_is_elsewhere(project: Project, worktree: Worktree) -> None:
    """Breaks when only HEAD is pinned: the commits of the worker's own branch would be lost."""
    base = worktree.head()
    tip = worktree.commit("work.txt")
    worktree.git("checkout", "-q", "--detach", base)
    ref = pin(project, worktree, branch="llmc/w1")
    assert worktree.git("merge-base", ref, tip) == tip
    assert worktree.git("rev-parse", f"{ref}^1") == base


@pytest.mark.parametrize("problem", ["ref", "object"])
def test_a_pin_that_fails_stops_and_removes_nothing(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: str
) -> None:
    """Breaks when files are moved before the pin is certain, or a git failure goes unnoticed."""
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 1000)
    make_mess(worktree)
    worktree.write("huge.bin", "x" * 1001)
    if problem == "object":
        worktree.write(".gitattributes", "changed.txt filter=broken\n")
    before = (snapshot(worktree.path), status(worktree))
    if problem == "ref":
        blocked = project.root.path / ".git/refs/llmc/trash"
        blocked.parent.mkdir(parents=True)
        blocked.write_text("in the way")
    else:
        # The user's own settings: the clone's would be undone.
        (tmp_path / "home").mkdir()
        (tmp_path / "home/.gitconfig").write_text('[filter "broken"]\nclean = false\nrequired = true\n')
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises((LlmcError, ToolFailed)):
        pin(project, worktree)
    if problem == "object":
        (tmp_path / "home/.gitconfig").unlink()
    assert (snapshot(worktree.path), status(worktree)) == before
    assert not project.root.trash.exists() or not os.listdir(project.root.trash)


def test_the_event_log_knows_of_a_pin_before_it_is_made(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: log it afterwards; after a kill in between, the trash has an entry that nothing records."""
    made: list[str] = []

    def killed(*_: object) -> None:
        made.extend(run_git(project.root.path, "for-each-ref", "refs/llmc/trash").splitlines())
        raise KeyboardInterrupt

    make_mess(worktree)
    with monkeypatch.context() as patched:
        patched.setattr(trash, "_keep", killed)
        with pytest.raises(KeyboardInterrupt):
            pin(project, worktree)
    rows = [json.loads(line) for line in project.root.events.read_text().splitlines()]
    (told,) = [row for row in rows if row["action"] == "pinning"]
    assert made == []
    assert (told["worker"], told["reason"]) == ("w1", "test")
    assert told["ref"].startswith("refs/llmc/trash/w1/")
    project.root.state.write_text("broken")
    assert pin(project, worktree), "a broken state does not prevent saving work"


ODD_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"]


@pytest.mark.parametrize("end", ODD_ENDS, ids=ascii)
def test_any_subject_can_be_read(project: Project, worktree: Worktree, end: str) -> None:
    """Break: `splitlines()` on git's output: one such subject ends every `llmc trash` command."""
    subject = f"One{end}two"
    worktree.write("x.txt")
    worktree.git("add", "x.txt")
    worktree.git("commit", "-q", "-m", subject)
    ref = trash.pin(project.root, worktree.path, "w1", "test")
    (entry,) = restore.entries(project)
    assert (entry.ref, entry.commit, entry.subject) == (ref, worktree.head(), subject)
    assert glance.subjects(project, [worktree.head()]) == {worktree.head(): subject}
    assert restore.restore_branch(project, restore.find(project, entry.name), None).commit == worktree.head()
    assert "One" in restore.describe(project, entry)


def test_a_git_that_only_says_it_made_the_ref(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: do not check the ref after `update-ref`: the files would be moved, with nothing naming them."""
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 1000)
    make_mess(worktree)
    worktree.write("huge.bin", "x" * 1001)
    before = (snapshot(worktree.path), status(worktree))
    lie(monkeypatch, tmp_path, 'case "$*" in *update-ref*) exit 0;; esac')
    with pytest.raises(LlmcError, match="cannot save the work"):
        pin(project, worktree)
    assert (snapshot(worktree.path), status(worktree)) == before


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_a_pin_without_its_objects_is_none(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """A disk that loses what was written. Break: check only the ref's name."""
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 1000)
    worktree.write("new file.txt", "found nowhere else\n")
    worktree.write("huge.bin", "x" * 1001)
    before = (snapshot(worktree.path), status(worktree))
    real = shutil.which("git")
    lose = f"""
    real() {{ {real} -C {worktree.path} "$@"; }}
    lose() {{ rm -f {project.root.path}/.git/objects/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-); }}
    case "$*" in *update-ref*)
        {real} "$@"
        for last; do :; done
        case {kind} in
            blob) lose $(real rev-parse "$last:new file.txt");;
            tree) lose $(real rev-parse "$last^{{tree}}");;
            commit) lose "$last";;
        esac
        exit 0;;
    esac"""
    lie(monkeypatch, tmp_path, lose)
    with pytest.raises(LlmcError, match="cannot save the work"):
        pin(project, worktree)
    assert (snapshot(worktree.path), status(worktree)) == before


def lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """A `git` that does this first, and is otherwise the real one."""
    real = shutil.which("git")
    place = tmp_path / "bin"
    place.mkdir()
    (place / "git").write_text(f'#!/bin/sh\n{script}\nexec {real} "$@"\n')
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def test_what_is_moved_into_the_trash_replaces_nothing_there(project: Project, worktree: Worktree) -> None:
    """Break: rename onto an existing file. A second file of that name and moment would replace it."""
    folder = project.root.trash / "w1-x"
    for text in ("first", "second", "third"):
        worktree.write("deep/huge.bin", text)
        trash.take_out(worktree.path, ["deep/huge.bin"], folder)
    assert sorted(path.read_text() for path in folder.rglob("huge.bin*")) == ["first", "second", "third"]


def test_a_damaged_repository_that_is_ignored_stays(project: Project, worktree: Worktree) -> None:
    """Like every ignored file. Break: move each damaged `.git` to the trash, ignored or not."""
    worktree.commit(".gitignore", "cache/\n")
    for name in ("new/cache", "new/seen"):
        worktree.write(f"{name}/.git/config", "damaged\n")
    kept = trash.remove_untracked(project.root, worktree.path, "w1", "reset", None)
    assert (worktree.path / "new/cache/.git/config").exists()
    assert not (worktree.path / "new/seen").exists()
    assert kept is not None
    assert (trash.folder_of(project.root, kept) / "new/seen/.git/config").read_text() == "damaged\n"


def test_threads_of_one_process_do_not_share_an_index(project: Project, worktree: Worktree) -> None:
    """Break: name the separate index after the process:
    one thread removes another's, which then saves no files.
    """
    worktree.write("changed.txt", "new\n")
    head = worktree.git("rev-parse", "HEAD")
    alone, _ = trash.files_as_tree(worktree.path, head)
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda _: trash.files_as_tree(worktree.path, head)[0], range(24)))
    assert set(trees) == {alone}
