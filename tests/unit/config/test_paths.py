"""Finding the root, and the names derived from it."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from llmc.api import seeing
from llmc.base.errors import LlmcError, NotFound
from llmc.config import root_layout, trust
from llmc.config.paths import Root, find_root, short_runtime_dir
from llmc.repo.project import locate_root


def make_root(path: Path) -> Path:
    (path / ".llmc").mkdir(parents=True)
    (path / "config.toml").write_text("")
    (path / "state.json").write_text('{"version": 1}')
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a root in it, and a repository that names another one."""
    path = tmp_path / "home"
    make_root(path / "llmc")
    monkeypatch.setenv("HOME", str(path))
    return path


def repository(path: Path, root: str | None) -> Path:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    if root:
        subprocess.run(["git", "-C", str(path), "config", "llmc.root", root], check=True)
    return path


class Places:
    """One root for each way to find one."""

    def __init__(self, base: Path) -> None:
        self.given = make_root(base / "given")
        self.environ = make_root(base / "environ")
        self.by_git = make_root(base / "by-git")
        self.source = repository(base / "source", str(self.by_git))
        self.enclosing = make_root(self.source / "enclosing")
        assert trust.register(str(self.enclosing))
        self.inside = self.enclosing / ".worktrees/adam/src"
        self.inside.mkdir(parents=True)
        self.nowhere = base / "nowhere"
        self.nowhere.mkdir()


def both(explicit: str | None, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root as the commands find it; the fast commands must agree."""
    monkeypatch.chdir(cwd)
    found = locate_root(explicit).path
    assert seeing.find_root(explicit) == str(found)
    return found


@pytest.mark.req("1-001")
def test_the_order(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: check LLMC_ROOT before --root, or the git config before the enclosing root."""
    places = Places(tmp_path)
    monkeypatch.setenv("LLMC_ROOT", str(places.environ))
    assert both(str(places.given), places.inside, monkeypatch) == places.given
    assert both(None, places.inside, monkeypatch) == places.environ
    monkeypatch.delenv("LLMC_ROOT")
    assert both(None, places.inside, monkeypatch) == places.enclosing
    assert both(None, places.enclosing, monkeypatch) == places.enclosing
    assert both(None, places.source, monkeypatch) == places.by_git
    assert both(None, places.nowhere, monkeypatch) == home / "llmc"


def test_relative_paths_links_and_tildes_are_resolved(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tmux server is named after the path: one root must have one.

    Break: no realpath in seeing.find_root.
    """
    real = make_root(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(real)
    source = repository(tmp_path / "source", str(link))
    assert both("../real", source, monkeypatch) == real
    assert both(str(link), source, monkeypatch) == real
    assert both(str(real) + "/", source, monkeypatch) == real
    assert both(None, source, monkeypatch) == real
    assert trust.register(str(real))
    assert both(None, link / ".llmc", monkeypatch) == real
    linked_home = tmp_path / "linked-home"
    linked_home.symlink_to(home)
    monkeypatch.setenv("HOME", str(linked_home))
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    assert both(None, nowhere, monkeypatch) == home / "llmc"
    assert both("~/llmc", nowhere, monkeypatch) == home / "llmc"
    assert Root(home / "llmc").is_default
    subprocess.run(["git", "-C", str(source), "config", "llmc.root", "~/llmc"], check=True)
    assert both(None, source, monkeypatch) == home / "llmc"


def test_a_git_hook_around_us_does_not_choose_the_root(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git sets GIT_DIR for its hooks. Break: run git with the caller's whole environment in seeing._of_source."""
    other = repository(tmp_path / "other", str(make_root(tmp_path / "wrong")))
    mine = repository(tmp_path / "mine", str(make_root(tmp_path / "right")))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert both(None, mine, monkeypatch) == tmp_path / "right"


@pytest.mark.parametrize(
    ("explicit", "environ", "words"),
    [
        ("none", {}, "--root"),
        (None, {"LLMC_ROOT": "/none"}, "LLMC_ROOT"),
        (None, {}, "the default location"),
        ("file", {}, "--root"),
        ("~nobody-of-that-name/x", {}, "--root"),
    ],
)
def test_a_root_that_is_none_says_where_it_came_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    explicit: str | None,
    environ: Mapping[str, str],
    words: str,
) -> None:
    """Break: fall through to the next place when the given one is not a root."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound, match="is not an llmc root") as caught:
        find_root(explicit, environ, tmp_path, lambda: None)
    assert words in caught.value.message
    assert "llmc init" in caught.value.hint
    with pytest.raises(NotFound, match="git config"):
        find_root(None, {}, tmp_path, lambda: str(tmp_path / "gone"))


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read the working directory without a try in locate_root."""
    root = make_root(tmp_path / "root")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert locate_root(str(root)).path == root
    with pytest.raises(LlmcError, match="current directory"):
        locate_root(None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory with a short path, like a user's own."""
    with tempfile.TemporaryDirectory(prefix="llmc-t-") as directory:
        monkeypatch.setattr("llmc.config.paths.SHORT_BASE", directory)
        yield Path(directory)


def test_a_long_root_gets_a_short_private_socket(runtime: Path) -> None:
    """Break: return the long path in wake_socket: bind fails, and no daemon starts."""
    short, long = Root(Path("/r")), Root(Path("/" + "x" * 90 + "/root"))
    assert short.wake_socket() == Path("/r/.llmc/run/wake.sock")
    path = long.wake_socket()
    assert path.parent.parent == runtime / f"llmc-{os.getuid()}"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert len(os.fsencode(path)) <= root_layout.MAX_SOCKET_PATH
    assert path == long.wake_socket()
    assert path != Root(Path("/" + "y" * 90 + "/root")).wake_socket()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))


def test_somebody_elses_directory_is_refused(runtime: Path) -> None:
    """Break: no check of owner and mode in short_runtime_dir."""
    squatted = runtime / f"llmc-{os.getuid()}"
    squatted.mkdir(mode=0o755)
    squatted.chmod(0o755)
    with pytest.raises(NotFound, match="not a private directory owned by you"):
        short_runtime_dir()
    squatted.rmdir()
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    squatted.symlink_to(elsewhere)
    with pytest.raises(NotFound, match="not a private directory owned by you"):
        short_runtime_dir()


def test_each_root_has_its_own_tmux_server() -> None:
    """Break: name the server only after the last part of the path."""
    roots = ["/a/llmc", "/b/llmc", "/a/llmc.x", "/a/llmc x", "/a/" + "l" * 60, "/a/" + "l" * 61, "/ä", "/"]
    names = [root_layout.tmux_server(root) for root in roots]
    assert len(set(names)) == len(roots)
    for name in names:
        assert all(c.isascii() and (c.isalnum() or c == "-") for c in name)
        assert len(name) < 50
    assert Root(Path("/a/llmc")).tmux_server == names[0]
