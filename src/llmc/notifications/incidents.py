"""`.llmc/incidents.json`: what a person was told of, or is about to be. A notice is on the disk before it is told."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.files import read_given, write_atomic
from llmc.base.locks import Rank, lock
from llmc.base.processes import is_alive
from llmc.config.paths import Root
from llmc.notifications.rules.notices import Notice, Over

#: it is held for a moment only
LOCK_S = 2.0
#: how often a channel that fails is tried, and how long the first pause is; it doubles
TRIES = 3
PAUSE_S = 60.0
#: how many incidents that are over are remembered
MOST = 200


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    title: str
    body: str = ""
    facts: dict[str, object] = {}
    since_unix: float
    #: channels that have not taken it yet
    due: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    #: why the last try failed, by channel
    failed: dict[str, str] = {}
    #: tries that failed
    tries: int = 0
    #: who tells it, since when
    pid: int = 0
    tried_unix: float = 0.0
    #: None: it is not over
    ended_unix: float | None = None

    @property
    def notice(self) -> Notice:
        return Notice(self.kind, self.key, self.title, self.body, dict(self.facts))

    @property
    def is_open(self) -> bool:
        return self.ended_unix is None

    def wants(self, now: float) -> bool:
        """Whether it is to be told now: its teller died, or a channel that failed may be tried again."""
        if not self.due or not self.is_open:
            return False
        if not self.failed:
            return not is_alive(self.pid)
        pause_s: float = PAUSE_S * 2 ** (self.tries - 1)
        return now - self.tried_unix >= pause_s


def opened(notice: Notice, channels: Collection[str]) -> Incident:
    """An incident that this process is about to tell."""
    return Incident(
        kind=notice.kind,
        key=notice.key,
        title=notice.title,
        body=notice.body,
        facts=notice.facts,
        since_unix=now_unix(),
        due=tuple(channels),
        pid=os.getpid(),
        tried_unix=now_unix(),
    )


class Book(msgspec.Struct, frozen=True, kw_only=True):
    #: the number of the last event that was judged; None: none was yet
    seq: int | None = None
    incidents: tuple[Incident, ...] = ()


class Incidents:
    def __init__(self, root: Root) -> None:
        self._path = root.incidents
        self._lock = root.lock("notify")

    def read(self) -> Book:
        """What is known. A file that cannot be read is an empty one: better told twice than never."""
        try:
            return msgspec.json.decode(read_given(self._path), type=Book)
        except (OSError, ValueError, RecursionError):
            return Book()

    @contextmanager
    def _changed(self) -> Iterator["_Change"]:
        with lock(self._lock, Rank.NOTIFY, timeout_s=LOCK_S):
            change = _Change(self.read())
            before = change.book
            yield change
            if change.book != before:
                data = msgspec.json.format(msgspec.json.encode(_pruned(change.book)), indent=1)
                write_atomic(self._path, data, alone=True)

    def begin(self, notice: Notice, channels: Collection[str]) -> Incident | None:
        """A new incident, ours to tell; None when it is known, and not over."""
        with self._changed() as change:
            old = change.book.incidents
            if any(one.is_open and (one.kind, one.key) == (notice.kind, notice.key) for one in old):
                return None
            new = opened(notice, channels)
            change.book = replace(change.book, incidents=(*old, new))
            return new

    def tried(self, incident: Incident, told: Collection[str], failed: dict[str, str]) -> None:
        """What became of a try. After the last one a channel is given up."""

        def after(one: Incident) -> Incident:
            tries = one.tries + bool(failed)
            left = tuple(failed) if tries < TRIES else ()
            done = tuple(dict.fromkeys((*one.told, *told)))
            return replace(one, told=done, failed=failed, due=left, tries=tries, tried_unix=now_unix())

        with self._changed() as change:
            change.each(after, lambda one: _is(one, incident))

    def take_due(self) -> list[Incident]:
        """Incidents that wait to be told and nobody tells; from now on we do."""
        now = now_unix()
        if not any(one.wants(now) for one in self.read().incidents):
            return []
        with self._changed() as change:
            wanted = [one for one in change.book.incidents if one.wants(now)]
            ours = [replace(one, pid=os.getpid(), tried_unix=now, failed={}) for one in wanted]
            for mine in ours:
                change.each(lambda _, mine=mine: mine, lambda one, mine=mine: _is(one, mine))  # type: ignore[misc]
        return ours

    def end(self, over: Over) -> None:
        """From now on it may be told again."""
        if not any(one.is_open and over.ends(one.kind, one.key) for one in self.read().incidents):
            return
        with self._changed() as change:
            change.each(
                lambda one: replace(one, ended_unix=now_unix()),
                lambda one: one.is_open and over.ends(one.kind, one.key),
            )

    def judged(self, seq: int) -> None:
        """The events up to this one are dealt with."""
        with self._changed() as change:
            change.book = replace(change.book, seq=max(seq, change.book.seq or 0))


class _Change:
    def __init__(self, book: Book) -> None:
        self.book = book

    def each(self, act: Callable[[Incident], Incident], where: Callable[[Incident], bool]) -> None:
        changed = tuple(act(one) if where(one) else one for one in self.book.incidents)
        self.book = replace(self.book, incidents=changed)


def _is(one: Incident, other: Incident) -> bool:
    return (one.kind, one.key, one.since_unix) == (other.kind, other.key, other.since_unix)


def _pruned(book: Book) -> Book:
    over = [one for one in book.incidents if not one.is_open]
    drop = {id(one) for one in over[:-MOST]}
    return replace(book, incidents=tuple(one for one in book.incidents if id(one) not in drop))
