"""Fenced pushes: the outcome of a push, from git's output and from what the remote has now. Pure.

The branch and the fence move together or not at all. Each push gives the fence a new value, so a push that was
prepared before another node moved the fence is refused.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from llmc.base.text import pattern
from llmc.records.landing_ledger import Entry

#: how long one git command may talk to the remote
LIMIT_S = 120.0
FENCE = "refs/llmc/fence"
WORK = "refs/llmc/work"
_REFUSED = "[remote rejected]"
#: the message of each value of a fence
MESSAGE = "llmc fence"
_VALUE = pattern(rf"{MESSAGE} [0-9a-f]{{32}}\n?")


class Remote(Struct, frozen=True):
    """The git remote on which several machines land."""

    address: str
    branch: str
    #: as in config.toml: a full ref, or a branch where the host allows nothing else
    fence_ref: str = FENCE
    limit_s: float = LIMIT_S

    @property
    def head(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def fence(self) -> str:
        return self.fence_ref if self.fence_ref.startswith("refs/") else f"refs/heads/{self.fence_ref}"

    @property
    def work(self) -> str:
        """The prefix of refs with unfinished work: beside the fence if the fence is a branch."""
        return f"{self.fence}-work" if self.fence.startswith("refs/heads/") else WORK

    @property
    def probe(self) -> str:
        """The prefix of refs that a probe makes and removes, of the same kind as the fence."""
        return f"{self.fence}-probe"

    @property
    def problem(self) -> str:
        """Why these refs cannot exist beside each other; "" if they can: llmc moves and removes all but the branch."""
        clash = next(
            (
                other
                for other in (self.head, self.work)
                if _contains(self.fence, other) or _contains(other, self.fence)
            ),
            self.head if _contains(self.work, self.head) or self.head.startswith(self.probe) else "",
        )
        return f"the fence {self.fence} and {clash} need different names" if clash else ""


def _contains(ref: str, other: str) -> bool:
    return f"{other}/".startswith(f"{ref}/")


class Seen(Struct, frozen=True):
    """The branch and the fence of a remote, read at once; "" for a ref that does not exist."""

    tip: str
    fence: str


class Landed(Struct, frozen=True):
    """The commit is on the branch."""


class Stale(Struct, frozen=True):
    """The fence moved and the branch did not: check again whether the work may land."""


class NotFastForward(Struct, frozen=True):
    """Other work landed: the commit must be made again on top of that work."""


class Declined(Struct, frozen=True):
    """The remote refused: a protected branch, or a hook."""

    reason: str


class Unknown(Struct, frozen=True):
    """The remote did not answer: the push may have landed, or still land."""

    reason: str


Outcome = Landed | Stale | NotFastForward | Declined | Unknown


class Said(Struct, frozen=True):
    """Git's report about a push."""

    ok: bool
    #: whether git sent nothing, because the push does not fit what the remote has
    unsent: bool = False
    #: why the remote refused each ref; empty if it did not answer
    refused: Mapping[str, str] = {}
    text: str = ""


def outcome_of(said: Said, seen: Seen, now: Seen | None, *, on_branch: bool) -> Outcome:
    """The outcome of a push. What the remote has now counts, not the messages of git or of a host.

    `now`: read after the push, None if the remote did not answer; `on_branch`: whether the branch has the commit then.
    """
    if said.ok or on_branch:
        return Landed()
    if now is None:
        return Unknown(said.text)
    if now.tip != seen.tip:
        return NotFastForward()
    if now.fence != seen.fence:
        return Stale()
    if said.unsent:
        return NotFastForward()
    if said.refused:
        return Declined(said.text)
    return Unknown(said.text)


def answer(ok: bool, porcelain: str, stderr: str) -> Said:
    """Parse the output of `git push --porcelain`."""
    rows = [line.split("\t") for line in porcelain.splitlines() if line.startswith("!\t")]
    refused = {
        row[1].partition(":")[2]: row[2].removeprefix(_REFUSED).strip().removeprefix("(").removesuffix(")")
        for row in rows
        if len(row) == 3 and row[2].startswith(_REFUSED)
    }
    reasons = "; ".join(sorted(set(refused.values())))
    words = " ".join(filter(None, (words_of_remote(stderr), f"({reasons})" if reasons else "")))
    return Said(ok, bool(rows) and not refused, refused, words or stderr.strip()[-600:])


def is_own_value(commit: str, empty_tree: str) -> bool:
    """Whether a fence may be replaced: this is a commit that only llmc makes. `commit`: its object, as git stores it."""
    headers, _, message = commit.partition("\n\n")
    tree, *more = headers.split("\n")
    is_first = not any(line.startswith("parent ") for line in more)
    return tree == f"tree {empty_tree}" and is_first and _VALUE.fullmatch(message) is not None


def words_of_remote(stderr: str) -> str:
    """What the remote itself printed, for the user."""
    lines = [
        line.removeprefix("remote:").strip() for line in stderr.splitlines() if line.startswith("remote:")
    ]
    return "\n".join(line for line in lines if line)[:600]


def newest_standing(commits: Sequence[str], entries: Iterable[Entry]) -> Entry | None:
    """The newest landing that was not undone; `commits`: those of the branch, newest first.

    The order of the branch counts: two machines may write their entries in a different order.
    """
    by_commit = {entry.commit: entry for entry in entries}
    landed = [by_commit[commit] for commit in commits if commit in by_commit]
    undone = {entry.reverts for entry in landed if entry.reverts}
    return next((entry for entry in landed if not entry.reverts and entry.commit not in undone), None)


def earlier_commits(entries: Sequence[Entry], token: int) -> dict[str, list[str]]:
    """Commits that earlier holders of a task may have landed, newest first; each with reverts that may have landed too.

    `token`: that of the current holder.
    """
    earlier = [entry for entry in entries if not entry.reverts and entry.token < token]
    return {
        entry.commit: [other.commit for other in entries if other.reverts == entry.commit]
        for entry in sorted(earlier, key=lambda entry: entry.token, reverse=True)
    }
