"""What a worktree needs besides its commit: copied files, LFS files, submodules, a Serena project."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.config.edit import set_value
from llmc.landing import default_branch, slots
from llmc.records.worker import WorkerRecord
from llmc.repo import copied_files, git, lfs, provision, setup, submodules, uncommitted
from llmc.repo.copied_files import literal_pattern
from llmc.repo.project import Project
from llmc.repo.serena import _read_list, named
from llmc.workers.nuke import nuke_worker
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import in_soak
from tests.support.repos import (
    Repo,
    Worktree,
    add_worker,
    advance,
    lfs_source,
    make_library,
    make_project,
    needs_lfs,
    run_git,
    snapshot,
    tree,
)
from tests.support.webhook import Webhook

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 6\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    made = Repo(tmp_path / "my src")
    made.commit(".gitignore", "*.env\n/private/\nbig/\n")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "root")


def set_repo(project: Project, **options: str) -> Project:
    for key, value in options.items():
        set_value(project.root.config, f"repo.{key}", value)
    return setup.new_project(project.root)


def furnish(project: Project, record: WorkerRecord) -> list[str]:
    return provision.furnish(project, record)


def reset(project: Project, record: WorkerRecord) -> str | None:
    return provision.reset_in_place(project, record, provision.refresh_base(project), "test")


def incomplete(project: Project) -> list[str]:
    lines = project.root.events.read_text().splitlines() if project.root.events.exists() else []
    return [line for line in lines if "provision_incomplete" in line]


# Copied files.


@pytest.mark.req("2-004")
def test_only_ignored_files_that_match_are_copied(project: Project, source: Repo, tmp_path: Path) -> None:
    """Breaks when the patterns alone decide: a user's untracked file would show up as the worker's work."""
    source.write(".worktreeinclude", "# what a build needs\n*.env\n!secret.env\nbig/\nnotes.txt\n")
    source.write("local.env", "1\n")
    source.write("sub dir/ü *.env", "2\n")
    source.write("secret.env", "no\n")
    source.write("big/deep/asset.bin", "3\n")
    source.write("notes.txt", "untracked, not ignored\n")
    source.write("private/key", "4\n")
    (source.path / "link.env").symlink_to("/etc/hostname")
    outside = Repo(source.path / "private/nested")
    outside.commit("x.env", "a repository of its own\n")
    before = snapshot(source.path)
    record, worktree = add_worker(set_repo(project, copy='["/private/"]'))
    there = {name for name in snapshot(worktree.path) if not (worktree.path / name).is_dir()}
    copied = {"local.env", "sub dir/ü *.env", "big/deep/asset.bin", "private/key", "link.env"}
    assert there - {".gitignore", "a.txt"} == copied
    assert os.readlink(worktree.path / "link.env") == "/etc/hostname"
    assert uncommitted.tree_state(worktree.path).clean
    assert snapshot(source.path) == before
    reset(project, record)
    assert (worktree.path / "local.env").read_text() == "1\n"


@pytest.mark.req("1-101")
def test_what_is_newer_or_missing_is_copied_again(project: Project, source: Repo) -> None:
    """Breaks when an existing file is never checked, or is copied each time, or a change is not pinned."""
    project = set_repo(project, copy='["*.env"]')
    source.write("a.env", "old\n")
    source.write("b.env", "old\n")
    record, worktree = add_worker(project)
    unchanged = (worktree.path / "a.env").stat()
    furnish(project, record)
    assert (worktree.path / "a.env").stat().st_ino == unchanged.st_ino, "copied although it is the same"
    worktree.write("b.env", "the agent's own\n")
    reset(project, record)
    assert (worktree.path / "b.env").read_text() == "the agent's own\n"
    later = unchanged.st_mtime + 1000
    for name in ("a.env", "b.env"):
        source.write(name, "new\n")
        os.utime(source.path / name, (later, later))
    source.write("c.env", "new\n")
    reset(project, record)
    assert [(worktree.path / f"{name}.env").read_text() for name in "abc"] == ["new\n"] * 3
    refs = git.out(project.root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").splitlines()
    kept = [tree(worktree.path, ref) for ref in refs]
    assert [files.get("b.env") for files in kept] == ["the agent's own"]
    assert all("a.env" not in files for files in kept), "what llmc copied itself needs no pin"
    (worktree.path / "a.env").unlink()
    provision.provision(project, record)
    assert (worktree.path / "a.env").read_text() == "new\n"


def test_nothing_tracked_is_overwritten_and_nothing_leaves_the_worktree(
    project: Project, source: Repo, tmp_path: Path
) -> None:
    """Breaks when parents are not checked: a file would be written through the worker's link."""
    project = set_repo(project, copy='["*.env"]')
    record, worktree = add_worker(project)
    outside = tmp_path / "outside"
    outside.mkdir()
    worktree.commit("t.env", "tracked by the worker\n")
    (worktree.path / "linked").symlink_to(outside)
    worktree.write("plain", "a file\n")
    worktree.write("dir.env/x", "a directory\n")
    for name in ("t.env", "linked/a.env", "plain/b.env", "dir.env"):
        source.write(name, "of the source\n")
    problems = furnish(project, record)
    assert len(problems) == 3, problems
    assert "linked is a symbolic link" in " ".join(problems)
    assert list(outside.iterdir()) == []
    assert (worktree.path / "t.env").read_text() == "tracked by the worker\n"
    assert furnish(project, record) == [], "reported once"
    assert len(incomplete(project)) == 3


def test_a_problem_with_a_file_whose_name_is_no_utf_8_is_said_once(project: Project, source: Repo) -> None:
    """Break: encode the text as plain UTF-8: the worker is never started. Or read it so: it is said each time."""
    project = set_repo(project, copy='["*.env"]')
    record, worktree = add_worker(project)
    name = os.fsdecode(b"\xff.env")
    worktree.write(f"{name}/x", "a directory\n")
    source.write(name, "of the source\n")
    assert len(furnish(project, record)) == 1
    assert furnish(project, record) == []
    assert len(incomplete(project)) == 1


def test_a_file_that_only_the_source_s_own_settings_ignore(project: Project, source: Repo) -> None:
    """Breaks without the exclude: the copy would show as untracked, and block every accept."""
    (source.path / ".git/info/exclude").write_text("*.mine\n")
    source.write("we [ird]#1 .mine", "1\n")
    record, worktree = add_worker(set_repo(project, copy='["*.mine"]'))
    assert (worktree.path / "we [ird]#1 .mine").read_text() == "1\n"
    assert uncommitted.tree_state(worktree.path).clean
    assert reset(project, record) is None
    assert (worktree.path / "we [ird]#1 .mine").exists()


def test_a_file_that_cannot_be_copied_is_a_problem_and_the_others_are_copied(
    project: Project, source: Repo
) -> None:
    """Break: raise it: every reset would fail, after the worktree was reset.

    A directory takes the place of the file while git lists it, so that root cannot read it either.
    """
    source.write("a.env", "1\n")
    source.write("b.env", "1\n")
    record, worktree = add_worker(set_repo(project, copy='["*.env"]'))
    assert (worktree.path / "a.env").exists()
    worktree.write("a.env", "of the agent\n")
    os.utime(worktree.path / "a.env", (1, 1))
    os.utime(worktree.path / "b.env", (1, 1))
    listed = copied_files._wanted
    (source.path / "a.env").unlink()
    (source.path / "a.env").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copied_files, "_wanted", lambda *args: ["a.env", *listed(*args)])
        (said,) = copied_files.copy_files(setup.new_project(project.root), record, worktree.path)
    assert said == f"a.env was not copied: cannot read {source.path}/a.env: not a regular file"
    assert (worktree.path / "a.env").read_text() == "of the agent\n"
    assert (worktree.path / "b.env").stat().st_mtime > 1


def test_a_source_that_git_cannot_list_is_a_problem(project: Project, source: Repo) -> None:
    """Break: raise it: a broken index of the user's checkout would stop every reset."""
    source.write("a.env", "1\n")
    project = set_repo(project, copy='["*.env"]')
    record, _ = add_worker(project)
    (source.path / ".git/index").write_bytes(b"broken")
    assert reset(project, record) is None
    assert any("no files were copied from" in said for said in incomplete(project))


def test_a_pattern_for_one_path_only() -> None:
    assert literal_pattern("a/b c*[1].txt") == r"/a/b\ c\*\[1\].txt"


# LFS.


@needs_lfs
@pytest.mark.req("2-003")
def test_lfs_files_are_whole_in_a_worktree_and_again_where_they_land(
    project: Project, source: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks without the pull (pointers forever), or without `send` (the source's checkout would miss the
    file).
    """
    lfs_source(source)
    with monkeypatch.context() as earlier:
        earlier.setattr(lfs, "is_installed", lambda: False)
        record, worktree = add_worker(project)
    assert (worktree.path / "a.bin").read_text().startswith("version https://git-lfs")
    provision.provision(project, record)
    assert (worktree.path / "a.bin").read_text() == "large\n"
    _, second = add_worker(project, "w2")
    assert (second.path / "a.bin").read_text() == "large\n"
    base = provision.refresh_base(project)
    worktree.write("b.bin", "made by the worker\n")
    worktree.git("add", "b.bin")
    worktree.git("commit", "-q", "-m", "Add b")
    assert worktree.git("show", "HEAD:b.bin").startswith("version https://git-lfs")
    default_branch.land(project, "w1", worktree.head(), base)
    assert (source.path / "b.bin").read_text() == "made by the worker\n"
    assert source.git("status", "--porcelain") == ""
    assert len(incomplete(project)) == 1, "reported while git-lfs was missing, and not again"


@needs_lfs
def test_an_lfs_file_the_source_lacks_is_said_and_stops_nothing(project: Project, source: Repo) -> None:
    """Breaks without lfs.skipdownloaderrors: the worktree could not be created."""
    lfs_source(source)
    shutil.rmtree(source.path / ".git/lfs/objects")
    record, worktree = add_worker(project)
    assert (worktree.path / "a.bin").read_text().startswith("version https://git-lfs")
    (said,) = incomplete(project)
    assert "a.bin: still LFS pointers" in said
    assert furnish(project, record) == []


@needs_lfs
@pytest.mark.parametrize("contained", [*in_soak(False), pytest.param(True, marks=needs_bubblewrap)])
def test_no_host_of_an_agent_is_asked_for_a_large_file(
    project: Project, source: Repo, tmp_path: Path, contained: bool
) -> None:
    """git-lfs has the user's keys. Break: no `lfs.url` in `git` (repo/git.py)."""
    lfs_source(source)
    record, worktree = add_worker(project)
    provision.settle_repository(project, record, contained=contained)
    with Webhook() as host:
        for name in ("url", "pushurl"):
            run_git(worktree.path, "config", "--file", ".lfsconfig", f"lfs.{name}", f"{host.url}/x")
        run_git(worktree.path, "config", "--file", ".lfsconfig", "remote.origin.lfsurl", f"{host.url}/x")
        worktree.git("add", ".lfsconfig")
        worktree.commit("b.bin", POINTER.format(oid="0" * 64))
        (said,) = furnish(project, record)
        assert "b.bin: still LFS pointers" in said
        git.git(worktree.path, "checkout", "--force", "HEAD", "--", ".")
        one = slots.slot(project.root, 1)
        slots.check_out(project, one, worktree.head())
        assert (one.path / "b.bin").exists()
        assert (one.path / "a.bin").read_text() == "large\n"
        reset(project, record)
        assert host.got == []


@pytest.mark.req("2-003")
def test_without_git_lfs_the_pointers_stay_and_it_is_said_once(
    project: Project, source: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when nothing is reported, or the user's filters stay: without git-lfs every checkout fails."""
    monkeypatch.setattr(lfs, "is_installed", lambda: False)
    source.commit("assets/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    source.commit("assets/a.bin", POINTER.format(oid="0" * 64))
    settings = '[filter "lfs"]\n\tprocess = /gone/git-lfs filter-process\n\trequired = true\n'
    Path(os.environ["HOME"], ".gitconfig").write_text(settings)
    heard: list[str] = []
    record = setup.add_worker(project, "w1", setup.Worker(), heard.append)
    assert heard == [lfs.NOT_INSTALLED]
    assert Path(record.worktree_path, "assets/a.bin").read_text().startswith("version https://git-lfs")
    assert reset(project, record) is None
    assert len(incomplete(project)) == 1


# Submodules.


@pytest.fixture
def library(source: Repo, tmp_path: Path) -> Repo:
    return make_library(source, tmp_path)


def test_submodules_follow_every_reset(project: Project, source: Repo, library: Repo) -> None:
    """Breaks without the update after a reset: the worktree would not be clean, and the reset would fail."""
    record, worktree = add_worker(project)
    assert (worktree.path / "lib/deep/inner/inner.c").read_text() == "1\n"
    assert not incomplete(project)
    pushed = git.git(worktree.path / "lib", "push", "origin", "HEAD:refs/heads/x", check=False)
    assert not pushed.ok
    advance(source, library, "2\n")
    assert reset(project, record) is None
    assert (worktree.path / "lib/lib.c").read_text() == "2\n"
    assert uncommitted.tree_state(worktree.path).clean
    source.git("rm", "-q", "lib")
    source.git("commit", "-q", "-m", "No submodule")
    reset(project, record)
    assert not (worktree.path / "lib").exists()
    assert uncommitted.tree_state(worktree.path).clean
    assert list(project.root.trash.glob("w1-*/lib/lib.c"))


def test_a_command_to_paste_quotes_what_an_agent_named(project: Project, library: Repo) -> None:
    """Break: no shlex in `refuse_unknown_commits` (repo/submodules.py)."""
    record, worktree = add_worker(project)
    name = "a; touch 'x'"
    worktree.git("mv", "lib", name)
    made = Worktree(worktree.path / name).commit("own.c")
    worktree.git("commit", "-q", "-a", "-m", "Move lib")
    with pytest.raises(Refused) as raised:
        submodules.refuse_unknown_commits(project, record)
    _, command, _ = raised.value.hint.split("`")
    theirs = f"{project.source}/{name}"
    assert shlex.split(command) == ["git", "-C", theirs, "fetch", str(worktree.path / name), made]


def test_work_inside_a_submodule_is_never_lost(project: Project, source: Repo, library: Repo) -> None:
    """Breaks when only the superproject is pinned, or nuke lets git prune the submodule's repository."""
    record, worktree = add_worker(project)
    inside = Worktree(worktree.path / "lib")
    made = inside.commit("own.c", "committed in the submodule\n")
    inside.write("lib.c", "changed in the submodule\n")
    worktree.git("add", "lib")
    worktree.git("commit", "-q", "-m", "Move lib")
    with pytest.raises(Refused, match="which the source repository does not have"):
        submodules.refuse_unknown_commits(project, record)
    reset(project, record)
    assert (inside.path / "lib.c").read_text() == "1\n"
    assert uncommitted.tree_state(worktree.path).clean
    (ref,) = inside.git("for-each-ref", "--format=%(refname)", "refs/llmc/trash").splitlines()
    assert inside.git("show", f"{ref}:lib.c") == "changed in the submodule"
    assert git.is_ancestor(inside.path, made, ref)
    removed = nuke_worker(project, "w1")
    assert removed.directory
    kept = removed.directory / ".llmc-submodules/lib"
    assert run_git(kept, "--git-dir", str(kept), "cat-file", "-t", made) == "commit"


def test_a_submodule_that_cannot_be_reached(project: Project, source: Repo, library: Repo) -> None:
    """Breaks when file access is allowed for every submodule, or when a missing one blocks the worktree."""
    shutil.rmtree(source.path / ".git/modules/lib")
    record, worktree = add_worker(project)
    assert (worktree.path / "a.txt").exists()
    (said,) = incomplete(project)
    assert "submodule lib is missing" in said
    assert "transport 'file' not allowed" in said
    assert furnish(project, record) == []
    assert uncommitted.tree_state(worktree.path).clean


# Serena.


def test_a_serena_project_of_its_own_for_each_worktree(project: Project, source: Repo) -> None:
    """Breaks with one name for all: Serena would edit another worktree;
    and without the exclude it is committed.
    """
    source.write(".serena/project.yml", '# mine\nproject_name: "shop"\nlanguages: [python]\n')
    source.git("add", "-f", ".serena/project.yml")
    record, worktree = add_worker(project)
    assert not (worktree.path / ".serena").exists(), "only on request"
    project = set_repo(project, serena="true")
    furnish(project, record)
    text = (worktree.path / ".serena/project.yml").read_text()
    assert text == '# mine\nproject_name: "llmc-root-w1"\nlanguages: [python]\n'
    assert uncommitted.tree_state(worktree.path).clean
    source.git("commit", "-q", "-m", "Serena")
    reset(project, record)
    assert 'project_name: "shop"' in (worktree.path / ".serena/project.yml").read_text()
    local = (worktree.path / ".serena/project.local.yml").read_text()
    assert local == 'project_name: "llmc-root-w1"\n'
    assert uncommitted.tree_state(worktree.path).clean
    worktree.git("add", "-A")
    assert worktree.git("status", "--porcelain") == ""


ONE = '- "/a b"'


@pytest.mark.req("0-251", "0-252")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"projects:\n{ONE}\n"),
        ("# mine\nlog_level: 20\n", f"# mine\nlog_level: 20\nprojects:\n{ONE}\n"),
        ("projects: []\nlog_level: 20\n", f"projects:\n{ONE}\nlog_level: 20\n"),
        ("projects:\n\n# next\nlog_level: 20\n", f"projects:\n{ONE}\n\n# next\nlog_level: 20\n"),
        ("projects:\n- /x # mine\n- '/y'\nother: 1", f"projects:\n- /x # mine\n- '/y'\n{ONE}\nother: 1\n"),
        ("projects: # all\n  - /x\n  # y\n  - /y\n", f"projects: # all\n  - /x\n  # y\n  - /y\n  {ONE}\n"),
        ('projects: [/x, "/y"]\nother: 1\n', f'projects:\n- /x\n- "/y"\n{ONE}\nother: 1\n'),
        ("projects:\n- '/a b'\n- /x\n", "projects:\n- '/a b'\n- /x\n"),
        ("projects: null\n", f"projects:\n{ONE}\n"),
        ("a: 1\r\nprojects:\r\n- /x\r\n", f"a: 1\r\nprojects:\r\n- /x\r\n{ONE}\r\n"),
        (
            "a: '\x0b'\nprojects: ['/x, y', /z] \nb: 1\n\n",
            f"a: '\x0b'\nprojects:\n- '/x, y'\n- /z\n{ONE}\nb: 1\n\n",
        ),
    ],
)
def test_a_worktree_is_added_to_serenas_list_and_taken_off_again(before: str, after: str) -> None:
    """Break: rewrite the whole file, end the list at a comment, or add what is already there."""
    found = _read_list(before)
    assert found is not None
    added = found.with_path("/a b")
    assert added.text == after or (added == found and before == after)
    assert added.with_path("/a b") == added
    again = _read_list(added.text)
    assert again is not None
    assert "/a b" in again.paths
    gone = _read_list(again.without_path("/a b").text)
    assert gone is not None
    assert gone.paths == tuple(path for path in found.paths if path != "/a b")
    assert gone.after == found.after


@pytest.mark.parametrize(
    "text",
    [
        *("projects: {a: b}\n", "projects: x\n", "projects: [\n  /x\n]\n"),
        *("projects:\n- >-\n  /x\n", "projects:\n- path: /x\n  name: x\n"),
    ],
)
def test_what_is_no_plain_list_is_left_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """Break: treat it as an empty list; everything in it would be lost."""
    record, _ = add_worker(project)
    project = set_repo(project, serena="true")
    monkeypatch.setenv("SERENA_HOME", str(tmp_path / "serena"))
    (tmp_path / "serena").mkdir()
    config = tmp_path / "serena/serena_config.yml"
    config.write_text(text)
    (said,) = furnish(project, record)
    assert "is not a plain list; add the worktree by hand" in said
    assert config.read_text() == text


#: entries of the list before the worktree's own, and what follows it, in a file as an editor in Latin-1 writes it
_MINE, _REST = b"# r\xe9glages\0\nlog_level: 20\nprojects:\n- /home/caf\xe9\n", b"last: setting\n"


def test_a_linked_configuration_of_serena_keeps_every_byte_its_link_and_its_mode(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: read it with `files.read_text`: "" for a link or a NUL, and every other line is lost."""
    record, worktree = add_worker(project)
    project = set_repo(project, serena="true")
    monkeypatch.setenv("SERENA_HOME", str(tmp_path / "serena"))
    (tmp_path / "serena").mkdir()
    config, real = tmp_path / "serena/serena_config.yml", tmp_path / "dotfiles.yml"
    rest = _REST + b"# comment\n" * 300_000  # more than `read_text` reads
    real.write_bytes(_MINE + rest)
    real.chmod(0o644)
    config.symlink_to(real)
    assert furnish(project, record) == []
    assert real.read_bytes() == _MINE + f'- "{worktree.path}"\n'.encode() + rest
    assert config.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o644
    nuke_worker(project, record.name)
    assert real.read_bytes() == _MINE + rest


def test_a_configuration_of_serena_that_cannot_be_read_is_a_problem(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: treat it as empty, and replace it; a link to /dev/null is one, too."""
    record, _ = add_worker(project)
    project = set_repo(project, serena="true")
    monkeypatch.setenv("SERENA_HOME", str(tmp_path / "serena"))
    config = tmp_path / "serena/serena_config.yml"
    (config / "kept").mkdir(parents=True)
    (said,) = furnish(project, record)
    assert "cannot register the worktree with Serena" in said
    assert "not a regular file" in said
    assert (config / "kept").is_dir()


def test_a_project_file_that_is_not_utf_8(project: Project, source: Repo) -> None:
    """Break: decode it strictly; `llmc add` would end as a bug of llmc."""
    file = source.path / ".serena/project.yml"
    file.parent.mkdir()
    file.write_bytes(b'project_name: "caf\xe9"\n# r\xe9glages\n')
    record, worktree = add_worker(project)
    project = set_repo(project, serena="true")
    assert furnish(project, record) == []
    made = worktree.path / ".serena/project.yml"
    assert made.read_bytes() == b'project_name: "llmc-root-w1"\n# r\xe9glages\n'
    made.unlink()
    file.unlink()
    file.mkdir()
    (said,) = furnish(project, record)
    assert f"cannot read {file}" in said


def test_a_project_file_keeps_the_rest() -> None:
    assert named("a: 1\nproject_name: x # y\n", "n") == 'a: 1\nproject_name: "n"\n'
    assert named("", "n") == 'project_name: "n"\n'


@pytest.mark.parametrize("way", ["url", "name"])
def test_no_submodule_of_an_agent_is_fetched(
    project: Project, source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """llmc's git has the user's keys and network.

    Break: follow the worktree's URLs; allow a path as a name.
    """
    private = Repo(tmp_path / "private")
    tip = private.commit("secret.txt", "secret\n")
    record, worktree = add_worker(project)
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")  # like a host that answers
    name = "sub" if way == "url" else f"{private.path}/.git"
    worktree.write(".gitmodules", f'[submodule "{name}"]\n\tpath = sub\n\turl = {private.path}\n')
    worktree.git("add", ".gitmodules")
    worktree.git("update-index", "--add", "--cacheinfo", f"160000,{tip},sub")
    worktree.git("commit", "-q", "-m", "Evil")
    said = "\n".join(furnish(project, record))
    assert ("does not have its URL" in said) is (way == "url")
    assert not (worktree.path / "sub/.git").exists()
    assert not [*(project.root.path / ".git").rglob("modules/*")]
