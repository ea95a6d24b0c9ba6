"""Accept, rebase, pick and undo, each with its locks. `accept` and `undo` wake the daemon.

`accept` starts checking the source before it imports the rest, to keep `llmc accept` fast.
"""

from typing import TYPE_CHECKING

from llmc.base.errors import Refused, UsageError
from llmc.landing.accept_journal import CHANGED as CHANGED
from llmc.landing.accept_journal import Accepted as Accepted
from llmc.landing.accept_journal import NotAsked as NotAsked
from llmc.landing.accept_journal import Progress as Progress
from llmc.landing.accept_journal import Unseen as Unseen
from llmc.landing.accept_journal import Waiting as Waiting
from llmc.landing.default_branch import Ahead
from llmc.records.worker import Seen, Status
from llmc.repo import git
from llmc.repo.project import Project, subjects
from llmc.repo.trash import short as short

if TYPE_CHECKING:
    from llmc.landing.pick import Picked
    from llmc.landing.rebase import Rebased
    from llmc.landing.undo import Target as Target
    from llmc.landing.undo import Undone


def accept(
    project: Project,
    name: str,
    progress: Progress,
    *,
    only_seen: bool = False,
    agreed: Seen | None = None,
    asked: str = "",
) -> Accepted:
    """Land a worker's changes; with `only_seen`, raise `Unseen` if they differ from what the user reviewed.

    `agreed`: the change from an earlier `Unseen`, if the user agreed to land it. `asked`: the only commit of the worker
    that may land.

    Resumes an interrupted accept. Wakes the daemon to rebase workers that are now behind.
    """
    with Ahead(project) as ahead:
        if project.store.worker(name).status is Status.NEEDS_REVIEW:
            ahead.begin()
        from llmc.landing import accept as landing
        from llmc.landing import rebase as rebasing

        with project.accept_lock(name), project.worker_lock(name):
            done = landing.accept(
                project, name, progress, only_seen=only_seen, agreed=agreed, asked=asked, ahead=ahead
            )
    rebasing.wake_queued(project)
    return done


def after_interrupt(project: Project, name: str) -> str:
    """After Ctrl-C: whether the change landed, as text for the user."""
    record = project.store.worker(name)
    if record.accept is not None:
        return f"the change may have landed; run `llmc accept {name}` to finish"
    if record.status is Status.NEEDS_REVIEW:
        return "nothing landed"
    return f"run `llmc events --worker {name}` to see whether the change landed"


def next_to_accept(project: Project) -> str:
    """The worker reviewed last, if it is still waiting for review; else the only one waiting."""
    from llmc.workers.patrol import catch_up
    from llmc.workers.start import reviewed_last

    catch_up(project)
    state = project.store.read()
    last = reviewed_last(state)
    if last is not None and last.status is Status.NEEDS_REVIEW:
        return last.name
    waiting = [r.name for r in state.workers.values() if r.status is Status.NEEDS_REVIEW]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise Refused(
            "nothing to accept: no worker is waiting for review", hint="Run `llmc status` to see all workers."
        )
    raise UsageError(
        f"no worker specified, and several are waiting for review: {', '.join(waiting)}",
        hint=f"Run `llmc review` first, or specify a worker: llmc accept {waiting[0]}",
    )


def rebase(project: Project, name: str) -> "Rebased":
    """Rebase a worker onto the latest default branch; conflicts go to the worker and are raised."""
    from llmc.landing import rebase as rebasing

    project.store.worker(name)
    with project.worker_lock(name):
        return rebasing.rebase(project, name)


def pick(project: Project, name: str, branch: str) -> "Picked":
    """Copy a worker's commits to a new branch in the source repository."""
    from llmc.landing import pick as picking

    project.store.worker(name)
    with project.worker_lock(name):
        return picking.pick(project, name, branch)


def what_lands(project: Project, name: str, commit: str) -> str:
    """What accepting this commit would land: its subject, and how many commits it squashes; "" if nothing lands."""
    from llmc.landing import merging, rules

    base = git.resolve(project.root.path, project.base)
    work = merging.work_of(project, name, base, commit) if base and commit else None
    if work is None or not work.commits:
        return ""
    subject, newest = rules.subject(work.message), rules.subject(work.commits[-1].message)
    return subject if len(work.commits) == 1 else f"{subject} ({len(work.commits)} commits, newest: {newest})"


def subject_of(project: Project, target: "Target") -> str:
    """The subject of the commit that an undo would revert; the first line of its prompt if git does not know it."""
    from llmc.api.views import first_line

    return subjects(project, [target.commit]).get(target.commit) or first_line(target.prompt)


def undo_target(project: Project) -> "Target":
    """What an undo would revert."""
    from llmc.landing.undo import target

    return target(project)


def undo(project: Project, target: "Target") -> "Undone":
    """Revert a landed change, and reopen its task or plan item."""
    from llmc.goals.work import open_again
    from llmc.landing import rebase as rebasing
    from llmc.landing import undo as undoing

    done = undoing.undo(project, target.commit, open_again)
    rebasing.wake_queued(project)
    return done
