"""The scripted agent as a program: keys in, turns out. Runs in the thread of the event loop.

Nothing here wakes up by itself: an idle agent costs nothing.
"""

import json
import os
import select
import signal
import time
from queue import Empty, SimpleQueue

from llmc.agents.claude.layout import USER_CONFIG
from llmc.agents.scripted import keyboard
from llmc.agents.scripted.command_line import VERSION, Options
from llmc.agents.scripted.conversation import Conversation, Function, Item, Jobs
from llmc.agents.scripted.keyboard import Composer, Decoder, Dialog, Piece, Press
from llmc.agents.scripted.screen import Screen, Terminal, View

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGWINCH)


class Wakeups:
    """A pipe that ends the loop's wait; it carries the numbers of the signals that arrived."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._posted: SimpleQueue[Function] = SimpleQueue()

    def catch_signals(self) -> None:
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)

    def post(self, function: Function) -> None:
        """Run the function in the event loop. Callable from any thread."""
        self._posted.put(function)
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            pass  # full of wake-ups: it wakes anyway

    def run_posted(self) -> list[int]:
        """Run what was posted; returns the signals that arrived."""
        try:
            arrived = os.read(self.fd, 65536)
        except BlockingIOError:
            arrived = b""
        while True:
            try:
                self._posted.get_nowait()()
            except Empty:
                return [number for number in arrived if number]

    def wait(self, in_fd: int, timeout_s: float | None) -> tuple[bool, bool]:
        """Block until there is input, a wake-up or the timeout: (input, wake-up)."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if in_fd >= 0:
            poll.register(in_fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)}
        return in_fd in ready, self.fd in ready


ESCAPE_WAIT_S = 0.05
DOUBLE_PRESS_S = 1.0
IDLE_PROMPT_S = 60.0

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 0}


class App:
    """The screen, the composer, and which job runs."""

    def __init__(self, options: Options) -> None:
        self._enters_to_swallow = int(os.environ.get("LLMC_SCRIPTED_SWALLOW_ENTER") or 0)
        self.wakeups = Wakeups()
        self.conversation = Conversation(options, self.wakeups.post)
        self.jobs = Jobs(self.conversation, self._job_done)
        self.terminal = Terminal()
        self.screen = Screen(self.terminal)
        self.decoder = Decoder()
        self.composer = Composer()
        self._options = options
        self._input_open = True
        self._armed = ""  # the key whose second press acts
        self._armed_until = 0.0
        self._escape_by = 0.0
        self._search: str | None = None
        self._idle_since: float | None = None
        self._idle_notice_s = 0.0

    def run(self) -> int:
        self.wakeups.catch_signals()
        self.terminal.open()
        self._banner()
        self.jobs.start(float(os.environ.get("LLMC_SCRIPTED_START_DELAY") or 0), self._options.prompt)
        self._draw()
        while True:
            has_input, woken = self.wakeups.wait(
                self.terminal.in_fd if self._input_open else -1, self._timeout()
            )
            if woken:
                for number in self.wakeups.run_posted():
                    self._signalled(number)
            if has_input:
                self._read()
            self._expire()
            self.jobs.advance()
            self._draw()

    def _banner(self) -> None:
        session = self.conversation.session
        self.conversation.new_lines += [
            f" ▐▛███▜▌   Claude Code v{VERSION} (llmc scripted agent)",
            f"▝▜█████▛▘  {self._options.model_name} · no model, no account",
            f"  ▘▘ ▝▝    {session.cwd}",
            "",
        ]

    def _draw(self) -> None:
        lines, self.conversation.new_lines = self.conversation.new_lines, []
        self.screen.show(self._view(), lines)

    def _view(self) -> View:
        dialog = self.conversation.dialog
        return View(
            self.composer.shown,
            self._footer(),
            queued=[item.shown for item in self.conversation.queued()],
            spinner="✻ Working… (esc to interrupt)" if self.jobs.turn and not dialog else "",
            dialog=dialog.lines(self.terminal.size()[0]) if dialog else [],
            search=self._search,
        )

    def _footer(self) -> str:
        if self._armed in ("ctrl-c", "ctrl-d"):
            return f"  Press {self._armed.title()} again to exit"
        if self.composer.pieces and self.composer.pieces[-1].label:
            return "  paste again to expand"
        if self._options.mode == "bypassPermissions":
            return "  ⏵⏵ bypass permissions on (shift+tab to cycle)"
        return "  ? for shortcuts"

    def _timeout(self) -> float | None:
        """Seconds until the next timed action; None if there is none."""
        due = [self._armed_until] if self._armed else []
        due += [self._escape_by] if self.decoder.has_pending_escape else []
        due += [self._idle_since + self._idle_notice_s] if self._idle_since is not None else []
        return min(due) - time.monotonic() if due else None

    def _expire(self) -> None:
        now = time.monotonic()
        if self._armed and now >= self._armed_until:
            self._armed = ""
        if self.decoder.has_pending_escape and now >= self._escape_by:
            self._press_all(self.decoder.flush())
        if self._idle_since is not None and now >= self._idle_since + self._idle_notice_s:
            self._idle_since = None
            if not self.jobs.turn and not self.conversation.dialog:
                self.jobs.notify_idle()

    def _signalled(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self.screen.redraw(self._view())
        elif number in EXIT_CODES:
            self._exit("other", EXIT_CODES[signal.Signals(number)])

    def _read(self) -> None:
        data = self.terminal.read()
        if data is None:
            self._input_open = False
            self._exit("other", EXIT_CODES[signal.SIGHUP])
            return
        self._press_all(self.decoder.feed(data))
        self._escape_by = time.monotonic() + ESCAPE_WAIT_S

    def _press_all(self, presses: list[Press]) -> None:
        for key, text in presses:
            self._idle_since = None
            if key == "enter" and self._swallows_enter():
                continue
            if self.conversation.dialog:
                self._press_in_dialog(self.conversation.dialog, key, text)
            elif self._search is not None:
                self._press_in_search(self._search, key, text)
            else:
                self._press(key, text)

    def _swallows_enter(self) -> bool:
        if self.jobs.is_deaf:
            return True
        if self._enters_to_swallow <= 0:
            return False
        self._enters_to_swallow -= 1
        return True

    def _press(self, key: str, text: str) -> None:
        repeated = self._armed == key
        self._armed = ""
        if key == "text":
            self.composer.insert(text)
        elif key == "paste":
            self.composer.paste(text)
        elif key == "newline":
            self.composer.insert("\n")
        elif key == "backspace":
            self.composer.backspace()
        elif key == "ctrl-u":
            self.composer.kill_line()
        elif key == "enter":
            self._enter()
        elif key == "ctrl-r":
            self._search = ""
        elif key == "escape":
            self._escape(repeated)
        elif key == "ctrl-c":
            self._control_c(repeated)
        elif key == "ctrl-d" and not self.composer:
            self._leave_on(key, repeated)

    def _arm(self, key: str) -> None:
        self._armed, self._armed_until = key, time.monotonic() + DOUBLE_PRESS_S

    def _escape(self, repeated: bool) -> None:
        if self.jobs.turn:
            self.jobs.turn.interrupt()
        elif not repeated:
            self._arm("escape")
        elif self.composer:
            self.composer.clear()
        else:
            self.jobs.open_panel("Rewind")

    def _control_c(self, repeated: bool) -> None:
        if self.jobs.turn:
            self.jobs.turn.interrupt()
        elif self.composer:
            self.composer.clear()
        else:
            self._leave_on("ctrl-c", repeated)

    def _leave_on(self, key: str, repeated: bool) -> None:
        if repeated:
            self._exit("prompt_input_exit", 0)
        self._arm(key)

    def _press_in_search(self, words: str, key: str, text: str) -> None:
        """A key in the search of earlier prompts: text and pastes go into its pattern."""
        if key in ("text", "paste"):
            self._search = words + text.replace("\n", " ")
        elif key == "backspace":
            self._search = words[:-1]
        elif key in ("enter", "escape", "ctrl-c"):
            self._search = None

    def _press_in_dialog(self, dialog: Dialog, key: str, text: str) -> None:
        answer: str | None = None
        if key == "text":
            answer = dialog.typed(text)
        elif key == "paste":
            dialog.box.paste(text)
        elif key == "backspace":
            dialog.box.backspace()
        elif key == "enter":
            answer = dialog.entered()
        elif key in ("escape", "ctrl-c"):
            self.jobs.cancel_dialog()
        if answer is not None:
            self.jobs.answer_dialog(answer)

    def _enter(self) -> None:
        if self.composer.continue_line():
            return
        text = self.composer.text
        pieces = self.composer.take()
        if not text.strip():
            return
        kind = keyboard.kind_of(text)
        if kind == "exit":
            self._exit("prompt_input_exit", 0)
        elif kind == "unknown":
            self.conversation.new_lines += [f"Unknown command: /{keyboard.slash_name(text)}", ""]
        elif kind == "panel":
            self.jobs.open_panel(f"/{keyboard.slash_name(text)}")
        else:
            self.jobs.submit(Item(kind, text, pieces))

    def _job_done(self, restored: list[Piece], cleared: bool, had_turn: bool) -> None:
        if cleared:
            self.screen.clear()
            self._banner()
        if restored and not self.composer:
            self.composer.pieces = restored
        if had_turn:
            self._idle_notice_s = self._idle_notice_s or _idle_notice_s(self.conversation.session.config_dir)
            self._idle_since = time.monotonic()

    def _exit(self, reason: str, code: int) -> None:
        self.jobs.abandon(reason)
        self.terminal.close()
        os._exit(code)


def _idle_notice_s(config_dir: str) -> float:
    """How long the user may be away before `idle_prompt`; the client reads it from the same place."""
    try:
        with open(os.path.join(config_dir, USER_CONFIG), encoding="utf-8") as file:
            return float(json.load(file)["messageIdleNotifThresholdMs"]) / 1000
    except (OSError, ValueError, KeyError, TypeError):
        return IDLE_PROMPT_S
