"""Parks the fleet for a usage limit, an API outage or the day's budget, and resumes it."""

from llmc.auto.auto_run import AGAIN_S, Run
from llmc.auto.rules import waiting
from llmc.auto.usage import next_midnight
from llmc.base.clock import now_unix
from llmc.base.names import WorkerName
from llmc.base.text import moment
from llmc.landing import rebase
from llmc.records.store import Transaction
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import submit
from llmc.sessions.persons import is_person_there

RESUME = "The interruption is over. Continue your task where you left off, and commit when it is done."


def park(run: Run, project: Project, record: WorkerRecord, cause: Cause, reason: str) -> None:
    """Park the fleet, unless it is parked already."""
    auto = project.config.auto
    first_s = auto.limit_backoff_secs if cause is Cause.LIMIT else auto.api_backoff_secs
    with project.store.transaction() as tx:
        state = tx.state.auto
        if not waiting.starts_a_park(state, record.name, record.stopped_after):
            return
        tx.update_auto(**waiting.parked(state, cause, reason, record.since_unix, tx.now, first_s))
        until = tx.state.auto.parked_until_unix
        tx.emit(
            "fleet_parked",
            worker=record.name,
            reason=reason[:300],
            cause=cause,
            until_unix=until,
            task_id=record.assignment.task_id if record.assignment else "",
        )
    run.say(f"parked until {_moment(until)}: {cause}: {reason[:100]}")


def park_until_midnight(run: Run, project: Project, record: WorkerRecord, reason: str) -> None:
    """Park the fleet for the day's budget, unless it is parked already."""
    with project.store.transaction() as tx:
        if waiting.is_parked(tx.state.auto):
            return
        until = next_midnight(tx.now, tx.state.auto.ahead_s or 0.0)
        _park_until(tx, until, Cause.BUDGET, reason, worker=record.name)
    run.say(f"parked until midnight: {reason[:200]}")


def compare_clock(project: Project, ahead_s: float) -> None:
    """Record how far this machine's clock is ahead of the fleet's; writes only if that changed."""
    if waiting.clock_compared(project.store.read().auto, ahead_s):
        with project.store.transaction() as tx:
            tx.update_auto(**waiting.clock_compared(tx.state.auto, ahead_s))


def follow(run: Run, project: Project, node: str, cause: Cause, reason: str, until_unix: float) -> None:
    """Park along with another node, unless this one is parked already: limits apply to the whole account.

    `until_unix`: by the fleet's clock.
    """
    with project.store.transaction() as tx:
        if waiting.is_parked(tx.state.auto):
            return
        reason = f"node {node}: {reason}"
        until = until_unix + (tx.state.auto.ahead_s or 0.0)
        _park_until(tx, until, cause, reason, node=node)
    run.say(f"parked until {_moment(until)}: {reason[:100]}")


def _moment(at: float) -> str:
    return moment(at, now_unix(), "%H:%M:%S")


def _park_until(
    tx: Transaction, until: float, cause: Cause, reason: str, *, worker: str | None = None, node: str = ""
) -> None:
    reason = reason[:300]
    tx.update_auto(
        parked_until_unix=until,
        parked_for_s=until - tx.now,
        parked_cause=cause.value,
        parked_reason=reason,
        parked_since_unix=tx.now,
        parked_by=node,
    )
    tx.emit("fleet_parked", worker=worker, reason=reason, cause=cause, until_unix=until)


def end_budget_park(run: Run, project: Project) -> bool:
    """Resume a fleet that is parked for the day's budget, which is no longer used up; whether it was parked."""
    if project.store.read().auto.parked_cause != Cause.BUDGET:
        return False
    _unpark(run, project)
    return True


def resume(run: Run, project: Project, record: WorkerRecord) -> None:
    """Tell a stopped worker to continue; the first one probes whether the fleet can continue.

    If llmc is killed before it told the worker, the record says so, and the next step is to resume again.
    """
    with project.store.transaction() as tx:
        if not waiting.may_resume(tx.state.auto, record.name, record.stopped_after, tx.now):
            return  # another worker went ahead at the same moment
        if waiting.is_parked(tx.state.auto):
            tx.update_auto(**waiting.probing(tx.state.auto, record.name, tx.now))
    told = False
    try:
        told = _tell_to_continue(project, record)
    finally:
        if not told:
            _let_another_probe(project, record.name)
            run.look_again(record.name, AGAIN_S)


def _let_another_probe(project: Project, name: str) -> None:
    with project.store.transaction() as tx:
        if tx.state.auto.probe == name:
            tx.update_auto(**waiting.NO_PROBE)


def _tell_to_continue(project: Project, record: WorkerRecord) -> bool:
    if record.status is Status.REBASING:
        with project.store.transaction() as tx:
            tx.update(record.name, cause="", error_reason="", conflict_prompt_due=True)
        rebase.tell(project, record.name)
        return not rebase.must_tell(project.store.worker(record.name))
    receipt = submit.submit(project, record.name, "resume", RESUME, then=Status.WORKING)
    return receipt.outcome.arrived


def end_if_over(run: Run, project: Project) -> bool:
    """Resume the fleet if the probing worker works or none is needed; whether it resumed."""
    state = project.store.read()
    auto = state.auto
    if not waiting.is_parked(auto) or not (auto.probe or waiting.wait_is_over(auto, now_unix())):
        return False
    waits = {name: record for name, record in state.workers.items() if _waits_for_the_api(record)}
    # A worker that the user has cannot probe, and must not hold up the others.
    able = {name for name, record in waits.items() if not is_person_there(project, record)}
    if auto.probe in able:
        return False  # it failed again, which parks the fleet again, or was never told
    if auto.probe in waits and able:
        _let_another_probe(project, auto.probe)
        return False
    probe = state.workers.get(WorkerName(auto.probe))
    works = probe is not None and probe.status in (Status.WORKING, Status.REBASING)
    if able and not waiting.probe_succeeded(auto, works, now_unix()):
        return False
    _unpark(run, project)
    return True


def _unpark(run: Run, project: Project) -> None:
    with project.store.transaction() as tx:
        tx.emit("fleet_resumed", cause=tx.state.auto.parked_cause)
        tx.update_auto(**waiting.resumed(tx.state.auto, tx.now))
    run.say("no longer parked; work continues")


def _waits_for_the_api(record: WorkerRecord) -> bool:
    stops = record.status in (Status.NEEDS_INPUT, Status.REBASING) and record.assignment is not None
    return stops and bool(record.cause) and Cause(record.cause).passes_by_itself
