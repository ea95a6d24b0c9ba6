"""The frame of the screen: its widgets, what they draw, and updates from the fleet."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container, Vertical
from textual.timer import Timer

from llmc.api.other_roots import OtherRoots, RootSeen
from llmc.api.roots import Project, roots_of_user
from llmc.api.said import BAD, GOOD, PLAIN, Said
from llmc.api.subscription import (
    Change,
    EventLine,
    FleetSeen,
    Happened,
    Screen,
    ScreenSeen,
    Subscription,
    Trouble,
)
from llmc.base import proc
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import printable, shortened
from llmc.tui import drawing, keys, later
from llmc.tui.drawing import Brush
from llmc.tui.lines import Bar, Lines
from llmc.tui.list_store import NEEDS, Entry, Store
from llmc.tui.reads import Reads
from llmc.tui.root_list import RootList
from llmc.tui.terminal import TerminalDriver
from llmc.tui.typed import Typed

if TYPE_CHECKING:
    from llmc.api.commenting import Comment
    from llmc.tui.diff_view import DiffView
    from llmc.tui.form import Form
    from llmc.tui.performing import Order

#: how long the cursor must rest before anything is captured or read for it
REST_S = 0.12
#: a confirmation ignores keys for this long, so that a repeating key does not confirm
DEAF_S = 0.3
#: four different letters within this time are typing, not commands
TYPING_S = 0.2
#: a draft is saved this long after the last key
SAVE_S = 0.5

#: how a terminal reports the mouse: clicks, movement, and positions beyond column 223
MOUSE_MODES = (1000, 1003, 1015, 1006)

TABS = ("screen", "task", "talk", "receipts")
_TITLES = {"screen": "Screen", "task": "Task", "talk": "Talk", "receipts": "Receipts"}


class Confirm(Struct, frozen=True):
    """A question that only `y` confirms."""

    question: str
    yes: str
    way_back: str
    act: Callable[[], None]
    since: float
    look: bool = False

    @property
    def listens(self) -> bool:
        """Whether it accepts keys yet."""
        return time.monotonic() - self.since >= DEAF_S


class Frame(App[str | None]):
    """The widgets and their contents. Ends with the root to open next, or None."""

    CSS_PATH = "llmc.tcss"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar = []

    def __init__(
        self, project: Project, subscription: Subscription, brush: Brush, typed: Typed, roots: list[str]
    ) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color="NO_COLOR" in os.environ)
        self.project, self.subscription = project, subscription
        self.brush, self.typed = brush, typed
        self.roots = RootList(roots, str(project.root.path))
        self._others = OtherRoots(self._from_thread)
        self.remapped = project.config.ui.keys
        self.actions = {where: keys.actions(where, self.remapped) for where in (keys.LIST, keys.DIFF)}
        self.key_names = keys.names(self.remapped)
        #: whether the other roots are followed yet
        self.knows_roots = False
        self.store = Store()
        self.said: list[Said] = []
        self.events: list[EventLine] = []
        self.trouble = ""
        self.shown: Screen | None = None
        self.tab = "screen"
        #: "" for the list and pane, `diff`, or the name of a page
        self.view = ""
        self.page_lines: list[Text] = []
        self.in_pane = False
        self.full = False
        self.mouse_on = True
        self.diff: DiffView | None = None
        #: the worker whose diff was opened last
        self.diff_worker = ""
        #: status and commit of the diff's worker when a change of the fleet last caused a read
        self.diff_of = ("", "")
        #: the `since` round of the latest request for the diff; an older request may end later
        self.diff_since = 0
        self.reads = Reads()
        #: drafts that the shown diff may lack, by place, each with the number of the last read that began before
        self.drafts: dict[str, tuple[int, Comment]] = {}
        #: the number of the read whose diff is shown
        self.diff_shown = 0
        self.confirm: Confirm | None = None
        #: mounted after the first frame is drawn
        self.form: Form | None = None
        self._mounting = asyncio.Lock()
        self.form_title = ""
        #: texts that were typed but not sent, by their purpose
        self.unsent: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        #: the operations that run, and those whose outcome the screen has not shown
        self.orders: list[Order] = []
        self.has_left = threading.Event()
        #: a worker to go to when it appears
        self.wanted = ""
        self._list: list[drawing.Line] = []
        self._list_width = 0
        self._letters: list[tuple[float, str]] = []
        self._rest: Timer | None = None
        self._save: Timer | None = None
        #: saves the draft in the form
        self._due: Callable[[], None] | None = None
        #: drafts that could not be saved when the screen was closed
        self.unsaved: list[Said] = []

    def compose(self) -> ComposeResult:
        yield Bar(id="head")
        with Container(id="body"):
            yield Lines(id="list")
            with Vertical(id="pane"):
                yield Bar(id="tabs")
                yield Lines(id="content")
                yield Bar(id="next")
        yield Bar(id="said")
        with Vertical(id="bottom"):
            yield Bar(id="bar")

    def on_mount(self) -> None:
        theme = self.brush.theme
        self.dark = theme.dark
        self.screen.styles.background = theme.page
        self.screen.styles.color = theme.text
        self.set_interval(1.0, self._tick)
        for change in self.subscription.listen(self._from_thread):
            self._told(change)
        self.redraw()
        self.call_after_refresh(self._go_on)

    async def _go_on(self) -> None:
        """Do what the first frame did not wait for."""
        await self.mount_form()
        self.run_worker(self._load_rest, thread=True)

    async def mount_form(self) -> None:
        """Mount the form, once. A key pressed before the first frame waits for it."""
        async with self._mounting:
            if self.form is None and not self._exit:  # on exit, the widgets are removed
                form = later.form.Form()
                await self.query_one("#bottom").mount(form)
                self.form = form

    def _load_rest(self) -> None:
        later.load()
        self._others.follow([path for path in self.roots.paths if path != self.roots.shown])
        self.knows_roots = True

    def _look_for_roots(self) -> None:
        """Update the list of roots, and follow new ones."""
        if not self.knows_roots:
            return
        before, self.roots.paths = self.roots.paths, roots_of_user()
        self.roots.move(0)  # keeps the cursor in range if there are fewer roots now
        new = [path for path in self.roots.paths if path not in (*before, self.roots.shown)]
        if new:
            self.run_worker(lambda: self._others.follow(new), thread=True)

    @property
    def asks_for_text(self) -> bool:
        """Whether the form is open."""
        return self.form is not None and self.form.display

    def save_soon(self, save: Callable[[], None]) -> None:
        """Save once no key was pressed for a moment, or when the screen is closed."""
        self.drop_save()
        self._due, self._save = save, self.set_timer(SAVE_S, self._save_now)

    def drop_save(self) -> None:
        if self._save is not None:
            self._save.stop()
        self._due = self._save = None

    def _save_now(self) -> None:
        due = self._due
        self.drop_save()
        if due is not None:
            due()

    def on_unmount(self) -> None:
        self.has_left.set()
        self._save_now()
        self.subscription.stop()
        self._others.stop()

    def _tick(self) -> None:
        """Redraw, because ages grow; reads nothing."""
        if not self._exit:  # then the widgets are being removed; so below
            self._draw_list()
            self._draw_bars()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.redraw)

    def on_lines_resized(self) -> None:
        self._draw_list()
        self._draw_content()
        self._rested()

    def _place(self, width: int, height: int) -> None:
        """Choose the layout by the size of the terminal."""
        body = self.query_one("#body")
        tiny = width < 40 or height < 8
        plain = width < 60 or tiny
        wide = width >= 100 and not plain
        covers = self.full or (not wide and self.view != "")
        for name, on in (("wide", wide), ("narrow", not wide and not plain), ("plain", plain)):
            body.set_class(on, name)
        body.set_class(covers, "covered")
        body.set_class(plain and not covers, "alone")
        for name in ("#said", "#tabs", "#next"):
            self.query_one(name).display = not tiny
        self.query_one("#head").display = height >= 2
        self.query_one("#bottom").display = not tiny or self.asks_for_text or self.confirm is not None
        self._list_width = width if not wide else 44 if width < 160 else 56
        self.query_one("#list").styles.width = self._list_width
        self.query_one("#list").styles.height = "100%" if wide or plain else max(4, height * 3 // 5)

    @property
    def is_wide(self) -> bool:
        return self.query_one("#body").has_class("wide")

    def _from_thread(self, change: Change | RootSeen) -> None:
        self.call_later(self._told, change)  # does not wait: the screen may be waiting for this thread to end

    def _told(self, change: Change | RootSeen) -> None:
        if self._exit:
            return
        match change:
            case FleetSeen():
                before = self._waiting()
                self.store.update(change.fleet)
                self.roots.update(RootSeen(self.roots.shown, change.fleet.counts))
                if self.wanted and self.store.go_to(self.wanted):
                    self.wanted = ""
                self._tell_news(before)
                self._look_for_roots()
                self._rested()
                self.fleet_changed()
                self.redraw()
            case Happened():
                self.events = [*self.events, *change.events][-2000:]
                if self.view == "events" or self.tab == "receipts":
                    self._load()
            case ScreenSeen():
                self.shown = change.screen
                if self.tab == "screen" and not self.view:
                    self._draw_content()
            case Trouble():
                self.trouble = change.text
                self._draw_bars()
            case RootSeen():
                self.roots.update(change)
                self.redraw()

    def fleet_changed(self) -> None:
        """Called for each new fleet; overridden in diff_keys.py."""

    def _waiting(self) -> set[str]:
        return {entry.spot.id for entry in self.store.shown(NEEDS)} if self.store.fleet else set()

    def _tell_news(self, before: set[str]) -> None:
        """Notify the user of new entries that need them, while a page or the full pane is open."""
        if self.store.fleet is None or not (self.view or self.full):
            return
        for name in sorted(self._waiting() - before):
            self.notify(f"{printable(name)} needs you", markup=False, timeout=4)

    def redraw(self) -> None:
        self._place(self.size.width, self.size.height)
        self._draw_list()
        self._draw_content()
        self._draw_bars()

    def _draw_list(self) -> None:
        widget = self.query_one("#list", Lines)
        width = max(10, (widget.size.width or self._list_width - 1) - 1)  # the first frame has no size yet
        height = self.size.height
        if height < 8 or self.size.width < 40:
            self._list = drawing.tiny_lines(self.store, width)
        else:
            self._list = drawing.list_lines(self.store, now_unix(), width, self.brush, wide=self.is_wide)
        lines = self._list
        widget.show(
            len(lines), lambda index, size: drawing.with_cursor(lines[index], self.store, size, self.brush)
        )
        at = next((n for n, line in enumerate(lines) if line.spot and line.spot == self.store.cursor), None)
        if at is not None:
            widget.reveal(at, context=1)

    def _draw_content(self) -> None:
        content = self.query_one("#content", Lines)
        width = max(10, content.size.width - 1)
        if self.view == "diff" and self.diff is not None:
            diff = self.diff
            diff.lay_out(width, self.brush)
            content.show(len(diff.rows), lambda row, size: diff.row_text(row, self.brush))
            content.reveal(diff.at, context=2)
            return
        if self.view == "roots":
            content.show(
                len(self.roots.paths), lambda index, size: self.roots.text_of(index, size, self.brush)
            )
            content.reveal(self.roots.cursor)
            return
        is_page = self.view != "node" and (self.view or self.tab != "screen")
        lines = self.page_lines if is_page else self._screen_lines(width)
        content.show(len(lines), lambda index, size: lines[index].copy())
        if self.tab == "screen" and not self.view and not self.in_pane:
            # The agent's latest output is at the end.
            content.begin_at(len(lines) if self.store.worker else 0)

    def _screen_lines(self, width: int) -> list[Text]:
        worker, muted = self.store.worker, self.brush.theme.muted
        if not worker:
            return drawing.about(self.store.entry, now_unix(), width, self.brush, self.key_names["enter"])
        if self.shown is None or self.shown.worker != worker:
            return [Text("...", style=muted)]
        lines = drawing.screen_text(self.shown.lines, width)
        if self.shown.problem:
            lines.append(Text(printable(self.shown.problem), style=self.brush.theme.error))
        return lines

    def _draw_bars(self) -> None:
        if self._exit:
            return
        fleet, brush = self.store.fleet, self.brush
        self.query_one("#head", Bar).show(
            lambda width: drawing.header(fleet, now_unix(), width, brush, self.trouble, self._roots)
        )
        self.query_one("#tabs", Bar).show(self._tabs)
        self.query_one("#next", Bar).show(self._next)
        self.query_one("#said", Bar).show(self._said)
        self.query_one("#bar", Bar).show(self._bar)

    def _roots(self, room: int) -> str:
        if self.roots.several:
            return self.roots.title(room, self.brush)
        return self.roots.name(self.roots.shown)

    def _tabs(self, width: int) -> Text:
        theme = self.brush.theme
        if self.view == "diff" and self.diff is not None:
            return Text(f" {self.diff.title(self.brush)}", style=f"bold {theme.text}")
        if self.view:
            return Text(f" {later.page_texts.title(self.view, self.key_names)}", style=f"bold {theme.text}")
        text = Text(" ")
        for name in TABS:
            style = f"bold {theme.text}" if name == self.tab else theme.muted
            text.append(f"[{_TITLES[name]}]" if name == self.tab else f" {_TITLES[name]} ", style=style)
        entry = self.store.entry
        if entry is not None and entry.row is not None:
            row = entry.row
            held = " (held)" if row.held else ""
            right = f"{printable(row.worker)} {self.brush.dot} {row.status}{held}"
            text.pad_right(max(1, width - text.cell_len - len(right) - 1))
            text.append(right, style=self.brush.look(row.look.name))
        return text

    def _next(self, width: int) -> Text:
        theme = self.brush.theme
        if (
            self.view == ""
            and self.tab == "screen"
            and self.shown is not None
            and self.shown.worker == self.store.worker
        ):
            captured = f"  captured {drawing.age(now_unix() - self.shown.at_unix)} ago"
        else:
            captured = ""
        entry = self.here
        command = ""
        if entry is not None:
            command = (entry.item.next if entry.item else "") or (entry.row.next if entry.row else "")
        job = self.jobs.get(self.worker_here, "")
        told = f" {job}" if job else f" next: {printable(command)}" if command else ""
        text = Text(told, style=f"bold {theme.text}")
        text.append(captured, style=theme.muted)
        return text

    def _said(self, width: int) -> Text:
        theme = self.brush.theme
        if not self.said:
            return Text("")
        last = self.said[-1]
        colour = {GOOD: theme.good, BAD: theme.error, PLAIN: theme.text}[last.tone]
        room = max(10, width - len(printable(last.outcome)) - 4)
        text = (
            Text(f" $ {shortened(printable(last.command), room)}  ", style=theme.muted)
            if last.command
            else Text(" ")
        )
        text.append(printable(last.outcome), style=colour)
        return text

    def _bar(self, width: int) -> Text:
        theme = self.brush.theme
        if self.confirm is not None:
            text = Text(f" {printable(self.confirm.question)} ", style=f"bold {theme.text}")
            look = "  d view diff" if self.confirm.look else ""
            if self.confirm.listens:  # not before: a key that repeats must not confirm
                text.append(f" y {self.confirm.yes}{look}  Esc cancel", style=f"bold {theme.text}")
            text.append(f"   {self.confirm.way_back}", style=theme.muted)
            return text
        if self.asks_for_text:
            return Text(
                f" {printable(self.form_title)}  Enter submits, Alt+Enter or Ctrl+J adds a line, Esc goes back",
                style=theme.muted,
            )
        if self.store.filter:
            told = f" filter: {printable(self.store.filter)}   {self.key_names['back']} clears"
            return Text(told, style=f"bold {theme.text}")
        return Text(f" {keys.footer(self._where(), width - 2, self.remapped)}", style=theme.muted)

    def _rested(self) -> None:
        """Read what the pane shows once the cursor has rested for a moment."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST_S, self._load)

    def _load(self) -> None:
        """Read what the pane shows, in a thread if that may take long."""
        if self._exit:
            return
        worker = self.store.worker
        is_seen = self.query_one("#pane").display and not self.view
        self.subscription.watch_screens(*([worker] if is_seen and self.tab == "screen" and worker else []))
        width = max(10, self.query_one("#content", Lines).size.width - 1)
        if self.view == "events":
            content = self.query_one("#content", Lines)
            begin = None if self.page_lines and not content.at_end else len(self.events)
            self._show_page(later.page_texts.events(self.events, width, self.brush, self.store.filter), begin)
        elif self.view and self.view in later.page_texts.READ:
            read = later.page_texts.READ[self.view]
            self._in_thread(lambda: read(self.project, width, self.brush), self._show_page)
        elif not self.view and self.tab != "screen" and worker:
            make = later.page_texts.TABS[self.tab]
            rows = list(self.events)
            self._in_thread(lambda: make(self.project, worker, rows, width, self.brush), self._show_page)

    def _in_thread(self, read: Callable[[], list[Text]], show: Callable[[list[Text]], None]) -> None:
        view, tab, worker = self.view, self.tab, self.store.worker

        def work() -> None:
            try:
                lines = read()
            except LlmcError as error:
                lines = drawing.plain_lines(f"{error.message}\n{error.hint}", 100, self.brush.theme.error)
            if (view, tab, worker) == (self.view, self.tab, self.store.worker):
                self.call_from_thread(show, lines)

        self.run_worker(work, thread=True, exit_on_error=False)

    def _show_page(self, lines: list[Text], begin: int | None = None) -> None:
        """Show a page, scrolled to line `begin` or to the end if fewer lines follow; None: do not scroll."""
        self.page_lines = lines
        self._draw_content()
        if begin is not None:
            self.query_one("#content", Lines).begin_at(begin)

    @property
    def here(self) -> Entry | None:
        """What the keys act on: the worker of the open diff, else what the cursor is on."""
        return self.store.entry_of(self.diff_worker) if self.view == "diff" else self.store.entry

    @property
    def worker_here(self) -> str:
        entry = self.here
        return entry.row.worker if entry is not None and entry.row is not None else ""

    def _where(self) -> str:
        return keys.DIFF if self.view == "diff" else keys.LIST

    def _say(self, command: str, outcome: str, tone: str) -> None:
        self.said.append(Said(command, outcome, now_unix(), tone))
        self._draw_bars()

    def _ask(
        self, question: str, yes: str, way_back: str, act: Callable[[], None], *, look: bool = False
    ) -> None:
        self.confirm = Confirm(question, yes, way_back, act, time.monotonic(), look)
        self.set_timer(DEAF_S, self._draw_bars)
        self.redraw()

    def _terminal(self, argv: list[str], env: dict[str, str] | None) -> int:
        """Run a program in the terminal, then take the terminal back; returns its exit code."""
        with self.suspend():
            code = proc.run_attached(argv, env=env or dict(os.environ))
        self._report_mouse()
        self.subscription.look_again()
        self.refresh(repaint=True, layout=True)
        self.redraw()
        return code

    def _report_mouse(self) -> None:
        """Turn the terminal's mouse reports on or off; textual turns them on, but has no public call to change that."""
        if self._driver is not None:
            letter = "h" if self.mouse_on else "l"
            self._driver.write("".join(f"\x1b[?{mode}{letter}" for mode in MOUSE_MODES))
            self._driver.flush()

    def _open_form(
        self,
        title: str,
        send: Callable[[str], None],
        *,
        text: str = "",
        keep: str = "",
        changed: Callable[[str], None] | None = None,
        left: Callable[[str], None] | None = None,
        empty: bool = False,
        complete: Callable[[str], tuple[str, list[str]]] | None = None,
    ) -> None:
        """Ask for a text. `keep`: its purpose; a form for the same purpose shows the text again until it is sent.

        `left` is called if the user leaves the form instead.
        """
        form = self.form
        assert form is not None, "keys wait until the form is mounted"

        def sent(value: str) -> None:
            if not value.strip() and not empty:
                return
            self.unsent.pop(keep, None)
            self._close_form()
            send(value)

        def leave() -> None:
            if left is not None:
                left(form.text)
            elif changed is None and keep:
                self.unsent[keep] = form.text
            elif changed is not None and form.text != text:
                changed(form.text)
            self._close_form()

        self.form_title = title
        text = self.unsent.get(keep, text)
        form.open(text, sent, leave, changed, complete and self._completing(complete))
        self.redraw()

    def _completing(self, complete: Callable[[str], tuple[str, list[str]]]) -> Callable[[str], str]:
        """Complete the typed text, and show the choices in the bar."""

        def act(text: str) -> str:
            done, choices = complete(text)
            self.form_title = "  ".join(choices[:20]) if choices else "llmc ...:"
            self._draw_bars()
            return done

        return act

    def _close_form(self) -> None:
        assert self.form is not None, "it was open"
        self.form.close()
        self.redraw()
