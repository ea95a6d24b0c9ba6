"""The user chooses the root: which of those around a command may be used, and which are refused unread."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llmc.agents.claude.trusted_dirs import ClaudeTrust
from llmc.api import seeing
from llmc.base.errors import LlmcError, Refused
from llmc.config import trust
from llmc.repo.project import locate_root
from tests.unit.config.test_paths import make_root, repository

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a root."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


def found_from(cwd: Path, monkeypatch: pytest.MonkeyPatch, explicit: str | None = None) -> Path:
    """The root as a command finds it; the fast commands find the same one, or leave it to the command."""
    monkeypatch.chdir(cwd)
    try:
        found = locate_root(explicit).path
    except LlmcError:
        with pytest.raises(seeing.Unreadable):
            seeing.find_root(explicit)
        raise
    assert seeing.find_root(explicit) == str(found)
    return found


def test_a_directory_cannot_make_itself_a_root(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: use an enclosing root without checking whether it is registered."""
    planted = make_root(tmp_path / "planted")
    inside = planted / "src/deep"
    inside.mkdir(parents=True)
    with pytest.raises(Refused, match="not registered") as caught:
        found_from(inside, monkeypatch)
    assert f"llmc --root {planted} up" in caught.value.hint
    assert found_from(inside, monkeypatch, str(planted)) == planted
    monkeypatch.setenv("LLMC_ROOT", str(planted))
    assert found_from(inside, monkeypatch) == planted


def test_two_files_that_landed_in_a_checkout_choose_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent lands `.llmc/x` and `config.toml`.

    Break: refuse instead of checking llmc.root, or the reverse.
    """
    real = make_root(tmp_path / "real")
    source = repository(tmp_path / "source", str(real))
    make_root(source)
    assert found_from(source, monkeypatch) == real
    worktree = real / ".worktrees/adam"
    worktree.mkdir(parents=True)
    make_root(worktree)
    assert trust.register(str(real))
    assert found_from(worktree, monkeypatch) == real
    shutil.rmtree(source / ".llmc")
    (source / ".llmc").symlink_to(real / ".llmc")  # with it the id of the real one
    assert found_from(source, monkeypatch) == real
    os.rename(source / ".git", tmp_path / "git")
    with pytest.raises(Refused, match="not registered"):
        found_from(source, monkeypatch)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("theirs", [".", ".llmc", "config.toml"])
def test_a_root_of_another_user_is_never_read(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """Whatever names it. Break: compare only the directory's owner, or not for --root."""
    root = make_root(home / "llmc")
    source = repository(tmp_path / "source", str(root))
    assert trust.register(str(root))
    assert found_from(root, monkeypatch) == root
    os.chown(root / theirs, NOBODY, NOBODY)
    for cwd, explicit in ((root, None), (source, None), (tmp_path, None), (tmp_path, str(root))):
        with pytest.raises(Refused, match="belongs to user nobody"):
            found_from(cwd, monkeypatch, explicit)
    monkeypatch.setenv("LLMC_ROOT", str(root))
    with pytest.raises(Refused, match="belongs to user nobody"):
        found_from(tmp_path, monkeypatch)


def test_what_a_person_chose_before_is_found_from_inside(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old root keeps working: ~/llmc, and the one that the repository names.

    Break: leave out either comparison.
    """
    default = make_root(home / "llmc")
    assert found_from(default / ".llmc", monkeypatch) == default
    named = make_root(tmp_path / "named")
    repository(named / "checkout", str(named))
    assert found_from(named / "checkout", monkeypatch) == named
    other = make_root(tmp_path / "other")
    with pytest.raises(Refused):  # and never ~/llmc instead of the enclosing one
        found_from(other, monkeypatch)


def test_registration_is_by_path_and_id(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: compare only one of them."""
    one, two = make_root(tmp_path / "one"), make_root(tmp_path / "two")
    assert trust.register(str(one))
    assert trust.register(str(two))
    assert trust.register(str(one))
    assert found_from(one, monkeypatch) == one
    assert found_from(two, monkeypatch) == two
    link = tmp_path / "link"
    link.symlink_to(one)
    assert found_from(link / ".llmc", monkeypatch) == one
    moved = tmp_path / "moved"
    os.rename(one, moved)
    with pytest.raises(Refused, match="not registered"):
        found_from(moved, monkeypatch)
    make_root(one)
    (one / ".llmc/root-id").write_text("0" * 32)
    with pytest.raises(Refused, match="not registered"):
        found_from(one, monkeypatch)
    assert trust.register(str(moved))
    assert found_from(moved, monkeypatch) == moved
    assert found_from(two, monkeypatch) == two
    listed = json.loads((home / ".local/state/llmc/roots.json").read_text())["roots"]
    assert set(listed) == {str(two), str(moved)}  # deleted roots are forgotten


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"roots": 3}', "\0" * 100, "[" * 100_000, "directory"])
def test_a_damaged_registry_registers_nothing_and_stops_nobody(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Break: let json's error out, or overwrite an unreadable file."""
    root = make_root(tmp_path / "root")
    assert trust.register(str(root))
    registry = home / ".local/state/llmc/roots.json"
    registry.unlink()
    registry.mkdir() if damage == "directory" else registry.write_text(damage)
    with pytest.raises(Refused):
        found_from(root, monkeypatch)
    assert found_from(root, monkeypatch, str(root)) == root
    assert trust.register(str(root))
    assert found_from(root, monkeypatch) == root
    assert os.path.lexists(f"{registry}.broken")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_registry_that_others_may_write_is_not_believed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` with another user's HOME. Break: read it regardless of its owner."""
    root = make_root(tmp_path / "root")
    assert trust.register(str(root))
    registry = home / ".local/state/llmc/roots.json"
    registry.chmod(0o660)
    with pytest.raises(Refused):
        found_from(root, monkeypatch)
    registry.chmod(0o600)
    assert found_from(root, monkeypatch) == root
    os.chown(registry, NOBODY, NOBODY)
    with pytest.raises(Refused):
        found_from(root, monkeypatch)


def test_without_a_home(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: without a home, treat `~/llmc` below the working directory as the default root."""
    root = make_root(tmp_path / "root")
    planted = make_root(tmp_path / "work/~/llmc")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    monkeypatch.delenv("HOME")
    assert found_from(tmp_path, monkeypatch, str(root)) == root
    assert not trust.register(str(root))
    with pytest.raises(LlmcError) as caught:
        found_from(planted.parent.parent, monkeypatch)
    assert str(planted) not in caught.value.message


def test_xdg_state_home_is_followed(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: ignore it, or accept a relative one."""
    root = make_root(tmp_path / "root")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert trust.register(str(root))
    assert (tmp_path / "state/llmc/roots.json").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    with pytest.raises(Refused):
        found_from(root, monkeypatch)


def test_a_root_that_goes_is_forgotten_and_no_other(tmp_path: Path, home: Path) -> None:
    """Break: write an empty registry, or one without its lock."""
    one, two = make_root(tmp_path / "one"), make_root(tmp_path / "two")
    assert trust.register(str(one))
    assert trust.register(str(two))
    assert trust.forget(str(one))
    assert not trust.forget(str(one))
    assert not trust.is_registered(str(one))
    assert trust.is_registered(str(two))


def test_the_last_root_takes_the_registry_with_it(tmp_path: Path, home: Path) -> None:
    """Break: write an empty registry."""
    one, gone = make_root(tmp_path / "one"), make_root(tmp_path / "gone")
    state = home / ".local/state/llmc"
    state.mkdir(parents=True)
    (state / "roots.json").write_text("broken")
    assert trust.register(str(one))
    assert trust.register(str(gone))
    assert (state / "roots.json.broken").exists()
    shutil.rmtree(gone)
    assert trust.forget(str(one))
    assert not state.exists()
    assert trust.register(str(one)), "it can be created again"
    (state / "mine").touch()
    assert trust.forget(str(one))
    assert [path.name for path in state.iterdir()] == ["mine"]


def test_a_registry_that_cannot_be_read_now_is_kept(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take it for a broken one after any OSError: without free descriptors, every other root is forgotten."""
    one, two = make_root(tmp_path / "one"), make_root(tmp_path / "two")
    assert trust.register(str(one))
    place = home / ".local/state/llmc/roots.json"

    def scarce(path: str, *args: object) -> object:
        if path == str(place):
            raise OSError(errno.EMFILE, "Too many open files")
        return open(path, *args)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(trust, "open", scarce, raising=False)
        assert not trust.register(str(two))
    assert trust.registered() == [str(one)]
    assert not place.with_name("roots.json.broken").exists()


def test_who_waits_for_a_lock_that_goes_takes_the_new_one(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: trust a deleted lock file; the next process creates another one, and both write."""
    one, two = make_root(tmp_path / "one"), make_root(tmp_path / "two")
    assert trust.register(str(one))
    flock, turns = fcntl.flock, []

    def overtaken(file: int, how: int) -> None:
        turns.append(file)
        if len(turns) == 1:
            assert trust.forget(str(one))
        flock(file, how)
        if len(turns) > 1:
            assert os.path.samestat(os.fstat(file), os.stat(home / ".local/state/llmc/roots.json.lock"))

    monkeypatch.setattr(fcntl, "flock", overtaken)
    assert trust.register(str(two))
    assert len(turns) == 3, "the one that waited, the one that went, and once more"


@pytest.mark.parametrize("text", ["", "[]", '{"projects": 5}', "{"])
def test_what_the_client_noted_of_a_root_is_taken_out(tmp_path: Path, text: str) -> None:
    """Break: remove paths that only start like the root, or write a file that could not be read."""
    config, root = tmp_path / ".claude.json", tmp_path / "llmc"
    config.write_text(text)
    assert ClaudeTrust(config).remove(root) == []
    assert config.read_text() == text
    ClaudeTrust(config.with_name("other.json")).add(root / ".worktrees/adam")
    config = config.with_name("other.json")
    for place in (root, tmp_path / "llmc-2", tmp_path):
        ClaudeTrust(config).add(place)
    gone = [f'projects."{path}" in {config}' for path in (root / ".worktrees/adam", root)]
    assert ClaudeTrust(config).remove(root) == gone
    assert set(json.loads(config.read_text())["projects"]) == {str(tmp_path / "llmc-2"), str(tmp_path)}


def test_the_clients_linked_file_keeps_its_link_and_its_mode(tmp_path: Path) -> None:
    """Break: `write_atomic` in `_write`: the user's file gets mode 600."""
    config, real = tmp_path / ".claude.json", tmp_path / "dotfiles.json"
    real.write_text('{"theme": "dark"}')
    real.chmod(0o640)
    config.symlink_to(real)
    ClaudeTrust(config).add(tmp_path)
    assert config.is_symlink()
    assert json.loads(real.read_bytes()).keys() == {"theme", "projects"}
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["", "[]", '{"projects": []}', "[" * 100_000])
def test_a_file_of_the_client_that_cannot_be_changed_stays(tmp_path: Path, text: str) -> None:
    """Break: take what cannot be read for nothing, or end as a bug of llmc."""
    config = tmp_path / ".claude.json"
    config.write_text(text)
    with pytest.raises(LlmcError, match="cannot parse"):
        ClaudeTrust(config).add(tmp_path)
    assert config.read_text() == text
    config.unlink()
    config.mkdir()
    with pytest.raises(LlmcError, match="cannot read"):
        ClaudeTrust(config).add(tmp_path)


@pytest.mark.parametrize("also", [{}, {"allowedTools": []}])
def test_the_trust_of_a_checkout_goes_if_the_client_noted_nothing_else(
    tmp_path: Path, also: dict[str, object]
) -> None:
    """Break: keep it, or remove what the user's own sessions noted there."""
    config, source = tmp_path / ".claude.json", tmp_path / "source"
    config.write_text(json.dumps({"projects": {str(source): also}} if also else {}))
    ClaudeTrust(config).add(source)
    gone = ClaudeTrust(config).remove(tmp_path / "llmc", source)
    assert gone == ([] if also else [f'projects."{source}" in {config}'])
    assert (str(source) in json.loads(config.read_text())["projects"]) == bool(also)


IDENTITY = ("-c", "user.name=P", "-c", "user.email=p@example.com")


def run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True)


def default_config(root: Path, source: str) -> None:
    (root / "config.toml").write_text(f'[repo]\nsource = "{source}"\n')


def default_of(home: Path, source: str) -> Path:
    """The root at ~/llmc, of this source."""
    root = make_root(home / "llmc")
    default_config(root, source)
    return root


def test_another_repository_does_not_use_the_default_root(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command there would act on the other repository.

    Break: leave out `unrelated`, or check it outside a repository.
    """
    source = repository(tmp_path / "source", None)
    root = default_of(home, str(source))
    other = repository(tmp_path / "other", None)
    deep = other / "a/b"
    deep.mkdir(parents=True)
    for cwd in (other, deep, other / ".git"):
        with pytest.raises(Refused, match=str(source)) as caught:
            found_from(cwd, monkeypatch)
        assert str(other) in caught.value.message
        assert "llmc init" in caught.value.hint
        assert f"--root {root}" in caught.value.hint
    said: list[str] = []
    assert locate_root(None, tell=said.append).path == root, "commands that only read continue"
    assert len(said) == 1
    assert str(root) in said[0]
    assert str(source) in said[0]
    assert found_from(other, monkeypatch, str(root)) == root
    assert found_from(tmp_path, monkeypatch) == root


def test_the_source_its_worktrees_and_its_clones_use_the_default_root(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without llmc.root. Break: compare paths instead of git directories, or leave out the remotes."""
    source = repository(tmp_path / "source", None)
    root = default_of(home, str(source))
    run("git", "-C", source, *IDENTITY, "commit", "-q", "--allow-empty", "-m", "x")
    run("git", "-C", source, "worktree", "add", "-q", tmp_path / "tree")
    run("git", "clone", "-q", source, tmp_path / "clone")
    for cwd in (source, tmp_path / "tree", tmp_path / "clone"):
        assert found_from(cwd, monkeypatch) == root
    bare = tmp_path / "bare.git"
    run("git", "clone", "-q", "--bare", source, bare)
    default_config(root, str(bare))
    assert found_from(bare, monkeypatch) == root
    default_config(root, "https://me:secret@example.com/x.git")
    run("git", "-C", tmp_path / "clone", "remote", "set-url", "origin", "https://example.com/x")
    assert found_from(tmp_path / "clone", monkeypatch) == root
    with pytest.raises(Refused):
        found_from(source, monkeypatch)


def test_a_home_that_is_a_repository_is_not_another_project(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: require a relation where the repository contains the root itself."""
    run("git", "init", "-q", home)
    root = default_of(home, str(tmp_path / "source"))
    (home / "notes").mkdir()
    assert found_from(home / "notes", monkeypatch) == root
