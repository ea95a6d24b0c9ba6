"""Start a review: rebase the worker's commits onto the latest default branch first, unless that would disturb it."""

from msgspec.structs import replace

from llmc.base.errors import LlmcError
from llmc.base.panes import Pane
from llmc.landing import rebase, review
from llmc.landing.review import Review
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import intake


def begin(project: Project, name: str) -> Review:
    """A worker's work for review."""
    # Shown immediately, without the lock: an accept or an agent may hold it for long.
    record = project.store.worker(name)
    nobody_else_validates = rebase.must_validate(record) and not project.daemon_runs()
    if not (_waits(record) or record.status is Status.OFFLINE or nobody_else_validates):
        return review.look_so_far(project, record)
    with project.worker_lock(name):
        record = intake.apply_pending(project, name)
        if rebase.must_validate(record):
            record = rebase.settle(project, name)
        if record.status is Status.OFFLINE:
            return _of_an_offline_worker(project, record)
        if not _waits(record):
            return review.look_so_far(project, record)
        problem = _rebase_first(project, record)
        seen = review.look(project, project.store.worker(name))
        return replace(seen, not_rebased=problem if seen.behind else "")


def _waits(record: WorkerRecord) -> bool:
    return record.status is Status.NEEDS_REVIEW and record.accept is None


def _of_an_offline_worker(project: Project, record: WorkerRecord) -> Review:
    """Offline with commits: they can be shown, but no agent could resolve conflicts now."""
    seen = review.look(project, record)
    if not seen.ahead:
        return review.look_so_far(project, record)
    return replace(seen, not_rebased=f"{record.name} is offline" if seen.behind else "")


def _rebase_first(project: Project, record: WorkerRecord) -> str:
    """Why it was not rebased; "" if it was or need not be. Conflicts go to the worker and end the review."""
    pane = project.pane(record)
    if not isinstance(pane, Pane) or pane.dead:
        return f"{record.name}'s agent is not running"
    try:
        found = rebase.keep_rebased(project, record.name)
    except LlmcError as problem:
        return problem.message.splitlines()[0]
    if found is not None:
        raise _for_a_reviewer(found, record.name)
    return ""


def _for_a_reviewer(found: LlmcError, name: str) -> LlmcError:
    if isinstance(found, rebase.Conflict):
        found.hint = found.hint.replace("llmc accept", "llmc review")
    return found
