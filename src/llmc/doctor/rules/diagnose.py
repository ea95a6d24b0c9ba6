"""From what was seen of a root to the findings. Pure: the same facts always give the same list."""

import re

from msgspec.structs import replace

from llmc.doctor.rules.facts import Branch, DaemonFacts, Facts, Program, StateFacts, StateFile, Stray
from llmc.doctor.rules.findings import REPAIR, Finding, Kind, in_order
from llmc.doctor.rules.of_worker import worker_findings
from llmc.doctor.rules.unattended import is_overwritten, unattended_findings

#: how long a daemon may take until every session is ready or has a reason why not
READY_S = 120.0
#: `llmc up` warns below this too
DISK_FLOOR_BYTES = 500 * 1024 * 1024
TRASH_CEILING_BYTES = 5 * 1024 * 1024 * 1024
EDIT = "`llmc config edit`"
REBUILD = "`llmc doctor --rebuild` makes a new one from the worktrees and sessions"


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that is wrong, in the order of a report."""
    facts = _without_a_lost_state(facts)
    found = [finding for program in facts.programs for finding in of_program(program)]
    found += _installation(facts) + _config(facts) + _state(facts) + _daemon(facts.daemon)
    found += _sessions(facts) + _worktrees(facts) + _git(facts) + _files(facts)
    found += unattended_findings(facts)
    for worker in facts.workers:
        found += worker_findings(worker, facts.now, facts.daemon.runs)
    return in_order(found)


def notes(facts: Facts) -> list[str]:
    """What was looked at only in part, and why; no problem by itself."""
    said = [
        f"{worker.record.name}: {worker.busy_with} is at work on it, so not everything was looked at"
        for worker in facts.workers
        if worker.busy_with
    ]
    said += facts.config_advice
    if facts.source_dirty:
        names = ", ".join(facts.source_dirty[:3]) + (" .." if len(facts.source_dirty) > 3 else "")
        said.append(f"the source has uncommitted changes, and nothing lands there while it has: {names}")
    return said


def _without_a_lost_state(facts: Facts) -> Facts:
    """A state.json that lost its workers is as good as none: else each of their sessions would be an orphan."""
    if not is_overwritten(facts):
        return facts
    known = ", ".join(facts.remembered)
    problem = f"state.json has no workers, but there are worktrees of {known}: it was overwritten"
    return replace(facts, state=StateFacts(StateFile.BROKEN, problem, facts.state.backup_has_workers))


def not_seen(facts: Facts) -> dict[str, str]:
    """The parts of a report about which nothing can be said, and why: silence is not health."""
    unseen = {}
    facts = _without_a_lost_state(facts)
    if facts.state.kind is not StateFile.VALID:
        unseen = dict.fromkeys(("sessions", "workers", "worktrees"), "the state cannot be read")
    missing = {program.name for program in facts.programs if program.problem}
    if "git" in missing:
        unseen |= dict.fromkeys(("worktrees", "git", "source"), "git cannot be used")
    if "tmux" in missing:
        unseen |= {"sessions": "tmux cannot be used"}
    if facts.config_problems:
        unseen |= {"source": "the configuration cannot be used"}
    return unseen


def parse_version(text: str) -> tuple[int, ...]:
    """The first version number in a program's answer; empty when there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def of_program(program: Program) -> list[Finding]:
    """It is missing, or older than what llmc was tried with."""
    if program.problem:
        fix = program.fix or f"install {program.name}"
        return [Finding(Kind.PROGRAM, program.problem, fix, subject=program.name)]
    version = parse_version(program.version)
    if not version or version >= program.minimum:
        return []
    needed = ".".join(map(str, program.minimum))
    text = f"{program.name} is too old: {program.version}, {needed} is needed"
    return [Finding(Kind.PROGRAM, text, program.fix or f"install {program.name} {needed}", "", program.name)]


def _installation(facts: Facts) -> list[Finding]:
    found = []
    if facts.launcher_problem:
        found.append(Finding(Kind.LAUNCHER, facts.launcher_problem, REPAIR, repairable=True))
    if facts.trust_problem:
        found.append(Finding(Kind.TRUST, facts.trust_problem, "`llmc init --trust` in the source"))
    return found


def _config(facts: Facts) -> list[Finding]:
    found = [Finding(Kind.CONFIG, text, EDIT, subject=text) for text in facts.config_problems]
    if facts.state.kind is StateFile.VALID:
        known = {worker.record.name for worker in facts.workers}
        found += [
            Finding(Kind.NOT_ADDED, "is in config.toml, but is no worker", f"`llmc add {name}`", name)
            for name in facts.configured
            if name not in known
        ]
    return found


def _state(facts: Facts) -> list[Finding]:
    match facts.state.kind:
        case StateFile.VALID:
            return [
                Finding(Kind.STATE, f"state.json: {text}", REBUILD, subject=text)
                for text in facts.state.misfiled
            ]
        case StateFile.NEWER:
            return [Finding(Kind.STATE, facts.state.problem, "use the llmc that wrote it")]
    fix = "copy state.json.bak over it, or " + REBUILD if facts.state.backup_good else REBUILD
    return [Finding(Kind.STATE, facts.state.problem, fix)]


def _daemon(daemon: DaemonFacts) -> list[Finding]:
    if not daemon.runs and daemon.files:
        text = f"a daemon crashed and left {', '.join(daemon.files)}"
        return [Finding(Kind.DAEMON_CRASHED, text, REPAIR, repairable=True)]
    if daemon.runs and not (daemon.registered and daemon.ready) and daemon.age_s > READY_S:
        text = f"the daemon, {daemon.holder}, is not ready after {daemon.age_s / 60:.0f} minutes"
        fix = "see `llmc logs`; `llmc down --force` ends it"
        return [Finding(Kind.DAEMON_NOT_READY, text, fix)]
    return []


def _sessions(facts: Facts) -> list[Finding]:
    if facts.sessions is None and any(p.name == "tmux" and p.problem for p in facts.programs):
        return []  # said of the program
    if facts.sessions is None:
        return [Finding(Kind.TMUX, f"tmux gave no answer: {facts.tmux_problem}", "try again")]
    if facts.state.kind is not StateFile.VALID:
        return []  # nobody knows which workers there are
    known = {worker.record.session_id for worker in facts.workers}
    agents = {worker.record.instance for worker in facts.workers}  # a person may have moved one's pane
    found = []
    for session in facts.sessions:
        if session.name in known or session.instance in agents:
            continue
        text = f"the tmux session {session.name} belongs to no worker"
        if session.attached:
            fix = "somebody is attached to it; detach first (C-b d, or C-b C-b d inside another tmux)"
            found.append(Finding(Kind.SESSION_WITHOUT_WORKER, text, fix, subject=session.name))
        else:
            found.append(
                Finding(Kind.SESSION_WITHOUT_WORKER, text, REPAIR, subject=session.name, repairable=True)
            )
    return found


def _worktrees(facts: Facts) -> list[Finding]:
    if facts.state.kind is not StateFile.VALID:
        return []
    found = [_stray(stray) for stray in facts.strays]
    for path in facts.left_slots:
        text = f"no check uses the slot {path} any more"
        found.append(Finding(Kind.SLOT, text, f"{REPAIR}: removed", "", path, True))
    if facts.stopped_undo and not facts.daemon.runs:
        text = f"an undo of {facts.stopped_undo[:12]} stopped"
        found.append(Finding(Kind.UNDO_STOPPED, text, "`llmc undo` goes on with it"))
    return found + [
        Finding(
            Kind.WORKTREE_PRUNED, f"git remembers a worktree that is gone: {path}", REPAIR, "", path, True
        )
        for path in facts.pruned
    ]


def _stray(stray: Stray) -> Finding:
    take_in = f"`llmc add {stray.name}` takes it in as it is, or move it away"
    fix = take_in if stray.is_worktree else "move it away"
    return Finding(Kind.WORKTREE_STRAY, f".worktrees/{stray.name} belongs to no worker", fix, "", stray.name)


def _git(facts: Facts) -> list[Finding]:
    if facts.clone_problem:
        fix = "make a new root with `llmc init --target PATH`, and take branches from this one"
        return [Finding(Kind.CLONE, f"the root's clone cannot be read: {facts.clone_problem}", fix)]
    found = []
    for setting in facts.settings:
        if setting.found == setting.wanted:
            continue
        is_now = f"is {setting.found!r}" if setting.found is not None else "is not set"
        should = f"{setting.wanted!r}" if setting.wanted is not None else "unset"
        text = f"the setting {setting.key} of the root's clone {is_now}, it should be {should}"
        found.append(Finding(Kind.SETTING, text, REPAIR, "", setting.key, True))
    if facts.objects_shared:
        text = "the root's clone shares files with the source: an agent that overwrites one here overwrites it there"
        found.append(Finding(Kind.SHARED_OBJECTS, text, f"{REPAIR}: copied", repairable=True))
    for key, text in facts.undone:
        fix = "look at what that worker does; --repair takes this off the list"
        found.append(Finding(Kind.GIT_CONFIG, text, fix, "", key, True))
    if facts.state.kind is StateFile.VALID:
        found += _branches(facts)
    return found


def _branches(facts: Facts) -> list[Finding]:
    owned = {worker.record.branch for worker in facts.workers}
    return [
        _branch(branch) for branch in facts.branches if branch.name not in owned and not branch.checked_out
    ]


def _branch(branch: Branch) -> Finding:
    if branch.ahead == 0:
        text = f"the branch {branch.name} belongs to no worker; all of it is on the default branch"
        return Finding(Kind.BRANCH, text, f"{REPAIR}: removed", "", branch.name, True)
    what = f"{branch.ahead} commits" if branch.ahead and branch.ahead > 1 else "work"
    text = f"the branch {branch.name} belongs to no worker, and has {what} that the default branch has not"
    return Finding(Kind.BRANCH, text, f"{REPAIR}: pinned in the trash, then removed", "", branch.name, True)


def _files(facts: Facts) -> list[Finding]:
    found = []
    if facts.source_problem:
        found.append(Finding(Kind.SOURCE, facts.source_problem, facts.source_fix))
    for text in facts.notify_problems:
        found.append(Finding(Kind.NOTIFY, text, "mend it, then `llmc notify test`", subject=text))
    for path in facts.writable_by_others:
        text = f"other people may write to {path}, which says what programs llmc runs"
        found.append(Finding(Kind.PERMISSIONS, text, REPAIR, "", path, True))
    for path in facts.open_directories:
        text = f"other people may look into {path}"
        found.append(Finding(Kind.PERMISSIONS, text, REPAIR, "", path, True))
    for path, text in facts.bad_rows:
        fix = f"{REPAIR}: they are put aside in logs/bad-rows.log"
        found.append(Finding(Kind.BAD_ROWS, text, fix, "", path, True))
    if facts.disk_free_bytes is not None and facts.disk_free_bytes < DISK_FLOOR_BYTES:
        text = f"only {facts.disk_free_bytes // 2**20} MB are free on the disk of the root"
        found.append(Finding(Kind.DISK, text, "free some space; `llmc trash prune` lets old work go"))
    if facts.trash_bytes > TRASH_CEILING_BYTES:
        text = f"the trash holds {facts.trash_bytes / 2**30:.1f} GB beside git"
        found.append(
            Finding(Kind.TRASH, text, "`llmc trash list`, then `llmc trash prune --older-than DAYS`")
        )
    return found
