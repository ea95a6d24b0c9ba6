"""The findings about what a fleet meets when nobody watches it: locks, claims, notes, a daemon that is not itself. Pure."""

from llmc.doctor.rules.facts import DaemonFacts, Facts, StateFile, Unusable
from llmc.doctor.rules.findings import REPAIR, Finding, Kind
from llmc.repo.rules.git_lock import GitLock

#: heartbeats come every 5 s
HEARTBEAT_LATE_S = 60.0


def unattended_findings(facts: Facts) -> list[Finding]:
    """Everything of this kind."""
    found = [*_canary(facts), *daemon_findings(facts.daemon), *_supervisor(facts), *_tasks(facts)]
    found += [finding for lock in facts.git_locks for finding in _lock(lock)]
    return found + [_unusable(path) for path in facts.unusable]


def is_overwritten(facts: Facts) -> bool:
    """Whether state.json is valid and has no workers, though the log and the worktrees know some."""
    there = {stray.name for stray in facts.strays if stray.is_worktree}
    return facts.state.kind is StateFile.VALID and not facts.workers and bool(there & set(facts.remembered))


def daemon_findings(daemon: DaemonFacts) -> list[Finding]:
    """A daemon that runs, but not as it should."""
    if not daemon.runs:
        return []
    found = []
    if daemon.other_pid:
        text = (
            f"daemon.json names another process ({daemon.other_pid}) than the one that runs: {daemon.holder}"
        )
        fix = "end that one by its pid, then `llmc up --detach`"
        found.append(Finding(Kind.DAEMON_OTHER, text, fix))
    if daemon.socket_problem:
        text = f"hooks cannot wake the daemon, so it only hears of them on patrol: {daemon.socket_problem}"
        found.append(
            Finding(
                Kind.DAEMON_SOCKET, text, "`llmc down`, then `llmc up --detach` with the options as before"
            )
        )
    if daemon.heartbeat_age_s is not None and daemon.heartbeat_age_s > HEARTBEAT_LATE_S:
        text = f"the daemon gave no sign of life for {daemon.heartbeat_age_s / 60:.0f} minutes: it hangs"
        found.append(Finding(Kind.DAEMON_STALLED, text, "see `llmc logs`; `llmc down --force` ends it"))
    return found


def _canary(facts: Facts) -> list[Finding]:
    found = []
    if facts.canary is not None and not facts.canary.passed:
        text = f"the last try of {facts.canary.summary}"
        found.append(
            Finding(Kind.CANARY, text, facts.canary.fix or "`llmc up --auto --detach` tries it again")
        )
    for path in facts.canary_leftovers:
        text = f"a try of the client was killed, and its scratch session still runs: {path}"
        found.append(Finding(Kind.CANARY_LEFT, text, REPAIR, "", path, True))
    return found


def _supervisor(facts: Facts) -> list[Finding]:
    found = []
    for note in facts.manual_notes:
        text = f"a person is asked for in {note.path}: {note.first_line}"
        fix = f"do what it says, then put it away: mv {note.path} {note.away}/"
        found.append(Finding(Kind.MANUAL_INTERVENTION, text, fix, "", note.path))
    if facts.dead_overseer:
        text = f"a supervisor that is gone left {facts.dead_overseer}"
        found.append(Finding(Kind.OVERSEER_CRASHED, text, REPAIR, "", facts.dead_overseer, True))
    return found


def _tasks(facts: Facts) -> list[Finding]:
    fix = "`llmc tasks list` shows the list; auto mode does not begin before it is mended"
    found = [Finding(Kind.TASK_LIST, text, fix, "", text) for text in facts.task_problems]
    for task in facts.unowned_tasks:
        text = f"the task {task} is in progress by its file, and nobody has it"
        found.append(
            Finding(Kind.UNOWNED_TASK, text, f"{REPAIR}, or `llmc tasks release {task}`", "", task, True)
        )
    found += [Finding(Kind.GOALS, text, mend, "", text) for text, mend in facts.goal_problems]
    if facts.state.kind is not StateFile.VALID or facts.daemon.runs:
        return found  # nobody knows who is at what; a daemon settles its claims itself
    assigned = {
        worker.record.assignment.claim for worker in facts.workers if worker.record.assignment is not None
    }
    for claim in facts.claims:
        if claim.id not in assigned:
            text = f"the task {claim.task} is claimed by {claim.worker}, which is not at it"
            found.append(Finding(Kind.CLAIM, text, f"{REPAIR}: free again", "", claim.id, True))
    return found


def _lock(lock: GitLock) -> list[Finding]:
    text = lock.trouble
    if not text:
        return []
    if lock.of_source:
        fix = f"it is your repository: if no git command runs there, rm {lock.path}"
        return [Finding(Kind.GIT_LOCK, text, fix, "", lock.path)]
    return [Finding(Kind.GIT_LOCK, text, REPAIR, "", lock.path, True)]


def _unusable(found: Unusable) -> Finding:
    if not found.owned:
        text = f"{found.path} belongs to somebody else"
        return Finding(Kind.PERMISSIONS, text, f"sudo chown -R $(id -u) {found.path}", "", found.path)
    text = f"llmc cannot use {found.path}: its mode is {found.mode:04o}"
    return Finding(Kind.PERMISSIONS, text, REPAIR, "", found.path, True)
