"""Find the pane of an agent, for base/tmux.py and the hot commands. Light.

An agent is a pane, not a session: the user may split its window, open others beside it, rename or leave the session. At
launch a pane gets marks, as pane options, which tmux keeps when the pane moves and shows in `list-panes`. A pane's id
alone proves nothing: after a restart of the server, another pane has that id.
"""

from collections.abc import Iterable
from typing import NamedTuple

from llmc.base.names import PaneId, SessionName

#: the launch (`instance`), its worker, and its first process: a pane respawned by the user is theirs
MARK, WORKER, PROCESS = "@llmc", "@llmc_worker", "@llmc_pid"
_FIELDS = (
    *("pane_id", "pane_pid", "pid", "pane_dead", "pane_dead_status", "pane_dead_signal", "session_attached"),
    *(PROCESS, MARK, WORKER, "session_name"),  # the name last: users may put anything into theirs
)
_VARIABLE = b"LLMC_INSTANCE="
FORMAT = "|".join(f"#{{{name}}}" for name in _FIELDS)


class Pane(NamedTuple):
    """A pane, as tmux reports it."""

    id: PaneId
    session: SessionName
    #: a terminal is attached to a session that shows it
    attached: bool
    dead: bool
    exit_code: int | None
    pid: int
    #: the tmux server, which is the parent of `pid`
    server_pid: int
    #: its launch; "" for a pane that is not llmc's
    instance: str = ""
    worker: str = ""


Panes = dict[PaneId, Pane]


def parse(lines: Iterable[str]) -> Panes:
    """Parse `list-panes -a`, which lists a pane once per session that shares its window."""
    found: Panes = {}
    for pane in filter(None, map(_pane, lines)):
        before = found.get(pane.id)
        found[pane.id] = (
            pane if before is None else before._replace(attached=before.attached or pane.attached)
        )
    return found


def find(panes: Panes, worker: str, session: SessionName, pane_id: PaneId, instance: str) -> Pane | None:
    """The pane of a worker's launch; without an `instance`, the pane of its latest launch.

    None if it is gone. A launch without a `pane_id` may be from an llmc that set no marks: it is identified by its
    environment, or, once it has ended, as the first pane of its session.
    """
    marked = [p for p in panes.values() if (p.instance == instance if instance else p.worker == worker)]
    if marked or (instance and pane_id):
        return max(marked, key=_number, default=None)
    unmarked = [pane for pane in panes.values() if not pane.instance]
    for pane in unmarked if instance else ():
        if not pane.dead and instance_of(pane.pid) == instance:
            return pane
    first = min((pane for pane in unmarked if pane.session == session), key=_number, default=None)
    return first if first is not None and (first.dead or instance_of(first.pid) is None) else None


def _number(pane: Pane) -> int:
    return int(pane.id[1:])


def instance_of(pid: int) -> str | None:
    """The launch that a process belongs to, "" for none; None if it has ended."""
    from llmc.base.processes import environ  # not needed by the hot commands, which see marked panes

    variables = environ(pid)
    marks = (entry[len(_VARIABLE) :] for entry in variables or () if entry.startswith(_VARIABLE))
    return None if variables is None else next(marks, b"").decode(errors="replace")


def _pane(line: str) -> Pane | None:
    """None for an incomplete row: an option may contain a line end."""
    words = line.split("|", 10)
    numbers = words[0][1:], *words[1:3]
    if len(words) < 11 or words[0][:1] != "%" or not all(n.isascii() and n.isdecimal() for n in numbers):
        return None
    pane_id, pid, server, dead, status, signal, attached, process, mark, worker, session = words
    code = int(status) if status.isdigit() else 128 + int(signal) if signal.isdigit() else None
    ours = bool(mark) and process == pid
    return Pane(
        PaneId(pane_id),
        SessionName(session),
        attached=attached != "0",
        dead=dead == "1",
        exit_code=code if dead == "1" else None,
        pid=int(pid),
        server_pid=int(server),
        instance=mark if ours else "",
        worker=worker if ours else "",
    )
