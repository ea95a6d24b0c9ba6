"""Keys of the diff: move, comment, and send all comments as one request."""

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.text import Text

from llmc.api.said import PLAIN, Act, Said, Show, failed
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import counted
from llmc.tui import later
from llmc.tui.moving import Moving

if TYPE_CHECKING:
    from llmc.api.commenting import DiffFile, Page
    from llmc.tui.diff_view import DiffView


class Reviewing(Moving):
    def after_reads(self, act: Act) -> Act:
        """Make an accept wait for open reads of diffs, which decide what the user has seen."""

        def acts(show: Show) -> Said:
            self.reads.wait()
            return act(show)

        return acts

    def do_diff(self) -> None:
        name = self._worker_or_say("review its changes")
        if not name:
            return
        self.view, self.diff, self.diff_worker = "diff", None, name
        self.page_lines = [Text(f" loading {name}'s changes ...", style=self.brush.theme.muted)]
        self.redraw()
        self.read_diff(name)

    def read_diff(self, name: str, since: int = 0) -> None:
        self.diff_since = since
        read = self.reads.begin()

        def work() -> None:
            seen = None
            try:
                page = later.commenting.page(self.project, name, since)
                if self.call_from_thread(self._show_diff, page, read):
                    seen = functools.partial(later.commenting.remember, self.project, page)
            except LlmcError as error:
                self.call_from_thread(self._no_diff, name, error, read)
            finally:
                self.reads.end(read, seen)

        self.run_worker(work, thread=True, exit_on_error=False)

    def fleet_changed(self) -> None:
        """Read the diff again if its worker's status or commit changed; the cursor stays where it is."""
        if self.view != "diff" or self.diff is None or self.store.fleet is None:
            return
        row = self.store.fleet.rows.get(self.diff.page.worker)
        if row is not None and (row.status, row.commit) != self.diff_of:
            self.diff_of = (row.status, row.commit)
            self.read_diff(row.worker, self.diff_since)

    def _no_diff(self, name: str, error: LlmcError, read: int) -> None:
        if read < self.reads.begun:
            return  # a later read has begun
        self.view = "" if self.view == "diff" and self.diff is None else self.view
        self.diff_since = self.diff.page.since if self.diff is not None else 0
        self.said.append(failed(f"llmc review {name}", error, now_unix()))
        self.redraw()

    def _show_diff(self, page: "Page", read: int) -> bool:
        """Show a diff; False if a later read is shown (reads end in any order) or the user has moved on."""
        is_asked = (page.worker, page.since) == (self.diff_worker, self.diff_since)
        if self.view != "diff" or not is_asked or read <= self.diff_shown:
            return False
        self.diff_shown = read
        self.diff = later.diff_view.DiffView.of(page, self.diff, self.key_names["fold"])
        self.drafts = {key: kept for key, kept in self.drafts.items() if kept[0] >= read}
        self.redraw()
        return True

    def _read_again(self, name: str) -> None:
        """Read the diff again after an order for its worker, if it is on the screen."""
        if self.view == "diff" and self.diff_worker == name:
            self.read_diff(name)

    def _jump(self, what: str, by: int) -> None:
        if self.diff is not None and not self.diff.jump(what, by):
            self._say("", f"no {'next' if by > 0 else 'previous'} {what}", PLAIN)
        self._draw_content()

    def do_next_hunk(self) -> None:
        self._jump("hunk", 1)

    def do_previous_hunk(self) -> None:
        self._jump("hunk", -1)

    def do_next_file(self) -> None:
        self._jump("file", 1)

    def do_previous_file(self) -> None:
        self._jump("file", -1)

    def do_next_comment(self) -> None:
        self._jump("comment", 1)

    def do_previous_comment(self) -> None:
        self._jump("comment", -1)

    def fold_diff(self) -> None:
        diff = self.diff
        if diff is not None:
            self._with_texts([diff.unread] if diff.unread else [], lambda now: now.fold())

    def do_more_context(self) -> None:
        self._widen(later.diff_view.CONTEXT_STEP)

    def do_less_context(self) -> None:
        self._widen(-later.diff_view.CONTEXT_STEP)

    def _widen(self, by: int) -> None:
        diff = self.diff
        if diff is not None:
            files = [one for one in diff.page.files if one.path not in diff.folded | diff.texts.keys()]
            self._with_texts(files, lambda now: now.widen(by))

    def _with_texts(self, files: "list[DiffFile]", act: "Callable[[DiffView], None]") -> None:
        """Read all lines of these files, including those the diff leaves out, then act on the diff as it is then."""
        diff = self.diff
        if diff is None:
            return
        page = diff.page

        def show(texts: dict[str, list[str]]) -> None:
            now = self.diff
            if now is not None and now.page.review.result == page.review.result:
                now.texts |= texts
                act(now)
                self._draw_content()

        def work() -> None:
            found: dict[str, list[str]] = {}
            for file in files:
                try:
                    found[file.path] = later.commenting.file_lines(self.project, page, file)
                except LlmcError:
                    found[file.path] = []  # deleted, or a nested repository
            self.call_from_thread(show, found)

        if files:
            self.run_worker(work, thread=True, exit_on_error=False)
        else:
            show({})

    def do_fold_all(self) -> None:
        if self.diff is not None:
            self.diff.fold_all()
            self._draw_content()

    def do_since(self) -> None:
        diff = self.diff
        if diff is None or not diff.page.rounds:
            self._say("", "there is no earlier round to compare with", PLAIN)
            return
        self.read_diff(diff.page.worker, 0 if self.diff_since else diff.page.rounds[-1].number)

    def do_viewed(self) -> None:
        diff = self.diff
        file = diff.file if diff is not None else None
        if diff is None or file is None:
            self._say("", "no file is selected; select one to mark it as viewed", PLAIN)
            return
        viewed = file.path not in diff.page.viewed
        diff.folded = diff.folded | {file.path} if viewed else diff.folded - {file.path}
        name = diff.page.worker
        self._change_comments(
            lambda: later.commenting.mark_viewed(self.project, name, file, is_viewed=viewed)
        )

    def do_comment(self) -> None:
        diff = self.diff
        if diff is None or diff.line is None:
            self._say("", "there is no line to comment on", PLAIN)
            return
        line, draft, name = diff.line, diff.draft, diff.page.worker
        if line.kind == "unchanged":
            self._say("", "cannot comment here; choose a line in or near a change", PLAIN)
            return
        if line.kind == "comment" and draft is None:
            self._say("", "cannot edit this comment: it was already sent; comment on its line instead", PLAIN)
            return
        file = diff.file
        row = line.row if line.row >= 0 else None

        where = file.path if file else "the whole change"
        at = file.rows[row] if file is not None and row is not None else None
        number = f":{at.new or at.old}" if at is not None and (at.new or at.old) else ""
        key = f"comment {name} {where} {row}"

        kept = self.drafts.get(key)
        if kept is not None and (draft is None or draft.id == kept[1].id):
            draft = kept[1]  # saved a moment ago: the diff does not show it yet
        saved = draft

        def keep(text: str) -> None:
            nonlocal saved
            if not text.strip() or (saved is not None and saved.text == text):
                return
            self.unsent[key] = text
            if saved is not None:
                saved = later.commenting.edit(self.project, name, saved.id, text)
            else:
                saved = later.commenting.add(self.project, name, file, row, text)
            self.drafts[key] = self.reads.begun, saved
            del self.unsent[key]

        def send(text: str) -> None:
            self.drop_save()
            self._change_comments(lambda: keep(text))

        def left(text: str) -> None:
            if saved is not draft or text != (draft.text if draft else ""):
                send(text)

        self._open_form(
            f"comment on {where}{number}:",
            send,
            text=draft.text if draft else "",
            keep=key,
            changed=lambda text: self.save_soon(lambda: self._kept(keep, text)),
            left=left,
        )

    def _kept(self, keep: Callable[[str], None], text: str) -> None:
        try:
            keep(text)
        except LlmcError as error:
            said = replace(failed("", error, now_unix()), detail=text)
            if self.has_left.is_set():
                self.unsaved.append(said)
            else:
                self.said.append(said)
                self._draw_bars()

    def do_delete_draft(self) -> None:
        diff = self.diff
        if diff is None or diff.draft is None:
            self._say("", "this line has no draft to delete", PLAIN)
            return
        draft, name = diff.draft, diff.page.worker
        self._change_comments(lambda: later.commenting.delete(self.project, name, draft.id))

    def do_close(self) -> None:
        diff = self.diff
        line = diff.line if diff is not None else None
        if diff is None or line is None or line.placed is None or not line.placed.comment.round:
            self._say("", "no sent comment is selected; select one to close or reopen it", PLAIN)
            return
        comment, name = line.placed.comment, diff.page.worker
        self._change_comments(
            lambda: later.commenting.close(self.project, name, comment.id, is_closed=not comment.closed)
        )

    def _change_comments(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LlmcError as error:
            self.said.append(failed("", error, now_unix()))
        if self.diff is not None:
            self.read_diff(self.diff.page.worker, self.diff_since)
        self._draw_bars()

    def do_open(self) -> None:
        diff = self.diff
        if diff is None or diff.file is None:
            self._say("", "no file is selected; select one to open it", PLAIN)
            return
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        path = diff.page.review.worktree / diff.file.path
        self._terminal(["/bin/sh", "-c", f'{editor} "$1"', "editor", str(path)], None)

    def do_request(self) -> None:
        name = self._worker_or_say("request changes")
        if not name:
            return
        if self.view != "diff":
            self.do_diff()
            return
        shown = self.diff.page.drafts if self.diff is not None else []
        kept = (one for key, (_, one) in self.drafts.items() if key.startswith(f"comment {name} "))
        drafts = {one.id for one in (*shown, *kept)}
        many = counted(len(drafts), "comment")
        title = (
            f"send {many} to {name}, with an optional message:" if drafts else f"request changes from {name}:"
        )
        self._open_form(
            title, lambda text: self._send_comments(name, text), empty=bool(drafts), keep=f"request {name}"
        )

    def _send_comments(self, name: str, text: str) -> None:
        made = later.orders.request(self.project, name, text)
        self._send(f"request {name}", text, name, made, lambda said: self._read_again(name))
