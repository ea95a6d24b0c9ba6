"""Submits a prompt to an agent and returns a receipt; prompts are sent in no other way.

The prompt and its id are in the state before the first key. sessions/typist.py types it and looks for proof.
"""

import os
import time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir, write_atomic
from llmc.base.given import written_out
from llmc.base.names import PromptId
from llmc.records.worker import Delivery, Obstacle, Outcome, SelfReview, Status
from llmc.repo.project import Project
from llmc.sessions import intake
from llmc.sessions.rules import decide, prompt_text
from llmc.sessions.typist import Refusal, Typist

SETTLE_S = 0.15
#: maximum length of a prompt in the worker's log
_LOG_CHARS = 20_000
#: the kind of prompt that gives a worker its task
TASK = "task"


class Receipt(Struct, frozen=True):
    """The receipt of a submit."""

    worker: str
    prompt_id: PromptId
    outcome: Outcome
    elapsed_ms: int
    reason: str = ""
    #: what was in the way, if known
    obstacle: Obstacle | None = None

    @property
    def met_a_person(self) -> bool:
        """Whether nothing was typed because the user is in the way."""
        return self.outcome is Outcome.REFUSED and self.obstacle is not None and self.obstacle.is_person


def new_prompt_id(kind: str) -> PromptId:
    return PromptId(f"{kind}-{os.urandom(5).hex()}")


def is_task(delivery: Delivery) -> bool:
    return delivery.prompt_id.startswith(f"{TASK}-")


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

    `prompt_id`: an id chosen by the caller.
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
    project.store.note(name, f"sending {prompt_id}:\n{_shown(text)}")
    return deliver(project, name)


def refused(project: Project, name: str, kind: str, refusal: Refusal) -> Receipt:
    """Record a prompt that llmc did not try to send; the caller holds the worker's lock."""
    done = Delivery(
        prompt_id=new_prompt_id(kind),
        outcome=Outcome.REFUSED,
        at_unix=now_unix(),
        reason=str(refusal),
        obstacle=refusal.obstacle,
    )
    with project.store.transaction() as tx:
        tx.update(name, delivery=done)
    _record(project, name, done, was_typed=False)
    return _receipt(name, done)


def _let_the_last_prompt_settle(project: Project, name: str) -> None:
    """Wait briefly: a message sent while the hook of the previous one runs is confirmed only after that turn."""
    last = project.store.worker(name).delivery
    if last is not None:
        since_s = now_unix() - (last.at_unix + last.elapsed_ms / 1000)
        time.sleep(min(SETTLE_S, max(0.0, SETTLE_S - since_s)))


def deliver(project: Project, name: str) -> Receipt:
    """Complete the worker's open delivery, even after a crash, but never deliver it twice."""
    began = time.monotonic()
    record = intake.apply_pending(project, name)
    delivery = record.delivery
    assert delivery is not None, "nothing to deliver"
    if not delivery.outcome.open:  # an event that was just applied proved it
        return _receipt(name, delivery)
    try:
        outcome, reason, obstacle = Typist(project, record, delivery).deliver()
    except Refusal as refusal:
        outcome, reason, obstacle = Outcome.REFUSED, str(refusal), refusal.obstacle
    elapsed_ms = round((time.monotonic() - began) * 1000)
    done = replace(delivery, outcome=outcome, reason=reason, obstacle=obstacle, elapsed_ms=elapsed_ms)
    was_typed = delivery.outcome is Outcome.TYPED or outcome is not Outcome.REFUSED
    _record(project, name, done, was_typed)
    intake.apply_pending(project, name)
    return _receipt(name, done)


def _receipt(name: str, done: Delivery) -> Receipt:
    return Receipt(name, done.prompt_id, done.outcome, done.elapsed_ms, done.reason, done.obstacle)


def _record(project: Project, name: str, done: Delivery, was_typed: bool) -> None:
    """`was_typed`: some keys may have reached the agent, now or before a crash."""
    prompt_id, outcome, reason = done.prompt_id, done.outcome, done.reason
    with fault_step("submit.record"), project.store.transaction() as tx:
        record = tx.worker(name)
        if record.delivery is None or record.delivery.prompt_id != prompt_id:
            return
        done = replace(done, text="", cleared=record.delivery.cleared)
        tx.update(name, delivery=done)
        rests = record.status.is_free
        if outcome is Outcome.REFUSED and (rests or (is_task(done) and not was_typed)):
            # Nothing was typed, so the worker has no task, even if its agent has ended in the meantime.
            tx.update(name, current_prompt="", self_review=SelfReview.NO)
        if outcome is Outcome.REFUSED and record.status is Status.REBASING and decide.is_about_a_rebase(done):
            tx.update(name, conflict_prompt_due=True)  # nothing was typed: still to be sent
        tx.emit(
            "prompt_delivered",
            worker=name,
            reason=reason,
            prompt_id=prompt_id,
            outcome=outcome,
            elapsed_ms=done.elapsed_ms,
        )
        change = decide.arrived_step(record, reason or "prompt arrived") if outcome.arrived else None
        if change:
            tx.move(name, change)
    project.store.note(name, f"{prompt_id}: {outcome}" + (f": {reason}" if reason else ""))


def _shown(text: str) -> str:
    """A prompt for the worker's log, truncated if very long."""
    more = len(text) - _LOG_CHARS
    cut = text[:_LOG_CHARS] + f"\n({more} more characters)" if more > 0 else text
    return written_out(cut)


def _as_file(project: Project, prompt_id: PromptId, body: str) -> str:
    path = private_dir(project.root.prompts) / f"{prompt_id}.md"
    write_atomic(path, (body + "\n").encode())
    return f"Your instructions are in the file {path}. Read the whole file, then follow the instructions."
