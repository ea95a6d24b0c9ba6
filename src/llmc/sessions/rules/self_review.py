"""The self-review: when it is due, and what is left to do about it. Pure."""

from enum import Enum, auto

from llmc.records.worker import Delivery, SelfReview, Status, WorkerRecord

#: the first word of its prompt's id
KIND = "review"
#: shown while the prompt has not gone out yet
DUE = "self-review is due"
DONE = "self-review done"

#: a worker that stops here with commits has finished its task; `rejected` has not: a person has reviewed it already
_ENDS_A_TASK = (Status.WORKING, Status.NEEDS_INPUT)
#: where a prompt that is due can be sent: `needs_review` after a restart of the agent
_CAN_BE_SENT = (Status.WORKING, Status.NEEDS_REVIEW)


class Todo(Enum):
    """What is left to do about a self-review."""

    #: the prompt is due
    SEND = auto()
    #: llmc was interrupted while it sent it
    DELIVER = auto()
    #: it did not arrive, and the worker still stands where it waited for it
    GIVE_UP = auto()


def comes_next(record: WorkerRecord) -> bool:
    """Whether a worker that stops with commits reads them once more before a person does."""
    waits = record.self_review in (SelfReview.WANTED, SelfReview.DUE, SelfReview.SENT)
    return waits and bool(record.current_prompt) and record.status in _ENDS_A_TASK


def is_open(record: WorkerRecord) -> bool:
    """Whether llmc, and not the agent, has the next move: an agent that rests now was not interrupted."""
    return record.self_review in (SelfReview.DUE, SelfReview.SENT)


def todo(record: WorkerRecord) -> Todo | None:
    if record.status not in _CAN_BE_SENT or record.accept is not None or not is_open(record):
        return None
    if record.self_review is SelfReview.DUE:
        return Todo.SEND
    return Todo.DELIVER if is_on_its_way(record.delivery) else Todo.GIVE_UP


def is_on_its_way(delivery: Delivery | None) -> bool:
    return delivery is not None and delivery.outcome.open and delivery.prompt_id.startswith(f"{KIND}-")


def failure(delivery: Delivery | None) -> str:
    """Why a person gets the work without a self-review."""
    if delivery is None or not delivery.prompt_id.startswith(f"{KIND}-"):
        return "self-review not sent"
    return f"self-review {delivery.outcome}" + (f": {delivery.reason}" if delivery.reason else "")
