"""Submit: the one function that types a prompt into an agent, and says truthfully what became of it.

The prompt and its id are in state before the first key. Proof of arrival is the agent's own: its
UserPromptSubmit hook, or a row of its transcript, that names the id. Screen text only decides which keys are
safe to press, and is looked at nowhere else.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from llmc.agents.client_files import row_text, rows_since, size_of
from llmc.agents.composer import Box, composer, holds
from llmc.agents.protocol import ClientStatus
from llmc.errors import LlmcError
from llmc.names import PromptId, header_id, header_line
from llmc.services import intake
from llmc.services.project import Project
from llmc.services.sessions import is_taken, status_of
from llmc.state import inbox
from llmc.tools.clock import now_unix
from llmc.tools.faults import FaultInjected
from llmc.tools.faults import step as fault_step
from llmc.tools.files import private_dir, write_atomic
from llmc.tools.processes import wait_until
from llmc.tools.tmux import Pane, Unknown
from llmc.workers import decide, prompt_text
from llmc.workers.events import HookEvent, Malformed
from llmc.workers.model import Delivery, Outcome, Status, WorkerRecord

PROOF_WAIT_S = 2.0
ENTERS = 3
CLEAR_WAIT_S = 3.0
#: how long to wait for our text to show up in the composer before the first Enter
SETTLE_S = 0.3
POLL_S = 0.004


@dataclass(frozen=True)
class Receipt:
    """The answer to a submit."""

    worker: str
    prompt_id: PromptId
    outcome: Outcome
    elapsed_ms: int
    reason: str = ""


class _Refuse(Exception):
    """Typing now would do harm."""


def new_prompt_id(kind: str) -> PromptId:
    return PromptId(f"{kind}-{os.urandom(5).hex()}")


def submit(
    project: Project,
    name: str,
    kind: str,
    text: str,
    *,
    clear: bool = False,
    then: Status | None = None,
    **fields: Any,
) -> Receipt:
    """Persist a prompt (with `fields` of the worker's record) and deliver it; the caller holds the worker's lock."""
    prompt_id = new_prompt_id(kind)
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


def deliver(project: Project, name: str) -> Receipt:
    """Bring the worker's open delivery to an end: also after a crash, and then never twice."""
    began = time.monotonic()
    record = intake.apply_pending(project, name)
    delivery = record.delivery
    assert delivery is not None, "nothing to deliver"
    if not delivery.outcome.open:  # an event applied just now proved it
        return Receipt(name, delivery.prompt_id, delivery.outcome, delivery.elapsed_ms, delivery.reason)
    try:
        outcome, reason = _Typist(project, record, delivery).deliver()
    except _Refuse as refusal:
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


class _Typist:
    """One delivery in progress."""

    def __init__(self, project: Project, record: WorkerRecord, delivery: Delivery) -> None:
        self.project = project
        self.record = record
        self.delivery = delivery
        self.header = header_line(delivery.prompt_id)
        self.pane = self._living_pane()
        self.seen: dict[str, HookEvent | Malformed] = {}
        self.transcript = Path(record.transcript_path)
        # A first delivery can only show up in what is written from now on.
        self.transcript_offset = 0 if delivery.outcome is Outcome.TYPED else size_of(self.transcript)

    def deliver(self) -> tuple[Outcome, str]:
        if self.delivery.outcome is Outcome.TYPED:
            proof = self._proof()
            if proof:
                return proof, "found after an interruption"
        was_busy = self._refuse_if_unsafe()
        ours = self._box_is_ours()
        if self.delivery.clear and not self.delivery.cleared and not ours:
            self._new_conversation(was_busy)
        if not ours:
            self._mark_typed()
            self._paste()
        return self._press_enter(was_busy)

    def _living_pane(self) -> Pane:
        pane = self.project.tmux.pane(self.record.session_id)
        if isinstance(pane, Unknown):
            raise LlmcError(f"{self.record.name}: tmux gave no answer: {pane.reason}", hint="Try again.")
        if pane is None or pane.dead:
            raise _Refuse(f"{self.record.name} has no running agent; `llmc up` starts it")
        return pane

    def _refuse_if_unsafe(self) -> bool:
        """Whether the client is busy; raises where typing would answer a dialog or mix with a draft."""
        taken = is_taken(self.record, self.pane)
        if taken:
            raise _Refuse(taken)
        status = self._status()
        if status is ClientStatus.WAITING:
            raise _Refuse(
                f"{self.record.name} has a dialog open, the text would answer it; "
                f"`llmc attach {self.record.name}` and answer it first"
            )
        box = composer(self._screen())
        if box.box is Box.ABSENT:
            wait_until(lambda: composer(self._screen()).box is not Box.ABSENT, 1, interval_s=0.05)
            box = composer(self._screen())
        if box.box is Box.ABSENT:
            raise _Refuse(
                f"the input box of {self.record.name} is not on its screen; see `llmc peek {self.record.name}`"
            )
        if box.box is Box.DRAFT and not holds(box, self.header):
            raise _Refuse(
                f"a draft is in the input box of {self.record.name}; `llmc attach {self.record.name}` and send or clear it"
            )
        return status is ClientStatus.BUSY

    def _new_conversation(self, was_busy: bool) -> None:
        if was_busy:
            raise _Refuse(f"{self.record.name} is busy, it cannot begin a new conversation now")
        with fault_step("submit.clear"):
            before = {event.id for event in self._events()}
            for _ in range(ENTERS):
                self._keys("/clear", "Enter")
                if wait_until(lambda: self._cleared(before), CLEAR_WAIT_S, interval_s=POLL_S):
                    break
                if "/clear" in composer(self._screen()).text:
                    self._keys("Enter")
            else:
                raise _Refuse(f"{self.record.name} did not begin a new conversation on /clear")
        self.delivery = replace(self.delivery, cleared=True)
        with self.project.store.transaction() as tx:
            tx.update(self.record.name, delivery=self.delivery)

    def _cleared(self, before: set[str]) -> bool:
        for event in self._events():
            if event.id not in before and event.name == "SessionStart" and event.text("source") == "clear":
                self.transcript, self.transcript_offset = Path(event.text("transcript_path")), 0
                return True
        return False

    def _mark_typed(self) -> None:
        """From here on a crash leaves doubt, so the next one to try looks for proof first."""
        self.delivery = replace(self.delivery, outcome=Outcome.TYPED)
        with self.project.store.transaction() as tx:
            tx.update(self.record.name, delivery=self.delivery)

    def _paste(self) -> None:
        with fault_step("submit.paste"):
            if not self.project.tmux.paste(
                self.record.session_id, f"llmc-{os.urandom(4).hex()}", self.delivery.text
            ):
                raise _Refuse(f"the agent of {self.record.name} has just ended")
        wait_until(self._box_is_ours, SETTLE_S, interval_s=POLL_S)

    def _press_enter(self, was_busy: bool) -> tuple[Outcome, str]:
        for attempt in range(ENTERS):
            if attempt == 0 or self._safe_to_press():
                self._enter()
            if wait_until(lambda: self._proof() is not None, PROOF_WAIT_S, interval_s=POLL_S):
                break
        with fault_step("submit.receipt"):
            proof = self._proof()
        if proof is None:
            return Outcome.UNCONFIRMED, self._take_back()
        return (Outcome.QUEUED if was_busy else proof), ""

    def _enter(self) -> None:
        try:
            with fault_step("submit.enter"):
                self._keys("Enter")
        except FaultInjected:
            pass  # the fault is an Enter that never reached the agent

    def _safe_to_press(self) -> bool:
        """An Enter may be repeated only while it can do nothing but send our own text."""
        return self._status() is not ClientStatus.WAITING and self._box_is_ours()

    def _take_back(self) -> str:
        """Remove our own text from the box, so that it is not sent later together with something else."""
        pane = self.project.tmux.pane(self.record.session_id)
        if not isinstance(pane, Pane) or pane.dead:
            return "the agent ended before it confirmed the prompt"
        if not self._safe_to_press():
            return "no proof of arrival in time, and the text is no longer in the input box"
        for keys in (("Escape", "Escape"), ("C-u",), ("C-u",)):
            for key in keys:
                self._keys(key)
                time.sleep(0.15)
            if composer(self._screen()).box is Box.EMPTY:
                return "the agent did not take the prompt; it was removed from its input box"
            if not self._safe_to_press():
                break
        return "the agent did not take the prompt, and it may still be in its input box"

    def _proof(self) -> Outcome | None:
        """The agent's own word that the prompt has arrived."""
        for event in self._events():
            if (
                event.name == "UserPromptSubmit"
                and header_id(event.text("prompt")) == self.delivery.prompt_id
            ):
                return Outcome.ACKNOWLEDGED
        return self._proof_in_transcript()

    def _proof_in_transcript(self) -> Outcome | None:
        rows, self.transcript_offset = rows_since(
            self.transcript, self.header.encode(), self.transcript_offset
        )
        for row in rows:
            if header_id(row_text(row)) == self.delivery.prompt_id:
                return Outcome.QUEUED if row.get("type") == "queue-operation" else Outcome.ACKNOWLEDGED
        return None

    def _events(self) -> list[HookEvent]:
        """This launch's events in the inbox; each file is read once."""
        root, name = self.project.root, self.record.name
        for event_id in inbox.pending_ids(root, name):
            if event_id not in self.seen and (event := inbox.load(root, name, event_id)):
                self.seen[event_id] = event
        mine = (e for _, e in sorted(self.seen.items()) if isinstance(e, HookEvent))
        return [event for event in mine if event.instance == self.record.instance]

    def _status(self) -> ClientStatus:
        return status_of(self.record, self.pane)

    def _screen(self) -> str:
        return self.project.tmux.capture(self.record.session_id)

    def _box_is_ours(self) -> bool:
        return holds(composer(self._screen()), self.header)

    def _keys(self, *keys: str) -> None:
        self.project.tmux.send_keys(self.record.session_id, *keys)
