"""The typist: types one delivery, and trusts only the agent's own confirmation.

Proof is the agent's UserPromptSubmit hook, or a transcript row, with our id. The screen only decides which keys are
safe.
"""

import os
import time
from collections.abc import Callable
from enum import Enum, auto

from msgspec.structs import replace

from llmc.agents.agent_events import AgentEvent, Box, Composer, What
from llmc.agents.kinds import event_of, reader_of
from llmc.agents.protocol import ClientStatus
from llmc.agents.screens import screen_of
from llmc.base import processes
from llmc.base.clock import now_unix
from llmc.base.faults import FaultInjected
from llmc.base.faults import step as fault_step
from llmc.base.names import PromptId, carries, header_id, header_line
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.base.tmux import answered
from llmc.records import inbox
from llmc.records.hook_events import Malformed
from llmc.records.worker import Delivery, Obstacle, Outcome, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions.sessions import is_taken, open_question, state_of, status_of

#: how long the agent may take to confirm before Enter is pressed again, and how often
PROOF_WAIT_S = 2.0
ENTERS = 3
#: how long the agent may take to start a new conversation on /clear
CLEAR_WAIT_S = 5.0
#: how long a client may stay busy after the end of its turn
AFTER_STOP_S = 3.0
#: how long a redraw may lag behind the agent
REDRAW_S = 2.0
#: how long to wait for our text to appear in the box before the first Enter
SETTLE_S = 1.0
POLL_S = 0.004
#: each capture of the screen runs a program: frequent at first, then less often
LOOK_S, LOOK_LATER_S = 0.01, 0.1
CLEARING_KEYS = 12
#: an interrupted delivery: how long the agent must be idle before "no trace" counts, and when to give up
REST_S = 1.0
DOUBT_S = 30.0
#: input boxes that llmc may type into
_FREE = (Box.EMPTY, Box.BLANK)
_STILL_UNCLEAR = "llmc typed the prompt, but the agent has been busy since then and has not confirmed it"


class _Trace(Enum):
    """What is visible of an interrupted delivery."""

    ARRIVED = auto()
    IN_BOX = auto()
    NONE = auto()
    UNCLEAR = auto()


class Refusal(Exception):
    """Typing now would do harm; the text says why, and what the user can do."""

    def __init__(self, obstacle: Obstacle, words: str) -> None:
        super().__init__(words)
        self.obstacle = obstacle


def has_empty_box(project: Project, record: WorkerRecord) -> bool:
    """Whether an idle agent's input box is visible and empty, once the screen has settled."""
    pane = project.pane(record)
    if not isinstance(pane, Pane):
        return False
    return _see(lambda: _box(project, record, pane).box is Box.EMPTY, REDRAW_S)


def person_in_way(
    project: Project, record: WorkerRecord, patience_s: float = REDRAW_S, *, now: bool = True
) -> Refusal | None:
    """What the user does or left that keeps llmc from typing into an agent or stopping it; None if none is running."""
    refusal = what_is_in_way(project, record, patience_s, now=now)
    return refusal if refusal is not None and refusal.obstacle.is_person else None


def what_is_in_way(
    project: Project, record: WorkerRecord, patience_s: float = REDRAW_S, *, now: bool = True
) -> Refusal | None:
    """Why a prompt would be refused; presses no key. `patience_s`: how long a redraw may take.

    Without `now`, a recent answer of tmux is good enough: the caller does nothing before its next check.
    """
    try:
        typist = Typist(project, record, _no_prompt(), now=now)
        typist._refuse_if_a_dialog_or_person_is_there()
        if not _see(lambda: typist._box().box in _FREE, patience_s):
            typist._refuse_what_is_in_the_box()
    except Refusal as refusal:
        return refusal
    return None


def start_new_conversation(project: Project, record: WorkerRecord) -> None:
    """Send `/clear` without a prompt after it; raises Refusal if no new conversation starts."""
    typist = Typist(project, record, _no_prompt())
    was_busy = typist._refuse_if_a_dialog_or_person_is_there()
    if not typist._wait_for_an_empty_box():
        typist._refuse_what_is_in_the_box()
    typist._new_conversation(was_busy)


def _no_prompt() -> Delivery:
    return Delivery(prompt_id=PromptId("clear"), outcome=Outcome.PENDING, at_unix=now_unix(), clear=True)


def _see(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition on the screen holds; returns whether it does."""
    return wait_until(condition, timeout_s, interval_s=LOOK_S, slower_to_s=LOOK_LATER_S)


def _box(project: Project, record: WorkerRecord, pane: Pane) -> Composer:
    return screen_of(record.agent).composer(*project.tmux.screen(pane))


def leave(project: Project, record: WorkerRecord) -> None:
    """Send `/exit`, so that the agent exits on its own, if its input box is empty."""
    pane = project.pane(record)
    if isinstance(pane, Pane) and has_empty_box(project, record):
        project.tmux.send_keys(pane, screen_of(record.agent).leave, "Enter")


class Typist:
    """One delivery in progress."""

    def __init__(
        self, project: Project, record: WorkerRecord, delivery: Delivery, *, now: bool = True
    ) -> None:
        """`now`: always ask tmux for the pane, even if it answered a moment ago."""
        self.project = project
        self.record = record
        self.name = record.name
        self.delivery = delivery
        self.header = header_line(delivery.prompt_id)
        self._now = now
        self.pane = self._living_pane()
        self.proof: Outcome | None = None
        self.seen: dict[str, AgentEvent | Malformed] = {}
        self.reader, self.screen = reader_of(record.agent), screen_of(record.agent)
        self.transcript = self.reader.transcript(record.transcript_path)
        # A first delivery can only appear in the transcript after this point.
        self.transcript_offset = 0 if delivery.outcome is Outcome.TYPED else self.transcript.size()

    def deliver(self) -> tuple[Outcome, str, Obstacle | None]:
        """Deliver the prompt; returns the outcome, the reason, and the obstacle, if known."""
        was_typed = self.delivery.outcome is Outcome.TYPED
        trace = self._trace_of_an_earlier_try() if was_typed else _Trace.NONE
        if trace is _Trace.ARRIVED:
            return (
                self._proof() or Outcome.ACKNOWLEDGED,
                "the prompt arrived before llmc was interrupted",
                None,
            )
        if trace is _Trace.UNCLEAR:
            return Outcome.UNCONFIRMED, _STILL_UNCLEAR, None
        was_busy = self._refuse_if_a_dialog_or_person_is_there()
        if trace is not _Trace.IN_BOX:
            is_empty = self._wait_for_an_empty_box()
            if was_typed and not is_empty and self._box_is_ours():
                return self._press_enter(was_busy)  # a slow agent shows the received text only now
            if not is_empty:
                self._refuse_what_is_in_the_box()
            if self.delivery.clear and not self.delivery.cleared:
                self._new_conversation(was_busy)
            self._paste()
        return self._press_enter(was_busy)

    def _trace_of_an_earlier_try(self) -> "_Trace":
        """Find out what happened to keys that were sent before an interruption.

        A missing trace proves nothing by itself, because the agent may be slow. It counts only once the agent has
        been idle for a while; an agent that is waiting for CPU time, or stopped, is not idle.
        """
        rested_s, before = 0.0, time.monotonic()
        deadline = before + DOUBT_S
        while before < deadline:
            if self._proof():
                return _Trace.ARRIVED
            if not self._lives():
                return _Trace.NONE
            time.sleep(0.02)
            now = time.monotonic()
            if self._status() not in (ClientStatus.IDLE, ClientStatus.UNKNOWN, ClientStatus.SHELL):
                rested_s = 0.0
            elif not processes.waits_for_a_turn(self.pane.pid):
                rested_s += min(now - before, 0.1)  # this process may be the slow one
            before = now
            if rested_s > REST_S:
                return _Trace.IN_BOX if self._box_is_ours() else _Trace.NONE
        return _Trace.UNCLEAR

    def _living_pane(self) -> Pane:
        find = self.project.pane_now if self._now else self.project.pane
        pane = answered(find(self.record), self.name)
        if pane is None or pane.dead or not processes.is_alive(pane.pid):
            raise Refusal(
                Obstacle.DEAD,
                f"{self.name}'s agent is not running; start it with `{self.project.start_command(self.record)}`",
            )
        return pane

    def _refuse_if_a_dialog_or_person_is_there(self) -> bool:
        """Whether the agent is busy; refuses if our text would answer a dialog or mix with the user's typing."""
        taken = is_taken(self.record, self.pane)
        if taken:
            raise Refusal(Obstacle.HELD if self.record.held else Obstacle.ATTACHED, taken)
        status = self._status()
        if status is ClientStatus.WAITING:
            said = state_of(self.record, self.pane.pid)
            command = "answer" if open_question(self.record, said) else "attach"
            first = f"answer it first with `llmc {command} {self.name}`"
            words = f"{self.name} has an open dialog that the text would answer; {first}"
            raise Refusal(Obstacle.QUESTION if said.asks else Obstacle.DIALOG, words)
        return status is ClientStatus.BUSY

    def _wait_for_an_empty_box(self) -> bool:
        """Whether the box was seen empty: the screen may lag or be redrawn at any moment, so once is enough.

        Blanks are erased: they are not a draft, but a client would take `  /clear` for a prompt.
        """
        found = Box.ABSENT

        def is_free() -> bool:
            nonlocal found
            found = self._box().box
            return found in _FREE

        _see(is_free, REDRAW_S)
        if found is Box.BLANK and self._status() is not ClientStatus.WAITING:
            self._keys(*[self.screen.erase_key] * CLEARING_KEYS)
        return _see(lambda: self._box().box is Box.EMPTY, REDRAW_S)

    def _refuse_what_is_in_the_box(self) -> None:
        """Our text must not be appended to other text, or typed into the user's search."""
        box = self._box()
        attach = f"run `llmc attach {self.name}`"
        if box.box is Box.ABSENT:
            words = f"{self.name}'s input box is not on the screen; {attach}, then close whatever covers it"
            raise Refusal(Obstacle.SCREEN, words)
        if box.box is not Box.EMPTY:
            shown = f" ({box.text[:40]!r})" if box.text else ""
            if self._is_left_over(box):
                words = f"{self.name}'s input box still contains an earlier prompt{shown}; {attach}, then clear it"
                raise Refusal(Obstacle.LEFTOVER, words)
            words = f"{self.name}'s input box contains a draft{shown}; {attach}, then send or clear it"
            raise Refusal(Obstacle.DRAFT, words)

    def _is_left_over(self, box: Composer) -> bool:
        """Whether the text is llmc's own: by its header, or because a typed prompt was never confirmed."""
        last = self.record.delivery
        in_doubt = last is not None and last.outcome in (Outcome.UNCONFIRMED, Outcome.TYPED)
        return header_id(box.text) is not None or (in_doubt and self.screen.is_placeholder(box))

    def _new_conversation(self, was_busy: bool) -> None:
        # A client stays busy for a moment after the end of its turn.
        if was_busy and not wait_until(self._rests, AFTER_STOP_S, interval_s=0.02):
            words = f"{self.name} is busy and cannot start a new conversation"
            raise Refusal(Obstacle.BUSY, words)
        with fault_step("submit.clear"):
            before = {event.id for event in self._events()}
            self._keys(self.screen.clear, "Enter")
            for _ in range(ENTERS):
                if wait_until(lambda: self._cleared(before), CLEAR_WAIT_S, interval_s=POLL_S):
                    break
                if (
                    self._box().text.strip() == self.screen.clear
                    and self._status() is not ClientStatus.WAITING
                ):
                    self._keys("Enter")
            else:
                words = f"{self.name} did not start a new conversation after /clear; check `llmc peek {self.name}`"
                raise Refusal(Obstacle.NO_CLEAR if self._lives() else Obstacle.DEAD, words)
        self._remember(replace(self.delivery, cleared=True))

    def _rests(self) -> bool:
        return self._status() is not ClientStatus.BUSY

    def _cleared(self, before: set[str]) -> bool:
        for event in self._events():
            if event.id not in before and event.what is What.SESSION_STARTED and event.is_cleared:
                self.transcript, self.transcript_offset = self.reader.transcript(event.transcript), 0
                return True
        return False

    def _paste(self) -> None:
        # From here on a crash leaves doubt, so the next attempt looks for proof first.
        self._remember(replace(self.delivery, outcome=Outcome.TYPED))
        buffer = f"llmc-{os.urandom(4).hex()}"
        with fault_step("submit.paste"):
            if not self.project.tmux.paste(self.pane, buffer, self.delivery.text):
                words = f"{self.name}'s agent has just exited; restart it with `{self.project.start_command(self.record)}`"
                raise Refusal(Obstacle.DEAD, words)
        _see(self._box_is_ours, SETTLE_S)

    def _press_enter(self, was_busy: bool) -> tuple[Outcome, str, Obstacle | None]:
        for attempt in range(ENTERS):
            if attempt == 0 or self._is_safe_to_press():
                self._enter()
            if wait_until(self._is_settled, PROOF_WAIT_S, interval_s=POLL_S):
                break
        with fault_step("submit.receipt"):
            proof = self._proof()
        if proof is None:
            problem = self._take_back()
            # A slow agent may have read an Enter by now and sent the text, which then looks as if we had removed it.
            trace = self._trace_of_an_earlier_try()
            if trace is not _Trace.ARRIVED:
                died = None if self._lives() else Obstacle.DEAD
                return Outcome.UNCONFIRMED, _STILL_UNCLEAR if trace is _Trace.UNCLEAR else problem, died
            proof = self._proof() or Outcome.ACKNOWLEDGED
        return (Outcome.QUEUED if was_busy else proof), "", None

    def _lives(self) -> bool:
        return processes.is_alive(self.pane.pid)

    def _is_settled(self) -> bool:
        """Whether the agent has confirmed the prompt, or can no longer do so."""
        return self._proof() is not None or not self._lives()

    def _enter(self) -> None:
        try:
            with fault_step("submit.enter"):
                self._keys("Enter")
        except FaultInjected:
            pass  # the fault simulates an Enter that never reached the agent

    def _is_safe_to_press(self) -> bool:
        """Whether Enter can do nothing but send our own text."""
        return self._status() is not ClientStatus.WAITING and self._box_is_ours()

    def _take_back(self) -> str:
        """Remove our own text from the box, so that it is not sent later with other text; returns what happened."""
        if not self._lives():
            return "the agent exited before it confirmed the prompt"
        if not self._is_safe_to_press():
            return "the agent did not confirm the prompt in time, and the text is no longer in its input box"
        for _ in range(3):
            # C-u removes one line. Escape would remove all, but would also interrupt a running turn.
            self._keys(*[self.screen.erase_key] * CLEARING_KEYS)
            if _see(lambda: self._box().box is Box.EMPTY, REDRAW_S):
                return "the agent did not accept the prompt, so llmc removed it from the input box"
            if not self._is_safe_to_press():
                break
        return "the agent did not accept the prompt, which may still be in its input box"

    def _proof(self) -> Outcome | None:
        """The agent's confirmation of the prompt; once seen, it stands."""
        self.proof = self.proof or self._proof_in_inbox() or self._proof_in_transcript()
        return self.proof

    def _proof_in_inbox(self) -> Outcome | None:
        for event in self._events():
            if event.what is What.PROMPT_ARRIVED and self._is_ours(event.prompt):
                return Outcome.ACKNOWLEDGED
        return None

    def _proof_in_transcript(self) -> Outcome | None:
        prompts, self.transcript_offset = self.transcript.prompts(self.header, self.transcript_offset)
        for prompt in prompts:
            if self._is_ours(prompt.text):
                return Outcome.QUEUED if prompt.queued else Outcome.ACKNOWLEDGED
        return None

    def _is_ours(self, text: str) -> bool:
        return carries(text, self.delivery.prompt_id)

    def _events(self) -> list[AgentEvent]:
        """This launch's events in the inbox; each file is read once."""
        for event_id in inbox.pending_ids(self.project.root, self.name):
            if event_id not in self.seen and (hook := inbox.load(self.project.root, self.name, event_id)):
                self.seen[event_id] = event_of(hook, self.record.agent)
        mine = (event for _, event in sorted(self.seen.items()) if isinstance(event, AgentEvent))
        return [event for event in mine if event.instance == self.record.instance]

    def _remember(self, delivery: Delivery) -> None:
        self.delivery = delivery
        with self.project.store.transaction() as tx:
            tx.update(self.name, delivery=delivery)

    def _status(self) -> ClientStatus:
        return status_of(self.record, self.pane)

    def _box(self) -> Composer:
        return _box(self.project, self.record, self.pane)

    def _box_is_ours(self) -> bool:
        return self.screen.holds(self._box(), self.header, self.delivery.text)

    def _keys(self, *keys: str) -> None:
        self.project.tmux.send_keys(self.pane, *keys)
