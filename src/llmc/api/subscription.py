"""A subscription to a root, for live screens: changed files trigger each update, with or without a daemon.

Every change replaces the state or a record beside it, or appends to the event log, so it is enough to watch their
directories. Facts outside our files are read every `REST_S`. A screen is captured only while the user looks at it.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from llmc.api import seeing, views
from llmc.api.views import Fleet, Landed, Others
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.given import number, text
from llmc.base.log_reader import LogReader
from llmc.base.panes import Pane, find
from llmc.base.tmux import Unknown
from llmc.base.wake import Watch, open_watch
from llmc.records.event_log import EventLog, Row, rows_of
from llmc.repo import git
from llmc.repo.project import Project, subjects

if TYPE_CHECKING:
    from llmc.api.status_view import Page

#: changes within this time count as one
GATHER_S = 0.08
#: minimum time between two looks at the fleet
PAUSE_S = 0.25
#: time between two looks if nothing changes: for ages and facts outside our files (an attached terminal, the disk)
REST_S = 5.0
#: minimum time between two captures of a screen
SCREEN_S = 0.25
#: the same, while every watched screen has a problem, such as an agent that has exited
SCREEN_REST_S = 1.0
#: how many events a new subscriber gets
EVENTS = 200


class EventLine(Struct, frozen=True):
    """One event, as a line."""

    seq: int
    at_unix: float
    action: str
    worker: str
    text: str
    #: who ordered it, and from where; "" if the event does not say
    by: str = ""


class Screen(Struct, frozen=True):
    """The screen of an agent, with its colors as SGR sequences."""

    worker: str
    at_unix: float
    lines: tuple[str, ...]
    #: the agent has exited, or has no pane
    problem: str = ""


class FleetSeen(Struct, frozen=True):
    """The fleet changed; the first one is the current fleet."""

    fleet: Fleet


class Happened(Struct, frozen=True):
    """New events, oldest first."""

    events: tuple[EventLine, ...]


class ScreenSeen(Struct, frozen=True):
    """The screen of the watched worker changed."""

    screen: Screen


class Trouble(Struct, frozen=True):
    """The root cannot be read now; the subscription keeps trying. An empty text: it can be read again."""

    text: str


Change = FleetSeen | Happened | ScreenSeen | Trouble
Listener = Callable[[Change], None]


class Subscription:
    """Follows a root in its own thread, and reports every change to one listener, in that thread.

    Without a listener, changes are kept until there is one.
    """

    def __init__(
        self,
        project: Project,
        listener: Listener | None = None,
        *,
        pause_s: float = PAUSE_S,
        rest_s: float = REST_S,
    ) -> None:
        self._project, self._listener = project, listener
        self._pause_s, self._rest_s = pause_s, rest_s
        self._untold: list[Change] = []
        self._hand_over = threading.Lock()
        self._log = EventLog(str(project.root.events))
        self._reader: LogReader | None = None
        self._seq = 0
        self._known: dict[str, str] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        #: commits with more changed files than llmc reads; remembered because git takes long to find out
        self._uncounted: set[str] = set()
        self._landed: list[Row] = []
        self._watches: dict[Path, Watch] = {}
        self._workers: tuple[str, ...] = ()
        self._watched: frozenset[str] = frozenset()
        self._shown: dict[str, Screen] = {}
        self._trouble = ""
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._ended = False
        self._thread = threading.Thread(target=self._follow, name="subscription", daemon=True)

    def start(self) -> "Subscription":
        self._thread.start()
        return self

    def listen(self, listener: Listener) -> list[Change]:
        """Report every change from now on to this listener; returns the changes kept until now."""
        with self._hand_over:
            self._listener = listener
            untold, self._untold = self._untold, []
        return untold

    def _tell(self, change: Change) -> None:
        with self._hand_over:
            if self._listener is None:
                self._untold.append(change)
                return
        self._listener(change)

    def end(self) -> None:
        """Stop soon; does not wait."""
        self._ended = True
        self.look_again()

    def stop(self) -> None:
        """Stop, and wait up to 10 seconds until nothing more is reported."""
        self.end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(10)

    def look_again(self) -> None:
        """Look now, even if nothing changed."""
        with self._hand_over, contextlib.suppress(BlockingIOError):
            if self._write_fd >= 0:
                os.write(self._write_fd, b".")

    def watch_screens(self, *workers: str) -> None:
        """Capture the screens of these workers from now on, and no others."""
        wanted = frozenset(workers)
        if wanted != self._watched:
            self._watched = wanted
            self._shown = {name: screen for name, screen in self._shown.items() if name in wanted}
            self.look_again()

    def _follow(self) -> None:
        looked = captured = 0.0
        due = True
        try:
            while not self._ended:
                now = time.monotonic()
                if due and now - looked >= self._pause_s:
                    looked = now
                    due = self._look()
                if self._watched and now - captured >= self._screen_pause():
                    captured = now
                    self._screens()
                wait_s = self._wait_s(looked, captured, due)
                due = self._wait(wait_s) or due or time.monotonic() - looked >= self._rest_s
        finally:
            for watch in self._watches.values():
                watch.close()
            os.close(self._read_fd)
            with self._hand_over:
                os.close(self._write_fd)
                self._write_fd = -1

    def _look(self) -> bool:
        """Read what changed; returns whether to look again soon. Reports an error, and tries again at the next look."""
        try:
            soon = self._watch_directories()
            self._reader = self._reader or self._new_reader()
            self._events(list(rows_of(self._reader.lines())), first=not self._known and not self._landed)
            self._fleet()
        except Exception as error:
            self._say_trouble(_said(error))
            self._reader = None
            return False
        return soon

    def _new_reader(self) -> LogReader:
        """A reader from the start of the day; after trouble, from the last reported event."""
        return self._log.reader_after(self._seq) if self._seq else self._log.reader(_midnight(now_unix()))

    def _watch_directories(self) -> bool:
        """Watch the directories that changes are written to; returns whether one is new.

        They include the inbox of each worker.
        """
        root = self._project.root
        inboxes = [root.inbox / name for name in self._workers]
        wanted = [
            path for path in (root.path, root.private, root.logs, root.reviews, *inboxes) if path.is_dir()
        ]
        for path in [path for path in self._watches if path not in wanted]:
            self._watches.pop(path).close()
        new = [path for path in wanted if path not in self._watches]
        for path in new:
            with contextlib.suppress(OSError):
                self._watches[path] = open_watch(path)
        return bool(new)

    def _wait_s(self, looked: float, captured: float, due: bool) -> float:
        now = time.monotonic()
        until = looked + (self._pause_s if due else self._rest_s)
        if self._watched:
            until = min(until, captured + self._screen_pause())
        return max(0.0, until - now)

    def _wait(self, wait_s: float) -> bool:
        """Wait; returns whether something changed, or `look_again` was called."""
        watches = list(self._watches.values())
        poll = select.poll()  # `select` fails above file 1,023, and a server with many browsers has those
        for fd in (self._read_fd, *(watch.fileno() for watch in watches)):
            poll.register(fd, select.POLLIN)
        ready = poll.poll(wait_s * 1000)
        if not ready or self._ended:
            return bool(ready)
        time.sleep(GATHER_S)  # a transaction writes several files
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        for watch in watches:
            watch.changed()
        return True

    def _fleet(self) -> None:
        page = seeing.status_for_people(self._project, self._known)
        fleet = views.fleet_of(
            page.view,
            page.now,
            self._landings(),
            self._changed_lines(page.view["workers"]),
            self._others(page),
        )
        self._say_trouble("")
        self._workers = tuple(fleet.rows)
        self._tell(FleetSeen(fleet))

    def _others(self, page: "Page") -> Others | None:
        if not self._project.config.fleet.database:
            return None
        from llmc.api.other_nodes import others  # few roots are in a fleet

        here = {item["key"] for item in page.view["attention"]}
        return others(self._project, page.now, here)

    def _say_trouble(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._tell(Trouble(text))

    def _landings(self) -> list[Landed]:
        today = _midnight(now_unix())
        self._landed = [row for row in self._landed if (number(row.get("ts")) or 0.0) >= today]
        commits = [text(row.get("commit")) for row in self._landed]
        missing = [commit for commit in commits if commit and commit not in self._known]
        self._known |= subjects(self._project, missing)
        return views.landed_of(self._landed, self._known)

    def _changed_lines(self, workers: list[dict[str, object]]) -> dict[str, tuple[int, int]]:
        """Lines added and deleted in committed work; counted once for each commit."""
        commits = [text(worker["commit_sha"]) for worker in workers if worker["status"] == "needs_review"]
        if not commits:
            self._counted = {}
            return {}
        from llmc.landing.review import changed_files  # the first frame does not wait for it

        for commit in commits:
            if commit and commit not in self._counted and commit not in self._uncounted:
                with contextlib.suppress(LlmcError):
                    root = self._project.root.path
                    base = git.merge_base(root, self._project.base, commit) or commit
                    try:
                        files = changed_files(root, base, commit)
                    except git.TooMuch:
                        self._uncounted.add(commit)
                        raise
                    self._counted[commit] = (
                        sum(file.added or 0 for file in files),
                        sum(file.deleted or 0 for file in files),
                    )
        self._counted = {commit: self._counted[commit] for commit in commits if commit in self._counted}
        return self._counted

    def _events(self, rows: list[Row], *, first: bool) -> None:
        self._landed += [row for row in rows if row.get("action") in ("accepted", "undone")]
        told = tuple(map(event_line, rows[-EVENTS:] if first else rows))
        if told:
            self._seq = max(self._seq, told[-1].seq)
            self._tell(Happened(told))

    def _screen_pause(self) -> float:
        shown = self._shown
        rests = bool(shown) and all(screen.problem for screen in shown.values())
        return SCREEN_REST_S if rests else SCREEN_S

    def _screens(self) -> None:
        for screen in capture(self._project, sorted(self._watched)):
            before = self._shown.get(screen.worker)
            if screen.worker not in self._watched:
                continue
            self._shown[screen.worker] = screen
            if before is None or (before.lines, before.problem) != (screen.lines, screen.problem):
                self._tell(ScreenSeen(screen))


def capture(project: Project, workers: Sequence[str]) -> list[Screen]:
    """The current screens of these workers' agents, with two calls of tmux in total."""
    at = now_unix()
    try:
        records = project.store.read().workers
        found = project.tmux.panes()
        if isinstance(found, Unknown):
            return [Screen(name, at, (), "tmux did not answer") for name in workers]
        panes = {
            record.name: find(found, record.name, record.session_id, record.pane_id, record.instance)
            for record in records.values()
            if record.name in workers
        }
        texts = project.tmux.capture_all([pane for pane in panes.values() if pane is not None])
    except LlmcError as error:
        return [Screen(name, at, (), error.message) for name in workers]
    return [
        _screen(name, at, pane, texts.get(pane.id, "") if pane else "")
        for name, pane in panes.items()
        if pane is None or pane.id in texts
    ]


def _screen(worker: str, at: float, pane: Pane | None, text: str) -> Screen:
    if pane is None:
        return Screen(worker, at, (), "the agent is not running")
    lines = tuple(line.rstrip() for line in text.rstrip("\n").split("\n"))
    return Screen(worker, at, lines, "the agent has exited" if pane.dead else "")


def _said(error: Exception) -> str:
    if isinstance(error, LlmcError):
        return error.message
    if isinstance(error, seeing.Unreadable):
        return "cannot read state.json"
    return f"{type(error).__name__}: {error}" if not isinstance(error, OSError) else str(error)


def event_line(row: Row) -> EventLine:
    """An event as a line: its reason, or what it is about."""
    about = [
        text(row.get(name))
        for name in (
            "command",
            "reason",
            "subject",
            "to",
            "step",
            "prompt_id",
            "outcome",
            "commit",
            "task_id",
        )
    ]
    return EventLine(
        int(number(row.get("seq")) or 0),
        number(row.get("ts")) or 0.0,
        text(row.get("action")),
        text(row.get("worker")),
        " ".join(part for part in about if part)[:400],
        text(row.get("by")),
    )


def _midnight(now: float) -> float:
    """The start of the local day."""
    return datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
