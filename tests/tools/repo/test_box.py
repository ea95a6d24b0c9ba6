"""llmc's git is boxed where a contained agent writes. A won race there runs a program: here, a git alias."""

import os
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.files import remove_tree
from llmc.base.proc import Done
from llmc.config.edit import set_value
from llmc.config.model import Worker
from llmc.repo import git, git_dirs, lfs, own_repos, provision, setup, uncommitted
from llmc.repo.git_config import stamp
from llmc.repo.project import Project
from llmc.sandbox import probe, rules
from llmc.sandbox.rules import View
from tests.support.contained import needs_bubblewrap
from tests.support.deep import nested
from tests.support.fleet import in_soak
from tests.support.git_http import IN_URL, served
from tests.support.repos import (
    Repo,
    Worktree,
    add_worker,
    advance,
    make_library,
    make_project,
    project_at,
    run_git,
)

pytestmark = needs_bubblewrap


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "source")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "root")


@pytest.fixture
def worktree(project: Project) -> Worktree:
    record, made = add_worker(project)
    provision.settle_repository(project, record, contained=True)
    return made


def runs(worktree: Worktree, script: str) -> Done:
    """A program that llmc's git runs in the worktree."""
    worktree.write("script", script)
    return git.git(worktree.path, "-c", "alias.run=!sh script", "run", check=False)


def test_a_program_of_git_reaches_no_further_than_the_agent(
    project: Project, source: Repo, worktree: Worktree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: any part of `box` in repo/own_repos.py, or `env_in_box` in repo/git.py."""
    home, own = tmp_path / "home", own_repos.path_of(project.root.path, "w1")
    home.mkdir()
    (home / "secret").write_text("SEEN\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("A_TOKEN", "SEEN")
    _, other = add_worker(project, "w2")
    places = [home / "secret", source.path / "a.txt", other.path / "a.txt", project.root.config]
    fixed = [own / "config", own / "hooks/x", own / "commondir", worktree.path / ".git"]
    said = git_dirs.kept_apart(own) / "llmc-said"
    said.touch()
    with socket.socket(socket.AF_UNIX) as local, socket.socket() as port:
        local.bind(str(tmp_path / "socket"))
        port.bind(("127.0.0.1", 0))
        port.listen()
        pid = os.getpid()
        done = runs(
            worktree,
            "\n".join(
                [
                    f"for f in {' '.join(map(str, places))}; do test -e $f && echo SEEN; done",
                    f"for f in {' '.join(map(str, fixed))}; do (echo x > $f) && echo SEEN; done",
                    f"test -e {tmp_path}/socket && echo SEEN; test -e /run/user && echo SEEN",
                    f"bash -c 'echo > /dev/tcp/127.0.0.1/{port.getsockname()[1]}' && echo SEEN",
                    f"env; cat /proc/1/environ; kill -0 {pid} && echo SEEN; test -e /proc/{pid} && echo SEEN",
                    f"test -e {said} && echo SEEN; echo x > {said}",
                    "unshare -Ur true && echo SEEN; echo x > /proc/sys/kernel/core_pattern && echo SEEN",
                    f"touch {worktree.path}/made {own}/made && echo WROTE",
                ]
            ),
        )
    assert "SEEN" not in done.stdout
    assert said.read_text() == ""
    assert "WROTE" in done.stdout
    assert (worktree.path / "made").exists()


def test_a_root_and_a_source_below_a_directory_of_the_system_are_not_seen(
    project: Project, source: Repo, worktree: Worktree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /opt. Break: no `covered` in repo/own_repos.py."""
    monkeypatch.setattr(rules, "SYSTEM", (*rules.SYSTEM, str(tmp_path)))
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").touch()
    (tmp_path / "tool").touch()
    monkeypatch.setenv("HOME", str(home))
    _, other = add_worker(project, "w2")
    places = [home / "secret", source.path / "a.txt", other.path / "a.txt", project.root.config]
    look = f"for f in {' '.join(map(str, places))}; do test -e $f && echo SEEN; done; ls {tmp_path}; ls a.txt"
    said = runs(worktree, look).stdout.split()
    assert "SEEN" not in said
    assert {"tool", "a.txt"} <= {*said}


def test_no_password_of_the_source_is_there(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `access` with the source for a boxed git."""
    guard = git.guards[str(project.root.path)]
    monkeypatch.setattr(guard, "source", "https://me:SEEN@127.0.0.1/x.git")
    assert "SEEN" not in runs(worktree, "env").stdout
    assert "SEEN" in git.git(project.root.path, "-c", "alias.run=!env", "run").stdout


def test_what_the_user_ignores_everywhere_is_ignored(
    worktree: Worktree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no `_ignores` in repo/own_repos.py: an editor's files would make the worktree dirty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ignored").write_text(".idea/\n")
    (tmp_path / ".gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path}/ignored\n")
    worktree.write(".idea/x", "x\n")
    worktree.write("new", "x\n")
    assert uncommitted.tree_state(worktree.path).untracked == ("new",)


def test_links_lead_to_no_other_repository(project: Project, worktree: Worktree, tmp_path: Path) -> None:
    """Content of another repository must not get into the clone, which the agent reads.

    Break: no box around `upload-pack` in `_fetch` (repo/own_repos.py).
    """
    private, own = Repo(tmp_path / "private"), own_repos.path_of(project.root.path, "w1")
    secret = private.commit("secret.txt", "secret\n")
    heads = private.path / ".git/refs/heads"
    (heads / "w1").write_text(f"{secret}\n")
    for place, target in ((own / "refs/heads/llmc", heads), (own / "objects", private.path / ".git/objects")):
        place.rename(tmp_path / f"old-{place.name}")
        place.symlink_to(target)
    own_repos.take(project.root.path, "w1")
    found = subprocess.run(
        ["git", "-C", str(project.root.path), "cat-file", "-e", secret], capture_output=True
    )
    assert found.returncode != 0
    assert run_git(project.root.path, "for-each-ref", "--contains", "HEAD")


def leased(path: Path) -> subprocess.Popen[str]:
    """A process that keeps others from opening a file while it runs."""
    script = f"import fcntl, os, time; fd = os.open({str(path)!r}, os.O_RDONLY); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    script += (
        "; import signal; signal.signal(signal.SIGIO, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    )
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_whatever_a_git_file_says_git_runs_in_a_box(project: Project, worktree: Worktree) -> None:
    """Break: read in `own_repo` (repo/git_dirs.py) where `.git` leads; or repair the file in the guard."""
    record, other = add_worker(project, "w2")
    provision.settle_repository(project, record, contained=True)
    pointer = worktree.path / ".git"
    fake = Repo(worktree.path / "fake")
    fake.commit("b.txt", "b\n")
    run_git(fake.path, "config", "alias.run", "!sh script")
    guard = git.guards[str(project.root.path)]
    for text in (
        (other.path / ".git").read_text(),
        f"gitdir: {fake.path}/.git\n",
        "gitdir: fake/.git\n",
        f"{pointer.read_text()}\n",
        "",
    ):
        pointer.write_text(text)
        found = stamp(str(pointer))
        with guard.box(str(worktree.path)) as (words, *_):
            assert words
        assert not git_dirs.is_worktree_of(worktree.path, project.root.path) or text.endswith("\n\n")
        with pytest.raises(ToolFailed, match="does not point to the repository of w1") as failed:
            git.git(worktree.path, "run")
        assert failed.value.hint.startswith("Run `llmc reset w1`")
        assert stamp(str(pointer)) == found  # for the running agent, a new file would not be read-only
    worktree.write("a.txt", "changed\n")
    provision.start_over(project, project.store.worker("w1"))
    assert uncommitted.tree_state(worktree.path).tracked == ("a.txt",)
    assert git_dirs.is_worktree_of(worktree.path, project.root.path)


def test_nothing_of_a_running_agent_is_replaced(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no `_refuse_while_it_runs` in repo/apart.py;
    or read a file the agent can write in `is_worktree_of`.
    """
    own, pointer = own_repos.path_of(project.root.path, "w1"), worktree.path / ".git"
    (own / "HEAD").unlink()
    assert git_dirs.is_worktree_of(worktree.path, project.root.path)
    script = "print(flush=True); import time; time.sleep(60)"
    env = {**os.environ, "LLMC_INSTANCE": "abc123"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        record = replace(project.store.worker("w1"), instance="abc123")
        before = stamp(str(pointer))
        with pytest.raises(Refused, match="agent is running"):
            provision.start_over(project, record)
        assert stamp(str(pointer)) == before
        pointer.unlink()  # by the user
        with pytest.raises(Refused, match="agent is running"):
            provision.link(project, record)
        assert not pointer.exists()
        agent.kill()
    provision.link(project, record)
    assert git_dirs.is_worktree_of(worktree.path, project.root.path)


def test_a_link_in_the_place_of_its_git_file_shows_nothing(project: Project, worktree: Worktree) -> None:
    """Break: mount `.git` itself in `pointer` (repo/own_repos.py):
    bubblewrap follows a link and exposes its target.
    """
    pointer = worktree.path / ".git"
    own = own_repos.path_of(project.root.path, "w1")
    (mount,) = own_repos.pointer(worktree.path, own)
    assert (mount.path, mount.writable) == (str(pointer), False)
    assert Path(mount.source).read_bytes() == pointer.read_bytes()
    pointer.unlink()
    pointer.symlink_to("../../..")
    assert own_repos.pointer(worktree.path, own) == []


def test_a_head_that_is_no_commit_is_refused(project: Project, worktree: Worktree) -> None:
    """Break: no check of the type in `_take` (repo/own_repos.py): the clone would get a tag, not a commit."""
    run_git(worktree.path, "tag", "-a", "-m", "tag", "odd")
    odd = run_git(worktree.path, "rev-parse", "odd")
    own = own_repos.path_of(project.root.path, "w1")
    (own / "HEAD").write_text(f"{odd}\n")
    assert "is not a commit, but: tag" in own_repos.take(project.root.path, "w1")
    assert git.resolve(project.root.path, f"{own_repos.TAKEN}w1") != odd


def test_a_file_that_cannot_be_read_now_is_not_replaced(project: Project, worktree: Worktree) -> None:
    """Break: treat BlockingIOError as `Broken` in `read_plainly` (repo/git_config.py)."""
    for path in (worktree.path / ".git", project.root.path / ".git/config"):
        os.utime(path)  # it is checked again
        before = path.read_bytes(), path.stat().st_ino
        with leased(path) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(LlmcError, match="another process holds a lease"):
                git.git(worktree.path, "status")
            holder.kill()
        assert (path.read_bytes(), path.stat().st_ino) == before
    assert uncommitted.tree_state(worktree.path).clean


def test_settings_that_llmc_adds_stay_read_only(project: Project, worktree: Worktree) -> None:
    """Break: use `git config` instead of `_set` in `set_up` (repo/lfs.py):
    it replaces the file under its mount.
    """
    config = own_repos.path_of(project.root.path, "w1") / "config"
    before = config.stat().st_ino
    lfs.set_up(config.parent)
    assert run_git(worktree.path, "config", "filter.lfs.required") in ("true", "false")
    assert config.stat().st_ino == before


def test_without_bubblewrap_git_does_not_run_there(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no box without bubblewrap (`box` in repo/own_repos.py): an agent's settings run programs."""
    worktree.write("a.txt", "changed\n")
    monkeypatch.setattr(probe, "bubblewrap", lambda: None)
    with pytest.raises(ToolFailed, match="bubblewrap is not installed"):
        git.git(worktree.path, "status")
    provision.link(project, project.store.worker("w1"))
    assert git_dirs.own_repo(worktree.path) is None
    assert uncommitted.tree_state(worktree.path).tracked == ("a.txt",)


def test_no_link_among_its_refs_is_followed(project: Project, worktree: Worktree, tmp_path: Path) -> None:
    """Break: read refs by path in `_read` (repo/git.py): a refusal would quote the user's file."""
    secret = "5ec0123456789abcdef0123456789abcdef01234"
    private = tmp_path / "private"
    private.mkdir()
    (private / "token").write_text(f"{secret}\n")
    own = own_repos.path_of(project.root.path, "w1")
    (own / "refs/heads").rename(own / "refs/kept")
    (own / "refs/heads").symlink_to(private)
    (own / "HEAD").write_text("ref: refs/heads/token\n")
    assert secret not in own_repos.take(project.root.path, "w1")
    assert git.resolve(worktree.path, "HEAD") is None
    git.git(project.root.path, "for-each-ref")
    assert secret not in str(project.store.read().attention)
    (own / "rebase-merge").symlink_to(private / "none")
    seen = uncommitted.operations_in_progress(worktree.path)
    (own / "rebase-merge").unlink()
    (own / "rebase-merge").symlink_to(private / "token")
    assert uncommitted.operations_in_progress(worktree.path) == seen


@pytest.mark.parametrize("text", [None, *in_soak("nonsense\n")])
def test_a_head_that_is_missing_or_broken(project: Project, worktree: Worktree, text: str | None) -> None:
    """An agent could remove it, so that git runs unboxed, and restore it; or block all commands of others.

    Break: check for HEAD in `own_repo` (repo/git_dirs.py); or no `except` in `take` (repo/own_repos.py).
    """
    head = own_repos.path_of(project.root.path, "w1") / "HEAD"
    head.unlink()
    if text is not None:
        head.write_text(text)
    guard = git.guards[str(project.root.path)]
    with guard.box(str(worktree.path)) as (words, *_):
        assert words
    assert git.tree_of(project.root.path, project.base)
    assert "refused:w1" in project.store.read().attention
    record = project.store.worker("w1")
    provision.reset_in_place(project, record, provision.refresh_base(project), "test")
    assert uncommitted.tree_state(worktree.path).clean
    assert git.tree_of(project.root.path, project.base)
    assert "refused:w1" not in project.store.read().attention


def reset(project: Project) -> list[str]:
    record = project.store.worker("w1")
    provision.reset_in_place(project, record, provision.refresh_base(project), "test")
    return provision.furnish(project, record)


@pytest.mark.soak
def test_submodules_come_without_a_network(
    project: Project, source: Repo, worktree: Worktree, tmp_path: Path
) -> None:
    """Break: no `_bring` in repo/submodules.py: git in the worktree reaches neither the source nor a host."""
    library = make_library(source, tmp_path)
    assert reset(project) == []
    assert (worktree.path / "lib/deep/inner/inner.c").read_text() == "1\n"
    (worktree.path / "lib/build").write_text("of the agent\n")
    (own_repos.path_of(project.root.path, "w1") / "modules/lib/info/exclude").write_text("build\n")
    library.commit("build", "of the library\n")
    advance(source, library, "2\n")
    assert reset(project) == []
    assert (worktree.path / "lib/lib.c").read_text() == "2\n"
    assert uncommitted.tree_state(worktree.path).clean
    kept = run_git(worktree.path / "lib", "for-each-ref", "--format=%(refname)", "refs/llmc/trash")
    assert run_git(worktree.path / "lib", "show", f"{kept}:build") == "of the agent"


def test_a_submodule_of_a_host_comes_too(source: Repo, tmp_path: Path) -> None:
    """Its URL is relative to the superproject's, with the same password."""
    make_library(source, tmp_path)
    run_git(source.path, "config", "--file", ".gitmodules", "submodule.lib.url", "../lib.git")
    source.git("commit", "-q", "-a", "-m", "Beside")
    for name in ("source", "lib"):
        run_git(tmp_path, "clone", "-q", "--bare", str(tmp_path / name), str(tmp_path / f"web/{name}.git"))
    with served(tmp_path / "web") as server:
        project = make_project(f"http://{IN_URL}@{server.address}/source.git", tmp_path / "root")
        set_value(project.root.config, "defaults.sandbox", "on")
        heard: list[str] = []
        record = setup.add_worker(project_at(project.root.path), "w1", Worker(), heard.append)
    place = Path(record.worktree_path)
    assert git_dirs.own_repo(place)
    assert (place / "lib/lib.c").read_text() == "1\n"
    assert "lib: submodule deep/inner is missing: fatal: transport 'file' not allowed" in "".join(heard)
    assert not server.seen_in_argv


EMPTY_COMMIT = ["commit", "--quiet", "--allow-empty", "-m", "x"]


@pytest.mark.parametrize("name", ["HEAD", *in_soak("index", "logs/HEAD")])
def test_a_pipe_that_comes_while_git_runs_is_not_waited_for(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Break: no `meanwhile` in `git` (repo/git.py): git, and so every command here, waits for a writer."""
    pipe, real = own_repos.path_of(project.root.path, "w1") / name, probe.box

    def late(view: View) -> AbstractContextManager[tuple[list[str], tuple[int, ...]]]:
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        return real(view)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(probe, "box", late)
        with pytest.raises(ToolFailed, match="is not a regular file") as raised:
            git.git(worktree.path, *EMPTY_COMMIT, timeout_s=20, env=git.OWN_IDENTITY)
    assert raised.value.hint == "Run `llmc reset w1`, which moves the repository to the trash."
    reset(project)
    assert uncommitted.tree_state(worktree.path).clean


def test_directories_in_each_other_do_not_end_the_look_for_pipes(
    project: Project, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let `odd_in` recurse for each level: every longer git call would end with an error."""
    monkeypatch.setattr(own_repos, "LOOK_S", 60)
    own = own_repos.path_of(project.root.path, "w1")
    (own / "refs/kept").mkdir()
    nested(own / "refs/kept", "d", 1500)
    pipe = f"{own}/refs/kept/{'d/' * 1500}pipe"
    os.mkfifo(pipe)
    try:
        assert own_repos.odd_in(own) == pipe
    finally:
        remove_tree(own / "refs/kept")  # pytest itself cannot


def test_a_pipe_among_the_objects_is_not_waited_for(project: Project, worktree: Worktree) -> None:
    """Break: no `odd_in` in repo/own_repos.py: every command in this root waits ten minutes for the fetch."""
    tip = worktree.commit("b.txt", "b\n")
    tree = git.tree_of(worktree.path, tip)
    pipe = own_repos.path_of(project.root.path, "w1") / "objects" / tree[:2] / tree[2:]
    pipe.unlink()
    os.mkfifo(pipe)
    assert own_repos.take(project.root.path, "w1").endswith(f"{pipe} is not a regular file")
    reset(project)
    assert uncommitted.tree_state(worktree.path).clean
