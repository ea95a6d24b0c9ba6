"""Send every notification, once per incident.

A notice is written to incidents.json before it is sent, and marked as sent afterwards. If llmc is killed before
sending, the next process sends it; if killed between sending and marking, it is sent twice. It is never lost.
"""

import contextlib
import os
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.base.files import read_given, write_atomic
from llmc.base.locks import Rank, lock
from llmc.base.processes import is_alive
from llmc.base.urls import scrub, scrub_all
from llmc.config.model import Notify
from llmc.config.paths import Root
from llmc.notifications import notifiers
from llmc.notifications.notifiers import Channel, Outcome, Result
from llmc.notifications.rules import ENDING, KINDS, Notice, Over, fit_to_tell, payload
from llmc.repo.project import Project

#: held only for a moment
LOCK_S = 2.0
#: tries per failing channel, and the first pause between them; it doubles
TRIES = 3
PAUSE_S = 60.0
#: how many ended incidents are kept, and how many sent ones that never end, such as a digest
MOST = 200


class Incident(Notice, frozen=True, kw_only=True):
    """A notice, and the state of its delivery."""

    since_unix: float
    #: channels that still have to deliver it
    due: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    #: the last error, by channel
    failed: dict[str, str] = {}
    #: failed tries
    tries: int = 0
    #: the process that sends it, and since when
    pid: int = 0
    tried_unix: float = 0.0
    #: None: not over
    ended_unix: float | None = None

    @property
    def is_open(self) -> bool:
        return self.ended_unix is None

    def wants(self, now: float) -> bool:
        """Whether to send it now: its sender died, or it is time to retry a failed channel."""
        if not self.due or not self.is_open:
            return False
        if not self.failed:
            return not is_alive(self.pid)
        pause_s: float = PAUSE_S * 2 ** (self.tries - 1)
        return now - self.tried_unix >= pause_s


def opened(notice: Notice, channels: Collection[str]) -> Incident:
    """An incident that this process is about to send."""
    now = now_unix()
    return Incident(**asdict(notice), since_unix=now, due=tuple(channels), pid=os.getpid(), tried_unix=now)


class Book(msgspec.Struct, frozen=True, kw_only=True):
    #: number of the last processed event; None: none yet
    seq: int | None = None
    incidents: tuple[Incident, ...] = ()


class Incidents:
    def __init__(self, root: Root) -> None:
        self._path = root.incidents
        self._lock = root.lock("notify")

    def read(self) -> Book:
        """The known incidents. An unreadable file counts as empty: better to notify twice than never."""
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
        """Start a new incident, to be sent by us; None if it is known and not over."""
        with self._changed() as change:
            old = change.book.incidents
            if any(one.is_open and (one.kind, one.key) == (notice.kind, notice.key) for one in old):
                return None
            new = opened(notice, channels)
            change.book = replace(change.book, incidents=(*old, new))
            return new

    def tried(self, incident: Incident, told: Collection[str], failed: dict[str, str]) -> None:
        """Record the result of a try. After the last one, failed channels are given up."""

        def after(one: Incident) -> Incident:
            tries = one.tries + bool(failed)
            left = tuple(failed) if tries < TRIES else ()
            done = tuple(dict.fromkeys((*one.told, *told)))
            return replace(one, told=done, failed=failed, due=left, tries=tries, tried_unix=now_unix())

        with self._changed() as change:
            change.each(after, lambda one: _is(one, incident))

    def take_due(self) -> list[Incident]:
        """Take over incidents that no process is sending."""
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
        """End an incident; the next one like it is sent again."""
        if not any(one.is_open and over.ends(one.kind, one.key) for one in self.read().incidents):
            return
        with self._changed() as change:
            change.each(
                lambda one: replace(one, ended_unix=now_unix()),
                lambda one: one.is_open and over.ends(one.kind, one.key),
            )

    def judged(self, seq: int) -> None:
        """Mark the events up to this one as processed."""
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
    moments = [one for one in book.incidents if one.is_open and not one.due and one.kind not in ENDING]
    drop = {id(one) for one in (*over[:-MOST], *moments[:-MOST])}
    return replace(book, incidents=tuple(one for one in book.incidents if id(one) not in drop))


#: how long sending one notice may take
TIMEOUT_S = 10.0

_senders: set[threading.Thread] = set()
#: sent by this process while incidents.json of a root could not be written
_unwritten: set[tuple[str, str, str]] = set()


def notify(project: Project, kind: str, title: str, body: str, *, key: str, **facts: Any) -> None:
    """Notify the user, unless the incident is known. Never raises, and takes little more than ten seconds."""
    post(project, Notice(kind, key, title, body, facts))
    flush()


def post(project: Project, notice: Notice) -> None:
    """Like `notify`, but send in a thread; `flush` waits for it. Never raises."""
    settings, notice = settings_of(project), fit_to_tell(notice)
    notice = replace(
        notice, title=scrub(notice.title), body=scrub(notice.body), facts=scrub_all(dict(notice.facts))
    )
    if notice.kind in KINDS and notice.kind not in settings.on:
        return
    channels = _wanted(channels_of(settings), notice)
    incident = _begun(project, notice, channels)
    if incident is not None and incident.due:
        _start(project, incident, channels)


def _wanted(channels: dict[str, Channel], notice: Notice) -> dict[str, Channel]:
    """The channels for a notice. A goal may restrict its own to one channel; `inbox` means none."""
    only = notice.facts.get("channel") if notice.kind == "goal_asked" else None
    return channels if only in (None, "", "notify") else {n: way for n, way in channels.items() if n == only}


def over(project: Project, kind: str, key: str | None = None) -> None:
    """End the incident, or without a key all of this kind; the next one is sent again. Never raises."""
    with contextlib.suppress(LlmcError, OSError):
        ended = {told for told in _unwritten if told[:2] == (_root(project), kind) and key in (None, told[2])}
        _unwritten.difference_update(ended)
        Incidents(project.root).end(Over(kind, key))


def retry(project: Project) -> None:
    """Send what a killed process left, and retry failed channels. Never raises."""
    with contextlib.suppress(LlmcError, OSError):
        channels = channels_of(settings_of(project))
        for incident in Incidents(project.root).take_due():
            _start(project, incident, channels)


def flush(timeout_s: float = TIMEOUT_S + 1) -> bool:
    """Wait for all threads, with a timeout; whether everything was sent."""
    deadline = time.monotonic() + timeout_s
    for sender in list(_senders):
        sender.join(max(0.0, deadline - time.monotonic()))
    return not any(sender.is_alive() for sender in list(_senders))


def try_channels(project: Project) -> list[Outcome]:
    """Send a test message on every channel; it is not an incident."""
    notice = Notice("test", "test", "llmc test notification", f"Sent from {project.root.path}")
    return notifiers.tell(channels_of(settings_of(project)), _message(project, notice), TIMEOUT_S)


def settings_of(project: Project) -> Notify:
    """The [notify] table, even of a config.toml that is otherwise invalid."""
    if project.config.notify != Notify():
        return project.config.notify
    try:
        table = tomllib.loads(project.root.config.read_text(encoding="utf-8")).get("notify", {})
        return msgspec.convert(table, Notify)
    except (OSError, ValueError):
        return project.config.notify


def channels_of(settings: Notify) -> dict[str, Channel]:
    """The configured channels, by name; a name contains no address."""
    made = {name: make(settings) for name, make in notifiers.CHANNELS.items()}
    found = {name: channel for name, channel in made.items() if channel is not None}
    return found | {f"url-{number}": notifiers.apprise(url) for number, url in enumerate(settings.urls, 1)}


def problems(project: Project) -> list[str]:
    """Why notifications may not reach the user, for `doctor`."""
    settings = settings_of(project)
    found = []
    if settings.urls and (problem := notifiers.apprise_problem()):
        found.append(f"notify.urls: {problem}")
    channels = channels_of(settings)
    last: dict[str, str] = {}
    for incident in Incidents(project.root).read().incidents:
        last |= dict.fromkeys(incident.told, "")
        last |= incident.failed
    found += [
        f"notify: the last notification to {name} failed: {why}"
        for name, why in last.items()
        if why and name in channels
    ]
    return found


def _root(project: Project) -> str:
    return str(project.root.path)


def _begun(project: Project, notice: Notice, channels: dict[str, Channel]) -> Incident | None:
    """Record an incident that we are to send; None if it is known. If that fails (full disk), send it anyway, once."""
    try:
        with fault_step("notify.record"):
            return Incidents(project.root).begin(notice, channels)
    except (LlmcError, OSError):
        told = (_root(project), notice.kind, notice.key)
        if told in _unwritten:
            return None
        _unwritten.add(told)
        return opened(notice, channels)


def _start(project: Project, incident: Incident, channels: dict[str, Channel]) -> None:
    chosen = {name: channels[name] for name in incident.due if name in channels}
    sender = threading.Thread(target=_deliver, args=(project, incident, chosen), name="notify", daemon=True)
    _senders.difference_update({old for old in _senders if not old.is_alive()})
    sender.start()
    _senders.add(sender)


def _deliver(project: Project, incident: Incident, channels: dict[str, Channel]) -> None:
    with fault_step("notify.send"):
        outcomes = notifiers.tell(channels, _message(project, incident), TIMEOUT_S)
    failed = {one.channel: one.reason for one in outcomes if one.result is Result.FAILED}
    told = [one.channel for one in outcomes if one.result is Result.TOLD]
    with contextlib.suppress(LlmcError, OSError), fault_step("notify.told"):
        Incidents(project.root).tried(incident, told, failed)
    with contextlib.suppress(LlmcError, OSError), project.store.transaction() as tx:
        about = {"kind": incident.kind, "key": incident.key}
        if told:
            tx.emit("notified", channels=told, **about)
        for channel, why in failed.items():
            tx.emit("notify_failed", reason=why, channel=channel, attempt=incident.tries + 1, **about)


def _message(project: Project, notice: Notice) -> dict[str, Any]:
    plain = replace(notice, facts=msgspec.to_builtins(notice.facts, str_keys=True))
    return payload(plain, root=str(project.root.path), host=socket.gethostname(), now=now_unix())
