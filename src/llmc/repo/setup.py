"""Create a root, and workers in it."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from llmc.base import urls
from llmc.base.errors import LlmcError, NotFound, Refused, UsageError
from llmc.base.files import explain, private_dir, unique, write_atomic
from llmc.base.names import WorkerName
from llmc.config import trust
from llmc.config.load import load_config
from llmc.config.model import Worker
from llmc.config.options import check_worker_name
from llmc.config.paths import Root, default_root, find_root
from llmc.config.schema import initial_text
from llmc.config.suggest import LOOKED_AT, Suggestion, suggested_check, task_list_id
from llmc.records.store import Store
from llmc.records.worker import WorkerRecord
from llmc.repo import git, lfs, provision, sources
from llmc.repo.project import Project, opened
from llmc.repo.rules.clone_config import CLONE_SETTINGS


class Source(Struct, frozen=True):
    """Where accepted work lands."""

    location: str
    local: bool


def find_source(given: str | None, cwd: Path) -> Source:
    """The repository to work on: a path or URL, else the one around the working directory."""
    start = Path(given).expanduser() if given else cwd
    if given and not start.exists() and not sources.is_local(given):
        return Source(given, local=False)
    if not start.is_dir():
        raise NotFound(f"{start} is not a directory", hint="Pass a repository with --source PATH.")
    done = git.git(start, "rev-parse", "--git-common-dir", check=False)
    if "safe.bareRepository" in done.stderr:
        raise Refused(
            f"git does not use the bare repository {start}, as set by safe.bareRepository",
            hint="Run `git config --global safe.bareRepository all`, or pass another repository with --source PATH.",
        )
    if not done.ok:
        raise NotFound(
            f"{start} is not in a git repository",
            hint="Run `llmc init` in a git repository, or pass one with --source PATH.",
        )
    common = Path(os.path.realpath(start / done.stdout.strip()))
    # Ask the repository itself: in a worktree of a bare repository, the answer would be no.
    # Named with --git-dir, it is allowed also if the user set safe.bareRepository.
    if git.out(common.parent, f"--git-dir={common}", "rev-parse", "--is-bare-repository") == "true":
        return Source(str(common), local=True)
    if common.name == ".git":
        return Source(str(common.parent), local=True)
    return Source(
        git.out(start, "rev-parse", "--show-toplevel"), local=True
    )  # a submodule, or a separate git dir


def choose_target(given: str | None, source: Source) -> Path:
    """The path of the root: as given, else ~/llmc, else ~/llmc-<repo> if that is taken."""
    if given:
        return Path(os.path.realpath(Path(given).expanduser()))
    first = default_root()
    if not _is_taken(first):
        return Path(os.path.realpath(first))
    # A colon would split the agents' PATH.
    name = re.split("[/:]", source.location.rstrip("/"))[-1].removesuffix(".git") or "repo"
    return Path(os.path.realpath(first.with_name(f"llmc-{name}")))


def existing_root(source: Source, target: str | None) -> Root | None:
    """An earlier root of this source: the target, or the one in the source's git config."""
    place = target or (git.config_get(Path(source.location), "llmc.root") if source.local else None)
    root = Root(Path(trust.real(place))) if place else None
    if root is None or not root.config.exists():
        return None
    return find_root(str(root.path), {}, Path("/"), lambda: None)  # refuses a root of another user


def named_root(source: Source) -> Path | None:
    """The root that commands in a local source use by its git config; None if there is no such root."""
    named = git.config_get(Path(source.location), "llmc.root") if source.local else None
    root = Root(Path(trust.real(named))) if named else None
    return root.path if root is not None and root.config.exists() else None


def create_root(source: Source, target: Path, agent: str) -> Root:
    """Clone, configure and write the first files, in a temporary directory that is renamed at the end."""
    if _is_taken(target):
        if (target / "config.toml").exists():
            raise Refused(
                f"cannot create a root in {target}: it is already an llmc root",
                hint="Choose another path with --target PATH.",
            )
        raise Refused(
            f"cannot create a root in {target}: it exists and is not empty",
            hint="Choose another path with --target PATH.",
        )
    _refuse_undecodable(source, target)
    _refuse_nesting(source, target)
    _refuse_a_clone_of_ours(source)
    aside = target.with_name(f".{target.name}.init{unique()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fill(source, aside, agent, task_list_id(urls.split(source.location).address, str(target)))
        os.rename(aside, target)
    except OSError as error:
        raise explain(error, f"cannot create {target}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if source.local:
        git.git(Path(source.location), "config", "llmc.root", str(target))
    trust.register(str(target))
    return Root(target)


def _fill(source: Source, target: Path, agent: str, list_id: str) -> None:
    root = Root(target)
    _clone(source, target)
    _copy_identity(source, target)
    branch = _default_branch(source, target)
    if lfs.is_used(target, f"refs/remotes/origin/{branch}"):
        lfs.set_up(target)
    for directory in (root.logs, root.private, root.inbox, root.locks, root.agents, root.bin):
        private_dir(directory)
    write_launcher(root)
    write_atomic(root.config, initial_text(source.location, branch, agent, list_id).encode(), mode=0o600)
    Store(root).create()


def find_check(project: Project) -> Suggestion | None:
    """Suggest a command for `repo.validate`, from the files of the latest commit."""
    root, base = project.root.path, project.base
    names = git.git(root, "ls-tree", "-z", "--name-only", base, check=False).stdout.split("\0")
    wanted = [name for name in LOOKED_AT if name in names]
    return suggested_check(
        {name: git.git(root, "show", f"{base}:{name}", check=False).stdout for name in wanted}
    )


def add_worker(
    project: Project, name: str, worker: Worker, warn: Callable[[str], None] = lambda _: None
) -> WorkerRecord:
    """Add a worker with its worktree to state and configuration. Safe to repeat after a crash."""
    from llmc.config import edit

    problem = check_worker_name(name)
    if problem:
        raise UsageError(f"invalid worker name {name!r}: {problem}")
    with project.worker_lock(name):
        if WorkerName(name) in project.store.read().workers:
            raise Refused(
                f"worker {name} already exists",
                hint="Choose another name; run `llmc status` to see all workers.",
            )
        record = _new_record(project, name)
        for problem in provision.provision(project, record):
            warn(problem)
        with edit.locked(project.root):
            if name not in load_config(project.root.config).workers:
                edit.add_worker(project.root.config, name, worker)
        with project.store.transaction() as tx:
            tx.put(record)
            tx.emit("worker_added", worker=name)
    return record


def ensure_auto_workers(project: Project, names: Iterable[str]) -> None:
    """Add auto workers to the state only: they have no settings. `up` creates their worktrees."""
    with project.store.transaction() as tx:
        tx.update_auto(nuked=())
        for name in names:
            if WorkerName(name) not in tx.state.workers:
                tx.put(replace(_new_record(project, name), auto=True))
                tx.emit("worker_added", worker=name)


def _new_record(project: Project, name: str) -> WorkerRecord:
    from llmc.base.clock import now_unix

    now = now_unix()
    return WorkerRecord(
        name=WorkerName(name),
        worktree_path=str(project.root.worktree(name)),
        branch=f"llmc/{name}",
        session_id=project.session(name),
        created_at_unix=now,
        since_unix=now,
        last_activity_unix=now,
        reason="added",
    )


def _clone(source: Source, target: Path) -> None:
    """Clone by git's transport even from a local path: `--local` would hard-link the user's objects and use their
    alternates, so an agent that overwrites a pack in the root would overwrite the user's."""
    settings = [f"--config={key}={value}" for key, value in CLONE_SETTINGS.items()]
    target.mkdir(mode=0o700)
    clone = ["clone", "--quiet", "--origin", "origin", "--no-checkout", "--no-local", *settings]
    where = [urls.split(source.location).address, str(target)]
    git.git(target.parent, *clone, *where, timeout_s=3600, env=git.access(source.location, [git.NO_HOOKS]))
    _without_checkout(target)


def configure_clone(target: Path) -> None:
    """Apply the settings of a root's clone. Safe to repeat."""
    for key, value in CLONE_SETTINGS.items():
        git.git(target, "config", "--replace-all", key, value)
    _without_checkout(target)


def _without_checkout(target: Path) -> None:
    """Keep a source that tracks `config.toml` or `logs/` from colliding with llmc's files in the root."""
    git.git(target, "config", "--unset-all", "core.bare", check=False)
    git.git(target, "config", "--worktree", "core.bare", "true")


def _copy_identity(source: Source, target: Path) -> None:
    """Copy the source's own identity, so that the workers' commits use it."""
    if not source.local:
        return
    for key, value in git.own_user(Path(source.location)).items():
        git.git(target, "config", key, value)


def _default_branch(source: Source, target: Path) -> str:
    done = git.git(target, "symbolic-ref", "refs/remotes/origin/HEAD", check=False)
    if done.ok:
        return done.stdout.strip().removeprefix("refs/remotes/origin/")
    if source.local:
        branch = git.default_branch(Path(source.location))
        if git.resolve(Path(source.location), f"refs/heads/{branch}"):
            return branch
    there = git.refs(target, "refs/remotes/origin", "refname:lstrip=3")
    if other := next((name for (name,) in there if name != "HEAD"), ""):
        raise LlmcError(
            f"cannot create a root: HEAD in {source.location} names a branch that does not exist, so it has no default branch",
            hint=f"Run `git symbolic-ref HEAD refs/heads/{other}` there, or name another branch that exists, then run `llmc init` again.",
        )
    raise LlmcError(
        f"cannot create a root: {source.location} has no commits yet",
        hint="Make a first commit there, then run `llmc init` again.",
    )


def write_launcher(root: Root) -> None:
    """Write the `llmc` on the agents' PATH, which runs this installation."""
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m llmc "$@"\n'
    write_atomic(root.bin / "llmc", script.encode(), mode=0o700)


def _refuse_undecodable(source: Source, target: Path) -> None:
    """Both paths must be UTF-8 for config.toml and state.json, and without line breaks for git."""
    if "\n" in str(target):
        raise UsageError(
            f"cannot create a root in {str(target)!a}: the path contains a line break",
            hint="Choose another path with --target PATH.",
        )
    for text, option in ((source.location, "--source"), (str(target), "--target")):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the path {text!a} is not valid UTF-8", hint=f"Choose another path with {option} PATH."
            ) from error


def _refuse_a_clone_of_ours(source: Source) -> None:
    """Refuse the private clone of another root as a source."""
    place = Path(source.location)
    for directory in (place, place.parent):
        if source.local and (directory / ".llmc").is_dir() and (directory / "config.toml").exists():
            raise Refused(
                f"cannot use {directory} as the source repository: it is an llmc root",
                hint="Run `llmc init` in your own repository.",
            )


def _refuse_nesting(source: Source, target: Path) -> None:
    if source.local and target.is_relative_to(source.location):
        raise Refused(
            f"cannot create a root in {target}: it is inside the source repository",
            hint="Choose a path outside it with --target PATH.",
        )


def _is_taken(path: Path) -> bool:
    try:
        return any(path.iterdir())
    except NotADirectoryError:
        return True
    except FileNotFoundError:
        return False


def new_project(root: Root) -> Project:
    return opened(root, load_config(root.config))
