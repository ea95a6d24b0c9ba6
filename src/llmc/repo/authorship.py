"""Who made a commit, as environment for git: the worker stays the author of what lands."""

from pathlib import Path

from llmc.repo import git


def signature(worktree: Path, name: str, email: str, date: str) -> dict[str, str]:
    """An author stays the author of what lands; where nobody is configured, the committer too."""
    env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
    if git.config_get(worktree, "user.email"):
        return env
    return env | {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}


def committer(worktree: Path, commit: str) -> dict[str, str]:
    """The configured identity; where there is none, the author is the committer too."""
    if git.config_get(worktree, "user.email"):
        return {}
    shown = git.git(worktree, "show", "-s", "--format=%an%x00%ae", commit).stdout
    name, email = shown.strip("\n").split("\0")
    return {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
