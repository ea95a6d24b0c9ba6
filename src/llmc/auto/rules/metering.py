"""Which tokens of a conversation are new, and whose they are. Pure."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from llmc.base.names import TaskKey
from llmc.records.usage import Usage
from llmc.records.worker import Assignment, Metered

ByModel = Mapping[str, Usage]


class Reading(msgspec.Struct, frozen=True):
    """What the transcript of one conversation holds now, and how much of that is in the event log."""

    transcript: str
    totals: ByModel
    counted: ByModel = {}
    #: of one that was skipped: the task it began with
    task: TaskKey | None = None


class Delta(msgspec.Struct, frozen=True):
    """Tokens that are in no event yet."""

    task: TaskKey | None
    transcript: str
    model: str
    tokens: Usage


def measure(
    before: Metered,
    left: Mapping[str, Usage],
    here: Reading,
    assignment: Assignment | None,
    skipped: Sequence[Reading] = (),
) -> tuple[Metered, list[Delta]]:
    """What is counted after this look, and what has to be told.

    `left` is what the conversation counted so far holds now, `here` the present one: the same, or a new one after
    /clear; `skipped` are those in between that began and ended while nobody looked. A conversation belongs to the
    assignment it began with. What the one that was left wrote at its end is counted when the new one has its first
    tokens: by then it writes no more.
    """
    was = Reading(before.transcript, left, before.counted)
    deltas = _grown(was, before.task)
    if here.transcript != before.transcript:
        if here.totals or not before.transcript:
            return _moved(
                before, here, assignment, [*deltas, *(d for one in skipped for d in _grown(one, one.task))]
            )
    elif deltas and assignment is not None and assignment.claim != before.claim:
        # A task that came without /clear: from now on the conversation is its own, so that its budget holds.
        return _owned(replace(before, counted=_counted(was)), assignment), deltas
    return replace(before, counted=_counted(was), spent=_with(before.spent, deltas)), deltas


def _moved(
    before: Metered, here: Reading, assignment: Assignment | None, earlier: list[Delta]
) -> tuple[Metered, list[Delta]]:
    """Another conversation than the one counted so far: a new one, or an old one that was taken up again."""
    fresh = _owned(Metered(transcript=here.transcript, counted=_counted(here)), assignment)
    deltas = _grown(here, fresh.task)
    spent = _with({}, deltas)
    if fresh.claim and fresh.claim == before.claim:  # the same work goes on
        spent = _with(before.spent, [*earlier, *deltas])
    return replace(fresh, spent=spent), earlier + deltas


def _grown(reading: Reading, task: TaskKey | None) -> list[Delta]:
    news = {
        model: now.since(reading.counted.get(model, Usage())) for model, now in sorted(reading.totals.items())
    }
    return [Delta(task, reading.transcript, model, new) for model, new in news.items() if new]


def _counted(reading: Reading) -> dict[str, Usage]:
    """A model that is not there now stays as it was: a transcript that is gone says nothing.

    Where it shrank (somebody put an older copy back) what is left is counted already, and growth counts from there.
    """
    return {**reading.counted, **reading.totals}


def _owned(metered: Metered, assignment: Assignment | None) -> Metered:
    if assignment is None:
        return replace(metered, claim="", task_id=None, task_list="", spent={})
    task = assignment.task
    return replace(metered, claim=assignment.claim, task_id=task.id, task_list=task.list, spent={})


def _with(spent: ByModel, deltas: list[Delta]) -> dict[str, Usage]:
    total = dict(spent)
    for delta in deltas:
        total[delta.model] = total.get(delta.model, Usage()) + delta.tokens
    return total
