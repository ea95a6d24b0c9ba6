"""Submit: the one function that types a prompt into an agent, and says truthfully what became of it.

The prompt and its id are in state before the first key; services/typist.py presses the keys and looks for proof.
"""

import os
import time
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from llmc.names import PromptId
from llmc.services import intake
from llmc.services.project import Project
from llmc.services.typist import Refusal, Typist
from llmc.tools.clock import now_unix
from llmc.tools.faults import step as fault_step
from llmc.tools.files import private_dir, write_atomic
from llmc.workers import decide, prompt_text
from llmc.workers.model import Delivery, Outcome, Status

SETTLE_S = 0.15


@dataclass(frozen=True)
class Receipt:
    """The answer to a submit."""

    worker: str
    prompt_id: PromptId
    outcome: Outcome
    elapsed_ms: int
    reason: str = ""


def new_prompt_id(kind: str) -> PromptId:
    return PromptId(f"{kind}-{os.urandom(5).hex()}")


def is_about_a_rebase(delivery: Delivery) -> bool:
    return delivery.prompt_id.startswith(decide.ABOUT_A_REBASE)


def submit(
    project: Project,
    name: str,
    kind: str,
    text: str,
    *,
    clear: bool = False,
    then: Status | None = None,
    prompt_id: PromptId | None = None,
    **fields: Any,
) -> Receipt:
    """Persist a prompt (with `fields` of the worker's record) and deliver it; the caller holds the worker's lock.

    `prompt_id`: the caller knows it by an id of its own.
    """
    _let_the_last_prompt_settle(project, name)
    prompt_id = prompt_id or new_prompt_id(kind)
    body = prompt_text.normalise(text)
    if prompt_text.too_long(body):
        body = _as_file(project, prompt_id, body)
    delivery = Delivery(
        prompt_id=prompt_id,
        outcome=Outcome.PENDING,
        at_unix=now_unix(),
        text=prompt_text.typed(prompt_id, body),
        clear=clear,
        then=then,
    )
    with fault_step("submit.persist"), project.store.transaction() as tx:
        tx.update(name, delivery=delivery, **fields)
        tx.emit("prompt_pending", worker=name, prompt_id=prompt_id)
    return deliver(project, name)


def _let_the_last_prompt_settle(project: Project, name: str) -> None:
    """A message that comes while the client still runs the hook of the one before is confirmed only after that turn."""
    last = project.store.worker(name).delivery
    if last is not None:
        since_s = now_unix() - (last.at_unix + last.elapsed_ms / 1000)
        time.sleep(min(SETTLE_S, max(0.0, SETTLE_S - since_s)))


def deliver(project: Project, name: str) -> Receipt:
    """Bring the worker's open delivery to an end: also after a crash, and then never twice."""
    began = time.monotonic()
    record = intake.apply_pending(project, name)
    delivery = record.delivery
    assert delivery is not None, "nothing to deliver"
    if not delivery.outcome.open:  # an event applied just now proved it
        return Receipt(name, delivery.prompt_id, delivery.outcome, delivery.elapsed_ms, delivery.reason)
    try:
        outcome, reason = Typist(project, record, delivery).deliver()
    except Refusal as refusal:
        outcome, reason = Outcome.REFUSED, str(refusal)
    elapsed_ms = round((time.monotonic() - began) * 1000)
    _record(project, name, delivery.prompt_id, outcome, reason, elapsed_ms)
    intake.apply_pending(project, name)
    return Receipt(name, delivery.prompt_id, outcome, elapsed_ms, reason)


def _record(
    project: Project, name: str, prompt_id: PromptId, outcome: Outcome, reason: str, elapsed_ms: int
) -> None:
    with fault_step("submit.record"), project.store.transaction() as tx:
        record = tx.worker(name)
        if record.delivery is None or record.delivery.prompt_id != prompt_id:
            return
        done = replace(record.delivery, outcome=outcome, reason=reason, elapsed_ms=elapsed_ms, text="")
        tx.update(name, delivery=done)
        if outcome is Outcome.REFUSED and record.status in (Status.IDLE, Status.NO_CHANGES):
            tx.update(name, current_prompt="")  # nothing was typed, so the worker has no task
        if outcome is Outcome.REFUSED and record.status is Status.REBASING and is_about_a_rebase(done):
            tx.update(name, conflict_prompt_due=True)  # nothing was typed: it still has to be told
        tx.emit(
            "prompt_delivered",
            worker=name,
            reason=reason,
            prompt_id=prompt_id,
            outcome=outcome,
            elapsed_ms=elapsed_ms,
        )
        change = decide.arrived_step(record, reason or "prompt arrived") if outcome.arrived else None
        if change:
            tx.move(name, change)


def _as_file(project: Project, prompt_id: PromptId, body: str) -> str:
    path = private_dir(project.root.prompts) / f"{prompt_id}.md"
    write_atomic(path, (body + "\n").encode())
    return f"Your instructions are in the file {path}. Read all of it, then do what it says."
