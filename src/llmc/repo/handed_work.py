"""Hands unfinished work from one machine to the next through the remote.

A holder that loses its task, or gives it up, pushes its commits to `refs/llmc/work/<hash of list and id>/<token>`.
Commits that cannot be pushed stay under a ref here and are pushed later. The next holder fetches the newest.

The push that lands the task removes these refs. A ref pushed at the same moment would stay, so each machine remembers
what it offered, and withdraws it once the task is completed.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path

from llmc.base.faults import step as fault_step
from llmc.base.names import TaskKey
from llmc.repo import fence, git
from llmc.repo.rules.fenced_push import Remote

#: refs in the clone: work to push, work that this machine has pushed, and work fetched from the remote
_UNSENT = "refs/llmc/unsent"
_OFFERED = "refs/llmc/offered"
_HANDED = "refs/llmc/handed"


def name_of(task: TaskKey) -> str:
    """The name of a task in a ref, a hash: lists and ids may contain any character."""
    return hashlib.sha256(f"{task.list}\0{task.id}".encode()).hexdigest()[:40]


def place_of(remote: Remote, task: TaskKey) -> str:
    """The prefix of the remote's refs with work on a task; each ends with a token."""
    return f"{remote.work}/{name_of(task)}"


def offer(root: Path, remote: Remote, task: TaskKey, token: int, commit: str) -> bool:
    """Offer commits to the next holder; False if the push failed: they stay here until one succeeds."""
    git.git(root, "update-ref", f"{_UNSENT}/{name_of(task)}/{token}", commit)
    return send_unsent(root, remote)


def send_unsent(root: Path, remote: Remote) -> bool:
    """Push work that could not be pushed before; returns whether nothing is left."""
    unsent = git.refs(root, _UNSENT, "refname", "objectname")
    if not unsent:
        return True
    moves = [f"+{commit}:{remote.work}{ref.removeprefix(_UNSENT)}" for ref, commit in unsent]
    with fault_step("handed.push"):
        said = fence.send(root, remote, *moves)
    if said.ok:
        for ref, commit in unsent:
            git.git(root, "update-ref", f"{_OFFERED}{ref.removeprefix(_UNSENT)}", commit)
        _drop(root, unsent)
    return said.ok


def offered(root: Path) -> set[str]:
    """The names of tasks whose work this machine has offered or will offer."""
    return {ref.split("/")[3] for place in (_UNSENT, _OFFERED) for (ref,) in git.refs(root, place, "refname")}


def withdraw(root: Path, remote: Remote, names: Collection[str]) -> None:
    """Remove all nodes' work on these tasks from the remote, and the refs for it from here."""
    said = fence.send(
        root, remote, "--prune", *(fence.nothing_below(f"{remote.work}/{name}") for name in names)
    )
    if said.ok:
        for name in names:
            _forget(root, name)


def newest(root: Path, remote: Remote, task: TaskKey) -> str | None:
    """The newest unfinished work on a task, fetched; None if there is none."""
    found = _on_remote(root, remote, task)
    if not found:
        return None
    ref = max(found, key=lambda name: int(name.rpartition("/")[2]))
    here = f"{_HANDED}/{name_of(task)}"
    fence.fetch(root, remote, f"+{ref}:{here}")
    return git.resolve(root, here)


def forget(root: Path, task: TaskKey) -> None:
    """Drop the refs of a task here; the push that landed it removed them from the remote."""
    _forget(root, name_of(task))


def _forget(root: Path, name: str) -> None:
    for place in (_UNSENT, _OFFERED, _HANDED):
        _drop(root, git.refs(root, f"{place}/{name}", "refname", "objectname"))


def _on_remote(root: Path, remote: Remote, task: TaskKey) -> dict[str, str]:
    found = fence.listed(root, remote, f"{place_of(remote, task)}/*")
    return {ref: commit for ref, commit in found.items() if ref.rpartition("/")[2].isdecimal()}


def _drop(root: Path, refs: list[tuple[str, ...]]) -> None:
    for ref, commit in refs:
        git.git(root, "update-ref", "-d", ref, commit, check=False)  # it may have moved since
