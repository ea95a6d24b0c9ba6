"""The trash: list it, restore from it, and delete old entries."""

import calendar
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from llmc.base import inside, proc
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.files import explain, json_row, remove_tree, unique, write_atomic
from llmc.base.text import did_you_mean
from llmc.config.durations import format_duration
from llmc.config.paths import Root
from llmc.landing import at_rest
from llmc.records.events import read_lines
from llmc.records.transitions import step
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, provision, uncommitted
from llmc.repo.project import Project, subjects
from llmc.repo.rules.trash_age import DAY_S, Book, accounted_for, expired, look
from llmc.repo.trash import PINNED, PREFIX, Task, is_pin, late_key, short, task_file, task_of
from llmc.sessions import intake

#: the reason of a worker that has restored work instead of a task
RESTORED = "restored from the trash"
_LIST_HINT = "Run `llmc trash list` to see the trash."


class Entry(Struct, frozen=True):
    """A trash entry: a pinned commit, a directory, or both."""

    worker: str
    #: time and mark, the same for a ref and its directory
    stamp: str
    why: str = ""
    ref: str | None = None
    commit: str | None = None
    #: of the commit, unless the default branch has it
    subject: str = ""
    #: whether its commit is on the default branch, so that it has none of its own
    without_commits: bool = False
    #: the subject of the worker's latest commit in it; "" if it has none
    work: str = ""
    #: whether the commit was made by llmc to save uncommitted files
    has_uncommitted: bool = False
    directory: Path | None = None
    size_bytes: int | None = None

    @property
    def name(self) -> str:
        """Its name for the user."""
        return short(self.ref) if self.ref else f"{self.worker}-{self.stamp}"

    @property
    def at_unix(self) -> float | None:
        """When it was trashed; None if llmc did not do it."""
        try:
            return float(calendar.timegm(time.strptime(self.stamp.partition("-")[0], "%Y%m%dT%H%M%S")))
        except ValueError:
            return None


class Restored(Struct, frozen=True):
    branch: str
    commit: str
    #: the repositories that now have the branch
    repositories: tuple[str, ...]


class RestoredToWorker(Struct, frozen=True):
    """What was restored to a worker: commits in review, or uncommitted files."""

    worker: str
    commit: str
    status: Status
    dirty: tuple[str, ...]


def entries(project: Project, *, sizes: bool = True) -> list[Entry]:
    """All trash entries, latest first; without `sizes` no directory is read."""
    root = project.root
    found = {}
    landed = _landed(project)
    rows = git.refs(root.path, PREFIX.rstrip("/"), "refname", "objectname", "contents:subject", "parent")
    below = _own_subjects(project, [row[3].split(" ")[0] for row in rows if row[2].startswith(PINNED)])
    for ref, commit, subject, parents in rows:
        worker, stamp, why = parse_ref(ref)
        own = "" if ref in landed else subject  # on the default branch, it may be other work
        saved = own.startswith(PINNED)
        work = below.get(parents.split(" ")[0], "") if saved else own
        found[worker, stamp, why] = Entry(worker, stamp, why, ref, commit, own, ref in landed, work, saved)
    for folder in sorted(root.trash.iterdir()) if root.trash.is_dir() else []:
        worker, stamp = parse_directory(folder.name)
        key = next((key for key in found if key[:2] == (worker, stamp)), (worker, stamp, ""))
        at = found.get(key, Entry(worker, stamp))
        found[key] = replace(at, directory=folder, size_bytes=size_of(folder) if sizes else None)
    return sorted(found.values(), key=lambda entry: (entry.stamp, entry.worker), reverse=True)


def _own_subjects(project: Project, commits: list[str]) -> dict[str, str]:
    """The subjects of those commits that are not on the default branch."""
    ask = ["rev-list", "--ignore-missing", *filter(None, commits), "--not", project.base, "--"]
    own = set(git.git(project.root.path, *ask, check=False).stdout.split()) if any(commits) else set()
    return subjects(project, sorted(own.intersection(commits)))


def _landed(project: Project) -> set[str]:
    """The trash refs whose commit is on the default branch: the worker had no commits, or they landed unchanged."""
    ask = ["for-each-ref", "--format=%(refname)", f"--merged={project.base}", PREFIX]
    return set(git.git(project.root.path, *ask, check=False).stdout.split())


def parse_ref(ref: str) -> tuple[str, str, str]:
    """Worker, stamp and reason of `refs/llmc/trash/<worker>/<time>-<mark>-<why>`."""
    worker, _, rest = short(ref).partition("/")
    moment, mark, why = [*rest.split("-", 2), "", ""][:3]
    return worker, f"{moment}-{mark}" if mark else moment, why


def parse_directory(name: str) -> tuple[str, str]:
    """Worker and stamp of `<worker>-<time>-<mark>`; a worker's name may contain dashes."""
    worker, moment, mark = ["", "", *name.rsplit("-", 2)][-3:]
    return worker, f"{moment}-{mark}" if moment else mark


def size_of(folder: Path) -> int:
    """The total size of the files in a directory; links are not followed."""
    total = 0
    with contextlib.suppress(OSError):  # it is gone, or changes
        for at, _, names in inside.walk(folder):
            total += sum(_size(name, at.fd) for name in names)
    return total


def _size(name: str, folder: int) -> int:
    try:
        return os.lstat(name, dir_fd=folder).st_size
    except OSError:
        return 0


def find(project: Project, given: str) -> Entry:
    """The entry with this ref, short name or directory, or a unique prefix of one."""
    known = entries(project)
    wanted = short(given.rstrip("/"))
    for entry in known:
        if wanted in _names(entry):
            return entry
    begins = [entry for entry in known if any(name.startswith(wanted) for name in _names(entry))]
    if wanted and len(begins) == 1:
        return begins[0]
    if wanted and begins:
        raise UsageError(
            f"{given!r} is ambiguous: it matches {len(begins)} trash entries",
            hint=f"Use the full name, such as {begins[0].name}.",
        )
    names = [name for entry in known for name in _names(entry)]
    raise NotFound(
        f"no entry {given!r} in the trash", hint=did_you_mean(wanted, names, _LIST_HINT, cutoff=0.3)
    )


def describe(project: Project, entry: Entry) -> str:
    """The commits that are not on the default branch, and `git show --stat`; for a directory, its files."""
    parts = []
    if entry.ref:
        repo, branch = project.root.path, project.config.repo.default_branch
        log = ["log", "--format=%h %s", "--max-count=50", entry.ref, "--not", project.base]
        ahead = git.git(repo, *log, check=False).stdout.strip()
        parts += [f"commits not on {branch}:\n{ahead}"] if ahead else []
        if entry.without_commits:
            at = git.out(repo, "log", "--max-count=1", "--format=%h %s", entry.ref)
            parts.append(f"no commits ahead of {branch} (at {at})")
        else:
            show = ["show", "--stat", "--format=fuller", "--first-parent", "-m", entry.ref]
            parts.append(git.git(repo, *show).stdout.strip())
    if entry.directory:
        names = sorted(path.name + ("/" if path.is_dir() else "") for path in entry.directory.iterdir())
        parts.append(f"{entry.directory}:\n" + "\n".join(f"  {name}" for name in names))
    return "\n\n".join(parts)


def seen(project: Project, entry: Entry) -> None:
    """The user has seen or restored it: stop reporting that it did not land."""
    keys = {late_key(entry.ref or entry.name), late_key(entry.worker)}
    if keys & project.store.read().attention.keys():
        with project.store.transaction() as tx:
            for key in keys:
                tx.clear_item(key)


def restore_branch(project: Project, entry: Entry, branch: str | None) -> Restored:
    """Create a branch at the pinned commit, in the root's clone and in a local source. Touches no checkout."""
    if entry.ref is None or entry.commit is None:
        raise UsageError(
            f"cannot restore {entry.name} as a branch: it is a saved directory and has no commits",
            hint=f"To copy the directory: llmc trash restore {entry.name} --to PATH",
        )
    name = branch or f"llmc/restored/{entry.name.replace('/', '-', 1)}"
    root = project.root.path
    if not git.git(root, "check-ref-format", f"refs/heads/{name}", check=False).ok or name.startswith("-"):
        raise UsageError(
            f"{name!r} is not a valid branch name", hint="Choose another name with --branch NAME."
        )
    source = Path(project.source)
    places = [root, *([source] if source.is_dir() else [])]
    missing = [place for place in places if not _has(place, name, entry.commit)]
    if root in missing:
        git.git(root, "update-ref", "-m", "llmc: restored", f"refs/heads/{name}", entry.commit, "")
    if source in missing:
        quiet = ["--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--no-auto-maintenance"]
        spec = f"{entry.ref}:refs/heads/{name}"
        git.git(source, "fetch", *quiet, "--no-recurse-submodules", str(root), spec, timeout_s=600)
    seen(project, entry)
    return Restored(name, entry.commit, tuple(str(place) for place in places))


def restore_directory(entry: Entry, target: Path) -> Path:
    """Copy a trashed directory to a new path, as a whole or not at all."""
    if entry.directory is None:
        raise UsageError(
            f"cannot copy {entry.name}: it has commits but no directory",
            hint="To restore it as a branch, omit --to.",
        )
    target = Path(os.path.abspath(target.expanduser()))
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target} already exists", hint="Choose a path that does not exist yet.")
    temp = target.with_name(f".{target.name}{unique()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        proc.run(["cp", "-a", "--", str(entry.directory), str(temp)], env=proc.clean_env(), timeout_s=3600)
        pointer = temp / ".git"
        if pointer.is_file():
            pointer.unlink()  # it may point to another worker's worktree by now
        os.rename(temp, target)
    except OSError as error:
        raise explain(error, f"cannot copy to {target}") from error
    finally:
        with contextlib.suppress(OSError):
            remove_tree(temp)
    return target


def restore_to_worker(project: Project, entry: Entry, name: str) -> RestoredToWorker:
    """Restore commits and uncommitted changes to a worker's worktree and branch. Takes its lock.

    The worker must have no work of its own. The entry stays in the trash. After a crash in between, the worker has work
    that its status does not show: the next reset or start pins it again.
    """
    if entry.commit is None:
        raise UsageError(
            f"cannot restore {entry.name} to a worker: it has no commits",
            hint=f"To copy the directory: llmc trash restore {entry.name} --to PATH",
        )
    with project.worker_lock(name):
        record = intake.apply_pending(project, name)
        _refuse_unless_free(project, record)
        worktree = Path(record.worktree_path)
        work = _committed(project, entry.commit)
        provision.reset_in_place(project, record, work, "restore")
        with fault_step("restore.files"):
            if work != entry.commit:
                source = ["restore", "--quiet", f"--source={entry.commit}", "--worktree", "--", "."]
                git.git(worktree, *source, timeout_s=300)
        return _report(project, record, entry)


def _refuse_unless_free(project: Project, record: WorkerRecord) -> None:
    name = record.name
    if record.auto:
        raise Refused(
            f"cannot restore to {name}: it is an auto worker",
            hint="Choose a worker that is not an auto worker, or omit --to to restore a branch.",
        )
    hint = f"Run `llmc reset {name}`, which moves that work to the trash; then run the command again."
    if not record.status.is_free and record.status is not Status.OFFLINE:
        raise Refused(f"cannot restore to {name}: its status is {record.status}, not idle", hint=hint)
    at_rest.refuse_if_disturbed(project, record)
    facts = intake.git_facts(project, record)
    if facts is None:
        raise intake.unreadable(name)
    if facts.ahead or facts.dirty or facts.rebasing:
        raise Refused(f"cannot restore to {name}: it has other work in its worktree", hint=hint)


def _committed(project: Project, commit: str) -> str:
    """The last commit of the work itself; llmc's commit on top of it has the uncommitted files."""
    while is_pin(project.root.path, commit):
        parent = git.resolve(project.root.path, f"{commit}^1")
        if parent is None:
            raise Refused(
                "cannot restore to a worker: this work was on a branch without commits",
                hint="To restore it as a branch: llmc trash restore NAME",
            )
        commit = parent
    return commit


def _report(project: Project, record: WorkerRecord, entry: Entry) -> RestoredToWorker:
    worktree = Path(record.worktree_path)
    found = uncommitted.tree_state(worktree)
    dirty = (*found.tracked, *found.untracked)
    head = git.head(worktree)
    ahead = git.divergence(worktree, project.base, "HEAD").ahead
    task = task_of(project.root, entry.ref) if entry.ref else Task()
    if not task.current_prompt:
        task = Task(f"Continue {entry.name}, restored from the trash")
    with project.store.transaction() as tx:
        after = tx.update(record.name, **asdict(task))
        tx.emit("work_restored", worker=record.name, ref=entry.ref, commit=head)
        if record.status is not Status.OFFLINE and ahead and not dirty:
            after = tx.move(record.name, step(Status.NEEDS_REVIEW, RESTORED, commit_sha=head))
        elif record.status is not Status.OFFLINE:
            after = tx.move(record.name, step(Status.NEEDS_INPUT, RESTORED))
    seen(project, entry)
    return RestoredToWorker(record.name, head, after.status, dirty)


def _names(entry: Entry) -> list[str]:
    names = [entry.name]
    if entry.directory:
        names += [entry.directory.name, str(entry.directory)]
    return names


def _has(repo: Path, branch: str, commit: str) -> bool:
    """Whether the branch already exists at this commit; a branch at another commit is never moved."""
    at = git.resolve(repo, f"refs/heads/{branch}")
    if at not in (None, commit):
        raise Refused(
            f"cannot create branch {branch}: it already exists in {repo} at another commit",
            hint="Choose another name with --branch NAME.",
        )
    return at == commit


class Plan(Struct, frozen=True):
    """What `llmc trash prune` would remove."""

    old: tuple[Entry, ...]
    #: by name: why an entry may be more recent than its name says
    doubts: dict[str, str]


def prune_by_itself(project: Project, ran_s: float | None) -> list[Entry]:
    """The daemon's prune; returns what was deleted. Nothing is deleted on the first run (`ran_s` is None)."""
    root, now = project.root, now_unix()
    here = {entry.name: entry for entry in entries(project, sizes=False) if entry.at_unix is not None}
    ages = {name: _age_by_clock(root, entry, now) for name, entry in here.items()}
    keep_s = project.config.trash.keep_days * DAY_S
    book = look(_read(root), ages, now=now, ran_s=ran_s, keep_s=keep_s)
    gone = [here[name] for name in expired(book)] if ran_s is not None else []
    write_atomic(root.trash_ages, msgspec.json.encode(book))
    return remove(project, gone)


def plan(project: Project, days: int) -> Plan:
    """Entries older than this many days by their names; with 0 days no clock matters."""
    root, now = project.root, now_unix()
    limit_s = days * DAY_S
    old = [e for e in entries(project) if e.at_unix is not None and age_s(e.at_unix, now) >= limit_s]
    doubts: dict[str, str] = {}
    if days and old:
        seen_s = accounted_for(_events(root), now)
        for entry in old:
            files_s, log_s = _age_by_clock(root, entry, now), seen_s.get(entry.ref or "")
            if files_s < limit_s:
                doubts[entry.name] = f"the files are only {format_duration(files_s)} old"
            elif log_s is None:
                doubts[entry.name] = "the entry is not in the event log"
            elif log_s < limit_s:
                doubts[entry.name] = (
                    f"the event log covers only {format_duration(log_s)} since the entry was created"
                )
    return Plan(tuple(old), doubts)


def remove(project: Project, gone: Iterable[Entry]) -> list[Entry]:
    """Delete these entries permanently; returns them."""
    removed = []
    for entry in gone:
        try:
            _remove(project.root, entry)
        except OSError as error:
            raise explain(error, f"cannot remove {entry.name}") from error
        removed.append(entry)
    if removed:
        with project.store.transaction() as tx:
            for entry in removed:
                tx.clear_item(late_key(entry.ref or entry.name))
            tx.emit("trash_pruned", refs=[e.ref for e in removed if e.ref], names=[e.name for e in removed])
    return removed


def _remove(root: Root, entry: Entry) -> None:
    if entry.ref and entry.commit:
        git.git(
            root.path, "update-ref", "-d", entry.ref, entry.commit
        )  # only if the ref has not changed since
        task_file(root, entry.ref).unlink(missing_ok=True)
    if entry.directory:
        remove_tree(entry.directory)


def _age_by_clock(root: Root, entry: Entry, now: float) -> float:
    """The smallest age by the clock: of its name, its ref file, or its directory."""
    times = [entry.at_unix or now]
    for path in (root.path / ".git" / entry.ref if entry.ref else None, entry.directory):
        try:
            times += [path.lstat().st_mtime, path.lstat().st_ctime] if path else []
        except OSError:
            continue  # git has packed the ref
    return age_s(max(times), now)


def _events(root: Root) -> Iterator[tuple[float, str]]:
    """The time of each event, and the ref if it reports a pin."""
    for line in read_lines(root.events):
        row = json_row(line) or {}
        if isinstance(at := row.get("ts"), int | float):
            yield float(at), str(row.get("ref")) if row.get("action") == "pinning" else ""


def _read(root: Root) -> Book:
    """A missing or damaged file counts as new: then no entry is old."""
    try:
        return msgspec.json.decode(root.trash_ages.read_bytes(), type=Book)
    except (OSError, msgspec.DecodeError):
        return Book()
