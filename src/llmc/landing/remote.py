"""Land on a remote that several machines share: the ledger first, then a fenced push, then a fetch as the proof.

If a machine dies or falls asleep halfway, the next one settles it: `take_over` moves the fence, and what has not landed
by then never will.
"""

import shlex
from typing import assert_never

from llmc.base.errors import LlmcError, ToolFailed, Unreachable
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskKey
from llmc.landing import default_branch, ways
from llmc.records.landing_ledger import Entry
from llmc.repo import fence, git, handed_work, lfs, provision
from llmc.repo.project import Project, Shared
from llmc.repo.rules.fenced_push import (
    Declined,
    Landed,
    NotFastForward,
    Outcome,
    Stale,
    Unknown,
    earlier_commits,
    newest_standing,
)

#: how often the fence may move, but not the branch, while one commit lands
TRIES = 20
#: how many commits back an undo looks for the newest landing
LOOK_BACK = 2000
#: the name under which the source's own branch follows; not a valid worker name
FOLLOW = "_follow"


class RemoteLanding:
    """Lands at once, or waits until the remote and the ledger answer."""

    def __init__(self, shared: Shared) -> None:
        self.remote, self.ledger = shared.remote, shared.ledger

    def agree(self) -> None:
        """Refuse to land apart from the other nodes: a fence stops only pushes that move the same one."""
        fence_ref, branch = self.ledger.agree(self.remote.fence, self.remote.branch)
        for key, own, of_fleet in (
            ("fleet.fence_ref", self.remote.fence, fence_ref),
            ("repo.default_branch", self.remote.branch, branch),
        ):
            if own != of_fleet:
                raise fence.NotUsable(
                    self.remote,
                    "this node lands apart from the others",
                    f"{key} is {own} here, and {of_fleet} in the fleet",
                    hint=f"Run `llmc config set {key} {shlex.quote(of_fleet)}`. To change it for the whole fleet, remove every node first, with `llmc fleet leave NODE`.",
                )

    def begin(self, project: Project, offer: ways.Offer) -> ways.Landed | ways.Waits:
        ref = default_branch.keep(project, offer.worker, offer.commit)
        try:
            self._send_large_files(project, ref)
            return self._land(project, offer)
        except Unreachable as gone:
            return self._waits(offer, gone.message)
        except fence.NotUsable as error:
            raise default_branch.SourceBusy(error.message, hint=error.hint) from error

    def _send_large_files(self, project: Project, ref: str) -> None:
        try:
            lfs.send(project, ref, project.upstream)
        except ToolFailed as error:
            raise fence.RemoteGone(self.remote, error.stderr or error.message) from error

    def poll(
        self, project: Project, offer: ways.Offer, receipt: str
    ) -> ways.Landed | ways.Waits | ways.SentBack | ways.NotLanded:
        try:
            has_landed = self.verify(project, offer.commit)
        except (Unreachable, fence.RemoteRefused, fence.NotUsable) as error:
            return self._waits(offer, error.message)
        return ways.Landed(offer.commit) if has_landed else ways.NotLanded()

    def verify(self, project: Project, commit: str) -> bool:
        """Whether the commit landed. False is final: the moved fence refuses a push that is still on its way."""
        if default_branch.is_landed(project, commit):
            return True
        self.agree()
        fence.move(project.root.path, self.remote)
        return default_branch.is_landed(project, commit)

    def spread(self, project: Project, offer: ways.Offer) -> str | None:
        """Drop the unfinished work of the commit's task, and fast-forward the source's own branch."""
        if offer.task is not None:
            handed_work.forget(project.root.path, offer.task)
        follow(project)
        return None

    def _land(self, project: Project, offer: ways.Offer) -> ways.Landed | ways.Waits:
        self.agree()
        root, old_work = (
            project.root.path,
            handed_work.place_of(self.remote, offer.task) if offer.task else "",
        )
        # Before the token is checked: a machine that takes the task over in between moves the fence.
        seen = fence.last_seen(root, self.remote)
        for _ in range(TRIES):
            if seen.tip != offer.base:
                raise default_branch.BaseMoved
            self._enter(offer)
            with fault_step("remote.push"):
                outcome = fence.push(root, self.remote, seen, offer.commit, removing=old_work)
            if answer := self._meaning(offer, outcome):
                return answer
            seen = fence.look(root, self.remote)
        return self._waits(offer, f"{self.remote.address} kept changing during the push")

    def _enter(self, offer: ways.Offer) -> None:
        with fault_step("remote.enter"):
            self.ledger.enter(
                Entry(
                    commit=offer.commit,
                    worker=offer.worker,
                    task=offer.task,
                    token=self.ledger.token_of(offer.claim) if offer.task is not None else 0,
                    prompt=offer.prompt,
                    reverts=offer.reverts,
                )
            )

    def _meaning(self, offer: ways.Offer, outcome: Outcome) -> ways.Landed | ways.Waits | None:
        """The answer for the outcome of a push; None: try again."""
        match outcome:
            case Landed():
                return ways.Landed(offer.commit)
            case NotFastForward():
                raise default_branch.BaseMoved
            case Stale():
                return None
            case Declined(reason):
                refused = fence.RemoteRefused(self.remote, reason)
                raise default_branch.SourceBusy(refused.message, hint=refused.hint)
            case Unknown(reason):
                return self._waits(offer, reason)
            case _:
                assert_never(outcome)

    def _waits(self, offer: ways.Offer, why: str) -> ways.Waits:
        return ways.Waits(offer.commit, f"the remote ({why})")


def take_over(project: Project, task: TaskKey, claim: str) -> str:
    """The commit that an earlier holder of the task landed, if not undone; "": there is none, and none will come."""
    shared = project.shared
    if shared is None:
        return ""
    token = shared.ledger.token_of(claim)
    # Nothing is pushed without an entry, and an old token cannot make one.
    earlier = earlier_commits(shared.ledger.entered(task), token)
    way = RemoteLanding(shared)
    for commit, reverts in earlier.items():
        if way.verify(project, commit) and not any(way.verify(project, revert) for revert in reverts):
            return commit
    return ""


def follow(project: Project) -> None:
    """Fast-forward the source's own branch to what landed, unless something of the user's is in the way."""
    if project.upstream == project.source:
        return
    root, here = project.root.path, provision.source_tip(project)
    tip = git.resolve(root, project.base)
    if here is None or tip is None or here == tip:
        return
    try:
        if git.is_ancestor(root, here, tip):
            with default_branch.merge_lock(project), fault_step("remote.follow"):
                default_branch.land(project, FOLLOW, tip, here)
    except (LlmcError, default_branch.BaseMoved):
        return  # commits of its own, uncommitted changes, or a branch that moves: the next landing tries again


def newest_landing(project: Project, shared: Shared) -> Entry | None:
    """The newest landing on the branch, by any machine, that was not undone."""
    provision.refresh_base(project)
    log = git.out(project.root.path, "rev-list", "--first-parent", f"--max-count={LOOK_BACK}", project.base)
    commits = log.split()
    return newest_standing(commits, shared.ledger.among(commits))
