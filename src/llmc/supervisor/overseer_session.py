"""The supervisor's own session: where its agent works, and that it runs and rests.

It is launched by the same functions as a worker's; only its record, inbox, locks and socket are its own
(`OverseerRoot`).
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, StateError
from llmc.base.files import private_dir
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane
from llmc.base.tmux import Unknown
from llmc.records.transitions import step
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project, for_overseer
from llmc.sessions import sessions
from llmc.workers import reset


def open_session(project: Project, say: Callable[[str], None]) -> str:
    """Start the supervisor's agent if none runs; the problem if it does not get ready."""
    with own_session(project) as own:
        return ready(own, say)


def close_session(project: Project) -> None:
    """End the supervisor's agent; only the supervisor itself does that."""
    with own_session(project) as own:
        sessions.end(own, OVERSEER, "the supervisor ended")


def main_directory(project: Project) -> tuple[Path, str]:
    """Where the supervisor's agent works: the checkout of the source; else the root, and why."""
    source = Path(project.source)
    if not source.is_dir():
        return project.root.path, f"{project.source} is not a directory here"
    if (source / ".git").exists():  # git itself is not asked: it may be what is broken
        return source, ""
    with contextlib.suppress(LlmcError):
        place = git.checked_out_at(source, project.config.repo.default_branch)
        if place is not None and place.is_dir():
            return place, ""
    return project.root.path, f"{source} has no checkout"


@contextmanager
def own_session(project: Project) -> Iterator[Project]:
    """The project as the supervisor's session has it, with a record of it, and nobody else at it."""
    own = for_overseer(project)
    private_dir(own.root.locks)
    with own.worker_lock(OVERSEER, timeout_s=10):
        _make_record(own)
        yield own


def _make_record(own: Project) -> None:
    try:
        own.store.worker(OVERSEER)
    except (NotFound, StateError):
        place, _ = main_directory(own)
        record = WorkerRecord(
            name=OVERSEER,
            worktree_path=str(place),
            branch="",
            session_id=own.session(OVERSEER),
            created_at_unix=now_unix(),
            auto=True,  # tools that wait for a person are of no use
        )
        state = own.root.state
        unreadable = state.with_name(f"{state.name}.unreadable-{int(now_unix())}") if state.exists() else None
        own.store.start_anew([record], unreadable)


def ready(own: Project, say: Callable[[str], None]) -> str:
    """A session that rests, without a word of an earlier turn; the problem if there is none."""
    sessions.reconcile(own, OVERSEER)
    place, why = main_directory(own)
    record, pane = look(own)
    fits = record.worktree_path == str(place) and reset.quieten(own, record, pane)
    if not fits:
        sessions.end(own, OVERSEER, "to be started anew")
    with own.store.transaction() as tx:
        found = tx.update(OVERSEER, delivery=None, current_prompt="", worktree_path=str(place))
        if found.status not in (Status.IDLE, Status.OFFLINE):
            found = tx.move(OVERSEER, step(Status.IDLE, "ready"))
        if not fits and found.status is Status.IDLE:
            tx.move(OVERSEER, step(Status.OFFLINE, "to be started anew"))
    if fits:
        return ""
    if why:
        say(f"the supervisor's agent works in {place}: {why}")
    sessions.start(own, OVERSEER)
    return sessions.wait_ready(own, OVERSEER, own.config.defaults.ready_timeout_s) or ""


def look(own: Project) -> tuple[WorkerRecord, Pane | None]:
    record = own.store.worker(OVERSEER)
    pane = own.pane(record)
    if isinstance(pane, Unknown):
        raise LlmcError(f"{record.session_id}: tmux gave no answer: {pane.reason}")
    return record, pane
