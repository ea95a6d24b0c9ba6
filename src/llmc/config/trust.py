"""Which directory may be a root: a person chooses one, a directory cannot choose itself.

A root names programs to run (`agent_command`, `repo.setup`, notifiers), and anybody can make a directory with `.llmc/` and
`config.toml`: another user above us, or an agent whose work landed in a checkout. So a root has to be ours, and one that
was only found around the working directory has to be registered as well. Standard library only: the hot commands
import this too.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from llmc.config import root_layout


class Chosen(NamedTuple):
    """A path that is meant to be a root, and who says so."""

    path: str
    origin: str


class Untrusted(Exception):
    """A root around the working directory that nobody chose, or one of another user."""

    def __init__(self, path: str, owner: int | None) -> None:
        super().__init__(path)
        self.path = path
        #: the other user, None where it is ours and only not registered
        self.owner = owner


def choose(
    explicit: str | None, environ: Mapping[str, str], cwd: str, git_root: Callable[[], str | None]
) -> Chosen:
    """The root a command means: --root, LLMC_ROOT, an enclosing root, the source's git config, ~/llmc.

    What is there is not looked at, but for the owner: the caller says if it is no root.
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
        return _ours(named, "the git config llmc.root of this repository")
    if around:
        raise Untrusted(around[0], owner_of(around[0]))
    return _ours(default, "the default root")


def real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def default_root() -> str:
    path = os.path.expanduser("~/llmc")
    return (
        path if os.path.isabs(path) else f"/{path}"
    )  # without a home it must not be one of the working directory


def owner_of(root: str) -> int | None:
    """The other user to whom the root, its `.llmc/` or its config.toml belongs; None: all of it is ours."""
    for path in (root, f"{root}/{root_layout.PRIVATE}", f"{root}/{root_layout.CONFIG}"):
        with contextlib.suppress(OSError):
            owner = os.stat(path).st_uid
            if owner != os.geteuid():
                return owner
    return None


def is_registered(root: str) -> bool:
    """Whether `init` or `up` noted this root for us, at this path and with the id that it has."""
    known = _read_registry().get(root)
    return known is not None and known == _id_of(root) and owner_of(root) is None


def register(root: str) -> bool:
    """Note a root that a person chose; False where that cannot be written: then it has to be named each time."""
    if is_registered(root):
        return True
    place = registry()
    if place is None:
        return False
    try:
        name = _id_of(root) or _new_id(root)
        with _turn(place):
            _write_registry(place, {**_read_registry(), root: name})
    except OSError:
        return False
    return is_registered(root)


def forget(root: str) -> bool:
    """A root that is to go is registered no more; whether it was. The last one takes the registry with it."""
    place = registry()
    if place is None or root not in _read_registry():
        return False
    with _turn(place):
        left = _existing({path: name for path, name in _read_registry().items() if path != root})
        if left:
            _write_registry(place, left)
        else:
            _remove_registry(place)
    return True


def _remove_registry(place: str) -> None:
    """The lock last: what waits for it makes all of it again."""
    for name in (place, f"{place}.broken", f"{place}.lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    with contextlib.suppress(OSError):  # something else is in it
        os.rmdir(os.path.dirname(place))


@contextlib.contextmanager
def _turn(place: str) -> Iterator[None]:
    """Alone with the registry."""
    turn = _lock(place)
    try:
        yield
    finally:
        os.close(turn)


def _lock(place: str) -> int:
    """The last root may have taken the lock file with it while we waited: that one keeps nobody out."""
    name = f"{place}.lock"
    for _ in range(100):
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            turn = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(turn, fcntl.LOCK_EX)
            if _is_at(name, turn):
                return turn
            os.close(turn)
    raise OSError(f"{name} cannot be had")


def _is_at(name: str, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(name))
    except FileNotFoundError:
        return False


def registry() -> str | None:
    """The file with the roots of this user; None without a home."""
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
    """llmc.root of the git settings at `cwd`: read from a plain file where `init` wrote it, else asked of git."""
    here = cwd
    while not os.path.lexists(f"{here}/.git") and here != os.path.dirname(here):
        here = os.path.dirname(here)
    steered = any(name.startswith("GIT_") for name in environ)
    return (None if steered else _plain_value(f"{here}/.git")) or ask()


def _plain_value(git_dir: str) -> str | None:
    """The last llmc.root of a repository of ours; None where git might read it otherwise, or from another file."""
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
    """Empty where there is none, or none that can be believed: nothing is registered then."""
    place = registry()
    if place is None:
        return {}
    try:
        with open(place, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid != os.geteuid() or info.st_mode & 0o022:
                return {}  # $HOME may be another user's
            roots = json.loads(file.read()).get("roots")
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return {str(path): str(name) for path, name in roots.items()} if isinstance(roots, dict) else {}


def _write_registry(place: str, roots: Mapping[str, str]) -> None:
    """Without roots that are gone; a file that cannot be read stays beside the new one."""
    if os.path.lexists(place) and not _read_registry():
        os.replace(place, f"{place}.broken")
    temp = f"{place}.{os.getpid()}.tmp"
    with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump({"version": 1, "roots": _existing(roots)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temp, place)


def _existing(roots: Mapping[str, str]) -> dict[str, str]:
    return {path: name for path, name in roots.items() if _id_of(path) == name}


def _id_of(root: str) -> str:
    try:
        with open(f"{root}/{root_layout.ROOT_ID}") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""


def _new_id(root: str) -> str:
    name = os.urandom(16).hex()
    temp = f"{root}/{root_layout.ROOT_ID}.{os.getpid()}.tmp"
    with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(name + "\n")
    os.replace(temp, f"{root}/{root_layout.ROOT_ID}")
    return name
