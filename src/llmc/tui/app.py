"""The screen itself: widgets, keys, and what they start. What is shown is in store.py, diff_view.py and draw.py."""

import os
import time
from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container, Vertical
from textual.timer import Timer

from llmc.api import acceptance, commenting, workers
from llmc.api.roots import Project
from llmc.api.watch import Change, EventLine, FleetSeen, Happened, Screen, ScreenSeen, Subscription, Trouble
from llmc.base import proc
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import printable, shortened
from llmc.tui import draw, keys, operations, pages
from llmc.tui.diff_view import DiffView
from llmc.tui.draw import Brush
from llmc.tui.form import Form
from llmc.tui.lines import Bar, Lines
from llmc.tui.operations import Act
from llmc.tui.said import BAD, GOOD, PLAIN, Said, failed
from llmc.tui.store import NEEDS, Store

#: the cursor rests this long before anything is captured or read for it
REST_S = 0.12
#: a confirmation is deaf this long, against a key that repeats
DEAF_S = 0.3
#: four different letters within this time are typing, not commands
TYPING_S = 0.2
#: a draft is saved this long after the last key
SAVE_S = 0.5

TABS = ("screen", "task", "talk", "receipts")
_TITLES = {"screen": "Screen", "task": "Task", "talk": "Talk", "receipts": "Receipts"}


class Confirm(Struct, frozen=True):
    """A question that only `y` answers."""

    question: str
    yes: str
    way_back: str
    act: Callable[[], None]
    since: float
    look: bool = False


class Command(Struct, frozen=True):
    """How a typed command runs: its output, or on the terminal itself."""

    complete: Callable[[str], list[str]]
    run: Callable[[str], tuple[int, str]]
    is_interactive: Callable[[str], bool]
    argv: Callable[[str], list[str]]


class FleetApp(App[str | None]):
    """The fleet on one screen. Ends with the root to open next, or None."""

    CSS_PATH = "llmc.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = []

    def __init__(self, project: Project, brush: Brush, command: Command, roots: list[str]) -> None:
        super().__init__()
        self.project, self.brush, self.command, self.roots = project, brush, command, roots
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
        self.diff: DiffView | None = None
        self.confirm: Confirm | None = None
        self.form: Form | None = None
        self.form_title = ""
        self.jobs: dict[str, str] = {}
        self._list: list[draw.Line] = []
        self._letters: list[tuple[float, str]] = []
        self._rest: Timer | None = None
        self._save: Timer | None = None
        self.subscription = Subscription(project, self._from_thread)

    # --- set up

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
        self.subscription.start()
        self.set_interval(1.0, self._tick)
        self.redraw()

    def on_unmount(self) -> None:
        self.subscription.stop()

    def _tick(self) -> None:
        """Ages grow; nothing is read."""
        self._draw_list()
        self._draw_bars()

    def on_resize(self, event: events.Resize) -> None:
        self._place(event.size.width, event.size.height)
        self.redraw()

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
        self.query_one("#bottom").display = not tiny or self.form is not None or self.confirm is not None
        list_width = 44 if width < 160 else 56
        self.query_one("#list").styles.width = list_width if wide else "100%"
        self.query_one("#list").styles.height = "100%" if wide or plain else max(4, height * 3 // 5)

    @property
    def is_wide(self) -> bool:
        return self.query_one("#body").has_class("wide")

    # --- what comes from the fleet

    def _from_thread(self, change: Change) -> None:
        try:
            self.call_from_thread(self._told, change)
        except RuntimeError:
            pass  # the screen is closing

    def _told(self, change: Change) -> None:
        match change:
            case FleetSeen():
                before = self._waiting()
                self.store.update(change.fleet)
                self._tell_news(before)
                self._rested()
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

    def _waiting(self) -> set[str]:
        return {entry.spot.id for entry in self.store.shown(NEEDS)} if self.store.fleet else set()

    def _tell_news(self, before: set[str]) -> None:
        """Someone else needs you: said only where the list is not seen."""
        if self.store.fleet is None or not (self.view or self.full):
            return
        for name in sorted(self._waiting() - before):
            self.notify(f"{printable(name)} needs you", markup=False, timeout=4)

    # --- drawing

    def redraw(self) -> None:
        self._place(self.size.width, self.size.height)
        self._draw_list()
        self._draw_content()
        self._draw_bars()

    def _draw_list(self) -> None:
        widget = self.query_one("#list", Lines)
        width = max(10, widget.size.width - 1)
        height = self.size.height
        if height < 8 or self.size.width < 40:
            self._list = self._tiny(width)
        else:
            self._list = draw.list_lines(self.store, now_unix(), width, self.brush, wide=self.is_wide)
        lines = self._list
        widget.show(
            len(lines), lambda index, size: draw.with_cursor(lines[index], self.store, size, self.brush)
        )
        at = next((n for n, line in enumerate(lines) if line.spot and line.spot == self.store.cursor), None)
        if at is not None:
            widget.reveal(at, context=1)

    def _tiny(self, width: int) -> list[draw.Line]:
        """A terminal too small for the list: how many need you, and who."""
        entries = self.store.shown(NEEDS)
        if self.store.fleet is None:
            return [draw.Line(Text("reading ..."))]
        lines = [draw.Line(Text(f"{self.store.fleet.counts.need} need you", style="bold"))]
        for entry in entries:
            who = entry.item.who if entry.item else entry.spot.id
            lines.append(draw.Line(Text(printable(who)[:width]), entry.spot))
        return lines

    def _draw_content(self) -> None:
        content = self.query_one("#content", Lines)
        width = max(10, content.size.width - 1)
        if self.view == "diff" and self.diff is not None:
            diff = self.diff
            content.show(len(diff.lines), lambda index, size: diff.text_of(index, size, self.brush))
            content.reveal(diff.cursor, context=2)
            return
        lines = self.page_lines if self.view or self.tab != "screen" else self._screen_lines(width)
        content.show(len(lines), lambda index, size: lines[index].copy())

    def _screen_lines(self, width: int) -> list[Text]:
        worker, muted = self.store.worker, self.brush.theme.muted
        if not worker:
            entry = self.store.entry
            if entry is not None and entry.item is not None:
                return draw.plain_lines(f"{entry.item.sentence}\n\nnext: {entry.item.next}", width)
            if entry is not None and entry.landed is not None:
                one = entry.landed
                told = f"{one.subject}\n\n{one.commit}\nlanded {draw.clock(one.at_unix)} by {one.worker}"
                return draw.plain_lines(f"{told}\n\nEnter shows the commit", width)
            return [Text("")]
        if self.shown is None or self.shown.worker != worker:
            return [Text("...", style=muted)]
        lines = draw.screen_text(self.shown.lines, width)
        if self.shown.problem:
            lines.append(Text(printable(self.shown.problem), style=self.brush.theme.error))
        return lines

    def _draw_bars(self) -> None:
        fleet, brush = self.store.fleet, self.brush
        where = (
            f" ({self.roots.index(fleet.root) + 1} of {len(self.roots)})"
            if fleet and fleet.root in self.roots and len(self.roots) > 1
            else ""
        )
        self.query_one("#head", Bar).show(
            lambda width: draw.header(fleet, now_unix(), width, brush, self.trouble, where)
        )
        self.query_one("#tabs", Bar).show(self._tabs)
        self.query_one("#next", Bar).show(self._next)
        self.query_one("#said", Bar).show(self._said)
        self.query_one("#bar", Bar).show(self._bar)

    def _tabs(self, width: int) -> Text:
        theme = self.brush.theme
        if self.view == "diff" and self.diff is not None:
            return Text(f" {self.diff.title(self.brush)}", style=f"bold {theme.text}")
        if self.view:
            return Text(f" {pages.TITLES.get(self.view, self.view)}", style=f"bold {theme.text}")
        text = Text(" ")
        for name in TABS:
            style = f"bold {theme.text}" if name == self.tab else theme.muted
            text.append(f"[{_TITLES[name]}]" if name == self.tab else f" {_TITLES[name]} ", style=style)
        entry = self.store.entry
        if entry is not None and entry.row is not None:
            row = entry.row
            right = f"{printable(row.worker)} {self.brush.dot} {row.status}"
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
            captured = f"  captured {draw.age(now_unix() - self.shown.at_unix)} ago"
        else:
            captured = ""
        entry = self.store.entry
        command = ""
        if entry is not None:
            command = (entry.item.next if entry.item else "") or (entry.row.next if entry.row else "")
        job = self.jobs.get(self.store.worker, "")
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
            look = "  d look first" if self.confirm.look else ""
            text.append(f" y {self.confirm.yes}{look}  Esc back", style=brush_bold(theme.text))
            text.append(f"   {self.confirm.way_back}", style=theme.muted)
            return text
        if self.form is not None:
            return Text(
                f" {printable(self.form_title)}  Enter sends, Alt+Enter new line, Esc back", style=theme.muted
            )
        if self.store.filter:
            return Text(f" filter: {printable(self.store.filter)}   Esc clears", style=brush_bold(theme.text))
        return Text(f" {keys.footer(self._where(), width - 2)}", style=theme.muted)

    # --- the pane

    def _rested(self) -> None:
        """After the cursor has rested for a moment: read what the pane shows."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST_S, self._load)

    def _load(self) -> None:
        """Read what is shown in the pane, in a thread where it takes long."""
        worker = self.store.worker
        is_seen = self.query_one("#pane").display and not self.view
        self.subscription.watch_screen(worker if is_seen and self.tab == "screen" and worker else None)
        width = max(10, self.query_one("#content", Lines).size.width - 1)
        if self.view == "events":
            self._show_page(pages.events(self.events, width, self.brush, self.store.filter), end=True)
        elif self.view in pages.READ:
            read = pages.READ[self.view]
            self._in_thread(lambda: read(self.project, width, self.brush), self._show_page)
        elif not self.view and self.tab != "screen" and worker:
            make = pages.TABS[self.tab]
            rows = list(self.events)
            self._in_thread(lambda: make(self.project, worker, rows, width, self.brush), self._show_page)

    def _in_thread(self, read: Callable[[], list[Text]], show: Callable[[list[Text]], None]) -> None:
        view, tab, worker = self.view, self.tab, self.store.worker

        def work() -> None:
            try:
                lines = read()
            except LlmcError as error:
                lines = draw.plain_lines(f"{error.message}\n{error.hint}", 100, self.brush.theme.error)
            if (view, tab, worker) == (self.view, self.tab, self.store.worker):
                self.call_from_thread(show, lines)

        self.run_worker(work, thread=True, exit_on_error=False)

    def _show_page(self, lines: list[Text], *, end: bool = False) -> None:
        self.page_lines = lines
        self._draw_content()
        if end:
            self.query_one("#content", Lines).to_end()

    # --- keys

    def _where(self) -> str:
        return keys.DIFF if self.view == "diff" else keys.LIST

    def on_key(self, event: events.Key) -> None:
        if self.form is not None:
            return
        event.prevent_default().stop()
        key = (
            event.character
            if event.character and event.character.isprintable() and event.character != " "
            else event.key
        )
        if self.confirm is not None:
            self._confirm_key(key)
            return
        if self._is_typing(event):
            return
        action = keys.actions(self._where()).get(key)
        if action is not None:
            getattr(self, f"do_{action}")()
        self._draw_bars()

    def _is_typing(self, event: events.Key) -> bool:
        """Text that was meant for an agent: it does nothing here, and says so."""
        if event.character is None or not event.character.isalpha():
            return False
        now = time.monotonic()
        self._letters = [(at, letter) for at, letter in self._letters if now - at < TYPING_S]
        self._letters.append((now, event.character))
        if len({letter for _, letter in self._letters}) < 4:
            return False
        self._tell_typing()
        return True

    def on_paste(self, event: events.Paste) -> None:
        if self.form is None:
            event.prevent_default().stop()
            self._tell_typing()

    def _tell_typing(self) -> None:
        name = self.store.worker
        to = f"m writes to {name}, Enter attaches" if name else "m writes to a worker, Enter attaches"
        self._say("", f"Typing goes nowhere here. {to}.", PLAIN)

    def _confirm_key(self, key: str) -> None:
        confirm = self.confirm
        if confirm is None or time.monotonic() - confirm.since < DEAF_S:
            return
        if key == "y":
            self.confirm = None
            confirm.act()
        elif key == "d" and confirm.look:
            self.confirm = None
            self.do_diff()
        elif key in ("escape", "q"):
            self.confirm = None
        self.redraw()

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        if event.lines.id == "list":
            spot = self._list[event.index].spot if event.index < len(self._list) else None
            if spot is not None:
                self.store.cursor = spot
                self._moved()
                if event.again:
                    self.do_enter()
        elif self.view == "diff" and self.diff is not None:
            self.diff.cursor = event.index
            self._draw_content()

    # --- moving

    def _moved(self) -> None:
        if self.tab != "screen":
            self.page_lines = []
        self.shown = None if self.shown and self.shown.worker != self.store.worker else self.shown
        self._draw_list()
        self._draw_content()
        self._draw_bars()
        self._rested()

    def _move(self, by: int) -> None:
        content = self.query_one("#content", Lines)
        if self.view == "diff" and self.diff is not None:
            self.diff.move(by)
            self._draw_content()
        elif self.view or self.in_pane:
            content.scroll_to(y=max(0, content.scroll_offset.y + by), animate=False)
        else:
            self.store.move(by)
            self._moved()

    def do_down(self) -> None:
        self._move(1)

    def do_up(self) -> None:
        self._move(-1)

    def do_page_down(self) -> None:
        self._move(self._page())

    def do_page_up(self) -> None:
        self._move(-self._page())

    def _page(self) -> int:
        inside = self.view or self.in_pane
        return self.query_one("#content" if inside else "#list", Lines).page

    def do_top(self) -> None:
        self._move(-1_000_000)

    def do_bottom(self) -> None:
        self._move(1_000_000)

    def do_next(self) -> None:
        if self.view:
            self.do_back()
        if not self.store.next_that_needs():
            self._say("", "nothing waits for you", PLAIN)
        self._moved()

    def do_fold(self) -> None:
        if self.view == "diff" and self.diff is not None:
            self.diff.fold()
            self._draw_content()
        else:
            self.store.fold(folded=True)
            self._moved()

    def do_unfold(self) -> None:
        self.store.fold(folded=False)
        self._moved()

    def do_focus(self) -> None:
        self.in_pane = not self.in_pane

    def do_tab_right(self) -> None:
        self._turn(1)

    def do_tab_left(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        self.tab = TABS[(TABS.index(self.tab) + by) % len(TABS)]
        self.page_lines = []
        self.redraw()
        self._load()

    def do_full(self) -> None:
        self.full = not self.full
        self.redraw()
        self._load()

    # --- views

    def _open(self, view: str) -> None:
        self.view = "" if self.view == view else view
        self.page_lines = []
        self.redraw()
        self._load()

    def do_tasks(self) -> None:
        self._open("tasks")

    def do_goals(self) -> None:
        self._open("goals")

    def do_night(self) -> None:
        self._open("night")

    def do_events(self) -> None:
        self._open("events")

    def do_help(self) -> None:
        where = self._where()
        self._open("help")
        if self.view:
            self._show_page(pages.help_lines(where, self.brush))

    def do_log(self) -> None:
        self._open("log")
        if self.view:
            width = max(10, self.query_one("#content", Lines).size.width - 1)
            self._show_page(pages.log_lines(self.said, width, self.brush), end=True)

    def do_roots(self) -> None:
        if len(self.roots) < 2 or self.store.fleet is None:
            self._say("", "no other root of yours is registered", PLAIN)
            return
        at = self.roots.index(self.store.fleet.root) if self.store.fleet.root in self.roots else -1
        self.exit(self.roots[(at + 1) % len(self.roots)])

    def do_back(self) -> None:
        """One step back; never out of the screen."""
        if self.view:
            self.view, self.page_lines = "", []
        elif self.full:
            self.full = False
        elif self.store.filter:
            self.store.narrow("")
        elif self.in_pane:
            self.in_pane = False
        self.redraw()
        self._load()

    def do_quit(self) -> None:
        if self.view or self.full:
            self.do_back()
        else:
            self.exit(None)

    def do_redraw(self) -> None:
        self.subscription.look_again()
        self.refresh(repaint=True, layout=True)

    def do_mouse(self) -> None:
        driver = self._driver
        on = getattr(self, "_mouse_on", True)
        if driver is not None:
            (driver._disable_mouse_support if on else driver._enable_mouse_support)()  # type: ignore[attr-defined]
        self._mouse_on = not on
        self._say("", "mouse off: the terminal selects text" if on else "mouse on", PLAIN)

    def do_copy(self) -> None:
        entry = self.store.entry
        text = ""
        if entry is not None:
            text = (entry.item.next if entry.item else "") or (entry.row.next if entry.row else "")
            text = text or (entry.landed.commit if entry.landed else "")
        if text:
            self.copy_to_clipboard(text)
        self._say("", f"copied: {text}" if text else "nothing to copy here", PLAIN)

    # --- what changes something

    def _say(self, command: str, outcome: str, tone: str) -> None:
        self.said.append(Said(command, outcome, now_unix(), tone))
        self._draw_bars()

    def _worker_or_say(self, what: str) -> str:
        name = self.store.worker
        if not name:
            self._say("", f"no worker is selected; move to one to {what}", PLAIN)
        return name

    def _run(self, name: str, made: tuple[str, Act], then: Callable[[Said], None] | None = None) -> None:
        """Run an operation in a thread; its steps and its end are shown."""
        command, act = made
        began = time.monotonic()
        self._say(command, "...", PLAIN)

        def step(text: str) -> None:
            self.call_from_thread(self._step, name, text, began)

        def ended(said: Said) -> None:
            self.jobs.pop(name, None)
            self.said.append(said)
            self.redraw()
            if then is not None:
                then(said)

        def work() -> None:
            said = act(step)
            self.call_from_thread(ended, said)

        self.run_worker(work, thread=True, exit_on_error=False)

    def _step(self, name: str, text: str, began: float) -> None:
        self.jobs[name] = f"{text} {time.monotonic() - began:.0f}s"
        self._draw_bars()

    def _ask(
        self, question: str, yes: str, way_back: str, act: Callable[[], None], *, look: bool = False
    ) -> None:
        self.confirm = Confirm(question, yes, way_back, act, time.monotonic(), look)
        self.redraw()

    def do_accept(self) -> None:
        name = self._worker_or_say("accept its work")
        entry = self.store.entry
        if not name or entry is None or entry.row is None:
            return
        row = entry.row
        if row.status != "needs_review":
            asks = "asks a question; A answers it" if row.look.name == "asks" else f"is {row.status}"
            self._say("", f"{name} {asks}: there is nothing to accept yet", PLAIN)
            return
        size = f"  +{row.added} -{row.deleted}" if row.added is not None else ""
        seen = "" if row.reviewed else "  not reviewed"
        branch = self.project.config.repo.default_branch
        question = f"Land {name} on {branch}?  {row.subject}  {row.commit[:9]}{size}{seen}"
        commit = row.commit
        self._ask(
            question,
            "land",
            "takes back with: llmc undo",
            lambda: self._run(name, operations.accept(self.project, name, commit)),
            look=self.view != "diff",
        )

    def do_undo(self) -> None:
        try:
            target = acceptance.undo_target(self.project)
        except LlmcError as error:
            self.said.append(failed("llmc undo", error, now_unix()))
            return
        subject = next((line for line in target.prompt.splitlines() if line.strip()), "")
        question = f"Revert {target.commit[:9]} of {target.worker}?  {subject}"
        self._ask(
            question,
            "revert",
            "its task can be run again",
            lambda: self._run(target.worker, operations.undo(self.project, target)),
        )

    def do_hold(self) -> None:
        name = self._worker_or_say("hold it")
        entry = self.store.entry
        if name and entry is not None and entry.row is not None:
            self._run(name, operations.hold(self.project, name, held=not entry.row.held))

    def do_message(self) -> None:
        name = self._worker_or_say("send it a message")
        if name:
            self._open_form(
                f"message to {name}:",
                lambda text: self._run(name, operations.message(self.project, name, text)),
            )

    def do_start(self) -> None:
        name = self.store.worker
        entry = self.store.entry
        free = entry is not None and entry.row is not None and entry.row.status in ("idle", "no_changes")
        chosen = name if name and free else None
        title = f"task for {chosen}:" if chosen else "task for the next idle worker, or a new one:"
        self._open_form(
            title, lambda text: self._run(chosen or "", operations.start(self.project, chosen, text))
        )

    def do_new(self) -> None:
        self._open_form(
            "name of the new worker:",
            lambda text: self._run(text.strip(), operations.add(self.project, text.strip())),
        )

    def do_answer(self) -> None:
        name = self._worker_or_say("answer it")
        if not name:
            return
        try:
            question = workers.question(self.project, name)
        except LlmcError as error:
            self.said.append(failed(f"llmc answer {name}", error, now_unix()))
            self.redraw()
            return
        options = "  ".join(f"[{number}] {text}" for number, text in enumerate(question.options, 1))
        title = f"{name} asks: {question.text}  {options}"
        self._open_form(title, lambda text: self._run(name, operations.answer(self.project, name, text)))

    def do_request(self) -> None:
        name = self._worker_or_say("request changes")
        if not name:
            return
        if self.view != "diff":
            self.do_diff()
            return
        drafts = self.diff.page.drafts if self.diff is not None else []
        title = f"{len(drafts)} comments to {name}; add a general remark, or just Enter:"
        self._open_form(title, lambda text: self._send_comments(name, text), empty=bool(drafts))

    def _send_comments(self, name: str, text: str) -> None:
        self._run(name, operations.request(self.project, name, text), lambda said: self._read_diff(name))

    def do_filter(self) -> None:
        self._open_form(
            "filter:", self.store.narrow, changed=self._narrow, empty=True, text=self.store.filter
        )

    def _narrow(self, text: str) -> None:
        self.store.narrow(text)
        self._moved()

    def do_enter(self) -> None:
        entry = self.store.entry
        if self.view == "diff":
            self.do_comment()
        elif self.view:
            return
        elif entry is None:
            self._say("", "nothing is selected", PLAIN)
        elif entry.spot.kind == "section":
            self.do_unfold()
        elif entry.landed is not None:
            commit = entry.landed.commit
            self._terminal(["git", "-C", str(self.project.root.path), "show", "--stat", "-p", commit], None)
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

    def _attach_to(self, name: str) -> None:
        try:
            terminal = workers.terminal(self.project, name, os.environ, read_only=False)
        except LlmcError as error:
            self.said.append(failed(f"llmc attach {name}", error, now_unix()))
            self.redraw()
            return
        self._say(f"llmc attach {name}", f"detach with {terminal.prefix} d", PLAIN)
        self._terminal(terminal.argv, terminal.env)

    def _terminal(self, argv: list[str], env: dict[str, str] | None) -> None:
        """Give the terminal to a program, and take it back after it."""
        with self.suspend():
            proc.run_attached(argv, env=env or dict(os.environ))
        self.subscription.look_again()
        self.refresh(repaint=True, layout=True)
        self.redraw()

    def do_command(self) -> None:
        name = self.store.worker
        self._open_form("llmc", self._run_command, text="")
        self.form_title = f"llmc ... (selected: {name or 'none'}):"
        self._draw_bars()

    def _run_command(self, text: str) -> None:
        line = text.strip()
        if not line:
            return
        if self.command.is_interactive(line):
            self._say(f"llmc {line}", "", PLAIN)
            self._terminal(self.command.argv(line), None)
            return

        def act(step: operations.Step) -> Said:
            code, output = self.command.run(line)
            last = next((one for one in reversed(output.splitlines()) if one.strip()), "done")
            return Said(
                f"llmc {line}",
                last if code == 0 else f"{last}  (exit {code})",
                now_unix(),
                BAD if code else GOOD,
                output,
            )

        self._run("", (f"llmc {line}", act), self._show_output)

    def _show_output(self, said: Said) -> None:
        if len(said.detail.splitlines()) > 1 and not self.view:
            self.do_log()

    # --- forms

    def _open_form(
        self,
        title: str,
        send: Callable[[str], None],
        *,
        text: str = "",
        changed: Callable[[str], None] | None = None,
        empty: bool = False,
    ) -> None:
        def sent(value: str) -> None:
            if not value.strip() and not empty:
                return
            self._close_form()
            send(value)

        self.form_title = title
        self.form = Form(sent, self._close_form, changed, text=text)
        self.query_one("#bottom").mount(self.form)
        self.form.focus()
        self.redraw()

    def _close_form(self) -> None:
        if self.form is not None:
            self.form.remove()
            self.form = None
        self.set_focus(None)
        self.redraw()

    # --- the diff

    def do_diff(self) -> None:
        name = self._worker_or_say("review its changes")
        if not name:
            return
        self.view, self.diff = "diff", None
        self.page_lines = [Text(f" reading the changes of {name} ...", style=self.brush.theme.muted)]
        self.redraw()
        self._read_diff(name)

    def _read_diff(self, name: str, since: int = 0) -> None:
        def work() -> None:
            try:
                page = commenting.page(self.project, name, since)
            except LlmcError as error:
                self.call_from_thread(self._no_diff, name, error)
                return
            self.call_from_thread(self._show_diff, page)

        self.run_worker(work, thread=True, exit_on_error=False, group="diff", exclusive=True)

    def _no_diff(self, name: str, error: LlmcError) -> None:
        self.view = "" if self.view == "diff" and self.diff is None else self.view
        self.said.append(failed(f"llmc review {name}", error, now_unix()))
        self.redraw()

    def _show_diff(self, page: commenting.Page) -> None:
        if self.view == "diff" and self.store.worker in ("", page.worker):
            self.diff = DiffView.of(page, self.diff)
            self.redraw()

    def _jump(self, what: str, by: int) -> None:
        if self.diff is not None and not self.diff.jump(what, by):
            self._say("", f"no {'more' if by > 0 else 'earlier'} {what}", PLAIN)
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

    def do_fold_all(self) -> None:
        if self.diff is not None:
            self.diff.fold_all()
            self._draw_content()

    def do_since(self) -> None:
        diff = self.diff
        if diff is None or not diff.page.rounds:
            self._say("", "this is the first round", PLAIN)
            return
        self._read_diff(diff.page.worker, 0 if diff.page.since else diff.page.rounds[-1].number)

    def do_viewed(self) -> None:
        diff = self.diff
        file = diff.file if diff is not None else None
        if diff is None or file is None:
            return
        viewed = file.path not in diff.page.viewed
        diff.folded = diff.folded | {file.path} if viewed else diff.folded - {file.path}
        name = diff.page.worker
        self._change_comments(lambda: commenting.mark_viewed(self.project, name, file, is_viewed=viewed))

    def do_comment(self) -> None:
        diff = self.diff
        if diff is None or diff.line is None:
            return
        line, draft, name = diff.line, diff.draft, diff.page.worker
        if line.kind == "comment" and draft is None:
            self._say("", "this comment was sent; write another one on its line", PLAIN)
            return
        saved: list[str] = [draft.id] if draft else []
        file = diff.file
        row = line.row if line.row >= 0 else None

        def keep(text: str) -> None:
            if not text.strip():
                return
            if saved:
                commenting.edit(self.project, name, saved[0], text)
            else:
                saved.append(commenting.add(self.project, name, file, row, text).id)

        def later(text: str) -> None:
            if self._save is not None:
                self._save.stop()
            self._save = self.set_timer(SAVE_S, lambda: self._kept(keep, text))

        def send(text: str) -> None:
            if self._save is not None:
                self._save.stop()
            self._change_comments(lambda: keep(text))

        where = f"{file.path}" if file else "the whole change"
        self._open_form(f"comment on {where}:", send, text=draft.text if draft else "", changed=later)

    def _kept(self, keep: Callable[[str], None], text: str) -> None:
        try:
            keep(text)
        except LlmcError as error:
            self.said.append(failed("", error, now_unix()))
            self._draw_bars()

    def do_delete_draft(self) -> None:
        diff = self.diff
        if diff is None or diff.draft is None:
            self._say("", "there is no draft on this line", PLAIN)
            return
        draft, name = diff.draft, diff.page.worker
        self._change_comments(lambda: commenting.delete(self.project, name, draft.id))

    def _change_comments(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LlmcError as error:
            self.said.append(failed("", error, now_unix()))
        if self.diff is not None:
            self._read_diff(self.diff.page.worker, self.diff.page.since)
        self._draw_bars()

    def do_open(self) -> None:
        diff = self.diff
        if diff is None or diff.file is None:
            return
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        path = diff.page.review.worktree / diff.file.path
        self._terminal(["/bin/sh", "-c", f'{editor} "$1"', "editor", str(path)], None)


def brush_bold(colour: str) -> str:
    return f"bold {colour}"


def run(project: Project, brush: Brush, command: Command, roots: list[str]) -> str | None:
    """Show the screen until the user quits; returns another root to open, or None."""
    return FleetApp(project, brush, command, roots).run()
