"""Undo: one revert commit of an accept, validated and landed like an accept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmc.errors import NotFound, Refused
from llmc.services import landing, provision, rebase
from llmc.services.project import Project
from llmc.services.validation import validate
from llmc.state.events import read_lines
from llmc.tools import git, locks
from llmc.tools.files import json_row

#: the name under which a revert is landed, validated and logged; no worker can have it
NAME = "_undo"

_IDENTITY = {"GIT_AUTHOR_NAME": "llmc", "GIT_AUTHOR_EMAIL": "llmc@localhost"}
_COMMITTER = {"GIT_COMMITTER_NAME": "llmc", "GIT_COMMITTER_EMAIL": "llmc@localhost"}


@dataclass(frozen=True)
class Undone:
    worker: str
    commit: str
    revert: str
    subject: str
    prompt: str


def last_accept(project: Project) -> tuple[str, str, str]:
    """Worker, commit and prompt of the newest accept that was not undone."""
    accepts: list[tuple[str, str, str]] = []
    for event in filter(None, map(json_row, read_lines(project.root.events))):
        if event.get("action") == "accepted":
            accepts.append((event["worker"], event["commit"], event.get("prompt", "")))
        elif event.get("action") == "undone":
            accepts = [accept for accept in accepts if accept[1] != event["commit"]]
    if not accepts:
        raise NotFound("nothing was accepted that could be undone", hint="`llmc events` shows what happened.")
    return accepts[-1]


def undo(project: Project) -> Undone:
    """Take the newest accept back. Nothing is removed: its commit stays in the history, reverted by another."""
    worker, commit, prompt = last_accept(project)
    landing.check_source(project)
    with locks.lock(project.root.lock("ticket"), locks.Rank.TICKET, timeout_s=7200):
        base = provision.refresh_base(project)
        revert = _revert(project, commit, base)
        with _checkout(project, revert) as place:
            validate(project, NAME, place)
        with locks.lock(project.root.lock("merge"), locks.Rank.MERGE, timeout_s=600):
            try:
                landing.land(project, NAME, revert, base)
            except landing.BaseMoved as error:
                raise Refused(
                    "the branch has moved meanwhile; nothing was undone", hint="Run it again."
                ) from error
    with project.store.transaction() as tx:
        tx.emit("undone", worker=worker, commit=commit, revert=revert)
        rebase.queue_others(tx, NAME)
    return Undone(worker, commit, revert, _subject(project, commit), prompt)


def _revert(project: Project, commit: str, base: str) -> str:
    """A commit on `base` without what `commit` changed; made from trees alone, no checkout is touched."""
    root = project.root.path
    if not git.is_ancestor(root, commit, base):
        raise Refused(
            f"{commit[:12]} is no longer on the branch", hint="Somebody rewrote it; there is nothing to undo."
        )
    before = git.tree_of(root, f"{commit}^")
    # A three-way merge whose common ancestor is the commit itself: ours is the branch, theirs is its parent.
    ours = _commit(root, git.tree_of(root, base), commit, "ours")
    theirs = _commit(root, before, commit, "theirs")
    done = git.git(
        root, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs, check=False
    )
    tree, *files = git.rows(done.stdout) or [""]
    if not done.ok:
        raise Refused(
            f"later commits changed the same lines in: {', '.join(dict.fromkeys(files))}; nothing was undone",
            hint=f"Revert it by hand: git revert {commit[:12]}",
        )
    if tree == git.tree_of(root, base):
        raise Refused(f"nothing of {commit[:12]} is left on the branch", hint="It was reverted already.")
    message = f'Revert "{_subject(project, commit)}"\n\nThis reverts commit {commit}.\n'
    return _commit(root, tree, base, message)


def _commit(root: Path, tree: str, parent: str, message: str) -> str:
    configured = git.config_get(root, "user.email")
    env = {} if configured else _IDENTITY | _COMMITTER
    done = git.git(root, "commit-tree", tree, "-p", parent, "-F", "-", input=message.encode(), env=env)
    return done.stdout.strip()


@contextmanager
def _checkout(project: Project, commit: str) -> Iterator[Path]:
    """A worktree of our own to validate in, gone afterwards; nobody works there, so nothing can be lost."""
    place = project.root.private / "undo-checkout"
    if not project.config.repo.validate:
        yield place
        return
    _remove(project, place)
    with project.repo_lock():
        git.git(
            project.root.path, "worktree", "add", "--quiet", "--detach", str(place), commit, timeout_s=600
        )
    try:
        yield place
    finally:
        _remove(project, place)


def _remove(project: Project, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    with project.repo_lock():
        git.git(project.root.path, "worktree", "prune")


def _subject(project: Project, commit: str) -> str:
    return git.out(project.root.path, "show", "-s", "--format=%s", commit)
