"""Keys that act on workers. Each opens a form or asks for confirmation first, except hold and attach."""

import os

from llmc.api.said import BAD, GOOD, PLAIN, Said, Show, command_line, failed
from llmc.api.views import Item, Row
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, UsageError
from llmc.base.proc import ShuttingDown
from llmc.tui import later
from llmc.tui.diff_keys import Reviewing
from llmc.tui.lines import Lines
from llmc.tui.typed import words_of


class Acting(Reviewing):
    def do_accept(self) -> None:
        name = self._worker_or_say("accept its work")
        entry = self.here
        if not name or entry is None or entry.row is None:
            return
        row = entry.row
        if row.status != "needs_review":
            self._say("", f"nothing to accept yet: {name} {self._waits_for(row, entry.item)}", PLAIN)
            return
        try:
            commit = later.workers.commit_of(self.project, name)
        except LlmcError as error:
            self.said.append(failed(f"llmc accept {name}", error, now_unix()))
            return
        if self.diff is not None and self.view == "diff" and self.diff.page.review.head != commit:
            self._say("", f"{name} has changed since you opened this diff; reloading the diff", PLAIN)
            self.read_diff(name)
            return
        size = f"  +{row.added} -{row.deleted}" if row.added is not None else ""
        seen = "" if row.reviewed or self.view == "diff" else "  not reviewed"
        branch = self.project.config.repo.default_branch
        try:
            lands = later.acceptance.what_lands(self.project, name, commit) or row.subject
        except LlmcError:
            lands = row.subject  # accept reports the error
        question = f"Land {name} on {branch}?  {lands}  {commit[:9]}{size}{seen}"
        command, act = later.orders.accept(self.project, name, commit, only_seen=not seen)
        self._ask(
            question,
            "land",
            "revert later with: llmc undo",
            lambda: self._run(name, (command, self.after_reads(act)), lambda said: self._read_again(name)),
            look=self.view != "diff",
        )

    def _waits_for(self, row: Row, item: Item | None) -> str:
        """What a worker is doing or waiting for, and the key or command to use; agrees with its row in the list."""
        if item is None:
            return f"has status {row.status}"
        if item.next.startswith("llmc answer "):
            return f"is asking a question (press {self.key_names['answer']} to answer)"
        press = f" (press {self.key_names['message']} to send a message)"
        key = press if item.next.startswith("llmc message ") else ""
        return f"has status {row.status}: {item.sentence}{key or f'; next: {item.next}' if item.next else ''}"

    def do_undo(self) -> None:
        try:
            target = later.acceptance.undo_target(self.project)
            subject = later.acceptance.subject_of(self.project, target)
        except LlmcError as error:
            self.said.append(failed("llmc undo", error, now_unix()))
            return
        question = f"Revert {target.commit[:9]} from {target.worker}?  {subject}"
        self._ask(
            question,
            "revert",
            "you can then run the task again",
            lambda: self._run(target.worker, later.orders.undo(self.project, target)),
        )

    def do_hold(self) -> None:
        name = self._worker_or_say("put it on hold or release it")
        if name:
            self._run(name, later.orders.hold(self.project, name))

    def do_message(self) -> None:
        name = self._worker_or_say("send it a message")
        key = f"message {name}"
        if name:
            self._open_form(
                f"message to {name}:",
                lambda text: self._send(key, text, name, later.orders.message(self.project, name, text)),
                keep=key,
            )

    def do_start(self) -> None:
        name, entry = self.worker_here, self.here
        free = entry is not None and entry.row is not None and entry.row.status in ("idle", "no_changes")
        chosen = name if name and free else None
        title = f"task for {chosen}:" if chosen else "task for the next idle worker, or for a new worker:"
        key = f"task {chosen or ''}"
        self._open_form(
            title,
            lambda text: self._send(key, text, chosen or "", later.orders.start(self.project, chosen, text)),
            keep=key,
        )

    def do_new(self) -> None:
        self._open_form("name of the new worker:", lambda text: self._add(text.strip()), keep="name")

    def _add(self, name: str) -> None:
        """Add a worker, and move the cursor to it when it appears."""
        self.wanted = name
        self._send("name", name, name, later.orders.add(self.project, name))

    def do_answer(self) -> None:
        here = self.here
        if here is not None and here.node is not None and here.there is not None and here.there.question:
            self._answer_there(f"{here.node.name}/{here.there.who}", here.there.question)
            return
        name = self._worker_or_say("answer its question")
        if not name:
            return
        try:
            question = later.workers.question(self.project, name)
        except LlmcError as error:
            if here is not None and here.row is not None and here.item is not None:
                told = f"nothing to answer: {name} {self._waits_for(here.row, here.item)}"
                self._say("", told, PLAIN)
                return
            self.said.append(failed(f"llmc answer {name}", error, now_unix()))
            self.redraw()
            return
        options = "  ".join(f"[{number}] {text}" for number, text in enumerate(question.options, 1))
        title = f"{name} asks: {question.text}  {options}"
        key = f"answer {name} {question.key}"
        self._open_form(
            title,
            lambda text: self._send(key, text, name, later.orders.answer(self.project, name, text)),
            keep=key,
        )

    def _answer_there(self, name: str, question: str) -> None:
        """Answer a worker on another node, but only the question shown."""
        key = f"answer {name} {question}"
        self._open_form(
            f"{name} asks: {question}",
            lambda text: self._send(key, text, name, later.orders.answer(self.project, name, text, question)),
            keep=key,
        )

    def do_enter(self) -> None:
        entry = self.store.entry
        if self.view == "diff":
            self.do_comment()
        elif self.view == "roots":
            self.leave(self.roots.paths[self.roots.cursor])
        elif self.view:
            told = f"nothing to open here; press {self.key_names['back']} to go back to the list"
            self._say("", told, PLAIN)
        elif entry is None:
            self._say("", "nothing is selected", PLAIN)
        elif entry.spot.kind == "section":
            self.do_unfold()
        elif entry.landed is not None:
            self._show_commit(entry.landed.commit)
        elif entry.node is not None:
            self._open("node")  # the page only shows the commands to run
        elif (
            entry.item is not None
            and entry.item.kind in ("question", "goal_question")
            and entry.row is not None
        ):
            self.do_answer()
        elif entry.row is not None:
            self._attach_to(entry.row.worker)
        elif entry.item is not None:
            self._say("", f"next: {entry.item.next}", PLAIN)

    def _show_commit(self, commit: str) -> None:
        self._open("commit")
        width = max(10, self.query_one("#content", Lines).size.width - 1)
        self._in_thread(
            lambda: later.page_texts.commit_lines(self.project, commit, width, self.brush), self._show_page
        )

    def _attach_to(self, name: str) -> None:
        try:
            terminal = later.workers.terminal(self.project, name, os.environ, read_only=False)
        except LlmcError as error:
            self.said.append(failed(f"llmc attach {name}", error, now_unix()))
            self.redraw()
            return
        self._say(f"llmc attach {name}", f"come back with {terminal.leave}", PLAIN)
        self._terminal(terminal.argv, terminal.env)

    def do_command(self) -> None:
        title = f"llmc ... (Tab completes; selected: {self.worker_here or 'none'}):"
        self._open_form(title, self._run_command, complete=self.typed.completed)

    def _run_command(self, text: str) -> None:
        try:
            words = words_of(text)
        except UsageError as error:
            self.said.append(failed(text.strip(), error, now_unix()))
            self.redraw()
            return
        if not words:
            return
        command = command_line(*words)
        if self.typed.needs_terminal(words):
            self._say(command, "", PLAIN)
            if code := self._terminal(self.typed.argv(words), None):
                self._say(command, f"(exit {code})", BAD)  # what it printed is no longer on the screen
            return

        def act(show: Show) -> Said:
            try:
                code, output = self.typed.run(words, self.has_left.is_set)
            except ShuttingDown:
                return Said(command, "stopped", now_unix(), BAD)
            last = next((one for one in reversed(output.splitlines()) if one.strip()), "done")
            return Said(
                command,
                last if code == 0 else f"{last}  (exit {code})",
                now_unix(),
                BAD if code else GOOD,
                output,
            )

        made = command, later.orders.guarded(command, act)
        self._run("", made, self._show_output, stops=True)

    def _show_output(self, said: Said) -> None:
        is_long = len(said.detail.splitlines()) > 1
        if self.view == "log" or (is_long and self.view != "diff"):
            self.view = "log"
            self.redraw()
            self._show_log()
