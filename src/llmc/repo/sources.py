"""The source repository: whether work can be fetched from it, and the fix if not.

Every fetch from the source is here. A missing source or branch is an attention item until a fetch or check finds it.
"""

import re
import shlex
from pathlib import Path

from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.text import pattern
from llmc.records.items import NO_SOURCE
from llmc.repo import git, provision
from llmc.repo.project import Project

#: time limit for asking the source about its branches
ASK_S = 20.0

_SET_BRANCH = "llmc config set repo.default_branch"
_MOVED = "llmc config set repo.source PATH-OR-URL"
_HEADS = pattern(r"^([0-9a-f]{40,64})\trefs/heads/(.+)$", re.MULTILINE)
_CURRENT = pattern(r"^ref: refs/heads/(.+)\tHEAD$", re.MULTILINE)


class NoSource(LlmcError):
    """The source repository or its default branch is missing: no fetch works. `fix`: the command that helps."""

    def __init__(self, message: str, fix: str, when: str) -> None:
        super().__init__(message, hint=f"{when[:1].upper()}{when[1:]}, run `{fix}`.")
        self.fix = fix
        self.advice = f"{when}, run `{fix}`"


def fetch(project: Project) -> None:
    """Fetch the default branch; the caller holds the repo lock."""
    try:
        git.fetch(project.root.path, project.source, project.config.repo.default_branch)
    except ToolFailed as error:
        found = problem(project)
        if found is None:
            raise
        _list(project, found)
        raise found from error
    _list(project, None)


def look(project: Project) -> NoSource | None:
    """Check a local source; list and return its problem. A URL is checked only by its fetches."""
    if project.lands_elsewhere or not is_local(project.source):
        return None
    found = problem(project)
    _list(project, found)
    return found


def problem(project: Project) -> NoSource | None:
    """Why nothing can be fetched; None if this is not due to the source."""
    source, branch = project.source, project.config.repo.default_branch
    if not branch:
        return NoSource("repo.default_branch is not set", f"{_SET_BRANCH} BRANCH", "to set it")
    if is_local(source):
        if provision.source_tip(project) is not None:
            return None
        if not Path(source).is_dir():
            return NoSource(
                f"the source repository {source} does not exist", _MOVED, "if the repository has moved"
            )
    asked = ["ls-remote", "--symref", source, "HEAD", "refs/heads/*"]
    try:
        said = git.git(project.root.path, *asked, timeout_s=ASK_S).stdout
    except ToolFailed as error:
        return _unreadable(source, error)
    return _without_branch(project, said)


def _unreadable(source: str, error: ToolFailed) -> NoSource:
    if is_local(source) and "not appear to be a git repository" in error.stderr:
        said = f"repo.source: {source} is not a git repository"
    else:
        said = f"cannot reach the source repository {source}: {' '.join((error.stderr or error.message).split())}"
    return NoSource(said, _MOVED, "if the repository has moved")


def _without_branch(project: Project, said: str) -> NoSource | None:
    branch, known = project.config.repo.default_branch, git.resolve(project.root.path, project.base)
    heads = {name: commit for commit, name in _HEADS.findall(said)}
    if branch in heads:
        return None
    renamed = [name for name, commit in heads.items() if commit == known]
    current = [name for name in _CURRENT.findall(said) if name in heads]
    obvious = next((names[0] for names in (renamed, [*heads], current) if len(names) == 1), "")
    has = f"; it has {obvious!r}" if obvious else ""
    fix = f"{_SET_BRANCH} {shlex.quote(obvious) if obvious else 'BRANCH'}"
    return NoSource(
        f"the source repository has no branch {branch!r}{has}", fix, "to land work on another branch"
    )


def is_local(source: str) -> bool:
    """Whether a source is a path, by git's rule: not an address such as `https://host/repo` or `host:repo`."""
    return ":" not in source.partition("/")[0]


def _list(project: Project, found: NoSource | None) -> None:
    """List this problem, if any, as an attention item, and clear the items of other branches."""
    listed = [key for key in project.store.read().attention if key.startswith(NO_SOURCE)]
    if found is None and not listed:
        return
    key = f"{NO_SOURCE}{project.config.repo.default_branch}"
    with project.store.transaction() as tx:
        for other in listed:
            if found is None or other != key:
                tx.clear_item(other)
        if found is not None:
            about = {"kind": "no_source", "severity": "blocked", "who": project.source}
            tx.raise_item(key, text=found.message, next=found.fix, **about)


def is_listed(project: Project) -> bool:
    return any(key.startswith(NO_SOURCE) for key in project.store.read().attention)
