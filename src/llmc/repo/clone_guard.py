"""Guards git in a root: no setting there may run an agent's program or redirect git.

Agents share the clone's settings and can write those of their own worktree. llmc's git would obey these settings with
the user's rights. So the root's guard checks them before each git call (repo/git.py). While nothing has changed, this
takes a few stat calls and runs no program. Findings are reported, then undone; the rules are in
repo/rules/clone_config.py. Changes made while git is already running cannot be caught here.
"""

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from llmc.base import inside, locks, urls
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.base.files import append_line, json_row, read_text, write_atomic
from llmc.config import root_layout
from llmc.config.paths import Root
from llmc.records.state import State
from llmc.records.store import Store
from llmc.repo import git, git_config, git_dirs, indexes
from llmc.repo.git_config import Broken, Seen, Stamp, is_settled, stamp
from llmc.repo.rules.clone_config import (
    CLONE_SETTINGS,
    FETCH,
    Change,
    Expected,
    Place,
    changes,
    kept_attributes,
)

if TYPE_CHECKING:
    from llmc.repo.taking_in import TakingIn

#: characters of a path that must be escaped in a URL
_IN_URL = {ord(one): f"%{ord(one):02X}" for one in "%?#"}
#: git writes this into the settings of each new repository
_FIRST = "core.repositoryformatversion"
#: directories of the root with a subdirectory for each worker, and also those with one for each slot
_OF_WORKERS = (root_layout.WORKTREES, root_layout.REPOS)
_FOLDERS = (*_OF_WORKERS, root_layout.SLOTS)
#: an agent that was active up to this long before a file was written may have written it
ACTIVE_S = 60.0


def stand(root: Root, source: str, base: str) -> None:
    """Guard the clone of a root. `source`: as in config.toml, or the root if unknown; `base`: where work starts."""
    path = str(root.path)
    known = git.guards.get(path)
    if known is None or (known.source, known.base) != (source, base):
        git.guards[path] = CloneGuard(path, source, base)


class Undone(Struct, frozen=True):
    """The findings in one file."""

    path: str
    text: str
    keys: tuple[str, ...] = ()


class CloneGuard:
    """The guard of one root; remembers which version of each file was fine."""

    def __init__(self, root: str, source: str, base: str) -> None:
        self.source = "" if source == root else source
        self.base = base
        self._root = root
        self._git = f"{root}/.git"
        self._worktrees = [f"{root}/{folder}" for folder in (root_layout.WORKTREES, root_layout.SLOTS)]
        self.large_files = f"file://{self._git.translate(_IN_URL)}"
        self._seen = Seen()
        self._links: dict[str, tuple[Stamp | None, tuple[str, ...]]] = {}
        #: whether findings may be unreported: by this process or, before the first check, by another one
        self._behind = True
        #: locks by worker or slot, "" for the clone: a repository that is slow to read delays no other
        self._turns: dict[str, threading.Lock] = {}
        self._mine = threading.local()
        self._taking_in: TakingIn | None = None

    def look(self, repo: str, words: Sequence[str] = ()) -> None:
        """Check everything that git would read in this directory of the root. `words`: the git call's arguments."""
        if getattr(self._mine, "looking", False):
            return  # a git call by the guard itself
        with self._looking():
            if not os.path.lexists(self._git):
                return  # no clone: git will report that
            with self._turn_of(""):
                self._clone()
            top = self._top(repo)
            if top == self._root:
                self._take_in(words)
            else:
                with self._turn_of(self._owner_of(top)):
                    if name := self._apart(top):
                        self._contained(name)
                    else:
                        self._repository(top)
            if self._behind and locks.may_take(locks.Rank.STATE):
                with self._turn_of(""):
                    self._catch_up()

    def box(self, repo: str) -> AbstractContextManager[git.Within]:
        """The box for git at this path: a contained agent can write settings and links there, and git follows them."""
        if not (name := self._apart(repo)):
            return nullcontext(git.NO_BOX)
        from llmc.repo import own_repos  # most workers are not contained

        return own_repos.box(Path(self._root), name)

    def free(self, said: str, repo: Path) -> bool:
        """Remove the lock that git's error names, if a killed git left it in this root; whether git can try again."""
        if "File exists" not in said:
            return False
        from llmc.repo import dead_locks  # rarely needed

        lock = dead_locks.named_in(said, repo)
        try:
            dropped = lock is not None and dead_locks.drop(Path(self._root), lock)
        except (dead_locks.InUse, OSError):
            return False
        if dropped and locks.may_take(locks.Rank.STATE):
            worker = self._owner_of(str(repo), _OF_WORKERS) or None
            with suppress(LlmcError), Store(Root(Path(self._root))).transaction() as tx:
                tx.emit("lock_removed", worker=worker, paths=[str(lock)])
        return lock is not None

    def _apart(self, place: str) -> str:
        """The contained worker whose worktree or repository contains this path; "" if none."""
        name = self._owner_of(place, _OF_WORKERS)
        # A name that starts with a dot is llmc's own, such as a repository that is being created.
        is_apart = (
            name
            and name[0] != "."
            and git_dirs.own_repo(Path(self._root, root_layout.WORKTREES, name)) is not None
        )
        return name if is_apart else ""

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._mine.looking = True
        try:
            yield
        finally:
            self._mine.looking = False

    def _turn_of(self, owner: str) -> threading.Lock:
        return self._turns.setdefault(owner, threading.Lock())

    def _owner_of(self, place: str, folders: Sequence[str] = _FOLDERS) -> str:
        """The worker or slot that a path belongs to; "" if none."""
        for folder in folders:
            if place.startswith(f"{self._root}/{folder}/"):
                return place.removeprefix(f"{self._root}/{folder}/").partition("/")[0]
        return ""

    def _top(self, repo: str) -> str:
        """The top of the repository that a directory belongs to."""
        here = repo
        while here != self._root and not os.path.lexists(f"{here}/.git"):
            here = os.path.dirname(here)
        return here

    def _clone(self) -> None:
        if not stat.S_ISDIR(os.lstat(self._git).st_mode) or os.path.lexists(f"{self._git}/commondir"):
            raise LlmcError(
                f"{self._git} is not the clone that llmc created: it points to another repository",
                hint=f"An agent may have replaced it, so llmc did not run git there. Restore the original {self._git}, "
                "then run the command again.",
            )
        self._settings(f"{self._git}/config", Place.CLONE)
        self._settings(f"{self._git}/config.worktree", Place.ROOT)
        self._attributes(f"{self._git}/info/attributes")

    def _repository(self, top: str) -> None:
        """Check a worktree of the clone and all repositories nested inside it, however many an agent made."""
        if not _has_no_link(self._around(top), top):
            raise LlmcError(
                f"cannot run git in {top}: it is behind a symbolic link",
                hint="Remove the link, then run the command again.",
            )
        waiting = [top]
        while waiting:
            waiting += self._repositories_in(waiting.pop())

    def _repositories_in(self, top: str) -> list[str]:
        """Check a worktree, or a submodule or other repository in one; returns the repositories directly inside."""
        is_inner = os.path.dirname(top) not in self._worktrees
        place = self._inner(top) if is_inner else self._worktree(top)
        paths = self._gitlinks(top, place) if place else ()
        return [
            f"{top}/{path}"
            for path in paths
            if _has_no_link(top, f"{top}/{path}") and os.path.lexists(f"{top}/{path}/.git")
        ]

    def _worktree(self, top: str) -> str:
        """Check a worktree or slot; returns its entry in the clone."""
        place = self._led_to(top)
        if os.path.dirname(place) != f"{self._git}/worktrees" or not self._linked(top, place):
            self._lead_back(top)
            place = self._led_to(top)
        self._settings(f"{place}/config.worktree", Place.WORKTREE)
        return place

    def _take_in(self, words: Sequence[str]) -> None:
        """Fetch the commits of contained workers."""
        if not os.path.isdir(f"{self._root}/{root_layout.REPOS}"):
            return
        if self._taking_in is None:
            from llmc.repo.taking_in import TakingIn  # most workers are not contained

            self._taking_in = TakingIn(self._root, self._seen, self._turn_of)
        self._taking_in.look(words)

    def _contained(self, name: str) -> None:
        """Check the worktree of a contained worker. Its settings do not matter: git runs in a box there."""
        from llmc.repo import own_repos  # most workers are not contained

        own_repos.refuse_odd_files(Path(self._root), name)
        own_repos.refuse_another_repository(Path(self._root), name)
        own_repos.give(Path(self._root), name, self.base)

    def _led_to(self, top: str) -> str:
        """The git directory that a `.git` file names; "" for a file that git would not write.

        Git accepts other forms too, but llmc need not understand them.
        """
        data = git_config.read_plainly(Path(top, ".git"))
        text = "" if isinstance(data, Broken) else data.decode("utf-8", "surrogateescape")
        path = text.removeprefix("gitdir: ").removesuffix("\n")
        if text != f"gitdir: {path}\n" or {*path} & {"\n", "\r", "\0"}:
            return ""
        return os.path.realpath(os.path.join(top, path))

    def _linked(self, top: str, place: str) -> bool:
        """Whether the entry in the clone points back to this worktree and to the clone."""
        files = (f"{top}/.git", f"{place}/gitdir", f"{place}/commondir")
        if all(self._seen.is_fine(path) for path in files):
            return True
        stamps = [(path, stamp(path)) for path in files]
        back = os.path.join(place, _first_line(files[1]))
        common = os.path.realpath(os.path.join(place, _first_line(files[2])))
        if os.path.realpath(os.path.dirname(back)) != top or common != self._git:
            return False
        for path, found in stamps:
            self._seen.remember(path, found)
        return True

    def _lead_back(self, top: str) -> None:
        """Make a worktree point to its own entry in the clone again, and the entry to the clone."""
        entry = f"{self._git}/worktrees/{os.path.basename(top)}"
        for name in os.listdir(f"{self._git}/worktrees") if os.path.isdir(f"{self._git}/worktrees") else ():
            back = _first_line(f"{self._git}/worktrees/{name}/gitdir")
            if os.path.join(f"{self._git}/worktrees/{name}", back) == f"{top}/.git":
                entry = f"{self._git}/worktrees/{name}"
        if not os.path.isdir(entry) or os.path.islink(entry):
            raise LlmcError(
                f"{top} is no longer a worktree of this root: its .git points to another repository",
                hint=f"Run `llmc doctor --repair` to link {top} to the root's clone again; its files are kept.",
            )
        self._say(Undone(f"{top}/.git", "pointed to another repository; llmc restored it"))
        for path, text in (
            (f"{top}/.git", f"gitdir: {entry}"),
            (f"{entry}/gitdir", f"{top}/.git"),
            (f"{entry}/commondir", "../.."),
        ):
            if os.path.isdir(path) or os.path.islink(path):
                self._aside(path)
            write_atomic(Path(path), f"{text}\n".encode(), mode=0o644)

    def _inner(self, top: str) -> str:
        """Check a repository inside a worktree: git in the worktree would run programs from its settings too.

        Returns its git directory; "" if there is nothing more to check. The target of a foreign `.git` never changes.
        """
        pointer = f"{top}/.git"
        is_folder = os.path.isdir(pointer) and not os.path.islink(pointer)
        place = pointer if is_folder else self._led_to(top)
        # In a slot, only a check can have left a `.git` directory: git makes none there.
        may_be_folder = not self._around(top).startswith(f"{self._root}/{root_layout.SLOTS}/")
        is_ours = may_be_folder if is_folder else self._is_submodule(top, place)
        if not is_ours or not _is_whole(place) or (is_folder and _has_links(place)):
            self._stranger(top, place)
            return ""
        tree = "" if is_folder else os.path.relpath(top, place)
        self._settings(f"{place}/config", Place.INNER, tree)
        self._settings(f"{place}/config.worktree", Place.INNER, tree)
        self._attributes(f"{place}/info/attributes")
        return place

    def _is_submodule(self, top: str, place: str) -> bool:
        """Whether git keeps the repository in the entry of its worktree, as it does for submodules."""
        entry = self._led_to(self._around(top))
        return os.path.dirname(entry) == f"{self._git}/worktrees" and place.startswith(f"{entry}/modules/")

    def _around(self, top: str) -> str:
        """The worktree or slot that contains a repository; the root if none does."""
        found = (
            f"{folder}/{self._owner_of(top)}" for folder in self._worktrees if top.startswith(f"{folder}/")
        )
        return next(found, self._root)

    def _stranger(self, top: str, place: str) -> None:
        """Move a foreign `.git` aside, unless it leads out of this root, to settings that run no programs."""
        if place and not place.startswith(f"{self._root}/") and not _runs_programs(place):
            return
        if place in ("", f"{top}/.git"):
            why = "was not as git makes it there"
        elif place.startswith(f"{self._root}/"):
            why = f"pointed to {place}"
        else:
            why = f"pointed to {place}, whose git config runs programs"
        self._say(Undone(f"{top}/.git", f"{why}; llmc moved it aside"))
        self._aside(f"{top}/.git")

    def _gitlinks(self, top: str, place: str) -> tuple[str, ...]:
        """The paths of gitlinks in the index: git enters the repositories there too."""
        index = f"{place}/index"
        known, now = self._links.get(index), stamp(index)
        if known is None or known[0] != now:
            known = (now, _paths_of_gitlinks(top, index))
            if is_settled(now):
                self._links[index] = known
        return known[1]

    def _settings(self, path: str, place: Place, tree: str = "") -> None:
        if self._seen.is_fine(path):
            return
        before, file = stamp(path), Path(path)
        if before is None and place not in (Place.CLONE, Place.ROOT):
            self._seen.remember(path, before)
            return
        data = Broken("missing") if before is None else git_config.read_plainly(file)
        rows = data if isinstance(data, Broken) else git_config.rows_of(data)
        if place is Place.CLONE and not isinstance(rows, Broken) and _FIRST not in dict(rows):
            rows = Broken("required settings are missing")
        if isinstance(rows, Broken):
            self._restore(file, place, tree, rows.why)
            return
        wrong = changes(rows, place, self._expected(path, tree))
        if not wrong:
            self._seen.remember(path, before)
            return
        if said := [change for change in wrong if not change.silent]:
            self._say(Undone(path, _in_words(said), tuple(change.key for change in said)))
        with fault_step("guard.undo"):
            git_config.change(Path(self._root), file, wrong)

    def _attributes(self, path: str) -> None:
        if self._seen.is_fine(path):
            return
        before = stamp(path)
        data = git_config.read_plainly(Path(path))
        if isinstance(data, Broken):
            self._say(Undone(path, f"was unusable ({data.why}); llmc moved it aside"))
            self._aside(path)
            return
        text = data.decode("utf-8", "surrogateescape")
        kept = kept_attributes(text)
        if kept == text:
            self._seen.remember(path, before)
            return
        self._say(
            Undone(
                path,
                "had lines that passed files to programs or excluded them from diffs and merges; llmc removed them",
            )
        )
        write_atomic(Path(path), kept.encode("utf-8", "surrogateescape"), mode=0o644)

    def _restore(self, file: Path, place: Place, tree: str, why: str) -> None:
        """Recreate an unusable settings file as llmc made it."""
        self._say(Undone(str(file), f"was unusable ({why}); llmc recreated it"))
        with fault_step("guard.undo"):
            if os.path.lexists(file):
                self._aside(str(file))
            rows = self._known(place, tree)
            if rows:
                git_config.write_new(Path(self._root), file, rows)

    def _known(self, place: Place, tree: str) -> list[tuple[str, str]]:
        if place is Place.ROOT:
            return [("core.bare", "true")]
        if place is Place.INNER:
            return [("core.repositoryformatversion", "0"), *([("core.worktree", tree)] if tree else [])]
        if place is Place.WORKTREE:
            return []
        long_ids = _has_long_ids(self._git)
        rows = [("core.repositoryformatversion", "1" if long_ids else "0"), ("core.filemode", "true")]
        rows += [("core.logallrefupdates", "true"), *CLONE_SETTINGS.items()]
        rows += [("extensions.objectformat", "sha256")] if long_ids else []
        rows += [("remote.origin.url", urls.split(self.source).address)] if self.source else []
        return [*rows, ("remote.origin.fetch", FETCH), *self._identity()]

    def _identity(self) -> list[tuple[str, str]]:
        """The user name and email in the source's own settings, which `init` copies."""
        return list(git.own_user(Path(self.source)).items()) if os.path.isdir(self.source) else []

    def _expected(self, path: str, tree: str) -> Expected:
        if not self.source:
            return Expected(worktree=tree)
        config = stamp(f"{self._root}/config.toml")
        own = stamp(path)
        newer = config is not None and own is not None and config[3] > own[3]
        return Expected(urls.split(self.source).address, self.source, newer, tree)

    def _aside(self, path: str) -> str:
        return str(git_config.move_aside(Path(path), Path(self._root, root_layout.SET_ASIDE)))

    def _say(self, undone: Undone) -> None:
        """Report a finding before undoing it: after a kill in between, it is reported twice, never lost."""
        if not locks.may_take(locks.Rank.STATE) or not self._report(undone):
            append_line(Path(self._root, root_layout.UNSAID), json.dumps(asdict(undone)).encode())
            self._behind = True

    def _catch_up(self) -> None:
        """Report findings that could not be reported before; each stays until it is in the state."""
        with rows_unsaid(self._root) as rows:
            if all(self._report(row) for row in list(rows)):
                rows.clear()
                self._behind = False

    def _report(self, undone: Undone) -> bool:
        name = os.path.relpath(undone.path, self._root)
        text = f"{name}: {undone.text}"
        try:
            with Store(Root(Path(self._root))).transaction() as tx:
                suspects = _suspects(tx.state, name, undone.path)
                who = ", ".join(suspects) or name
                by = f"; {who} may have changed it" if suspects else ""
                worker = suspects[0] if len(suspects) == 1 else None
                tx.emit("git_config_undone", worker=worker, reason=text, file=name, keys=list(undone.keys))
                tx.raise_item(
                    key_of(self._root, undone),
                    kind="git_config",
                    severity="notice",
                    who=who,
                    text=f"corrected {text}{by}",
                    next="llmc doctor --repair",
                )
        except LlmcError:  # an unwritable state must not weaken the guard
            return False
        return True


@contextmanager
def rows_unsaid(root: str) -> Iterator[list[Undone]]:
    """Findings that are not in the state yet; the file keeps those that the caller leaves in the list."""
    try:
        file = open(f"{root}/{root_layout.UNSAID}", "r+b")
    except OSError:
        yield []
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = [_undone(row) for line in file.read().split(b"\n") if (row := json_row(line)) is not None]
        rows = list(found)
        yield rows
        if rows != found:
            file.seek(0)
            file.truncate()
            file.write(b"".join(json.dumps(asdict(row)).encode() + b"\n" for row in rows))


def _undone(row: dict[str, Any]) -> Undone:
    keys = row.get("keys")
    return Undone(
        str(row.get("path")), str(row.get("text")), tuple(map(str, keys if isinstance(keys, list) else ()))
    )


def key_of(root: str, undone: Undone) -> str:
    """The key of a finding on the attention list."""
    return f"git_config:{os.path.relpath(undone.path, root)}"


def _in_words(wrong: list[Change]) -> str:
    parts = []
    for change in wrong[:5]:
        found = ", ".join(value[:80] for value in change.found)
        parts.append(f"{change.key} was {found!r}" if change.found else f"{change.key} was missing")
    more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return "; ".join(parts) + more


def _suspects(state: State, name: str, path: str) -> list[str]:
    """The worker that owns the file; for a shared file, the workers active when it was written, or else all."""
    parts = name.split("/")
    if parts[0] == ".worktrees" or parts[:2] == [".git", "worktrees"]:
        own = parts[1] if parts[0] == ".worktrees" else parts[2]
        return [own] if own in state.workers else []
    found = stamp(path)
    written = found[4] / 1e9 if found else time.time()
    active = [str(w.name) for w in state.workers.values() if w.last_activity_unix + ACTIVE_S >= written]
    return sorted(active or map(str, state.workers))


def _has_no_link(top: str, path: str) -> bool:
    """Whether every part of a path below `top` is a directory. Git does not enter links either."""
    while path != top:
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
        except (OSError, ValueError):
            return False
        path = os.path.dirname(path)
    return True


def _is_whole(place: str) -> bool:
    """Whether all settings of a repository are in its own git directory."""
    return not os.path.lexists(f"{place}/commondir") and not os.path.islink(f"{place}/info")


#: most entries checked in a repository that an agent made; a larger one is moved aside
_MOST_ENTRIES = 100_000


def _has_links(place: str) -> bool:
    """Whether git might write through a link in a repository: an index, a reflog, a ref, an object."""
    left = _MOST_ENTRIES
    try:
        for at, folders, names in inside.walk(Path(place)):
            left -= len(folders) + len(names)
            if left < 0 or any(stat.S_ISLNK(os.lstat(name, dir_fd=at.fd).st_mode) for name in names):
                return True
    except OSError:
        return True
    return False


def _runs_programs(place: str) -> bool:
    """Whether the settings of a repository would run programs, or cannot be known."""
    if not _is_whole(place):
        return True
    for name in ("config", "config.worktree"):
        data = git_config.read_plainly(Path(place, name))
        rows = data if isinstance(data, Broken) else git_config.rows_of(data)
        if isinstance(rows, Broken) or changes(rows, Place.INNER, Expected()):
            return True
    return False


def _first_line(path: str) -> str:
    data = git_config.read_plainly(Path(path))
    line = b"" if isinstance(data, Broken) else data.split(b"\n")[0]
    return "" if b"\0" in line else line.decode("utf-8", "surrogateescape").strip()  # no path has a NUL


def _paths_of_gitlinks(top: str, index: str) -> tuple[str, ...]:
    try:
        if not indexes.may_name_repositories(Path(index)):
            return ()
    except OSError:  # an agent may have put a pipe or a device there
        return ()
    rows = git.listed(Path(top), "ls-files", "--stage", "-z", check=False)
    return tuple(row.partition("\t")[2] for row in rows if row.startswith("160000 "))


#: most bytes read of a ref, more than any id has; and how many refs are read to find the hash format
_MOST_REF, _REFS_READ = 100, 50


def _has_long_ids(place: str) -> bool:
    """Whether the repository uses SHA-256, by its settings or its refs."""
    text = _first_line(f"{place}/HEAD")
    names = [text] if not text.startswith("ref:") else []
    names += _some_refs(place)
    packed = git_config.read_plainly(Path(place, "packed-refs"))
    if isinstance(packed, bytes):
        names += [line.split(b" ")[0].decode("ascii", "replace") for line in packed.split(b"\n")[1:2]]
    return any(len(name) == 64 for name in names)


def _some_refs(place: str) -> list[str]:
    with suppress(OSError):
        refs = inside.walk(Path(place), "refs")
        read = (
            read_text(Path(name), _MOST_REF, folder=at.fd).strip() for at, _, names in refs for name in names
        )
        return list(islice(read, _REFS_READ))
    return []
