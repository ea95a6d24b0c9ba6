"""Keys that move the cursor, switch tabs and open pages. Nothing here changes the fleet."""

from llmc.api.said import PLAIN, command_in
from llmc.tui import later
from llmc.tui.frame import TABS
from llmc.tui.lines import Lines
from llmc.tui.performing import Order, Performing


class Moving(Performing):
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
        elif self.view == "roots":
            self.roots.move(by)
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
            self._say("", "nothing needs you", PLAIN)
        self._moved()

    def do_fold(self) -> None:
        if self.view == "diff" and self.diff is not None:
            self.fold_diff()
        else:
            self.store.fold(folded=True)
            self._moved()

    def fold_diff(self) -> None:
        """Overridden in diff_keys.py."""

    def do_unfold(self) -> None:
        self.store.fold(folded=False)
        self._moved()

    def do_focus(self) -> None:
        self.in_pane = not self.in_pane
        keys = self.key_names
        told = (
            f"{keys['down']} and {keys['up']} scroll the pane; {keys['focus']} goes back to the list"
            if self.in_pane
            else f"{keys['down']} and {keys['up']} move through the list; {keys['focus']} switches to the pane"
        )
        self._say("", told, PLAIN)

    def do_tab_right(self) -> None:
        self._turn(1)

    def do_tab_left(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        self.tab = TABS[(TABS.index(self.tab) + by) % len(TABS)]
        self.page_lines = []
        self.query_one("#content", Lines).begin_at(0)
        self.redraw()
        self._load()

    def do_full(self) -> None:
        self.full = not self.full
        self.redraw()
        self._load()

    def _open(self, view: str) -> None:
        self.view = "" if self.view == view else view
        self.page_lines = []
        self.query_one("#content", Lines).begin_at(0)
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
            lines = later.page_texts.help_lines(where, self._page_width(), self.brush, self.remapped)
            self._show_page(lines)

    def do_log(self) -> None:
        self._open("log")
        if self.view:
            self._show_log()

    def _page_width(self) -> int:
        return max(10, self.query_one("#content", Lines).size.width - 1)

    def _show_log(self) -> None:
        """Show the commands of this session, scrolled to the last one."""
        width = self._page_width()
        lines = later.page_texts.log_lines(self.said, width, self.brush)
        last = later.page_texts.log_lines(self.said[-1:], width, self.brush)
        self._show_page(lines, len(lines) - len(last))

    def do_roots(self) -> None:
        if self._has_others():
            self.roots.begin()
            self._open("roots")

    def do_next_root(self) -> None:
        if self._has_others():
            self.leave(self.roots.beside(1))

    def do_previous_root(self) -> None:
        if self._has_others():
            self.leave(self.roots.beside(-1))

    def _has_others(self) -> bool:
        self._look_for_roots()
        if not self.roots.several:
            self._say("", "there are no other roots to switch to", PLAIN)
        return self.roots.several

    def do_back(self) -> None:
        """Go back one step, but never leave the screen."""
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
            self.leave(None)

    def leave(self, root: str | None, asked: tuple[Order, ...] = ()) -> None:
        """Close the screen, to open another root if given. Asks first about each order that runs (see `finish`)."""
        order = next((one for one in self.orders if one not in asked), None)
        if order is None:
            self.exit(root)
            return
        does = "quit" if root is None else "switch"
        how = f"Stop it and {does}?" if order.stops else f"{does.capitalize()} when it finishes?"
        way_back = "cancel to let the command finish" if order.stops else "cancel to see its result here"
        question = f"{order.command} is still running. {how}"
        self._ask(question, does, way_back, lambda: self.leave(root, (*asked, order)))

    def do_leave(self) -> None:
        self.exit(None)

    def do_redraw(self) -> None:
        self.subscription.look_again()
        self.refresh(repaint=True, layout=True)

    def do_mouse(self) -> None:
        self.mouse_on = not self.mouse_on
        self._report_mouse()
        self._say(
            "", "mouse on" if self.mouse_on else "mouse off; you can now select text in the terminal", PLAIN
        )

    def do_copy(self) -> None:
        entry = self.store.entry
        text = ""
        if entry is not None:
            text = (entry.item.next if entry.item else "") or (entry.row.next if entry.row else "")
            text = command_in(text) or (entry.landed.commit if entry.landed else "")
            if entry.node is not None:
                there = entry.there
                text = (there.next or there.attach) if there is not None else entry.node.command
        if text:
            self.copy_to_clipboard(text)
        self._say("", f"copied: {text}" if text else "nothing to copy here", PLAIN)

    def do_filter(self) -> None:
        self._open_form(
            "filter:", self.store.narrow, changed=self._narrow, empty=True, text=self.store.filter
        )

    def _narrow(self, text: str) -> None:
        self.store.narrow(text)
        self._moved()
