"""What auto mode does about a worker with a person in its way: its task goes to somebody else, and nothing is charged."""

from llmc.agents.protocol import ClientStatus
from llmc.auto.auto_run import BUSY_S, Run
from llmc.auto.giving_back import give_up, hand_back
from llmc.auto.rules import steps
from llmc.auto.rules.steps import GiveUp
from llmc.base.panes import Pane
from llmc.base.tmux import Unknown
from llmc.records.causes import Cause
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import persons
from llmc.sessions.sessions import status_of
from llmc.sessions.submit import Receipt
from llmc.sessions.typist import Refusal


def is_hindered(run: Run, project: Project, record: WorkerRecord, todo: steps.Step) -> bool:
    """Whether a person is in the way of this step: then the worker is listed and left alone, until they have left."""
    wants = not isinstance(todo, steps.Wait)
    if not wants and not record.waits_for_a_person:
        return False
    if isinstance(project.pane(record), Unknown):
        return True  # nobody knows
    met = persons.met(project, record)
    if met is None:
        if persons.left(project, record):
            run.say(f"{record.name}: goes on, nobody is in its way any more")
            run.look_again(record.name, 0.0)  # a prompt may have waited
        return False
    if record.person is None and met.obstacle not in steps.in_its_way(todo):
        return False
    if persons.note(project, record, met):
        run.say(f"{record.name}: waits for a person: {met}")
        run.on_change()  # somebody else may take what it would have taken
    if record.assignment is not None and steps.parts_with_its_task(todo, met.obstacle):
        _part_with_task(run, project, record, todo, met)
    return met.obstacle in steps.in_its_way(todo)


def _part_with_task(run: Run, project: Project, record: WorkerRecord, todo: steps.Step, met: Refusal) -> None:
    if isinstance(todo, GiveUp):
        _interrupt(project, record)
    if isinstance(todo, steps.Deliver):
        run.assigned -= 1  # it was never begun
    why = todo if isinstance(todo, GiveUp) else GiveUp(Cause.PERSON, str(met), counts=False)
    hand_back(run, project, record, why)


def _interrupt(project: Project, record: WorkerRecord) -> None:
    """A turn that must not go on: one Escape ends it, and leaves the draft."""
    pane = project.pane(record)
    if isinstance(pane, Pane) and not pane.dead and status_of(record, pane) is ClientStatus.BUSY:
        project.tmux.send_keys(pane, "Escape")


def tell_again(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Nobody is in the way, or not any more: the prompt that is due comes at the next look."""
    if record.delivery is not None and record.delivery.met_a_person:
        with project.store.transaction() as tx:
            tx.update(record.name, delivery=None)
    run.look_again(record.name, BUSY_S)
    return False


def not_told(run: Run, project: Project, record: WorkerRecord, receipt: Receipt) -> bool:
    """A prompt about its work did not arrive; `record` is as it was before. With a person in the way nothing counts."""
    if not receipt.met_a_person:
        failed = steps.not_told(receipt.obstacle, receipt.reason or receipt.outcome)
        return give_up(run, project, project.store.worker(record.name), failed)
    with project.store.transaction() as tx:
        tx.update(record.name, assignment=record.assignment)
    return True
