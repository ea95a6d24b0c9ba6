"""git's answers as data, from real repositories."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from llmc.base.errors import ToolFailed
from llmc.base.processes import is_alive
from llmc.repo import git, uncommitted
from llmc.repo.git import Divergence
from tests.support.repos import Repo, Worktree


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "it's a #{repo}")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def linked(repo: Repo, tmp_path: Path) -> Worktree:
    path = tmp_path / "linked tree"
    repo.git("worktree", "add", "-q", "-b", "work", str(path))
    return Worktree(path)


def begin_conflict(tree: Repo) -> None:
    """A rebase that stops: both sides changed a.txt."""
    tree.commit("a.txt", "ours\n")
    tree.git("rebase", "other", check=False)


def other_side(repo: Repo) -> None:
    repo.git("branch", "other")
    repo.git("checkout", "-q", "other")
    repo.commit("a.txt", "theirs\n")
    repo.git("checkout", "-q", "main")


def test_a_background_job_of_a_users_hook_is_neither_waited_for_nor_killed(
    repo: Repo, tmp_path: Path
) -> None:
    """Break: wait for the end of git's output: the job has it open, and a merge that landed counts as failed."""
    base, tip = repo.head(), repo.commit("b.txt")
    repo.git("reset", "-q", "--hard", base)
    hook, pid_file = repo.path / ".git/hooks/post-merge", tmp_path / "pid"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho rebuilding\nsleep 300 &\necho $! > '{pid_file}'\n")
    hook.chmod(0o755)
    done = git.git(repo.path, "merge", "--ff-only", tip, hooks=True, timeout_s=8)
    job = int(pid_file.read_text())
    try:
        assert repo.head() == tip
        assert "rebuilding" in done.stdout + done.stderr
        assert is_alive(job)
    finally:
        os.kill(job, signal.SIGKILL)


@pytest.mark.req("1-072")
def test_divergence_tells_ahead_behind_and_both_apart(repo: Repo) -> None:
    """Breaks when ahead and behind are swapped."""
    base = repo.head()
    tip = repo.commit("b.txt")
    repo.git("checkout", "-q", "-b", "side", base)
    side = [repo.commit("c.txt"), repo.commit("d.txt")][-1]
    assert git.divergence(repo.path, base, base) == Divergence(0, 0)
    assert git.divergence(repo.path, base, tip) == Divergence(ahead=1, behind=0)
    assert git.divergence(repo.path, tip, base) == Divergence(ahead=0, behind=1)
    assert git.divergence(repo.path, tip, side) == Divergence(ahead=2, behind=1)
    assert git.is_ancestor(repo.path, base, tip)
    assert not git.is_ancestor(repo.path, tip, side)


def test_the_time_of_the_last_commit_is_of_the_branchs_own(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: check only the branch: others' commits would count as a sign of life of the worker on top."""
    repo.git("branch", "work")
    assert git.last_commit_unix(repo.path, "main", "work") is None
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1700000000 +0000")
    repo.git("checkout", "-q", "work")
    repo.commit("b.txt", "b\n")
    assert git.last_commit_unix(repo.path, "main", "work") == 1_700_000_000.0
    assert git.last_commit_unix(repo.path, "main", "gone") is None


def test_failure_is_not_an_answer(repo: Repo, tmp_path: Path) -> None:
    """Breaks when a failing git counts as "no": a failure proves nothing."""
    assert git.resolve(repo.path, "refs/heads/nothing") is None
    for ask in (
        lambda: git.resolve(tmp_path, "HEAD"),
        lambda: git.is_ancestor(repo.path, "HEAD", "nothing"),
        lambda: git.divergence(repo.path, "nothing", "HEAD"),
        lambda: uncommitted.tree_state(tmp_path),
        lambda: uncommitted.rebase_in_progress(tmp_path),
        lambda: git.checked_out_at(tmp_path, "main"),
        lambda: uncommitted.untracked_files(tmp_path / "gone"),
    ):
        with pytest.raises(ToolFailed):
            ask()


ODD = [
    "with space",
    "new\nline",
    "tab\there",
    "quo\"te'",
    "\u00fcml\u00e4ut",
    "#{x}",
    "-dash",
    "??",
    " lead",
    "a -> b",
]


@pytest.mark.parametrize("name", [*ODD, os.fsdecode(b"latin-\xe9")])
def test_tree_state_has_odd_names_as_they_are(repo: Repo, name: str) -> None:
    """Breaks without -z: git would quote and escape them."""
    repo.write(name)
    found = uncommitted.tree_state(repo.path)
    assert (found.tracked, found.untracked) == ((), (name,))
    assert uncommitted.untracked_files(repo.path) == (name,)
    assert uncommitted.tree_state(repo.path, untracked=False).clean
    repo.git("add", "--", name)
    found = uncommitted.tree_state(repo.path)
    assert (found.tracked, found.untracked) == ((name,), ())


def test_a_rename_is_two_changes(repo: Repo) -> None:
    """Breaks without --no-renames: with -z the old name would be its own line."""
    repo.commit("long.txt", "line\n" * 50)
    repo.git("mv", "long.txt", "moved.txt")
    assert sorted(uncommitted.tree_state(repo.path).tracked) == ["long.txt", "moved.txt"]


def test_tree_state_does_not_wait_for_a_lock(repo: Repo) -> None:
    """An agent may be committing at this moment."""
    repo.write("a.txt", "changed\n")
    (repo.path / ".git/index.lock").touch()
    assert uncommitted.tree_state(repo.path).tracked == ("a.txt",)


def test_tree_state_knows_where_it_is(repo: Repo, linked: Worktree) -> None:
    """Break: give a conflicting file no row of its own, or treat "(detached)" as a branch."""
    other_side(repo)
    begin_conflict(linked)
    found = uncommitted.tree_state(linked.path)
    assert (found.branch, found.head) == (None, repo.git("rev-parse", "other"))
    assert found.tracked == ("a.txt",)
    assert (uncommitted.rebase_in_progress(linked.path), git.head(linked.path)) == (True, found.head)
    at_home = uncommitted.tree_state(repo.path)
    assert (at_home.branch, at_home.head) == ("main", git.head(repo.path))
    assert (uncommitted.rebase_in_progress(repo.path), git.head(repo.path)) == (False, at_home.head)
    repo.git("checkout", "-q", "--orphan", "new")
    assert (uncommitted.tree_state(repo.path).branch, uncommitted.tree_state(repo.path).head) == ("new", None)


def test_a_nested_repository_is_one_untracked_directory(repo: Repo) -> None:
    Repo(repo.path / "deep/nested").commit("x.txt")
    repo.write("deep/file.txt")
    assert sorted(uncommitted.untracked_files(repo.path)) == ["deep/file.txt", "deep/nested/"]


@pytest.mark.req("1-073", "1-131")
@pytest.mark.parametrize("how", ["--merge", "--apply"])
def test_rebase_in_a_linked_worktree(repo: Repo, linked: Worktree, how: str) -> None:
    """Breaks when it looks for `.git/rebase-merge`: in a linked worktree `.git` is a file."""
    other_side(repo)
    assert not uncommitted.rebase_in_progress(linked.path)
    linked.commit("a.txt", "ours\n")
    linked.git("rebase", how, "other", check=False)
    assert uncommitted.rebase_in_progress(linked.path)
    assert uncommitted.operation_in_progress(linked.path) == "rebase"
    assert uncommitted.conflicted_files(linked.path) == ("a.txt",)
    assert not uncommitted.rebase_in_progress(repo.path)
    linked.git("rebase", "--abort")
    assert not uncommitted.rebase_in_progress(linked.path)
    assert uncommitted.operation_in_progress(linked.path) is None


@pytest.mark.parametrize(
    ("args", "name"),
    [(["merge"], "merge"), (["cherry-pick"], "cherry-pick"), (["bisect", "start", "HEAD"], "bisect")],
)
def test_operations_in_progress(repo: Repo, args: list[str], name: str) -> None:
    other_side(repo)
    repo.commit("a.txt", "ours\n")
    repo.git(*args, "other", check=False)
    assert uncommitted.operation_in_progress(repo.path) == name


def test_checked_out_at(repo: Repo, linked: Worktree) -> None:
    assert git.checked_out_at(repo.path, "main") == repo.path
    assert git.checked_out_at(repo.path, "work") == linked.path
    assert git.checked_out_at(linked.path, "main") == repo.path
    repo.git("checkout", "-q", "--detach")
    assert git.checked_out_at(repo.path, "main") is None
    assert git.checked_out_at(repo.path, "wor") is None


def test_a_branch_in_a_rebase_is_still_checked_out(repo: Repo, linked: Worktree) -> None:
    """Breaks when "detached" ends the search: the branch would be moved during a user's rebase."""
    other_side(repo)
    begin_conflict(linked)
    assert git.checked_out_at(repo.path, "work") == linked.path
    assert git.checked_out_at(repo.path, "main") == repo.path
    linked.git("rebase", "--abort")
    begin_conflict(repo)
    assert git.checked_out_at(linked.path, "main") == repo.path


def test_nothing_is_checked_out_in_a_bare_repository(tmp_path: Path, repo: Repo) -> None:
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
    assert git.checked_out_at(bare, "main") is None
    assert git.default_branch(bare) == "main"
    Worktree(bare).git("worktree", "add", "-q", str(tmp_path / "of bare"), "main")
    assert git.checked_out_at(bare, "main") == tmp_path / "of bare"


def test_default_branch(repo: Repo) -> None:
    """Breaks with `symbolic-ref --short`: beside a tag of that name it says heads/trunk."""
    repo.git("branch", "-m", "team/trunk")
    repo.git("tag", "team/trunk")
    assert git.default_branch(repo.path) == "team/trunk"


def test_default_branch_of_a_detached_head(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")
    assert git.default_branch(repo.path) == "main"
    repo.git("branch", "-m", "main", "master")
    assert git.default_branch(repo.path) == "master"
    repo.git("branch", "-m", "master", "trunk")
    with pytest.raises(ToolFailed, match="cannot determine the default branch"):
        git.default_branch(repo.path)


def test_a_foreign_git_dir_does_not_mislead(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when GIT_* is not stripped: llmc called from a hook would work on that hook's repository."""
    elsewhere = Repo(tmp_path / "elsewhere")
    elsewhere.commit("z.txt")
    head = repo.head()
    monkeypatch.setenv("GIT_DIR", str(elsewhere.path / ".git"))
    assert git.head(repo.path) == head


def test_a_branch_is_what_git_says_however_it_is_kept(repo: Repo, linked: Worktree, tmp_path: Path) -> None:
    """Break: trust any file where git keeps branches, or look for them beside a worktree's own files."""
    tip = repo.git("rev-parse", "HEAD")
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", ".", str(bare))
    repo.git("symbolic-ref", "refs/heads/other-name", "refs/heads/main")
    repo.git("update-ref", "refs/remotes/origin/main", tip)
    forged = linked.path / "refs/heads/work"
    forged.parent.mkdir(parents=True)
    forged.write_text("0" * 40 + "\n")
    (linked.path / "HEAD").write_text("ref: refs/heads/work\n")

    def answers() -> list[str | None]:
        asked = [(repo.path, name) for name in ("heads/main", "heads/other-name", "remotes/origin/main")]
        asked += [(linked.path, "heads/work"), (linked.path, "heads/main"), (bare, "heads/main")]
        heads = [git.resolve(place, "HEAD") for place in (repo.path, linked.path, bare)]
        return [*(git.resolve(place, f"refs/{name}") for place, name in asked), *heads]

    assert answers() == [tip] * 9
    repo.git("pack-refs", "--all")
    assert answers() == [tip] * 9
    newer = repo.commit("b.txt", "b\n")
    assert git.resolve(repo.path, "refs/heads/main") == newer, "the file is newer than what was packed"
    assert (git.head(repo.path), git.head(linked.path)) == (newer, tip)
    assert not git.same_commit(linked.path, "HEAD", "refs/heads/main")
    linked.git("checkout", "-q", "--detach", "main")
    assert git.head(linked.path) == newer
    assert git.same_commit(linked.path, "HEAD", newer)
    linked.git("checkout", "-q", "--orphan", "empty")
    assert git.resolve(linked.path, "HEAD") is None
    for name in ("refs/heads/gone", "refs/heads/../../HEAD"):
        assert git.resolve(repo.path, name) is None


def test_a_fetch_under_which_the_branch_moves_is_made_again(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the git of a killed accept. Break: fetch once; or retry after any error."""
    clone, seen, real = tmp_path / "clone", tmp_path / "seen", shutil.which("git")
    repo.git("clone", "-q", ".", str(clone))
    repo.commit("b.txt", "b\n")
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho x >> {seen}; . {tmp_path}/says; exec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    moved = "error: cannot lock ref 'refs/remotes/origin/main': is at 1f2acaa7 but expected a014f906"
    says = tmp_path / "says"
    says.write_text(f'[ $(wc -l < {seen}) -gt 1 ] || {{ echo "{moved}" >&2; exit 1; }}\n')
    git.fetch(clone, str(repo.path), "main")
    assert git.same_commit(clone, "origin/main", repo.git("rev-parse", "main").strip())
    for text, times in (("fatal: no such remote", 1), (moved, 3)):
        seen.unlink()
        says.write_text(f'echo "{text}" >&2; exit 1\n')
        with pytest.raises(ToolFailed):
            git.fetch(clone, str(repo.path), "main")
        assert len(seen.read_text().split()) == times


def test_a_signature_is_not_shown(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read what git prints about a commit's signature as part of the commit."""
    home, gpg = tmp_path / "home", tmp_path / "gpg"
    home.mkdir()
    said = "cat > /dev/null; echo 'gpg: looked' >&2; echo '[GNUPG:] SIG_CREATED ' >&2"
    gpg.write_text(f"#!/bin/sh\n{said}\necho '-----BEGIN PGP SIGNATURE-----'\n")
    gpg.chmod(0o755)
    (home / ".gitconfig").write_text(f"[gpg]\n\tprogram = {gpg}\n[log]\n\tshowSignature = true\n")
    monkeypatch.setenv("HOME", str(home))
    repo.git("commit", "-q", "--allow-empty", "-S", "-m", "Signed")
    assert git.out(repo.path, "show", "-s", "--format=%s", "HEAD") == "Signed"
