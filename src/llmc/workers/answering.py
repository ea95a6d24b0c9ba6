"""`llmc answer`: a person's answer to what a worker asks, without attaching; with proof, as for a prompt.

`llmc report blocked` is answered by a message. A question of the client is answered in its dialog, and only there: the
client's status file says that it waits for input, its hook said what it asks, and the screen shows exactly that. Proof is
the client's own transcript, which names the question and the answer. Nothing is typed into any other dialog.
"""

import os
import time

from llmc.agents.agent_events import Shown
from llmc.agents.protocol import ClientStatus
from llmc.agents.registry import reader_of
from llmc.agents.screens import screen_of
from llmc.base.errors import Refused, UsageError
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.records.transitions import step
from llmc.records.worker import Asked, Outcome, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import intake
from llmc.sessions.rules.prompt_text import normalise
from llmc.sessions.sessions import is_taken, state_of
from llmc.sessions.submit import Receipt, new_prompt_id
from llmc.workers import start

#: how long the dialog may take to be drawn after its hook
DRAWN_S = 5.0
#: how long the client has to take a key, and how often it is pressed: a dialog ignores keys in its first moment
PROOF_S = 2.0
TRIES = 3
#: how long to look for the proof once the dialog is gone
AFTER_S = 10.0
#: longer texts do not fit into the line of the dialog
MOST_CHARS = 400


def question_of(project: Project, name: str) -> tuple[str, tuple[str, ...]]:
    """What the worker asks, and what can be chosen; Refused where `answer` cannot answer it."""
    record = project.store.worker(name)
    if _is_blocked(record):
        return record.error_reason or "it says that it is blocked", ()
    asked = _answerable(record)
    return asked.text, asked.options


def answer(project: Project, name: str, text: str) -> Receipt:
    """Answer a worker; takes its lock."""
    words = " ".join(normalise(text).split())
    if not words:
        raise UsageError("the answer is empty", hint=f'llmc answer {name} "..."')
    with project.worker_lock(name):
        record = intake.apply_pending(project, name)
        if _is_blocked(record):
            return start.send_message(project, name, text)
        return _Dialog(project, record, _answerable(record)).answer(words)


def _is_blocked(record: WorkerRecord) -> bool:
    return record.status is Status.NEEDS_INPUT and record.reason == "blocked"


def _answerable(record: WorkerRecord) -> Asked:
    name, asked = record.name, record.asked
    if record.status is not Status.NEEDS_INPUT or record.reason not in ("question", "permission"):
        raise Refused(f"{name} asks nothing now (it is {record.status})", hint="See `llmc status`.")
    if asked is None or not asked.answerable or record.reason != "question":
        what = (
            f"{name} asks for permission" if record.reason == "permission" else f"{name} asks several things"
        )
        raise Refused(f"{what}; only a person at its terminal can answer that", hint=f"llmc attach {name}")
    return asked


class _Dialog:
    """One question, being answered."""

    def __init__(self, project: Project, record: WorkerRecord, asked: Asked) -> None:
        self.project, self.record, self.asked = project, record, asked
        self.pane, self.screen = self._pane(), screen_of(record.agent)
        self.transcript = reader_of(record.agent).transcript(record.transcript_path)
        # The answer can only show up in what is written from now on.
        self.offset = self.transcript.size()
        #: what the client wrote down as the answer
        self.given = ""

    def answer(self, words: str) -> Receipt:
        began = time.monotonic()
        choice = self._choice(words)
        if not wait_until(lambda: self._shown() is not None, DRAWN_S, interval_s=0.05):
            raise self._not_recognised()
        self._choose(choice) if choice else self._write(words)
        wait_until(lambda: bool(self._proof()), AFTER_S if not self._waits() else 0.0, interval_s=0.02)
        wanted = self.asked.options[choice - 1] if choice else words
        return self._record(wanted, round((time.monotonic() - began) * 1000))

    def _choice(self, words: str) -> int:
        """The number of an option; 0 for an answer in other words."""
        options = self.asked.options
        named = [n for n, label in enumerate(options, 1) if words.casefold() == label.casefold()]
        if named:
            return named[0]
        if words.isdecimal():
            if not 1 <= int(words) <= len(options):
                raise UsageError(
                    f"there is no option {words}", hint=f"Choose 1 to {len(options)}, or say it in words."
                )
            return int(words)
        if len(words) > MOST_CHARS:
            raise UsageError(
                f"the answer is longer than {MOST_CHARS} characters", hint="Attach to give a longer one."
            )
        return 0

    def _pane(self) -> Pane:
        name, pane = self.record.name, self.project.pane(self.record)
        if not isinstance(pane, Pane) or pane.dead:
            raise Refused(f"{name} has no running agent", hint="`llmc up --detach` starts it.")
        taken = is_taken(self.record, pane)
        if taken:
            raise Refused(taken)
        return pane

    def _waits(self) -> bool:
        said = state_of(self.record, self.pane.pid)
        return said.status is ClientStatus.WAITING and said.wants_answer

    def _shown(self) -> Shown | None:
        """The dialog, if it is certainly this one."""
        if not self._waits():
            return None
        shown = self.project.tmux.capture(self.pane)
        return self.screen.recognise(shown, self.asked.text, self.asked.options)

    def _not_recognised(self) -> Refused:
        name = self.record.name
        return Refused(
            f"the dialog of {name} is not certainly the question that it asked, so nothing was typed",
            hint=f"llmc attach {name}",
        )

    def _choose(self, number: int) -> None:
        for _ in range(TRIES):
            shown = self._shown()
            if shown is None or shown.typed:
                return
            self.project.tmux.send_keys(self.pane, self.screen.option_key(number))
            if wait_until(lambda: bool(self._proof()) or not self._waits(), PROOF_S, interval_s=0.02):
                return

    def _write(self, words: str) -> None:
        """Into the line for another answer; Enter only when exactly our words are there."""
        for attempt in range(TRIES):
            if attempt and not self._enter_the_line():  # an older client takes text only there
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
        """The line for another answer has a number, too; whether the cursor is in it now, and it is empty."""
        shown = self._shown()
        if shown is not None and not shown.typed and not shown.in_free_line:
            free_line = len(self.asked.options) + 1
            self.project.tmux.send_keys(self.pane, self.screen.option_key(free_line))
        return wait_until(lambda: self._has(""), PROOF_S, interval_s=0.02)

    def _has(self, words: str) -> bool:
        shown = self._shown()
        return shown is not None and shown.in_free_line and shown.typed == words

    def _proof(self) -> str:
        """What the client wrote down as the answer to this question; "" while it has written nothing."""
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
            is_open = now.status is Status.NEEDS_INPUT and now.reason == "question"
            if (
                arrived and is_open and now.asked == self.asked
            ):  # else its turn has ended, or it asks something else
                tx.move(name, step(Status.WORKING, "question answered"))
            tx.emit("question_answered", worker=name, reason=reason, outcome=outcome, answer=wanted[:200])
        return Receipt(name, new_prompt_id("answer"), outcome, elapsed_ms, reason)

    def _why_not(self) -> str:
        if self.given:
            return f"it was answered otherwise meanwhile: {self.given[:100]}"
        return f"no proof that the answer arrived; look: llmc attach {self.record.name}"
