"""Worktrees: created, recreated, and reset in place without losing anything."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.base.errors import LlmcError, NotFound, Refused, ToolFailed, UsageError
from llmc.config.edit import set_value
from llmc.doctor.looking import tree_facts
from llmc.records.worker import WorkerRecord
from llmc.repo import git, provision, setup, sources, uncommitted
from llmc.repo.project import Project
from tests.support.repos import Repo, Worktree, add_worker, make_project, run_git, tree


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "so#{ur}ce's")
    made.commit(".gitignore", "*.cache\n.env\n")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "ro ot")


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return add_worker(project)


def configured(project: Project, **repo: object) -> Project:
    for key, value in repo.items():
        set_value(project.root.config, f"repo.{key}", value if isinstance(value, str) else list(value))  # type: ignore[call-overload]
    return setup.new_project(project.root)


def reset(project: Project, record: WorkerRecord, commit: str = "") -> str | None:
    return provision.reset_in_place(project, record, commit or provision.refresh_base(project), "test")


# Setup.


@pytest.mark.req("1-145")
def test_a_root_has_no_checkout_and_cannot_push(project: Project, source: Repo) -> None:
    assert not (project.root.path / "a.txt").exists()
    assert run_git(project.root.path, "rev-parse", "--is-bare-repository") == "true"
    record, worktree = add_worker(project)
    assert (worktree.path / "a.txt").exists()
    assert worktree.git("rev-parse", "--is-bare-repository") == "false"
    assert worktree.git("symbolic-ref", "HEAD") == "refs/heads/llmc/w1"
    worktree.commit("work.txt")
    worktree.git("push", "origin", "HEAD:main", check=False)
    assert source.git("log", "--format=%s", "-1", "main") == "Add a.txt"
    assert record.worktree_path == str(project.root.path / ".worktrees/w1")


def test_the_remote_is_origin_whatever_a_person_configured(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks without --origin: fetches would find no remote of that name."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[clone]\n\tdefaultRemoteName = upstream\n")
    monkeypatch.setenv("HOME", str(home))
    project = make_project(str(source.path), tmp_path / "root2")
    assert provision.refresh_base(project) == source.head()


def test_the_source_is_the_repository_itself(source: Repo, tmp_path: Path) -> None:
    """Breaks when a worktree of a bare repository counts as "not bare": its parent would be the source."""
    inside = source.path / "deep"
    inside.mkdir()
    source.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    assert setup.find_source(None, inside).location == str(source.path)
    assert setup.find_source(str(tmp_path / "linked"), Path("/")).location == str(source.path)
    bare = tmp_path / "bare.git"
    source.git("clone", "-q", "--bare", str(source.path), str(bare))
    run_git(bare, "worktree", "add", "-q", str(tmp_path / "of-bare"), "main")
    assert setup.find_source(str(bare), Path("/")).location == str(bare)
    assert setup.find_source(None, tmp_path / "of-bare").location == str(bare)
    separate = tmp_path / "separate"
    separate.mkdir()
    run_git(separate, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere.git"))
    assert setup.find_source(None, separate).location == str(separate)
    assert setup.find_source("https://example.com/x.git", Path("/")) == setup.Source(
        "https://example.com/x.git", local=False
    )
    with pytest.raises(NotFound):
        setup.find_source(None, tmp_path)


@pytest.mark.parametrize(
    "given", ["git@host:team/repo.git", "host:repo.git", "me@host:repo", "ssh://host/repo/"]
)
def test_an_address_is_what_git_takes_for_one(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: recognize only `git@` and `://`; or let the address into the path of the root: agents have it on PATH."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "llmc/taken").mkdir(parents=True)
    found = setup.find_source(given, tmp_path)
    assert found == setup.Source(given, local=False)
    assert setup.choose_target(None, found) == tmp_path / "llmc-repo"


def test_a_directory_whose_name_looks_like_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: ask a server of that name."""
    monkeypatch.chdir(tmp_path)
    Repo(tmp_path / "host:repo")
    assert setup.find_source("host:repo", tmp_path) == setup.Source(str(tmp_path / "host:repo"), local=True)


def test_a_user_who_allows_no_bare_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: ask the git directory from inside: git refuses it like a bare repository; or say that it is none."""
    source = Repo(tmp_path / "src")
    source.commit("a.txt")
    bare = tmp_path / "bare.git"
    run_git(tmp_path, "clone", "-q", "--bare", str(source.path), str(bare))
    (tmp_path / ".gitconfig").write_text("[safe]\n\tbareRepository = explicit\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert setup.find_source(None, source.path).location == str(source.path)
    with pytest.raises(Refused, match=r"safe\.bareRepository"):
        setup.find_source(str(bare), tmp_path)


@pytest.mark.parametrize("bare", [False, True])
def test_a_source_whose_head_names_no_branch(tmp_path: Path, bare: bool) -> None:
    """Break: ask for a first commit, although there is one."""
    source = Repo(tmp_path / "src")
    source.commit("a.txt")
    place = source.path
    if bare:
        place = tmp_path / "bare.git"
        run_git(tmp_path, "clone", "-q", "--bare", str(source.path), str(place))
    run_git(place, "symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(LlmcError, match="names a branch that does not exist") as failed:
        setup.create_root(setup.find_source(str(place), tmp_path), tmp_path / "root", "scripted")
    assert "git symbolic-ref HEAD refs/heads/main" in failed.value.hint
    assert not (tmp_path / "root").exists()


def test_a_root_is_made_once_and_outside_of_the_source(project: Project, source: Repo) -> None:
    found = setup.find_source(str(source.path), Path("/"))
    with pytest.raises(Refused, match="already"):
        setup.create_root(found, project.root.path, "scripted")
    with pytest.raises(Refused, match="inside the source"):
        setup.create_root(found, source.path / "llmc", "scripted")


@pytest.mark.parametrize(
    "name", ["", "A", "1st", "a b", "a/b", "..", "a" * 32, "overseer", "auto-1", "#{x}", "w\n"]
)
def test_names_that_are_refused(project: Project, name: str) -> None:
    with pytest.raises(UsageError):
        add_worker(project, name)
    assert project.store.read().workers == {}


@pytest.mark.req("2-007")
@pytest.mark.parametrize("name", ["a", "w-1", "a" * 31])
def test_names(project: Project, name: str) -> None:
    record, worktree = add_worker(project, name)
    assert worktree.path.name == name
    assert record.branch == f"llmc/{name}"
    with pytest.raises(Refused, match="already"):
        add_worker(project, name)


# Provision.


def test_provision_is_idempotent(project: Project, source: Repo) -> None:
    """Breaks when setup runs each time."""
    project = configured(project, setup="echo ran >> setup.cache")
    record, worktree = add_worker(project)
    worktree.write("mine.txt", "mine\n")
    head = worktree.head()
    source.commit("later.txt")
    for _ in range(2):
        provision.provision(project, record)
    assert (worktree.path / "setup.cache").read_text() == "ran\n"
    assert (worktree.path / "mine.txt").read_text() == "mine\n"
    assert worktree.head() == head


def test_a_failed_setup_runs_again(project: Project) -> None:
    """Breaks when "the directory exists" means "it is provisioned"."""
    broken = configured(project, setup="echo no space; exit 3")
    with pytest.raises(ToolFailed, match="setup failed with exit code 3: no space"):
        add_worker(broken)
    assert broken.store.read().workers == {}
    fixed = configured(project, setup="touch setup.cache")
    _, worktree = add_worker(fixed)
    assert (worktree.path / "setup.cache").exists()


def test_a_worktree_that_vanished_comes_back_with_its_commits(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Breaks without `worktree prune`, or when a new branch is created: its commits would be forgotten."""
    record, worktree = worker
    tip = worktree.commit("work.txt", "worked\n")
    worktree.path.rename(project.root.path / "taken away")
    provision.provision(project, record)
    assert worktree.head() == tip
    assert (worktree.path / "work.txt").read_text() == "worked\n"
    assert worktree.git("symbolic-ref", "HEAD") == "refs/heads/llmc/w1"


@pytest.mark.req("1-095", "2-004")
def test_ignored_files_are_copied(project: Project, source: Repo) -> None:
    source.write(".env", "KEY=1\n").chmod(0o600)
    source.write("sub/dir/asset.cache", "asset\n")
    project = configured(project, copy=[".env", "sub/**/*.cache", "none/*"])
    record, worktree = add_worker(project)
    assert (worktree.path / ".env").read_text() == "KEY=1\n"
    assert (worktree.path / ".env").stat().st_mode & 0o777 == 0o600
    assert (worktree.path / "sub/dir/asset.cache").exists()
    worktree.write(".env", "KEY=mine\n")
    provision.provision(project, record)
    assert (worktree.path / ".env").read_text() == "KEY=mine\n"


def test_a_branch_that_is_not_there(project: Project) -> None:
    project = replace_branch(project, "nowhere")
    with pytest.raises(sources.NoSource, match="has no branch 'nowhere'; it has 'main'"):
        provision.refresh_base(project)


def replace_branch(project: Project, branch: str) -> Project:
    config = replace(project.config, repo=replace(project.config.repo, default_branch=branch))
    return Project(project.root, config, project.store, project.tmux)


# Reset in place.


def assert_fresh(project: Project, worktree: Worktree) -> None:
    assert worktree.head() == worktree.head(project.base)
    assert worktree.git("symbolic-ref", "HEAD") == "refs/heads/llmc/w1"
    assert uncommitted.tree_state(worktree.path).clean
    assert uncommitted.operation_in_progress(worktree.path) is None


def test_a_reset_with_nothing_to_lose_pins_nothing(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree]
) -> None:
    record, worktree = worker
    source.commit("later.txt")
    assert reset(project, record) is None
    assert_fresh(project, worktree)
    assert (worktree.path / "later.txt").exists()


@pytest.mark.req("1-114")
def test_a_reset_keeps_the_directory_and_ignored_files(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Breaks when the worktree is recreated (an agent's cwd would be gone) or cleaned with -x."""
    record, worktree = worker
    inode = worktree.path.stat().st_ino
    worktree.write("build.cache", "warm\n")
    worktree.write("deep/er/build.cache", "warm\n")
    worktree.write("deep/er/new.txt", "new\n")
    worktree.commit("work.txt")
    worktree.write("a.txt", "changed\n")
    ref = reset(project, record)
    assert ref
    assert worktree.path.stat().st_ino == inode
    assert (worktree.path / "build.cache").read_text() == "warm\n"
    assert (worktree.path / "deep/er/build.cache").read_text() == "warm\n"
    assert not (worktree.path / "deep/er/new.txt").exists()
    assert_fresh(project, worktree)
    kept = tree(worktree.path, ref)
    assert (kept["work.txt"], kept["a.txt"], kept["deep/er/new.txt"]) == ("text", "changed", "new")


@pytest.mark.parametrize("where", ["detached", "another branch", "behind"])
def test_commits_of_the_branch_are_kept_when_the_agent_left_it(
    project: Project, worker: tuple[WorkerRecord, Worktree], where: str
) -> None:
    """Breaks when only HEAD is checked: the branch is moved, and its commits would be lost."""
    record, worktree = worker
    base = worktree.head()
    tip = worktree.commit("work.txt")
    match where:
        case "detached":
            worktree.git("checkout", "-q", "--detach", base)
        case "another branch":
            worktree.git("checkout", "-q", "-b", "idea", base)
            worktree.commit("idea.txt")
        case "behind":
            worktree.git("checkout", "-q", "-b", "idea", base)
    ref = reset(project, record)
    assert ref
    assert git.is_ancestor(worktree.path, tip, ref)
    assert_fresh(project, worktree)


@pytest.mark.parametrize("how", ["--merge", "--apply"])
def test_a_rebase_in_progress(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree], how: str
) -> None:
    """Breaks when the branch's tip is not pinned: during a rebase, HEAD lacks the worker's commits."""
    record, worktree = worker
    tip = worktree.commit("a.txt", "ours\n")
    source.commit("a.txt", "theirs\n")
    provision.refresh_base(project)
    worktree.git("rebase", how, "origin/main", check=False)
    assert uncommitted.rebase_in_progress(worktree.path)
    ref = reset(project, record)
    assert ref
    assert git.is_ancestor(worktree.path, tip, ref)
    assert "<<<<<<<" in tree(worktree.path, ref)["a.txt"]
    assert_fresh(project, worktree)


@pytest.mark.parametrize("operation", ["merge", "cherry-pick", "cherry-pick of several", "am"])
def test_other_operations_in_progress(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree], operation: str
) -> None:
    """Breaks when only `rebase --quit` is tried: an `am` refuses it,
    and a cherry-pick continues in the next task.
    """
    record, worktree = worker
    worktree.commit("a.txt", "ours\n")
    source.commit("a.txt", "theirs\n")
    source.commit("b.txt", "b\n")
    provision.refresh_base(project)
    if operation == "am":
        worktree.write("x.patch", worktree.git("format-patch", "-1", "--stdout", "origin/main~1") + "\n")
        worktree.git("am", "x.patch", check=False)
    elif operation == "cherry-pick of several":
        worktree.git("cherry-pick", "..origin/main", check=False)
    else:
        worktree.git(operation, "origin/main~1", check=False)
    assert uncommitted.operation_in_progress(worktree.path)
    assert reset(project, record)
    assert_fresh(project, worktree)


@pytest.mark.parametrize("operation", ["merge", "bisect"])
def test_an_operation_that_changed_nothing_is_ended_too(
    project: Project, worker: tuple[WorkerRecord, Worktree], operation: str
) -> None:
    """Break: check only files and commits; git continues it in the next task."""
    record, worktree = worker
    if operation == "merge":
        same = worktree.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Nothing").strip()
        worktree.git("merge", "--quiet", "--no-ff", "--no-commit", same)
    else:
        worktree.git("bisect", "start")
    assert uncommitted.operations_in_progress(worktree.path) == [operation]
    found = tree_facts(project, record)
    assert found
    assert (found.operation, found.dirty) == (operation, ())
    reset(project, record)
    assert_fresh(project, worktree)


def test_nested_repositories_do_not_stop_a_reset(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Breaks when a nested repository below an untracked directory is not found: `clean -fd` leaves it."""
    record, worktree = worker
    Repo(worktree.path / "out/vendor/lib").commit("lib.c")
    worktree.write("out/file.txt")
    assert reset(project, record)
    assert_fresh(project, worktree)
    assert list(project.root.trash.glob("w1-*/out/vendor/lib/lib.c"))


def test_an_ignored_file_that_the_base_now_tracks_is_kept(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Breaks when ignored files in the way are not pinned: checkout overwrites them silently."""
    record, worktree = worker
    worktree.write(".env", "KEY=mine\n")
    source.commit(".env", "KEY=theirs\n")
    ref = reset(project, record)
    assert ref
    assert tree(worktree.path, ref)[".env"] == "KEY=mine"
    assert (worktree.path / ".env").read_text() == "KEY=theirs\n"
    assert_fresh(project, worktree)


def test_a_reset_whose_pin_fails_changes_nothing(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Breaks when anything is removed before the pin."""
    record, worktree = worker
    worktree.write("a.txt", "changed\n")
    blocked = project.root.path / ".git/refs/llmc/trash"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(ToolFailed):
        reset(project, record)
    assert (worktree.path / "a.txt").read_text() == "changed\n"


def test_files_are_written_as_the_attributes_of_the_new_base_want_them(
    source: Repo, project: Project
) -> None:
    """Breaks when a file keeps the form of an earlier .gitattributes: it would look changed forever."""
    source.commit(".gitattributes", "*.txt text eol=crlf\n")
    provision.refresh_base(project)
    record, worktree = add_worker(project)
    assert (worktree.path / "a.txt").read_bytes() == b"a\r\n"
    source.commit(".gitattributes", "*.txt -text\n")
    reset(project, record)
    os.utime(worktree.path / "a.txt", (1, 1))  # git has to read it
    reset(project, record)
    assert (worktree.path / "a.txt").read_bytes() == b"a\n"
    assert uncommitted.tree_state(worktree.path).clean
