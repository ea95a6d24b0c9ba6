"""Parks the fleet for a usage limit, an API outage or the day's budget, and resumes it."""

import time
from collections.abc import Callable

from msgspec import Struct

from llmc.auto.rules import waiting
from llmc.base.clock import now_unix
from llmc.base.names import WorkerName
from llmc.landing import rebase
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import submit
from llmc.sessions.persons import is_person_there

#: when to check a worker again that could not be told to continue
AGAIN_S = 5.0

RESUME = "The interruption is over. Continue your task where you left off, and commit when it is done."


class Parks(Struct, frozen=True):
    look_again: Callable[[str, float], None]
    say: Callable[[str], None]

    def park(self, project: Project, record: WorkerRecord, cause: Cause, reason: str) -> None:
        """Park the fleet, unless it is parked already."""
        auto = project.config.auto
        first_s = auto.limit_backoff_secs if cause is Cause.LIMIT else auto.api_backoff_secs
        with project.store.transaction() as tx:
            state = tx.state.auto
            if not waiting.starts_a_park(state, record.name, record.since_unix):
                return
            tx.update_auto(**waiting.parked(state, cause, reason, tx.now, first_s))
            until = tx.state.auto.parked_until_unix
            tx.emit(
                "fleet_parked",
                worker=record.name,
                reason=reason[:300],
                cause=cause,
                until_unix=until,
                task_id=record.assignment.task_id if record.assignment else "",
            )
        self.say(f"parked until {time.strftime('%H:%M:%S', time.localtime(until))}: {cause}: {reason[:100]}")

    def park_until(
        self, project: Project, record: WorkerRecord, cause: Cause, reason: str, until: float
    ) -> None:
        with project.store.transaction() as tx:
            if waiting.is_parked(tx.state.auto):
                return
            tx.update_auto(
                parked_until_unix=until,
                parked_cause=cause.value,
                parked_reason=reason[:300],
                parked_since_unix=tx.now,
            )
            tx.emit("fleet_parked", worker=record.name, reason=reason[:300], cause=cause, until_unix=until)
        self.say(f"parked until midnight: {reason[:200]}")

    def end_of_budget_park(self, project: Project) -> bool:
        """Resume a fleet that was parked for the day's budget, because the budget was raised; whether it was."""
        if project.store.read().auto.parked_cause != Cause.BUDGET:
            return False
        self._go_on(project)
        return True

    def resume(self, project: Project, record: WorkerRecord) -> None:
        """Continue a stopped worker; the first one probes whether the fleet can continue."""
        with project.store.transaction() as tx:
            if waiting.may_probe(tx.state.auto, tx.now):
                tx.update_auto(probe=record.name, probe_unix=tx.now)
            elif waiting.is_parked(tx.state.auto):
                return  # another worker went ahead at the same moment
        if not self._tell_to_go_on(project, record):
            with project.store.transaction() as tx:
                if tx.state.auto.probe == record.name:
                    tx.update_auto(probe="", probe_unix=0.0)  # another worker may go ahead
            self.look_again(record.name, AGAIN_S)

    def _tell_to_go_on(self, project: Project, record: WorkerRecord) -> bool:
        if record.status is Status.REBASING:
            with project.store.transaction() as tx:
                tx.update(record.name, cause="", error_reason="", conflict_prompt_due=True)
            rebase.tell(project, record.name)
            return not rebase.must_tell(project.store.worker(record.name))
        receipt = submit.submit(project, record.name, "resume", RESUME, then=Status.WORKING)
        return receipt.outcome.arrived

    def end_if_over(self, project: Project) -> bool:
        """Whether the fleet resumes: the probing worker works, or none is needed."""
        state = project.store.read()
        if not waiting.is_parked(state.auto) or now_unix() < state.auto.parked_until_unix:
            return False
        # A worker that the user has cannot go ahead, and must not hold up the others.
        stopped = {
            name
            for name, record in state.workers.items()
            if _waits_for_the_api(record) and not is_person_there(project, record)
        }
        if state.auto.probe in stopped:
            return False  # it failed again, which parks the fleet again
        probe = state.workers.get(WorkerName(state.auto.probe))
        works = probe is not None and probe.status in (Status.WORKING, Status.REBASING)
        if stopped and not waiting.probe_succeeded(state.auto, works, now_unix()):
            return False
        self._go_on(project)
        return True

    def _go_on(self, project: Project) -> None:
        with project.store.transaction() as tx:
            tx.emit("fleet_resumed", cause=tx.state.auto.parked_cause)
            tx.update_auto(**waiting.NOT_PARKED, resumed_unix=tx.now)
        self.say("no longer parked; work continues")


def _waits_for_the_api(record: WorkerRecord) -> bool:
    stops = record.status in (Status.NEEDS_INPUT, Status.REBASING) and record.assignment is not None
    return stops and bool(record.cause) and Cause(record.cause).passes_by_itself
