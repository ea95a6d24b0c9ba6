"""Probe a remote before machines land on it: try what its host allows, and leave no trace.

A probe uses only refs of its own root, beside the fence and of the same kind. The root's next probe removes what a
killed one left.
"""

import hashlib
import platform
import shlex
from pathlib import Path

from llmc.base.faults import step as fault_step
from llmc.repo import fence, git
from llmc.repo.fence import NotUsable
from llmc.repo.rules.fenced_push import Remote, Said


def probe(root: Path, remote: Remote) -> None:
    """Raise NotUsable with the remote's own reason, or RemoteGone. The caller holds the repo lock."""
    seen = fence.look(root, remote)
    fence.is_replaceable(root, remote, seen.fence)
    tip = seen.tip
    fence.fetch(root, remote, remote.head)
    mine = f"{remote.probe}-{_name(root)}"
    _remove(root, remote, mine)
    try:
        one, other = (fence.new_value(root, tip) for _ in range(2))
        _makes(root, remote, mine, one)
        with fault_step("probe.made"):
            _refuses_a_stale_push(root, remote, mine, one, other)
        _moves_two(root, remote, mine, one, other)
        reason = _moves_all_or_none(root, remote, mine, other)
        _allows_the_branch(root, remote, mine, tip, reason)
    finally:
        _remove(root, remote, mine)


def first_commits(root: Path, remote: Remote, base: str) -> list[str]:
    """The first commits of the remote's branch; NotUsable if it has no history in common with the root's `base`."""
    tip = fence.look(root, remote).tip
    fence.fetch(root, remote, remote.head)
    if git.merge_base(root, base, tip) is None:
        raise NotUsable(
            remote,
            "it is a different repository",
            f"its branch {remote.branch} has no history in common with this root",
            hint=f"To land there, create a root for it: llmc init --source {shlex.quote(remote.address)} --target DIR. "
            "Or set another remote: llmc config set fleet.remote URL",
        )
    return git.out(root, "rev-list", "--max-parents=0", tip).split()


def _name(root: Path) -> str:
    return hashlib.sha256(f"{platform.node()}\0{root}".encode()).hexdigest()[:16]


def _remove(root: Path, remote: Remote, mine: str) -> None:
    found = fence.listed(root, remote, f"{mine}*")
    if not found:
        return
    said = fence.send(root, remote, *(f":{ref}" for ref in found))
    if not said.ok:
        raise NotUsable(remote, "the remote does not let pushes delete refs", said.text)


def _makes(root: Path, remote: Remote, mine: str, one: str) -> None:
    said = fence.send(root, remote, f"{one}:{mine}")
    if said.refused:
        hint = "If the host allows only branches, use a new one as the fence: llmc config set fleet.fence_ref NAME"
        raise NotUsable(remote, f"the remote rejects refs like {mine}", said.text, hint=hint)
    if not said.ok:
        raise fence.RemoteGone(remote, said.text)


def _refuses_a_stale_push(root: Path, remote: Remote, mine: str, one: str, other: str) -> None:
    """A lease on a value that the ref does not have must stop the push."""
    stale = fence.send(root, remote, f"--force-with-lease={mine}:{other}", f"{other}:{mine}")
    if stale.ok or fence.listed(root, remote, mine).get(mine) != one:
        raise NotUsable(remote, "it ignores leases", "the remote accepted a push with a stale lease")


def _moves_two(root: Path, remote: Remote, mine: str, one: str, other: str) -> None:
    """Like a landing: the fence moves to a value that does not descend from the last, in one push with another ref."""
    lease = f"--force-with-lease={mine}:{one}"
    said = fence.send(root, remote, "--atomic", lease, f"{other}:{mine}", f"{one}:{mine}-beside")
    if not said.ok:
        raise NotUsable(remote, "the remote rejected an atomic push of two refs", said.text)


def _moves_all_or_none(root: Path, remote: Remote, mine: str, other: str) -> str:
    """Either all refs of a push must move, or none; returns how the remote reports that none did.

    A ref cannot also be a directory of refs, so the second ref of this push fails at the very end, after every hook.
    """
    said = _failing(root, remote, mine, f"{other}:{mine}-control")
    if said.ok or f"{mine}-control" in fence.listed(root, remote, f"{mine}*"):
        raise NotUsable(
            remote,
            "pushes are not atomic",
            "the remote updated some refs of a push that should have been rejected as a whole",
        )
    return said.refused.get(f"{mine}-control", "")


def _allows_the_branch(root: Path, remote: Remote, mine: str, tip: str, reason: str) -> None:
    """A failing push that includes the branch must fail for `reason` too, not because the branch is protected."""
    commit = git.git(
        *(root, "commit-tree", git.tree_of(root, tip), "-p", tip, "-m", "llmc probe; it never lands"),
        env=git.OWN_IDENTITY,
    ).stdout.strip()
    said = _failing(root, remote, mine, f"{commit}:{remote.head}")
    if said.unsent:
        return  # the branch moved meanwhile: others push to it
    if said.refused.get(remote.head, "") != reason:
        hint = "Let this user push to the branch, or use another remote: llmc config set fleet.remote URL"
        raise NotUsable(remote, f"the branch {remote.branch} is protected", said.text, hint=hint)


def _failing(root: Path, remote: Remote, mine: str, move: str) -> Said:
    return fence.send(root, remote, "--atomic", move, f"{move.partition(':')[0]}:{mine}/below")
