"""Apply hook events to the state: in order, each exactly once, under the worker's lock."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from llmc.agents import kinds
from llmc.agents.agent_events import PANE_DIED, AgentEvent, What
from llmc.agents.kinds import reader_of
from llmc.base import processes
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.faults import step as fault_step
from llmc.base.files import append_line, private_dir, read_text
from llmc.base.given import written_out
from llmc.base.names import ClaudeSessionId, TaskKey
from llmc.base.panes import Pane
from llmc.base.text import counted
from llmc.base.tmux import Unknown
from llmc.records import inbox
from llmc.records.hook_events import Malformed
from llmc.records.store import Transaction
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, uncommitted
from llmc.repo.project import Project
from llmc.repo.rules import conflicts
from llmc.sessions import leftovers
from llmc.sessions.rules import decide
from llmc.sessions.rules.decide import IGNORED

#: most rounds at once: an agent that writes events faster than they are applied must not block its worker
MOST_ROUNDS = 20
#: most ignored events of a round that are logged, and most with the same reason
MOST_TOLD, MOST_TOLD_ALIKE = 50, 5


def apply_pending(project: Project, name: str) -> WorkerRecord:
    """Apply a worker's inbox to its record; the caller holds the worker's lock."""
    for _ in range(MOST_ROUNDS):
        record = project.store.worker(name)
        waiting = kinds.waiting(project.root, name, record.agent)
        fresh = [event for event in waiting if event.id not in record.applied_events]
        facts = _observe(project, record, fresh)
        later = _for_later(record, fresh, facts)
        now = [event for event in fresh if event.id not in later]
        done = [event.id for event in waiting if event.id not in later]
        if now:
            record = _apply(project, record, now, facts, done)
        with fault_step("intake.forget"):
            inbox.forget(project.root, name, done)
        if later or not fresh:
            break
    return _of_contained(project, record) if record.contained else record


def _for_later(
    record: WorkerRecord, fresh: Sequence[AgentEvent | Malformed], facts: decide.Facts
) -> set[str]:
    """The events to leave in the inbox: the first that waits for git, and, to keep the order, those after it."""
    now = now_unix()
    for at, event in enumerate(fresh):
        if isinstance(event, AgentEvent) and decide.waits_for_git(record, event, facts, now):
            return {later.id for later in fresh[at:]}
    return set()


def _of_contained(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Record the hosts that a contained agent could not connect to, and report files that no hook writes."""
    from llmc.sessions import connections  # most agents are not contained

    _look_for_others(project, record)
    return connections.settle(project, record)


def _look_for_others(project: Project, record: WorkerRecord) -> None:
    """Tell the user about inbox files that no hook writes; they stay there until the next launch."""
    found = inbox.others(project.root, record.name)
    if found and _forged_key(record.name) not in project.store.read().attention:
        some = ", ".join(written_out(name)[:40] for name in sorted(found)[:3])
        with project.store.transaction() as tx:
            _tell_forged(tx, record.name, f"{counted(len(found), 'file')} ({some})")


def _tell_forged(tx: Transaction, name: str, what: str) -> None:
    """Tell the user once per launch: the agent may keep writing such files."""
    if _forged_key(name) in tx.state.attention:
        return
    text = f"the agent wrote data to its inbox that did not come from a hook; llmc ignored it: {what}"
    about = {"kind": "forged", "severity": "notice", "who": name}
    tx.raise_item(_forged_key(name), text=text, next=f"llmc events --worker {name}", **about)


def forget_forged(tx: Transaction, name: str) -> None:
    """Clear the item before a launch."""
    tx.clear_item(_forged_key(name))


def _forged_key(name: str) -> str:
    return f"forged:{name}"


def apply_exit(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Apply the exit of a dead pane that was seen before its hook; the hook itself then counts as stale."""
    seen = _seen(record, What.EXITED, PANE_DIED)
    facts = _observe(project, record, [seen])
    return _apply(project, record, [seen], facts, list(record.applied_events))


def apply_start(project: Project, record: WorkerRecord, session: ClaudeSessionId | None) -> WorkerRecord:
    """Apply a start that only the client's status file shows; changes nothing while git cannot be read.

    A contained agent could name any conversation there, so its own is known from its next hook.
    """
    reader, found = reader_of(record.agent), None
    if session and not record.contained:
        found = reader.find_transcript(Path(record.config_dir), session, record.worktree_path)
    seen = _seen(record, What.SESSION_STARTED, reader.hook_names[What.SESSION_STARTED])
    if found is not None:
        source = "resume" if session == record.claude_session_id else "startup"
        seen = replace(seen, session=session, transcript=str(found.path), source=source)
    facts = _observe(project, record, [seen])
    if facts.git is None:
        return record
    return _apply(project, record, [seen], facts, list(record.applied_events))


def _seen(record: WorkerRecord, what: What, name: str) -> AgentEvent:
    """An event of the current launch that llmc saw itself."""
    event_id = f"{time.time_ns()}-0.json"
    return AgentEvent(id=event_id, worker=record.name, instance=record.instance, what=what, name=name)


def git_facts(project: Project, record: WorkerRecord) -> decide.GitFacts | None:
    """Git facts of the worktree; None if the worktree cannot be read."""
    if not record.has_branch:
        return decide.NO_BRANCH
    worktree = Path(record.worktree_path)
    try:
        found = uncommitted.tree_state(worktree)
        if found.head is None:
            return None
        return decide.GitFacts(
            head=found.head,
            ahead=_ahead(project, worktree, found.head),
            dirty=not found.clean,
            rebasing=uncommitted.rebase_in_progress(worktree),
            on_base=not record.rebase_base or git.is_ancestor(worktree, record.rebase_base, "HEAD"),
            marked=_marked(worktree, record) if record.pre_rebase_sha else (),
        )
    except ToolFailed:
        return None


def unreadable(name: str) -> LlmcError:
    return LlmcError(
        f"cannot read {name}'s worktree",
        hint="Run the command again. If that fails too, run `llmc doctor`.",
    )


def _ahead(project: Project, worktree: Path, head: str) -> int:
    """How many commits HEAD is ahead of the base; usually none, which needs no git call."""
    if git.same_commit(worktree, head, project.base):
        return 0
    return git.divergence(worktree, project.base, "HEAD").ahead


def _marked(worktree: Path, record: WorkerRecord) -> tuple[str, ...]:
    """Conflicted files with more markers than either side had: a file may contain markers as text."""

    def committed(commit: str, name: str) -> int:
        done = git.git(worktree, "show", f"{commit}:{name}", check=False)
        return conflicts.marker_count(done.stdout) if done.ok else 0

    found = []
    for name in record.conflicted_files:
        here = conflicts.marker_count(read_text(worktree / name))
        if here and here > max(committed(record.rebase_base, name), committed(record.pre_rebase_sha, name)):
            found.append(name)
    return tuple(found)


def _apply(
    project: Project,
    record: WorkerRecord,
    fresh: Sequence[AgentEvent | Malformed],
    facts: decide.Facts,
    applied: list[str],
) -> WorkerRecord:
    """Apply these events in one transaction; `applied`: all ids in the inbox that are applied with it."""
    made = _tasks_made(project, record, fresh)
    told = _messages(record, fresh)
    name = record.name
    if any(decide.tells_an_end(record, event, facts) for event in fresh if isinstance(event, AgentEvent)):
        leftovers.end_with_its_agent(project, record)  # first: once it is offline, its launch is unknown
    ignored: Counter[str] = Counter()
    with fault_step("intake.apply"), project.store.transaction() as tx:
        facts = replace(facts, resumes=tx.state.auto.resumes)
        for event in fresh:
            if isinstance(event, Malformed):
                verdict = decide.unreadable(tx.worker(name), event)
                if record.contained:
                    _tell_forged(tx, name, event.problem)
            else:
                verdict = decide.judge(tx.worker(name), replace(event, **told.get(event.id, {})), facts)
                verdict = replace(verdict, details={"event": event.id, **verdict.details})
            if verdict.fields:
                tx.update(name, **verdict.fields)
            if verdict.action != IGNORED or _is_told(ignored, verdict.details["why"]):
                tx.emit(verdict.action, worker=name, **verdict.details)
            if event.id in made:
                _count(tx, name, *made[event.id])
            if verdict.change:
                tx.move(name, verdict.change)
        if more := ignored.pop("", 0):
            tx.emit(IGNORED, worker=name, why=f"{more} more events")
        after = tx.update(name, applied_events=tuple(applied))
    if after.status is Status.OFFLINE and after.reason == "crashed" != record.reason:
        keep_last_words(project, after)
    return after


def _is_told(ignored: "Counter[str]", why: str) -> bool:
    """Whether to log an ignored event; the events that are not logged are only counted, without a reason."""
    is_told = ignored[why] < MOST_TOLD_ALIKE and ignored.total() - ignored[""] < MOST_TOLD
    ignored[why if is_told else ""] += 1
    return is_told


def _tasks_made(
    project: Project, record: WorkerRecord, fresh: Sequence[AgentEvent | Malformed]
) -> dict[str, tuple[TaskKey, str, str]]:
    made = any(isinstance(event, AgentEvent) and event.what is What.TASK_MADE for event in fresh)
    if not made or not record.shares_the_list:
        return {}
    from llmc.tasks import worker_tasks  # saves 18 ms in most commands

    return worker_tasks.mark(project, record, fresh)


def _messages(record: WorkerRecord, fresh: Sequence[AgentEvent | Malformed]) -> dict[str, dict[str, Any]]:
    """By event: an agent's report with the message that it was made in.

    `llmc report` cannot tell: the conversation may have begun with an event that is still in the inbox.
    """
    found, path = {}, record.transcript_path
    for event in fresh:
        if not isinstance(event, AgentEvent):
            continue
        if event.what is What.SESSION_STARTED and decide.is_in_its_home(record, event):
            path = event.transcript or path
        if event.what is What.REPORTED and path:
            message = reader_of(record.agent).transcript(path).last_reply_id(event.at_unix)
            found[event.id] = {"told": {**event.told, "message_id": message}}
    return found


def _count(tx: Transaction, name: str, task: TaskKey, subject: str, hold: str) -> None:
    """Count a task made by the worker's session; report one that is held for the user."""
    at = tx.worker(name).assignment
    if at is not None:
        tx.update(name, assignment=replace(at, made=at.made + 1))
    if hold:
        tx.emit("task_proposed", worker=name, **task.fields(), subject=subject)


def _observe(
    project: Project, record: WorkerRecord, events: Sequence[AgentEvent | Malformed]
) -> decide.Facts:
    live = [e for e in events if isinstance(e, AgentEvent) and e.instance == record.instance]
    facts = git_facts(project, record) if any(decide.wants_git(e) for e in live) else None
    pane = project.pane(record) if any(e.what is What.EXITED for e in live) else None
    if not isinstance(pane, Pane):
        return decide.Facts(git=facts, agent_lives=isinstance(pane, Unknown))
    lives = not pane.dead and processes.is_alive(pane.pid)
    return decide.Facts(git=facts, exit_code=pane.exit_code, agent_lives=lives)


def keep_last_words(project: Project, record: WorkerRecord) -> None:
    """Copy the screen of a crashed agent into the worker's log, because the pane will be removed."""
    try:
        pane = project.pane(record)
        screen = project.tmux.capture(pane, history=200).rstrip() if isinstance(pane, Pane) else "(gone)"
    except LlmcError as error:
        screen = f"(cannot read the screen: {error.message})"
    log = project.root.log(record.name)
    private_dir(log.parent)
    text = f"--- {record.name}: {record.error_reason}; last lines of its screen:\n{screen}"
    append_line(log, text.encode(errors="surrogateescape"))
