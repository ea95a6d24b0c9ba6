"""The morning report of a root: reads the event log, the task list and the state, and lets the rules judge them."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from llmc.attention import raising
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import explain, json_row, write_atomic
from llmc.goals import status
from llmc.goals.drive.liveness import held_up_by
from llmc.goals.drive.questions import questions
from llmc.goals.goals import open_store
from llmc.goals.work import open_views
from llmc.records import sight
from llmc.records.event_log import EventLog
from llmc.records.items import Item
from llmc.records.state import AutoState, State
from llmc.records.task import Task
from llmc.repo.project import Project
from llmc.reports import bad_rows
from llmc.reports.rules.digest_parts import Digest, Facts, digest
from llmc.reports.rules.digest_text import Paint, render
from llmc.reports.rules.history import ACTIONS
from llmc.tasks import task_list
from llmc.tasks.source import source_of
from llmc.tasks.task_list import believed_tasks

#: the first report, before a person has ever looked, is about this long
DEFAULT_S = 24 * 3600.0
#: who looks again this soon sees the same period again
SAME_LOOK_S = 3600.0
PLAIN_WIDTH = 80

_ACTION = re.compile(rb'"action": ?"([a-z_]+)"')


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """When a person last read the report, and from which time on it was."""

    at_unix: float
    since_unix: float


def since_last_look(project: Project) -> float:
    """From when on a report without a time is: since a person last read one, else a day ago."""
    now = now_unix()
    try:
        last = msgspec.json.decode(project.root.looked.read_bytes(), type=Look)
    except (OSError, msgspec.MsgspecError):
        return now - DEFAULT_S
    if not last.since_unix <= last.at_unix <= now:  # the clock was set
        return now - DEFAULT_S
    return last.since_unix if now - last.at_unix < SAME_LOOK_S else last.at_unix


def remember_look(project: Project, found: Digest) -> None:
    """A person has read this; that it cannot be kept must not keep the report from them."""
    look = Look(at_unix=found.until_unix, since_unix=found.since_unix)
    with contextlib.suppress(LlmcError, OSError):
        write_atomic(project.root.looked, msgspec.json.encode(look))


def report(project: Project, since: float | None = None, *, ending: bool = False) -> Digest:
    """What happened since then; without a time, since a person last looked. `ending`: the daemon's last words."""
    problems: list[str] = []
    state = _state(project, problems)
    now = now_unix()
    since = since_last_look(project) if since is None else since
    # An attempt counts with all it took, also what lies before the period.
    rows = _rows(project, state, since - project.config.auto.task_timeout_secs)
    tasks, held_up = _tasks(project, problems), _held_up(project, problems)
    facts = Facts(
        items=_items(project, problems, ending),
        tasks=tasks,
        list_name=source_of(project).list_name,
        completed=_completed(project),
        workers=list(state.workers.values()) if state else (),
        auto=state.auto if state else AutoState(),
        running=_auto_runs(project),
        held_up=held_up,
    )
    return digest(rows, since, now, facts, tuple(problems))


def text_of(found: Digest, width: int = PLAIN_WIDTH, paint: Paint | None = None) -> str:
    """A report as text, in local time."""
    same_day = _day(found.since_unix) == _day(found.until_unix)
    form = "%H:%M" if same_day else "%a %H:%M"
    if found.until_unix - found.since_unix > 6 * 86400:
        form = "%Y-%m-%d %H:%M"
    return render(found, width, paint or (lambda text, style: text), lambda at: _local(at).strftime(form))


def _rows(project: Project, state: State | None, since: float) -> Iterator[dict[str, Any]]:
    """The events since then that matter here, oldest first; the others, most of them, are not even parsed."""
    last = 0
    try:
        for row in of_interest(EventLog(str(project.root.events)).lines_since(since)):
            seq = row.get("seq")
            last = max(last, seq) if isinstance(seq, int) else last
            yield row
    except OSError as error:
        raise explain(error, f"cannot read {project.root.events}") from error
    # A command that was killed after its change leaves its events in the state only.
    for row in state.recent_events if state else ():
        if isinstance(row.get("seq"), int) and row["seq"] > last and row.get("action") in ACTIONS:
            yield row


def of_interest(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The rows the report reads, from the lines of a log; and the last sign before a start, or the end."""
    skipped = b""
    for line in lines:
        found = _ACTION.search(line)
        action = found[1].decode() if found is not None else ""
        if action and action not in ACTIONS:
            skipped = line
            continue
        if action == "auto_started" and (before := json_row(skipped)) is not None:
            yield before
        skipped = b""
        if (row := json_row(line)) is not None:
            yield row
    if (row := json_row(skipped)) is not None:
        yield row


def _state(project: Project, problems: list[str]) -> State | None:
    """The state; a report at the end of a bad night must not fail because it is broken."""
    try:
        return project.store.read()
    except LlmcError as error:
        problems.append(f"the workers: {error.message}")
        return None


def tell_lists(project: Project) -> None:
    """The attention list has what tasks and goals need now; for whoever shows it while no daemon runs."""
    problems: list[str] = []
    _tasks(project, problems)
    _held_up(project, problems)
    bad_rows.tell(project)


def _items(project: Project, problems: list[str], ending: bool) -> list[Item]:
    """The attention list; after the looks at tasks and goals, which put theirs on it."""
    try:
        return raising.current(project, ending=ending)
    except (LlmcError, OSError) as error:
        problems.append(f"what waits for you: {error}")
        return []


def _tasks(project: Project, problems: list[str]) -> list[Task] | None:
    """What is in the list; None without one. A client removes the files of a finished list: empty is no answer."""
    if not project.config.auto.task_list_id:
        return None
    try:
        source = source_of(project)
        found = believed_tasks(source)
        task_list.tell(project, source, source.books(), {task.id: task for task in found})
        return found or None
    except (LlmcError, OSError) as error:
        problems.append(f"the task list: {error}")
        return None


def _held_up(project: Project, problems: list[str]) -> dict[str, int]:
    """How much of the plans waits for each question; nothing is opened where there are no goals."""
    store = open_store(project)
    if not store.path.exists():
        return {}
    try:
        with store.reading() as found:
            views = open_views(found)
    except (LlmcError, OSError) as error:
        problems.append(f"the goals: {error}")
        return {}
    if store.damage:
        problems.append(f"the goals: {store.damage}")
    problems += [f"{goal_id}: {why}" for goal_id, why in found.unreadable.items()]
    status.tell(project, map(status.of_goal, views), views)
    return {
        status.question_key(one): held_up_by(view, one.work_node_id)
        for view in views
        for one in questions(view)
    }


def _completed(project: Project) -> set[str]:
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
