"""`llmc doctor --rebuild`: a new state.json from worktrees, branches, sessions, task claims and the configuration.

The old file is kept. What only it recorded is lost: holds and which reverted commits a worker still has (if it cannot
be read), accepts in progress, and pending prompts.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.agents.kinds import reader_of
from llmc.agents.protocol import ClientState, ClientStatus, Transcript
from llmc.base import locks, processes
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, Refused, StateError
from llmc.base.files import read_text
from llmc.base.names import HEADER, TaskKey, WorkerName
from llmc.base.panes import Pane, Panes
from llmc.base.tmux import answered
from llmc.config.options import check_worker_name, is_auto_name
from llmc.doctor.rules.new_record import (
    Found,
    Rebase,
    assigned,
    is_over,
    keep_marks,
    owned,
    prompt_of_task,
    rebuilt,
    unknown,
)
from llmc.doctor.rules.records import task_in
from llmc.landing.prompts import task_of
from llmc.records.event_log import EventLog
from llmc.records.state import State
from llmc.records.store import NewerState
from llmc.records.task import Task
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, trash, uncommitted
from llmc.repo.project import Project, agent_for
from llmc.sessions import intake
from llmc.sessions.sessions import launched
from llmc.tasks.source import source_of
from llmc.tasks.task_list import believed_tasks


class Rebuilt(Struct, frozen=True):
    """The new records, the path of the old file, and what is unknown about each worker."""

    workers: list[WorkerRecord]
    kept: Path | None
    unknown: dict[str, list[str]]


def readable_state(project: Project) -> State | None:
    """The state; None if missing or broken. A state from a newer llmc is an error."""
    try:
        return project.store.read()
    except NewerState:
        raise
    except (StateError, NotFound):
        return None


def rebuild(project: Project) -> Rebuilt:
    """Collect the facts, set the old state.json aside, write a new one. Safe to repeat after a crash."""
    with _alone(project):
        panes = answered(project.tmux.panes())
        old = _old_workers(project)
        logged = list(EventLog(str(project.root.events)).all())
        found = [_find(project, name, _pane_of(name, panes), logged) for name in _names(project)]
        now = now_unix()
        records = [keep_marks(rebuilt(one, now), old.get(one.name)) for one in found]
        records = [replace(record, auto=is_auto_name(record.name)) for record in records]
        records = _with_tasks(project, records, now)
        kept = _name_for_the_old(project) if project.root.state.exists() else None
        project.store.start_anew(records, kept)
    return Rebuilt(records, kept, {one.name: said for one in found if (said := unknown(one))})


def _with_tasks(project: Project, records: list[WorkerRecord], now: float) -> list[WorkerRecord]:
    """Assign auto workers their tasks from the ledger or, if it is lost too, from the task files."""
    source = source_of(project)
    claims = source.books().claims
    tasks: dict[TaskKey, Task] = {}
    if source.list_name:
        for one in {source.list_name, *(claim.task.list for claim in claims.values() if claim.task.list)}:
            tasks |= {TaskKey(one, task.id): task for task in believed_tasks(source, one)}
    if source.lost_its_books:
        found = [claim for record in records if record.auto and (claim := owned(record, tasks)) is not None]
        for claim in found:
            source.write("claimed", claim)
        claims = {claim.worker: claim for claim in found}
    return [
        assigned(record, claims.get(record.name), tasks, now) if record.auto else record for record in records
    ]


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Keep daemons from starting, and refuse while a command uses a worker."""
    lock = project.root.lock("daemon")
    with locks.claim(lock) as ours:
        if not ours:
            raise Refused(
                f"cannot rebuild state.json: a daemon is running ({locks.holder(lock)})",
                hint="Run `llmc down`, then `llmc doctor --rebuild` again.",
            )
        for path in sorted(project.root.locks.glob("worker-*.lock")):
            if locks.is_locked(path):
                raise Refused(
                    f"cannot rebuild state.json: {path.stem.removeprefix('worker-')} is in use ({locks.holder(path)})",
                    hint="Wait for that command to finish, then run `llmc doctor --rebuild` again.",
                )
        yield


def _old_workers(project: Project) -> dict[WorkerName, WorkerRecord]:
    try:
        return project.store.read().workers
    except LlmcError:
        return {}


def _names(project: Project) -> list[WorkerName]:
    """Every worker with a worktree, and every configured name with a branch."""
    clone = project.root.path
    names = {
        entry.name
        for entry in _directories(project.root.worktrees)
        if git_dirs.is_worktree_of(Path(entry.path), clone)
    }
    names |= {name for name in project.config.workers if git.resolve(clone, f"refs/heads/llmc/{name}")}
    return [
        WorkerName(name) for name in sorted(names) if check_worker_name(name) is None or is_auto_name(name)
    ]


def _directories(path: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _pane_of(name: WorkerName, panes: Panes) -> Pane | None:
    """The pane of a worker's agent, not a shell that the user opened in its session."""
    return next((pane for pane in panes.values() if not pane.dead and launched(pane)[0] == name), None)


def _find(project: Project, name: WorkerName, pane: Pane | None, logged: list[dict[str, Any]]) -> Found:
    worktree = project.root.worktree(name)
    alive = pane is not None and not pane.dead
    environment = processes.environment(pane.pid) if pane is not None and alive else {}
    ours = environment.get("LLMC_WORKER") == name
    agent = agent_for(project)
    config_dir = agent.config_dir({**os.environ, **project.config.defaults.env, **environment})
    reader, said = reader_of(agent.name), ClientState()
    if pane is not None and ours:
        said = reader.state(config_dir, pane.pid)
    transcript = reader.find_transcript(config_dir, said.session, str(worktree))
    bare = Found(name, str(worktree), project.session(name), _made_at(worktree))
    git_facts = intake.git_facts(project, rebuilt(bare, now_unix()))
    prompt_id, sent = task_of_transcript(transcript) if transcript else ("", "")
    has_task = prompt_id and not is_over(logged, name, prompt_id)
    return replace(
        bare,
        alive=alive,
        instance=environment.get("LLMC_INSTANCE", "") if ours else "",
        agent=agent.name,
        config_dir=str(config_dir),
        contained=git_dirs.own_repo(worktree) is not None,
        busy=said.status is ClientStatus.BUSY,
        asks=said.status is ClientStatus.WAITING,
        claude_session_id=said.session or (transcript.session if transcript else None),
        transcript_path=str(transcript.path) if transcript else "",
        prompt=task_of(project, rebuilt(bare, now_unix()), prompt_id, sent) if has_task else "",
        task_prompt=prompt_of_task(logged, name, prompt_id),
        git=git_facts,
        rebase=_rebase(name, worktree) if git_facts is not None and git_facts.rebasing else None,
    )


def _made_at(worktree: Path) -> float:
    try:
        return (worktree / ".git").stat().st_mtime
    except OSError:
        return now_unix()


def task_of_transcript(transcript: Transcript) -> tuple[str, str]:
    """Id and text of the latest task that llmc sent; both "" if there is none."""
    prompts, _ = transcript.prompts(HEADER)
    return task_in([prompt.text for prompt in prompts])


def _rebase(name: str, worktree: Path) -> Rebase | None:
    """What git recorded when the rebase started; None if llmc did not start it."""
    paths = git.git_paths(worktree, "rebase-merge/orig-head", "rebase-merge/onto")
    before, onto = (read_text(path).strip() for path in paths)
    if not before or not onto:
        return None  # an `am`
    found = Rebase(before, onto, uncommitted.conflicted_files(worktree))
    pinned = ["for-each-ref", "--count=1", "--contains", found.before, f"{trash.PREFIX}{name}"]
    return found if git.out(worktree, *pinned) else None  # llmc pins what it rebases


def _name_for_the_old(project: Project) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return project.root.state.with_name(f"{project.root.state.name}.{stamp}-{os.urandom(2).hex()}.broken")
