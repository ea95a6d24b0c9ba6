"""Move the branch of a shared remote behind a fence; repo/rules/fenced_push.py interprets the remote's answers.

To land work: read the fence (`look`), check that this machine still holds the work, then push (`push`). A check before
the fence is read would miss a takeover in between.
To take over work: become its holder, move the fence (`move`), then fetch. Whatever has not landed by then never will.

A fence is moved by force, so llmc replaces only its own values: any other ref under that name is somebody's work.
"""

import os
import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

from llmc.base.errors import LlmcError, Refused, ToolFailed, Unreachable
from llmc.base.faults import step as fault_step
from llmc.base.text import pattern
from llmc.repo import git
from llmc.repo.rules.fenced_push import (
    MESSAGE,
    Landed,
    Outcome,
    Remote,
    Said,
    Seen,
    Stale,
    answer,
    is_own_value,
    outcome_of,
)

#: the fence at the last fetch
_SEEN = "refs/llmc/seen-fence"
_NOTHING = "refs/llmc/nothing"
_NEW_NAME = "Choose a name that no ref has, on all nodes: llmc config set fleet.fence_ref NAME"
_LISTED = pattern(r"^([0-9a-f]+)\t(\S+)$", re.MULTILINE)


class RemoteGone(Unreachable):
    """The remote does not answer."""

    def __init__(self, remote: Remote, why: str) -> None:
        last = why.strip().rpartition("\n")[2]
        super().__init__(
            f"{remote.address} is not responding: {last}",
            hint=f"Try: git ls-remote {shlex.quote(remote.address)}",
        )


class RemoteRefused(Refused):
    """The remote refused a push; nothing was changed."""

    def __init__(self, remote: Remote, reason: str) -> None:
        super().__init__(
            f"{remote.address} rejected the push: {reason}",
            hint="Fix the problem that the remote reports, then run the command again.",
        )


class NotUsable(Refused):
    """Machines cannot land on this remote safely."""

    def __init__(self, remote: Remote, what: str, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{remote.address} cannot be shared: {what}: {reason}",
            hint=hint or "Change the remote's settings, or use another: llmc config set fleet.remote URL",
        )


def look(root: Path, remote: Remote) -> Seen:
    """The remote's branch and fence."""
    found = listed(root, remote, remote.head, remote.fence)
    if remote.head not in found:
        raise LlmcError(
            f"{remote.address} has no branch {remote.branch!r}",
            hint=f"Push it first: git push {shlex.quote(remote.address)} {shlex.quote(remote.branch)}",
        )
    return Seen(found[remote.head], found.get(remote.fence, ""))


def listed(root: Path, remote: Remote, *names: str) -> dict[str, str]:
    """The remote's refs that match these names, which may contain a `*`, and their commits."""
    try:
        said = git.git(root, "ls-remote", remote.address, *names, timeout_s=remote.limit_s).stdout
    except ToolFailed as error:
        raise RemoteGone(remote, error.stderr or error.message) from error
    # git compares only the end of a name, so it also lists other refs with the same end.
    rows = _LISTED.findall(said)
    return {ref: at for at, ref in rows if any(fnmatchcase(ref, name) for name in names)}


def fetch_seen(root: Path, remote: Remote) -> None:
    """Fetch the branch and the fence; the caller holds the repo lock."""
    try:
        try:
            _fetch_both(root, remote)
        except ToolFailed:
            if look(root, remote).fence:
                raise
            move(root, remote)  # the first landing
            _fetch_both(root, remote)
    except ToolFailed as error:
        raise RemoteGone(remote, error.stderr or error.message) from error
    is_replaceable(root, remote, git.resolve(root, _SEEN) or "")


def _fetch_both(root: Path, remote: Remote) -> None:
    git.fetch(root, remote.address, remote.branch, f"+{remote.fence}:{_SEEN}", timeout_s=remote.limit_s)


def is_replaceable(root: Path, remote: Remote, value: str) -> bool:
    """Whether this machine may replace the fence; NotUsable if its value is not llmc's. False: it has moved since.

    Each replacement has a lease on the value that was looked at here.
    """
    if remote.problem:
        raise NotUsable(remote, "fleet.fence_ref is not usable", remote.problem, hint=_NEW_NAME)
    if not value:
        return True
    commit = _commit(root, value)
    if commit is None:
        fetch(root, remote, remote.fence)
        commit = _commit(root, value)
    if commit is not None and not is_own_value(commit, git.empty_tree(value)):
        reason = f"llmc did not create {remote.fence}, and would overwrite it"
        raise NotUsable(remote, "fleet.fence_ref is not usable", reason, hint=_NEW_NAME)
    return commit is not None


def _commit(root: Path, value: str) -> str | None:
    """A commit as git stores it; None if the repository does not have it."""
    done = git.git(root, "cat-file", "commit", value, check=False, encoding="latin-1")
    return done.stdout if done.ok else None


def last_seen(root: Path, remote: Remote) -> Seen:
    """The branch and fence at the last fetch. If one has moved since, a push is refused and does no harm."""
    tip, fence = (git.resolve(root, ref) for ref in (f"refs/remotes/origin/{remote.branch}", _SEEN))
    return Seen(tip, fence) if tip and fence else look(root, remote)


def push(root: Path, remote: Remote, seen: Seen, commit: str, *, removing: str = "") -> Outcome:
    """Move the branch to a commit on top of `seen.tip`, unless the fence has moved since `seen`.

    `removing`: the same push removes the remote's refs below this one.
    """
    if not is_replaceable(root, remote, seen.fence):
        return Stale()
    fresh = new_value(root, commit)
    said = send(
        root,
        remote,
        *("--atomic", f"--force-with-lease={remote.fence}:{seen.fence}"),
        *(f"{commit}:{remote.head}", f"{fresh}:{remote.fence}"),
        *(("--prune", nothing_below(removing)) if removing else ()),
    )
    if said.ok:
        return Landed()
    try:
        now = look(root, remote)
        on_branch = now.fence == fresh or has(root, remote, now.tip, commit, known=seen.tip)
    except RemoteGone:
        return outcome_of(said, seen, None, on_branch=False)
    return outcome_of(said, seen, now, on_branch=on_branch)


def nothing_below(place: str) -> str:
    """A refspec for `--prune` that removes all refs below `place`: none of them has a counterpart here."""
    return f"{_NOTHING}/*:{place}/*"


def move(root: Path, remote: Remote) -> None:
    """Move the fence, so that the remote refuses every push prepared until now.

    If another node moves the fence first, the effect is the same: those pushes do not know its value either.
    """
    seen = look(root, remote)
    if not is_replaceable(root, remote, seen.fence):
        return
    fresh = new_value(root, seen.tip)
    with fault_step("fence.move"):
        said = send(
            root, remote, f"--force-with-lease={remote.fence}:{seen.fence}", f"{fresh}:{remote.fence}"
        )
    if said.ok or look(root, remote).fence != seen.fence:
        return
    raise RemoteRefused(remote, said.text) if said.refused else RemoteGone(remote, said.text)


def has(root: Path, remote: Remote, tip: str, commit: str, *, known: str = "") -> bool:
    """Whether the remote's branch, now at `tip`, has the commit; `known`: a tip that does not have it."""
    if tip in (known, commit):
        return tip == commit
    fetch(root, remote, remote.head)
    return git.has_commit(root, commit) and git.is_ancestor(root, commit, tip)


def fetch(root: Path, remote: Remote, refspec: str) -> None:
    """Fetch from the remote; without a target in the refspec, fetch only the objects."""
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    try:
        git.git(root, "fetch", *flags, remote.address, refspec, timeout_s=remote.limit_s)
    except ToolFailed as error:
        raise RemoteGone(remote, error.stderr or error.message) from error


def send(root: Path, remote: Remote, *args: str) -> Said:
    """Push once; returns the remote's answer for each ref."""
    flags = [word for word in args if word.startswith("--")]
    refs = [word for word in args if not word.startswith("--")]
    try:
        done = git.git(
            root,
            *("push", "--porcelain", *flags, remote.address, *refs),
            check=False,
            timeout_s=remote.limit_s,
        )
    except ToolFailed as error:
        return Said(ok=False, text=error.message)
    return answer(done.ok, done.stdout, done.stderr)


def new_value(root: Path, like: str) -> str:
    """Create a value that the fence never had; `like`: any commit of the repository.

    Each push needs a new value: git does not send an unchanged ref, so the remote would compare nothing.
    """
    message = f"{MESSAGE} {os.urandom(16).hex()}"
    return git.git(
        root, "commit-tree", git.empty_tree(like), "-m", message, env=git.OWN_IDENTITY
    ).stdout.strip()
