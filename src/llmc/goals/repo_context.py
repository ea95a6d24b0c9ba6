"""Looks at the repository for a planner: only what is committed on the branch where work lands."""

import contextlib

from llmc.base.errors import LlmcError
from llmc.goals.plan.repo_context import MANIFESTS, READMES, RepoFacts, snapshot
from llmc.repo import git, provision
from llmc.repo.project import Project

#: most characters of a file that are read
MOST_CHARS = 64 * 1024


def repo_context(project: Project) -> str:
    """The repository in short; "" where nothing is committed. Never raises: a goal is made without it."""
    try:
        with contextlib.suppress(LlmcError):  # then as it was when it was fetched last
            provision.refresh_base(project)
        commit = git.resolve(project.root.path, project.base)
        return snapshot(_facts(project, commit)) if commit else ""
    except (LlmcError, OSError):
        return ""


def _facts(project: Project, commit: str) -> RepoFacts:
    root, repo = project.root.path, project.config.repo
    files = git.rows(git.git(root, "ls-tree", "-r", "-z", "--name-only", commit, timeout_s=60).stdout)
    readme = next((name for name in READMES if name in files), "")
    return RepoFacts(
        commit=commit,
        branch=repo.default_branch,
        files=tuple(files),
        readme=_text(project, commit, readme) if readme else "",
        manifests={name: _text(project, commit, name) for name in MANIFESTS if name in files},
        setup=repo.setup,
        validate=repo.validate,
    )


def _text(project: Project, commit: str, name: str) -> str:
    """The beginning of a file; "" for one that git cannot show, a submodule for example."""
    done = git.git(project.root.path, "cat-file", "blob", f"{commit}:{name}", check=False, timeout_s=60)
    return done.stdout[:MOST_CHARS] if done.ok else ""
