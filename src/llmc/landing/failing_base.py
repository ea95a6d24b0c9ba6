"""Remember in the state that the default branch fails its own validation, so that no worker's work is blamed.

The verdict is about one commit, one command and one configuration. It is made only after work has failed, and holds
until the branch passes. The branch is checked again when it or the configuration changes, and from time to time,
because a command may fail by chance.
"""

import shlex
from pathlib import Path

from llmc.base import proc
from llmc.base.clock import now_unix
from llmc.config.paths import Root
from llmc.records.state import FailingBase
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed

#: the key of the attention item
ITEM = "base"
#: a failed check is retried after PATIENCE times as long as it took; the same commit, not before LEAST_S
PATIENCE = 10.0
LEAST_S = 60.0


class BaseFails(CommandFailed):
    """Work failed the validation, but so does the default branch: nothing is known about the work."""


def output_of(root: Root) -> Path:
    """The file with the output of the command that failed on the default branch."""
    return root.slots / "base.log"


def known(project: Project, base: str, checks: str) -> bool:
    """Whether this commit is known to fail, and need not be checked again yet."""
    found = project.store.read().failing_base
    return found is not None and not is_due(found, base, checks, now_unix())


def is_too_soon(at_unix: float, took_s: float, now: float, least_s: float = LEAST_S) -> bool:
    """Whether it is too soon to retry what failed at `at_unix`; never if the clock was set back."""
    return 0 <= now - at_unix < max(least_s, PATIENCE * took_s)


def is_due(found: FailingBase, base: str, checks: str, now: float) -> bool:
    """Whether to check the default branch again."""
    same = found.commit == base and found.checks == checks
    return not same or not is_too_soon(found.at_unix, found.took_s, now)


def note(project: Project, base: str, checks: str, took_s: float) -> None:
    """Record that the default branch was checked and fails."""
    repo = project.config.repo
    failed = FailingBase(commit=base, command=repo.validate, checks=checks, at_unix=now_unix(), took_s=took_s)
    with project.store.transaction() as tx:
        if tx.state.failing_base is None or tx.state.failing_base.commit != base:
            tx.emit(
                "base_failed", commit=base, command=repo.validate, reason=_said(repo.default_branch, failed)
            )
        tx.remember_failing_base(failed)
        tx.raise_item(
            ITEM,
            kind="base_fails",
            severity="blocked",
            who=repo.default_branch,
            text=f"{_said(repo.default_branch, failed)}. Until this is fixed, nothing can land and auto mode does not start tasks",
            next=_show(project.root),
        )


def forget(project: Project) -> bool:
    """Record that the default branch passes or is no longer validated; whether it was known to fail."""
    if project.store.read().failing_base is None:
        return False
    with project.store.transaction() as tx:
        if (before := tx.state.failing_base) is not None:
            tx.emit("base_passed", commit=before.commit, command=before.command)
        tx.remember_failing_base(None)
        tx.clear_item(ITEM)
    return True


def failure(project: Project, base: str, done: proc.Done) -> BaseFails:
    """The error for work that cannot be judged; `done` is how its check failed."""
    repo = project.config.repo
    return BaseFails(
        done,
        message=f"{repo.default_branch} itself fails `{repo.validate}` (at {base[:12]}); nothing landed",
        hint=f"Run `{_show(project.root)}` to see the output. Fix {repo.default_branch}, or change "
        "repo.validate with `llmc config edit`; then run the command again.",
    )


def _said(branch: str, failed: FailingBase) -> str:
    return f"{branch} itself fails `{failed.command}` (at {failed.commit[:12]})"


def _show(root: Root) -> str:
    return f"less {shlex.quote(str(output_of(root)))}"
