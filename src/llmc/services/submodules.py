"""Submodules of a worktree: taken from the source's own copies where it has them, else from where they come from.

git forbids submodules from a local path by default. llmc allows it for one thing only: the repositories that the
source itself has for its submodules.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from llmc.doctor.clone_config import NO_PUSH
from llmc.errors import Refused
from llmc.services import trash
from llmc.services.project import Project
from llmc.tools import git
from llmc.tools.proc import Done
from llmc.workers.model import WorkerRecord


@dataclass(frozen=True)
class Submodule:
    name: str
    path: str
    commit: str


def update(project: Project, worktree: Path) -> list[str]:
    """Every submodule at the commit its superproject names; those that cannot be had, as problems."""
    return _update(worktree, _store(project)) if (worktree / ".gitmodules").exists() else []


def pin_changes(project: Project, record: WorkerRecord, worktree: Path, why: str) -> list[str]:
    """Before a reset: what is only in a submodule is pinned there; the paths of those that are checked out."""
    if not (worktree / ".gitmodules").exists():
        return []
    here = [module.path for module in _listed(worktree) if (worktree / module.path / ".git").exists()]
    for path in here:
        place = worktree / path
        own = git.out(place, "rev-list", "--max-count=1", "HEAD", "--branches", "--not", "--remotes")
        if own or not git.tree_state(place).clean:
            trash.pin(project.root, place, record.name, why)
    return here


def clean(project: Project, record: WorkerRecord, worktree: Path, before: list[str], why: str) -> None:
    """After a reset: the submodules of `before` hold nothing of the old task. What had to be kept is pinned."""
    if not before:
        return
    still = {module.path for module in _listed(worktree)} if (worktree / ".gitmodules").exists() else set()
    for path in before:
        if path in still:
            git.git(worktree / path, "reset", "--quiet", "--hard", timeout_s=300)
            git.git(worktree / path, "clean", "-fdq")
    gone = [path for path in before if path not in still and (worktree / path / ".git").exists()]
    if gone:
        ref = trash.pin_commit(project.root, record.name, why, git.head(worktree))
        trash.take_out(worktree, gone, trash.folder_of(project.root, ref))


def refuse_unknown_commits(project: Project, record: WorkerRecord) -> None:
    """A submodule's commit that only the worker has would land as a name of something nobody can get."""
    worktree = Path(record.worktree_path)
    store = _store(project) if (worktree / ".gitmodules").exists() else None
    if store is None:
        return
    for module in _listed(worktree):
        place = worktree / module.path
        known = git.git(store / module.name, "cat-file", "-e", f"{module.commit}^{{commit}}", check=False)
        if (store / module.name).is_dir() and not known.ok and (place / ".git").exists():
            theirs = Path(project.source) / module.path
            raise Refused(
                f"{record.name} moved the submodule {module.path} to {module.commit[:12]}, which the source does not have",
                hint=f"Take it over first: git -C {theirs} fetch {place} {module.commit}",
            )


def _update(superproject: Path, store: Path | None) -> list[str]:
    problems: list[str] = []
    for module in _listed(superproject):
        place = superproject / module.path
        if not _is_at(place, module.commit):
            done = _fetch(superproject, module, store)
            if not done.ok:
                lines = (done.stderr or done.stdout).strip().splitlines()
                reason = next((line for line in lines if line.startswith("fatal: ")), " ".join(lines[-1:]))
                problems.append(
                    f"the submodule {module.path} is not here: {reason}. "
                    "Run `git submodule update --init` in the source, then `llmc up` again"
                )
                continue
            git.git(place, "config", "remote.origin.pushurl", NO_PUSH)
        if (place / ".gitmodules").exists():
            inner = store / module.name / "modules" if store else None
            problems += [f"{module.path}: {problem}" for problem in _update(place, inner)]
    return problems


def _fetch(superproject: Path, module: Submodule, store: Path | None) -> Done:
    command = ["submodule", "update", "--init", "--quiet", "--", module.path]
    own = store / module.name if store else None
    if own is not None and own.is_dir():
        # As a URL git copies the objects; by the bare path it would make hard links to a person's own.
        allowed = [
            "-c",
            "protocol.file.allow=always",
            "-c",
            f"submodule.{module.name}.url=file://{quote(str(own))}",
        ]
        done = git.git(superproject, *allowed, *command, check=False, timeout_s=1800)
        if done.ok:
            return done
    return git.git(superproject, *command, check=False, timeout_s=1800)


def _is_at(place: Path, commit: str) -> bool:
    return (place / ".git").exists() and git.resolve(place, "HEAD") == commit


def _listed(superproject: Path) -> list[Submodule]:
    """Those that .gitmodules names and the index has a commit for."""
    flags = ["--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$"]
    rows = git.git(superproject, "config", *flags, check=False).stdout.split("\0")
    names = {
        path: key[len("submodule.") : -len(".path")] for key, _, path in (row.partition("\n") for row in rows)
    }
    names.pop("", None)
    if not names:
        return []
    found = []
    for row in git.git(superproject, "ls-files", "-s", "-z", "--", *names).stdout.split("\0"):
        facts, _, path = row.partition("\t")
        if facts.startswith("160000 ") and path in names:
            found.append(Submodule(names[path], path, facts.split()[1]))
    return found


def _store(project: Project) -> Path | None:
    """Where a local source keeps the repositories of its submodules."""
    source = Path(project.source)
    if not source.is_dir():
        return None
    return source / git.out(source, "rev-parse", "--git-common-dir") / "modules"
