"""`llmc doctor`: runs all checks and repairs."""

import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from llmc.base.errors import LlmcError, Refused
from llmc.config.paths import Root
from llmc.doctor import looking
from llmc.doctor.check import GROUPS, LOCK_S, Check, Finding, Repair, WorkerCheck
from llmc.doctor.checks import clone, file_access, installation, of_worker, tasks_and_goals, what_runs
from llmc.doctor.rules.facts import Facts, PaneState, StateFacts, StateFile, WorkerFacts
from llmc.repo.project import Project
from llmc.workers import up_and_down

_EVERY: tuple[Check | WorkerCheck, ...] = (
    *installation.CHECKS,
    *what_runs.CHECKS,
    *of_worker.CHECKS,
    *tasks_and_goals.CHECKS,
    *clone.CHECKS,
    *file_access.CHECKS,
)
#: in the order of a report
CHECKS = tuple(sorted(_EVERY, key=lambda check: GROUPS.index(check.group)))


def examine(root: Root) -> Facts:
    """Collect the facts about a root. Changes nothing, and works on a damaged root too."""
    at = looking.look(root)
    checks = [check for check in CHECKS if isinstance(check, Check) and not at.facts.lacking & {*check.needs}]
    checks.sort(key=lambda check: check.late)
    seen: dict[str, tuple[Any, ...]] = {}
    failed: dict[str, str] = {}
    for check in checks:
        try:
            seen[check.kind] = tuple(check.look(at))
        except Exception as error:  # one check that fails must not hide what the others find
            failed[check.kind] = str(error) or type(error).__name__
    dirty = looking.source_dirty(at) if not seen.get("source") else ()
    return replace(at.facts, seen=seen, failed=failed, source_dirty=dirty)


def diagnose(facts: Facts) -> list[Finding]:
    """All findings, in report order."""
    facts = _without_a_lost_state(facts)
    found: list[Finding] = []
    for check in CHECKS:
        if isinstance(check, WorkerCheck):
            found += [finding for worker in facts.workers for finding in of_one(check, worker)]
        elif check.kind in facts.failed:
            text = f"cannot check whether {check.about}: {facts.failed[check.kind]}"
            found.append(Finding(text, "run `llmc doctor` again", kind=check.kind, group=check.group))
        elif not facts.lacking & {*check.needs}:
            made = check.judge(facts, facts.seen.get(check.kind, ()))
            found += [replace(finding, kind=check.kind, group=check.group) for finding in made]
    return found


def of_one(check: WorkerCheck, worker: WorkerFacts) -> Iterator[Finding]:
    """The findings of a check about a worker; while a command uses it, only those that it cannot have caused."""
    if worker.busy_with and not check.while_busy:
        return
    for finding in check.judge(worker):
        made = replace(finding, kind=check.kind, group=check.group, worker=worker.record.name)
        taken = check.guard(worker, check.kind) if made.repairable else ""
        yield replace(made, fix=taken, repairable=False) if taken else made


def notes(facts: Facts) -> list[str]:
    """Remarks that are not problems: incomplete checks, advice, and uncommitted changes in the source."""
    said = [
        f"{worker.record.name}: not fully checked because {worker.busy_with} is using it"
        for worker in facts.workers
        if worker.busy_with
    ]
    said += facts.config_advice
    if facts.source_dirty:
        names = ", ".join(facts.source_dirty[:3]) + (", ..." if len(facts.source_dirty) > 3 else "")
        said.append(f"the source repository has uncommitted changes, which block `llmc accept`: {names}")
    return said


def _without_a_lost_state(facts: Facts) -> Facts:
    """Treat a state.json that lost its workers as broken; else each of their sessions would look like an orphan."""
    there = {stray.name for stray in facts.strays if stray.is_worktree}
    if facts.state.kind is not StateFile.VALID or facts.workers or not there & set(facts.remembered):
        return facts
    known = ", ".join(facts.remembered)
    problem = f"state.json was overwritten: it has no workers, but worktrees exist for {known}"
    return replace(facts, state=StateFacts(StateFile.BROKEN, problem, facts.state.backup_has_workers))


def not_seen(facts: Facts) -> dict[str, str]:
    """The groups that could not be checked, and why."""
    unseen = {}
    lacking = _without_a_lost_state(facts).lacking
    if "state" in lacking:
        unseen = dict.fromkeys(("sessions", "workers", "worktrees"), "state.json cannot be read")
    if "git" in lacking:
        unseen |= dict.fromkeys(("worktrees", "git", "source"), "git is missing or unusable")
    if "tmux" in lacking:
        unseen |= {"sessions": "tmux is missing or unusable"}
    if "config" in lacking:
        unseen |= {"source": "config.toml is invalid"}
    return unseen


def repair_all(project: Project, facts: Facts, plan: list[Finding]) -> list[Repair]:
    """Run the repairs of the plan one by one; a failed repair does not stop the others."""
    plan = [finding for finding in plan if finding.repairable]
    by_turn = sorted(CHECKS, key=lambda check: check.turn)
    done: list[Repair] = []
    for first in (True, False):
        for check in by_turn:
            mine = [finding for finding in plan if finding.kind == check.kind and finding.blocks is first]
            if mine and isinstance(check, WorkerCheck) and check.fix_all is not None:
                done += check.fix_all(project, facts, mine)
            else:
                done += [_repair(project, check, finding) for finding in mine]
    return done


def _repair(project: Project, check: Check | WorkerCheck, finding: Finding) -> Repair:
    try:
        if isinstance(check, WorkerCheck):
            text = _on_worker(project, check, finding)
        else:
            assert check.fix is not None
            text = check.fix(project, finding.subject)
    except LlmcError as error:
        return Repair(finding, False, f"not repaired: {error.message}. {error.hint}".removesuffix(". "))
    except OSError as error:
        return Repair(finding, False, f"not repaired: {error}")
    with contextlib.suppress(LlmcError), project.store.transaction() as tx:
        tx.emit("repaired", worker=finding.worker or None, kind=finding.kind, problem=finding.text)
    return Repair(finding, True, text)


def _on_worker(project: Project, check: WorkerCheck, finding: Finding) -> str:
    name = finding.worker
    assert check.fix is not None
    with project.worker_lock(name, timeout_s=LOCK_S):
        worker = looking.worker_facts(project, name, ours=True)
        if worker is None:
            return "the worker no longer exists"
        now = next((other for other in of_one(check, worker) if other.same_as(finding)), None)
        if now is None:
            return "already resolved"
        if not now.repairable:
            raise Refused(now.fix)
        text = check.fix(project, worker.record)
        starts = check.starts and (worker.pane is not PaneState.NONE or project.daemon_runs())
    if starts and (problem := up_and_down.bring_up(project, name)):
        return f"{text}; the agent did not start: {problem}"
    return text
