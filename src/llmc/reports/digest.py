"""The digest of a root, from the event log, the task list and the state."""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from llmc.attention import raising
from llmc.auto.prices import prices_of
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import explain, json_row, write_atomic
from llmc.goals.drive.by_hand import questions
from llmc.goals.goals import of_goal, open_store, open_views, question_key, tell
from llmc.goals.plan.plan import held_up_by
from llmc.records import sight
from llmc.records.event_log import EventLog, Row, ts_of
from llmc.records.items import Item
from llmc.records.state import AutoState, State
from llmc.records.task import Task
from llmc.repo.project import Project
from llmc.reports import bad_rows
from llmc.reports.rules.digest_parts import Digest, Facts, digest
from llmc.reports.rules.digest_text import Paint, render
from llmc.reports.rules.history import ACTIONS, lacks_a_start, read
from llmc.tasks import task_list
from llmc.tasks.source import source_of
from llmc.tasks.task_list import believed_tasks

#: the period of the first digest
DEFAULT_S = 24 * 3600.0
#: a digest this soon after the first of its period covers the same period
SAME_LOOK_S = 3600.0
#: how much further back to read if the period needs earlier rows: a few steps reach any start, and little is read in vain
FURTHER = 4
PLAIN_WIDTH = 80

_ACTION = re.compile(rb'"action": ?"([a-z_]+)"')


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """When the user first read the last digest, and where its period started."""

    at_unix: float
    since_unix: float


def since_last_look(project: Project, now: float) -> float:
    """Where a digest without --since starts: at the user's last one, else a day ago. It stays there for an hour."""
    last = _last_look(project, now)
    if last is None:
        return now - DEFAULT_S
    return last.since_unix if now - last.at_unix < SAME_LOOK_S else last.at_unix


def _last_look(project: Project, now: float) -> Look | None:
    try:
        last = msgspec.json.decode(project.root.looked.read_bytes(), type=Look)
    except (OSError, msgspec.MsgspecError):
        return None
    return last if last.since_unix <= last.at_unix <= now else None  # else the clock was set


def remember_look(project: Project, found: Digest) -> None:
    """Record that the user read this; failure to write it must not hide the digest."""
    last = _last_look(project, found.until_unix)
    if last is not None and last.since_unix == found.since_unix:
        return  # the same period again: its hour runs from the first time
    look = Look(at_unix=found.until_unix, since_unix=found.since_unix)
    with contextlib.suppress(LlmcError, OSError):
        write_atomic(project.root.looked, msgspec.json.encode(look))


def report(project: Project, since: float | None = None, *, ending: bool = False) -> Digest:
    """The digest since that time, or since the user last read one. `ending`: the daemon asks while it exits."""
    problems: list[str] = []
    state = _state(project, problems)
    now = now_unix()
    since = since_last_look(project, now) if since is None else since
    rows = complete(lambda at: list(_rows(project, state, at)), *_reach(project, state, since))
    tasks, held_up = list_tasks(project, problems), held_up_by_questions(project, problems)
    auto = state.auto if state else AutoState()
    facts = Facts(
        items=_items(project, problems, ending),
        tasks=tasks,
        list_name=source_of(project).list_name,
        completed=completed(project),
        workers=list(state.workers.values()) if state else (),
        auto=auto,
        prices=prices_of(project),
        running=_auto_runs(project),
        beat_unix=sight.last_beat(str(project.root.path), auto.run_instance),
        hosts=project.config.sandbox.hosts,
        held_up=held_up,
    )
    return digest(rows, since, now, facts, tuple(problems))


def _reach(project: Project, state: State | None, since: float) -> tuple[float, float, float]:
    """The period's start, where to read from at first, and where the log begins."""
    workers = state.workers.values() if state else ()
    begun = [record.assignment.since_unix for record in workers if record.assignment is not None]
    first = next(EventLog(str(project.root.events)).all(), {})
    return since, min(since - project.config.auto.task_timeout_secs, *begun, since), ts_of(first)


def complete(
    read_rows: Callable[[float], list[Row]],
    since: float,
    begin: float,
    oldest: float,
    nodes: Collection[str] = (),
) -> list[Row]:
    """The rows from `begin` on, and as many before it as the period needs: what ended in it counts in full.

    `nodes`: as in `lacks_a_start`.
    """
    rows = read_rows(begin)
    while begin > oldest and lacks_a_start(read(rows), since, nodes):
        begin = since - FURTHER * (since - begin)
        rows = read_rows(begin)
    return rows


def text_of(found: Digest, width: int = PLAIN_WIDTH, paint: Paint | None = None) -> str:
    """A digest as text, in local time."""
    return render(found, width, paint or (lambda text, style: text), clock_of(found))


def clock_of(found: Digest) -> Callable[[float], str]:
    """A formatter for times of this period: with the day or the date if the period has more than one day."""
    same_day = _day(found.since_unix) == _day(found.until_unix)
    form = "%H:%M" if same_day else "%a %H:%M"
    if found.until_unix - found.since_unix > 6 * 86400:
        form = "%Y-%m-%d %H:%M"
    return lambda at: _local(at).strftime(form)


def _rows(project: Project, state: State | None, since: float) -> Iterator[dict[str, Any]]:
    """The relevant events since then, oldest first; the others are not even parsed."""
    last = 0
    try:
        for row in of_interest(EventLog(str(project.root.events)).lines_since(since)):
            seq = row.get("seq")
            last = max(last, seq) if isinstance(seq, int) else last
            yield row
    except OSError as error:
        raise explain(error, f"cannot read {project.root.events}") from error
    # The events of a command that was killed after its change are only in the state.
    for row in state.recent_events if state else ():
        if isinstance(row.get("seq"), int) and row["seq"] > last and row.get("action") in ACTIONS:
            yield row


def of_interest(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The relevant rows of a log, and the last event before each start and at the end."""
    skipped = b""
    for line in lines:
        found = _ACTION.search(line)
        action = found[1].decode() if found is not None else ""
        if action and action not in ACTIONS:
            skipped = line
            continue
        if action in ("auto_started", "daemon_started") and (before := json_row(skipped)) is not None:
            yield before
        skipped = b""
        if (row := json_row(line)) is not None:
            yield row
    if (row := json_row(skipped)) is not None:
        yield row


def _state(project: Project, problems: list[str]) -> State | None:
    """The state; a broken one must not make the digest fail."""
    try:
        return project.store.read()
    except LlmcError as error:
        problems.append(f"workers: {error.message}")
        return None


def tell_lists(project: Project) -> None:
    """Update the attention list with tasks and goals, for a command that shows it while no daemon runs."""
    problems: list[str] = []
    list_tasks(project, problems)
    held_up_by_questions(project, problems)
    bad_rows.tell(project)


def _items(project: Project, problems: list[str], ending: bool) -> list[Item]:
    """The attention list; call it after tasks and goals added their items."""
    try:
        return raising.current(project, ending=ending)
    except (LlmcError, OSError) as error:
        problems.append(f"attention list: {error}")
        return []


def list_tasks(project: Project, problems: list[str]) -> list[Task] | None:
    """The task list; None without one, or if it is empty, because the client removes the files of a finished list."""
    if not project.config.auto.task_list_id:
        return None
    try:
        source = source_of(project)
        found = believed_tasks(source)
        task_list.tell(project, source, source.books(), {task.id: task for task in found})
        return found or None
    except (LlmcError, OSError) as error:
        problems.append(f"task list: {error}")
        return None


def held_up_by_questions(project: Project, problems: list[str]) -> dict[str, int]:
    """How many plan items each open question blocks; opens no store if there are no goals."""
    store = open_store(project)
    if not store.exists():
        return {}
    try:
        with store.reading() as found:
            views = open_views(found)
    except (LlmcError, OSError) as error:
        problems.append(f"goals: {error}")
        return {}
    if store.damage:
        problems.append(f"goals: {store.damage}")
    problems += [f"{goal_id}: {why}" for goal_id, why in found.unreadable.items()]
    tell(project, map(of_goal, views), views)
    return {
        question_key(one): held_up_by(view, one.work_node_id) for view in views for one in questions(view)
    }


def completed(project: Project) -> set[str]:
    try:
        source = source_of(project)
        return set(source.books().completed_in(source.list_name))
    except OSError:
        return set()


def _auto_runs(project: Project) -> bool:
    found = sight.registration(project.root.path)
    return project.daemon_runs() and (found is None or found.auto is not False)


def _local(at_unix: float) -> datetime:
    try:
        return datetime.fromtimestamp(at_unix)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0)


def _day(at_unix: float) -> object:
    return _local(at_unix).date()
