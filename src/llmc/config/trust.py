"""Decide which directory may be a root.

A root names programs to run (`agent_command`, `repo.setup`, notifiers), and anyone can create a directory with `.llmc/`
and `config.toml`: another user, or an agent whose work landed in a checkout. So a root must belong to us, and one that
is only found above the working directory must be registered too. Standard library only, for the hot commands.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from llmc.config import root_layout

#: the registry is missing or unusable, and not only unreadable for now
_BROKEN = (
    *(FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError),
    *(ValueError, AttributeError, RecursionError),
)


class Chosen(NamedTuple):
    """The path of a root, and how it was found."""

    path: str
    origin: str
    #: set if it is only the default location, and the command runs in a repository of another project: that repository,
    #: and the source of the root ("" if unknown)
    unrelated: tuple[str, str] | None = None


class Untrusted(Exception):
    """A root of another user, or an unregistered one above the working directory."""

    def __init__(self, path: str, owner: int | None) -> None:
        super().__init__(path)
        self.path = path
        #: the other user; None if it is ours but not registered
        self.owner = owner


def choose(
    explicit: str | None, environ: Mapping[str, str], cwd: str, git_root: Callable[[], str | None]
) -> Chosen:
    """The root of a command: --root, LLMC_ROOT, an enclosing root, the source's git config, ~/llmc.

    Checks only the owner; the caller checks whether it is a root.
    """
    if explicit:
        return _ours(explicit, "--root")
    if environ.get("LLMC_ROOT"):
        return _ours(environ["LLMC_ROOT"], "LLMC_ROOT")
    around = _enclosing(cwd)
    for path in around:
        if is_registered(path):
            return Chosen(path, "the root you are in")
    named = git_root()
    default = real(default_root())
    for path in around:
        if owner_of(path) is None and path in (named and real(named), default):
            return Chosen(path, "the root you are in")
    if named:
        return _ours(named, "from llmc.root in this repository's git config")
    if around:
        raise Untrusted(around[0], owner_of(around[0]))
    found = _ours(default, "the default location")
    return found._replace(unrelated=_unrelated(cwd, found.path))


def real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def default_root() -> str:
    path = os.path.expanduser("~/llmc")
    return (
        path if os.path.isabs(path) else f"/{path}"
    )  # without a home, not relative to the working directory


def owner_of(root: str) -> int | None:
    """The other user who owns the root, its `.llmc/` or its config.toml; None if we own all of it."""
    for path in (root, f"{root}/{root_layout.PRIVATE}", f"{root}/{root_layout.CONFIG}"):
        with contextlib.suppress(OSError):
            owner = os.stat(path).st_uid
            if owner != os.geteuid():
                return owner
    return None


def is_registered(root: str) -> bool:
    """Whether `init` or `up` registered this root, at this path and with its ID."""
    known = _read_registry().get(root)
    return known is not None and known == _id_of(root) and owner_of(root) is None


def registered() -> list[str]:
    """Every registered root that is still there."""
    return [root for root in _read_registry() if is_registered(root)]


def register(root: str) -> bool:
    """Register a root that the user chose; False if the registry cannot be written."""
    if is_registered(root):
        return True
    place = registry()
    if place is None:
        return False
    try:
        name = own_id(root)
        with _turn(place):
            _write_registry(place, {**_roots_in(place), root: name})
    except OSError:
        return False
    return is_registered(root)


def forget(root: str) -> bool:
    """Remove a root from the registry; returns whether it was there. Removing the last one removes the registry."""
    place = registry()
    if place is None or root not in _read_registry():
        return False
    with _turn(place):
        left = _existing({path: name for path, name in _roots_in(place).items() if path != root})
        if left:
            _write_registry(place, left)
        else:
            _remove_registry(place)
    return True


def _remove_registry(place: str) -> None:
    """Remove the registry, the lock last; a process waiting for it creates a new one."""
    for name in (place, f"{place}.broken", f"{place}.lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    with contextlib.suppress(OSError):  # not empty
        os.rmdir(os.path.dirname(place))


@contextlib.contextmanager
def _turn(place: str) -> Iterator[None]:
    """Hold the lock of the registry."""
    turn = _lock(place)
    try:
        yield
    finally:
        os.close(turn)


def _lock(place: str) -> int:
    """Lock the registry; retry if the lock file was removed in the meantime."""
    name = f"{place}.lock"
    for _ in range(100):
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            turn = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(turn, fcntl.LOCK_EX)
            if _is_at(name, turn):
                return turn
            os.close(turn)
    raise OSError(f"cannot lock {name}")


def _is_at(name: str, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(name))
    except FileNotFoundError:
        return False


def registry() -> str | None:
    """The file with this user's roots; None without a home."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return f"{base}/llmc/roots.json" if os.path.isabs(base) else None


def _ours(path: str, origin: str) -> Chosen:
    full = real(path)
    owner = owner_of(full)
    if owner is not None:
        raise Untrusted(full, owner)
    return Chosen(full, origin)


def root_of_repository(cwd: str, environ: Mapping[str, str], ask: Callable[[], str | None]) -> str | None:
    """llmc.root in the git config at `cwd`: read from .git/config if possible, else from git."""
    here = cwd
    while not os.path.lexists(f"{here}/.git") and here != os.path.dirname(here):
        here = os.path.dirname(here)
    steered = any(name.startswith("GIT_") for name in environ)
    return (None if steered else _plain_value(f"{here}/.git")) or ask()


def _plain_value(git_dir: str) -> str | None:
    """The last llmc.root in our repository's config; None if only git can tell."""
    try:
        with open(f"{git_dir}/config") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid() or os.stat(git_dir).st_uid != os.geteuid():
                return None
            rows = [line.strip() for line in file]
    except (OSError, ValueError):
        return None
    odd = ("[include", "worktreeconfig", "[llmc")
    if any((row != "[llmc]" and row.lower().startswith(odd)) or row.endswith("\\") for row in rows):
        return None
    section, found = "", None
    for row in rows:
        key, _, value = (part.strip() for part in row.partition("="))
        if row.startswith("["):
            section = row
        elif section == "[llmc]" and key.lower() == "root":
            found = value
    return found if found and found.startswith("/") and not set(found) & set('"\\#;') else None


def _unrelated(cwd: str, root: str) -> tuple[str, str] | None:
    """The repository around `cwd`, unless it is the root's source or a clone of it, or holds the root. Runs no git."""
    here = _repository_around(cwd)
    if here is None:
        return None
    top, git_dir = here
    if root.startswith(f"{top.rstrip('/')}/"):
        return None
    source = source_of(root)
    there = _repository_around(real(source)) if source.startswith(("/", "~")) else None
    is_same = there is not None and there[1] == git_dir
    return None if is_same or _is_clone(git_dir, source) else (top, source)


def _repository_around(path: str) -> tuple[str, str] | None:
    """A checkout or a bare repository, and the git directory that all its worktrees share."""
    while True:
        for git_dir in (f"{path}/.git", path):
            shared = _shared_git_dir(git_dir)
            if os.path.exists(f"{shared}/HEAD") and os.path.isdir(f"{shared}/objects"):
                return path, shared
        if path == os.path.dirname(path):
            return None
        path = os.path.dirname(path)


def _shared_git_dir(git_dir: str) -> str:
    """Follow the `.git` file of a worktree to the git directory of its repository."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.isfile(git_dir):
            with open(git_dir) as file:
                target = file.read().removeprefix("gitdir:").strip()
            git_dir = os.path.join(os.path.dirname(git_dir), target)
        with open(f"{git_dir}/commondir") as file:
            git_dir = os.path.join(git_dir, file.read().strip())
    return os.path.realpath(git_dir)


def source_of(root: str) -> str:
    """The source of a root, without its password; "" if unknown."""
    import tomllib  # slow to import, and few commands run in a repository without a root

    from llmc.base.urls import split

    try:
        with open(f"{root}/{root_layout.CONFIG}", "rb") as file:
            return split(str(tomllib.load(file)["repo"]["source"])).address
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _is_clone(git_dir: str, source: str) -> bool:
    """Whether a remote of the repository is the source."""
    try:
        with open(f"{git_dir}/config") as file:
            rows = [row.partition("=") for row in file]
    except (OSError, ValueError):
        return False
    urls = [value.strip() for key, _, value in rows if key.strip() == "url"]
    return bool(source) and _plain_address(source) in map(_plain_address, urls)


def _plain_address(url: str) -> str:
    return url.rstrip("/").removesuffix("/.git").removesuffix(".git")


def _enclosing(cwd: str) -> list[str]:
    found = []
    here = cwd
    while True:
        if os.path.isdir(f"{here}/{root_layout.PRIVATE}") and os.path.isfile(f"{here}/{root_layout.CONFIG}"):
            found.append(here)
        if here == os.path.dirname(here):
            return found
        here = os.path.dirname(here)


def _read_registry() -> dict[str, str]:
    """The registry; empty if it is missing or not trustworthy."""
    place = registry()
    with contextlib.suppress(OSError):
        return _roots_in(place) if place is not None else {}
    return {}


def _roots_in(place: str) -> dict[str, str]:
    """Like `_read_registry`. Raises OSError if it cannot be read now: then it must not be replaced."""
    try:
        with open(place, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid != os.geteuid() or info.st_mode & 0o022:
                return {}  # $HOME may be another user's
            roots = json.loads(file.read()).get("roots")
    except _BROKEN:
        return {}
    return {str(path): str(name) for path, name in roots.items()} if isinstance(roots, dict) else {}


def _write_registry(place: str, roots: Mapping[str, str]) -> None:
    """Write the registry without missing roots; an unusable file is kept as .broken."""
    if os.path.lexists(place) and not _roots_in(place):
        os.replace(place, f"{place}.broken")
    _write(place, json.dumps({"version": 1, "roots": _existing(roots)}, indent=1))


def _write(path: str, text: str) -> None:
    """Like `write_atomic` in base/files.py, which is slow to import."""
    temp = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temp, path)


def _existing(roots: Mapping[str, str]) -> dict[str, str]:
    return {path: name for path, name in roots.items() if _id_of(path) == name}


def own_id(root: str) -> str:
    """The ID of a root; a copy of a root has the same one."""
    return _id_of(root) or _new_id(root)


def is_same_root(one: str, other: str) -> bool:
    """Whether two directories are the same root, or one is a copy of the other."""
    return _id_of(one) != "" and _id_of(one) == _id_of(other)


def _id_of(root: str) -> str:
    try:
        with open(f"{root}/{root_layout.ROOT_ID}") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""


def _new_id(root: str) -> str:
    name = os.urandom(16).hex()
    _write(f"{root}/{root_layout.ROOT_ID}", name + "\n")
    return name
