"""The findings about one worker. Pure."""

from llmc.doctor.rules.facts import PaneState, Tree, WorkerFacts
from llmc.doctor.rules.findings import REPAIR, Finding, Kind
from llmc.doctor.rules.records import mends
from llmc.records.worker import BUSY, Status, WorkerRecord
from llmc.repo.rules.git_lock import STALE_LOCK_S

#: the agent itself stopped in the middle of something, and goes on when it is answered
_ASKS = ("question", "permission")


def worker_findings(worker: WorkerFacts, now: float, daemon_runs: bool) -> list[Finding]:
    """Everything wrong with a worker. While a command is at work on it, only what cannot be that command's doing."""
    name = worker.record.name
    found = [
        Finding(Kind.RECORD, mend.text, REPAIR, name, subject=mend.text, repairable=True)
        for mend in mends(worker, now)
    ]
    if worker.busy_with:
        return found
    found += [*_left_open(worker.record, daemon_runs), *_session(worker)]
    acts = [*_error(worker.record), *_tree(worker.record, worker.tree)]
    return found + [_unless_taken(finding, worker) for finding in acts]


def hands_off(worker: WorkerFacts, kind: Kind | None = None) -> str:
    """Why a repair must not touch a worker, and what to do first; "" when it may."""
    record = worker.record
    if record.held:
        return f"it is held; first `llmc release {record.name}`"
    if worker.attached:
        return "somebody is attached to it; detach first (C-b d, or C-b C-b d inside another tmux)"
    if record.accept is not None and kind is not Kind.INDEX_LOCK:  # the lock may be what keeps it from ending
        return f"its accept comes first: `llmc accept {record.name}`"
    if worker.pane is PaneState.UNKNOWN:
        return "tmux gave no answer; try again"
    return ""


def _unless_taken(finding: Finding, worker: WorkerFacts) -> Finding:
    reason = hands_off(worker, finding.kind)
    if not finding.repairable or not reason:
        return finding
    return Finding(finding.kind, finding.text, reason, finding.worker, finding.subject)


def _error(record: WorkerRecord) -> list[Finding]:
    if record.status is not Status.ERROR:
        return []
    return [
        Finding(Kind.WORKER_ERROR, f"is in error: {record.error_reason}", _mended(), record.name, "", True)
    ]


def _mended() -> str:
    return f"{REPAIR}: a clean start, its work is kept in the trash"


def _left_open(record: WorkerRecord, daemon_runs: bool) -> list[Finding]:
    """What a dead process left unfinished; a daemon would go on with it by itself."""
    if daemon_runs:
        return []
    name = record.name
    if record.accept is not None:
        stopped = f"stopped at the step {record.accept.step!r}"
        text = f"its accept {'waits for an answer' if record.accept.step == 'wait' else stopped}"
        return [Finding(Kind.ACCEPT_STOPPED, text, f"`llmc accept {name}` goes on with it", name)]
    if record.delivery is not None and record.delivery.outcome.open:
        text = f"the prompt {record.delivery.prompt_id} is pending, but no daemon is running"
        return [Finding(Kind.DELIVERY_STOPPED, text, "`llmc up --detach` delivers it", name)]
    return []


def _session(worker: WorkerFacts) -> list[Finding]:
    record = worker.record
    name = record.name
    runs = record.status.is_live
    found = []
    if runs and worker.pane is PaneState.NONE:
        text = f"is {record.status}, but its tmux pane is gone"
        found.append(Finding(Kind.SESSION_MISSING, text, REPAIR, name, "", True))
    elif runs and worker.pane is PaneState.DEAD:
        text = f"is {record.status}, but its agent has ended"
        found.append(Finding(Kind.SESSION_DEAD, text, REPAIR, name, "", True))
    elif record.status is Status.OFFLINE and worker.pane is PaneState.ALIVE and not record.instance:
        text = "is offline, but an agent runs in its session"
        found.append(Finding(Kind.SESSION_UNKNOWN, text, "`llmc up --detach` starts it again", name))
    if worker.pane is PaneState.ALIVE and worker.settings_problem:
        fix = f"{REPAIR}; it is in force from the agent's next start"
        found.append(Finding(Kind.HOOKS, worker.settings_problem, fix, name, "", True))
    return [_unless_held(finding, record) for finding in found]


def _unless_held(finding: Finding, record: WorkerRecord) -> Finding:
    if not record.held or not finding.repairable:
        return finding
    fix = f"it is held; first `llmc release {record.name}`"
    return Finding(finding.kind, finding.text, fix, finding.worker, finding.subject)


def _tree(record: WorkerRecord, tree: Tree | None) -> list[Finding]:
    name = record.name
    if tree is None:
        return []
    if not tree.exists:
        text = f"its worktree {record.worktree_path} is gone"
        fix = f"{REPAIR}: made again from its branch"
        return [Finding(Kind.WORKTREE_MISSING, text, fix, name, "", True)]
    if tree.problem:
        text = f"its worktree cannot be used: {tree.problem}"
        fix = f"`llmc console {name}` and mend it by hand; `llmc nuke {name}` keeps all of it in the trash"
        if tree.foreign:
            fix = f"{REPAIR}: linked to the clone again, its files stay"
        return [Finding(Kind.WORKTREE_BROKEN, text, fix, name, "", tree.foreign)]
    found = _index_lock(name, tree)
    if record.status is Status.ERROR or record.status in BUSY:
        return found  # the first is reset as a whole, the others are at work
    if tree.rebasing:
        return found + _rebase(record)
    return found + _place(record, tree)


def _index_lock(name: str, tree: Tree) -> list[Finding]:
    if tree.lock_age_s is None or tree.lock_in_use or tree.lock_age_s < STALE_LOCK_S:
        return []
    text = f"a git command that is gone left index.lock in its worktree, {_age(tree.lock_age_s)} ago"
    return [Finding(Kind.INDEX_LOCK, text, REPAIR, name, "", True)]


def _rebase(record: WorkerRecord) -> list[Finding]:
    asks = record.status is Status.NEEDS_INPUT and record.reason in _ASKS
    if record.status is Status.REBASING or record.pre_rebase_sha or asks:
        return []
    text = f"is {record.status}, but a rebase is in progress in its worktree, and nobody is at it"
    return [Finding(Kind.REBASE, text, f"{REPAIR}: pinned, then aborted", record.name, "", True)]


def _place(record: WorkerRecord, tree: Tree) -> list[Finding]:
    """A worker without a task is on its branch, and clean; one with work for review is on its branch."""
    name = record.name
    waits = record.status is Status.NEEDS_REVIEW
    idle = record.status.is_free
    fresh = record.status is Status.OFFLINE and not record.current_prompt and tree.ahead == 0
    if tree.branch != record.branch and (waits or idle or (fresh and not tree.dirty)):
        where = tree.branch or f"no branch, at {tree.head[:12]}"
        text = f"is {record.status}, but its worktree is on {where}, not on {record.branch}"
        if waits:
            fix = f"llmc message {name} 'Bring all your commits together on {record.branch}.'"
            return [Finding(Kind.WORKTREE_OFF_BRANCH, text, fix, name)]
        return [Finding(Kind.WORKTREE_OFF_BRANCH, text, _mended(), name, "", True)]
    rests = record.status is Status.IDLE or (record.status is Status.OFFLINE and not record.current_prompt)
    if rests and (what := _left_in(tree)):
        text = f"is {record.status}, but {what}"
        return [Finding(Kind.WORKTREE_DIRTY, text, _mended(), name, "", True)]
    return []


def _left_in(tree: Tree) -> str:
    if tree.operation:
        return f"a {tree.operation} is in progress in its worktree"
    if not tree.dirty:
        return ""
    more = f" and {len(tree.dirty) - 3} more" if len(tree.dirty) > 3 else ""
    return f"has uncommitted changes: {', '.join(tree.dirty[:3])}{more}"


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"
