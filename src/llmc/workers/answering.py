"""`llmc answer`: answer a worker's question without attaching, with proof of receipt.

`llmc report blocked` is answered by a message. A question from the client is answered in its dialog, and only if the
client's status file says that it waits for input, its hook named the question, and the screen shows exactly that question.
The proof is the client's transcript, which records question and answer. Nothing is typed into any other dialog.
"""

import os
import time

from llmc.agents.agent_events import Shown
from llmc.agents.kinds import reader_of
from llmc.agents.protocol import ClientState, ClientStatus
from llmc.agents.screens import screen_of
from llmc.base.errors import Refused, UsageError
from llmc.base.given import number
from llmc.base.names import PromptId
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.records.event_log import EventLog
from llmc.records.transitions import Step, step
from llmc.records.worker import Asked, Outcome, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import intake
from llmc.sessions.rules.decide import DIALOG, said_in_error
from llmc.sessions.rules.prompt_text import normalise
from llmc.sessions.sessions import agent_gone, is_taken, open_question, state_of
from llmc.sessions.submit import Receipt, new_prompt_id
from llmc.workers import start
from llmc.workers.patrol import finish_interrupted

#: how long after its hook the dialog may take to appear
DRAWN_S = 5.0
#: how long the client may take to react, and how often we try: for up to 0.7 s a new dialog takes keys but drops text
PROOF_S = 2.0
TRIES = 3
#: how long to wait for the proof once the dialog is gone
AFTER_S = 10.0
#: longer texts do not fit on the dialog's input line
MOST_CHARS = 400
#: the kind of an answer in a dialog
_KIND = "answer"


def question_of(project: Project, name: str) -> tuple[str, tuple[str, ...]]:
    """The worker's question and its options; Refused if `answer` cannot answer it."""
    record = project.store.worker(name)
    if _is_blocked(record):
        return record.error_reason or "the worker reported a blocker", ()
    asked = _answerable(project, record)
    return asked.text, asked.options


def new_id(project: Project, name: str) -> PromptId:
    """An id for an answer, for a caller that must know it before anything is typed."""
    return new_prompt_id("message" if _is_blocked(project.store.worker(name)) else _KIND)


def receipt_of(project: Project, name: str, prompt_id: PromptId) -> Receipt | None:
    """The receipt of an answer under this id, also of a daemon that died; None: nothing was typed."""
    if name in project.store.read().workers:
        with project.worker_lock(name):
            finish_interrupted(project, name)
    for row in EventLog(str(project.root.events)).newest(prompt_id.encode()):
        if row.get("prompt_id") != prompt_id:
            continue
        if row.get("action") in ("prompt_delivered", "question_answered"):
            elapsed_ms = round(number(row.get("elapsed_ms")) or 0)
            return Receipt(name, prompt_id, Outcome(row["outcome"]), elapsed_ms, str(row.get("reason") or ""))
        if row.get("action") == "prompt_pending":
            return Receipt(name, prompt_id, Outcome.UNCONFIRMED, 0, _unconfirmed(name))
    return None


def answer(project: Project, name: str, text: str, prompt_id: PromptId | None = None) -> Receipt:
    """Answer a worker; takes its lock. `prompt_id`: an id chosen by the caller."""
    words = " ".join(normalise(text).split())
    if not words:
        raise UsageError("the answer is empty", hint=f'Run: llmc answer {name} "..."')
    with project.worker_lock(name):
        record = intake.apply_pending(project, name)
        if _is_blocked(record):
            return start.send_message(project, name, text, prompt_id)
        asked = _answerable(project, record)
        return _Dialog(project, record, asked, prompt_id or new_prompt_id(_KIND)).answer(words)


def _unconfirmed(name: str) -> str:
    return f"the agent did not confirm the answer. To see whether it arrived: llmc attach {name}"


def _is_blocked(record: WorkerRecord) -> bool:
    return record.status is Status.NEEDS_INPUT and record.reason == "blocked"


def _answerable(project: Project, record: WorkerRecord) -> Asked:
    """The open question, in any status; Refused if there is none, or its dialog takes no answer from outside."""
    name, asked = record.name, record.asked
    told = record.status is Status.NEEDS_INPUT and record.reason in ("question", "permission")
    pane = project.pane(record)
    said = state_of(record, pane.pid) if isinstance(pane, Pane) and not pane.dead else ClientState()
    if not told and said.status is not ClientStatus.WAITING:
        raise Refused(
            f"{name} has no open question (status: {record.status})",
            hint="Run `llmc status` to see all workers.",
        )
    if told and record.reason == "question" and asked is not None and asked.answerable:
        return asked  # its dialog may take a moment to appear
    if not told and (found := open_question(record, said)) is not None:
        return found
    raise Refused(
        f"`llmc answer` cannot answer {name}: it {_why_not_here(record, told)}",
        hint=f"To answer in the worker's terminal: llmc attach {name}",
    )


def _why_not_here(record: WorkerRecord, told: bool) -> str:
    if not told:
        return "has an open dialog that is not a question"
    if record.reason == "permission":
        return "is asking for permission"
    return "has a question that only its terminal can answer (several questions or answers, previews, or too long)"


def _goes_on(now: WorkerRecord) -> Step | None:
    """The transition when its question was answered; None if its turn has ended, or the status stays."""
    if now.status is Status.ERROR:
        return said_in_error(now)
    asks = now.status is Status.NEEDS_INPUT and now.reason in ("question", DIALOG)
    return step(Status.WORKING, "question answered") if asks else None


class _Dialog:
    """Answers one question in the client's dialog."""

    def __init__(self, project: Project, record: WorkerRecord, asked: Asked, prompt_id: PromptId) -> None:
        self.project, self.record, self.asked, self.prompt_id = project, record, asked, prompt_id
        self.pane, self.screen = self._pane(), screen_of(record.agent)
        self.transcript = reader_of(record.agent).transcript(record.transcript_path)
        # The answer can only appear after this point.
        self.offset = self.transcript.size()
        #: the answer that the client recorded
        self.given = ""

    def answer(self, words: str) -> Receipt:
        began = time.monotonic()
        choice = self._choice(words)
        if not wait_until(lambda: self._shown() is not None, DRAWN_S, interval_s=0.05):
            raise Refused(
                f"cannot send the answer: {self.record.name} may be showing a different dialog",
                hint=f"To answer in the worker's terminal: llmc attach {self.record.name}",
            )
        with self.project.store.transaction() as tx:
            tx.emit("prompt_pending", worker=self.record.name, prompt_id=self.prompt_id)
        self._choose(choice) if choice else self._write(words)
        wait_until(lambda: bool(self._proof()), AFTER_S if not self._waits() else 0.0, interval_s=0.02)
        wanted = self.asked.options[choice - 1] if choice else words
        return self._record(wanted, round((time.monotonic() - began) * 1000))

    def _choice(self, words: str) -> int:
        """The number of an option; 0 for a free-text answer."""
        options = self.asked.options
        named = [n for n, label in enumerate(options, 1) if words.casefold() == label.casefold()]
        if named:
            return named[0]
        if words.isdecimal():
            if not 1 <= int(words) <= len(options):
                raise UsageError(
                    f"the question has no option {words}",
                    hint=f"Pass a number from 1 to {len(options)}, or your answer as text.",
                )
            return int(words)
        if len(words) > MOST_CHARS:
            raise UsageError(
                f"the answer is longer than {MOST_CHARS} characters",
                hint=f"To type a longer answer: llmc attach {self.record.name}",
            )
        return 0

    def _pane(self) -> Pane:
        pane = self.project.pane_now(self.record)
        if not isinstance(pane, Pane) or pane.dead:
            raise agent_gone(self.project, self.record)
        taken = is_taken(self.record, pane)
        if taken:
            raise Refused(taken)
        return pane

    def _waits(self) -> bool:
        said = state_of(self.record, self.pane.pid)
        return said.status is ClientStatus.WAITING and said.wants_answer

    def _shown(self) -> Shown | None:
        """The dialog, if it is certain to be this question."""
        if not self._waits():
            return None
        shown, cursor = self.project.tmux.screen(self.pane)
        return self.screen.recognise(shown, self.asked.text, self.asked.options, cursor)

    def _choose(self, number: int) -> None:
        for _ in range(TRIES):
            shown = self._shown()
            if shown is None or shown.typed or (shown.in_free_line and not self._leave_the_line()):
                return
            self.project.tmux.send_keys(self.pane, self.screen.option_key(number))
            if wait_until(lambda: bool(self._proof()) or not self._waits(), PROOF_S, interval_s=0.02):
                return

    def _leave_the_line(self) -> bool:
        """Move the cursor from the empty free-text line, where a number is text; whether it is at an option."""
        self.project.tmux.send_keys(self.pane, self.screen.up_key)
        return wait_until(lambda: self._shown() == Shown("", in_free_line=False), PROOF_S, interval_s=0.02)

    def _write(self, words: str) -> None:
        """Type into the free-text line; press Enter only when it holds exactly our text."""
        for attempt in range(TRIES):
            if attempt and not self._enter_the_line():  # older clients take text only there
                break
            shown = self._shown()
            if shown is None or shown.typed:
                break
            self.project.tmux.paste(self.pane, f"llmc-{os.urandom(4).hex()}", words)
            if wait_until(lambda: self._has(words), PROOF_S, interval_s=0.02):
                break
        for _ in range(TRIES):
            if not self._has(words):
                return
            self.project.tmux.send_keys(self.pane, "Enter")
            if wait_until(lambda: bool(self._proof()) or not self._waits(), PROOF_S, interval_s=0.02):
                return

    def _enter_the_line(self) -> bool:
        """Select the free-text line by its number; whether the cursor is in it and it is empty."""
        shown = self._shown()
        if shown is not None and not shown.typed and not shown.in_free_line:
            free_line = len(self.asked.options) + 1
            self.project.tmux.send_keys(self.pane, self.screen.option_key(free_line))
        return wait_until(lambda: self._has(""), PROOF_S, interval_s=0.02)

    def _has(self, words: str) -> bool:
        shown = self._shown()
        return shown is not None and shown.in_free_line and shown.typed == words

    def _proof(self) -> str:
        """The answer that the client recorded for this question; "" if none yet."""
        given, self.offset = self.transcript.answer_to(self.asked.text, self.offset)
        self.given = given or self.given
        return self.given

    def _record(self, wanted: str, elapsed_ms: int) -> Receipt:
        name, arrived = self.record.name, self.given == wanted
        outcome = Outcome.ACKNOWLEDGED if arrived else Outcome.UNCONFIRMED
        reason = "" if arrived else self._why_not()
        intake.apply_pending(self.project, name)
        with self.project.store.transaction() as tx:
            now = tx.worker(name)
            if arrived and now.asked == self.asked and (change := _goes_on(now)):
                tx.move(name, change)
            about = {"prompt_id": self.prompt_id, "elapsed_ms": elapsed_ms}
            tx.emit(
                "question_answered", worker=name, reason=reason, outcome=outcome, answer=wanted[:200], **about
            )
        return Receipt(name, self.prompt_id, outcome, elapsed_ms, reason)

    def _why_not(self) -> str:
        if self.given:
            return f"the question was already answered: {self.given[:100]}"
        return _unconfirmed(self.record.name)
