"""Reviewing a worker's changes, and requesting changes."""

from llmc.attention.rules import after_dirty as after_dirty
from llmc.base import proc
from llmc.base.errors import ToolFailed
from llmc.landing import merging, review
from llmc.landing.fresh_review import begin as begin
from llmc.landing.review import FileChange as FileChange
from llmc.landing.review import Review as Review
from llmc.records.worker import Status
from llmc.repo import git
from llmc.repo.project import Project
from llmc.sessions.rules.prompt_text import normalise
from llmc.sessions.submit import Receipt
from llmc.workers import start
from llmc.workers.patrol import catch_up


def choose(project: Project, name: str | None) -> str:
    """The given worker, else the one that has waited longest for review."""
    catch_up(project)
    return name or review.longest_waiting(project.store.read()).name


def end(project: Project, shown: Review, *, seen: bool) -> bool:
    """Remember what the user reviewed, so that accept can warn; returns whether the agent is running."""
    review.remember(project, shown, seen=seen)
    return project.store.worker(shown.worker).status is not Status.OFFLINE


def diff(project: Project, shown: Review, *options: str, env: dict[str, str] | None = None) -> str:
    """The change as git prints it, with these options of `git diff`."""
    args = [*_where(project, shown), "diff", *options, shown.base, shown.result, "--"]
    done = git.git(project.root.path, *args, timeout_s=300, env=env, most_bytes=git.MOST_DIFF)
    return done.stdout


def _where(project: Project, shown: Review) -> list[str]:
    """Git options for the clone: the user's settings, but the base's attributes, as the agent's could hide a file."""
    place = merging.attributes_of(project, shown.base)
    return ["-C", str(place), f"--git-dir={project.root.path}/.git", f"--work-tree={place}"]


def commit_text(project: Project, commit: str) -> str:
    """A commit with its changes, as git prints it."""
    return git.git(
        project.root.path, "show", "--stat", "-p", commit, timeout_s=300, most_bytes=git.MOST_DIFF
    ).stdout


def open_difftool(project: Project, shown: Review, command: str) -> None:
    """Show the change in an external program, and wait until it exits."""
    args = [
        *_where(project, shown),
        "difftool",
        "--no-prompt",
        f"--extcmd={command}",
        shown.base,
        shown.result,
    ]
    argv = ["git", *args]
    git.look_first(project.root.path)
    code = proc.run_attached(argv, env=proc.command_env())
    if code:
        raise ToolFailed(argv, code, "")


def pager(project: Project, env: dict[str, str]) -> str:
    """The command that git would page with; "" for none."""
    return git.git(project.root.path, "var", "GIT_PAGER", env=env).stdout.strip()


def reviewed_last(project: Project) -> str | None:
    """The worker that the user reviewed last."""
    found = start.reviewed_last(project.store.read())
    return found.name if found else None


def reject(project: Project, name: str, feedback: str) -> Receipt:
    """Request changes from a worker."""
    normalise(feedback)  # refuse text that cannot be sent, whatever the status of the worker
    with project.worker_lock(name):
        return start.reject(project, name, feedback)
