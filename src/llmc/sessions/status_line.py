"""The status line in the sessions of a root's tmux server: set as options, so that tmux draws it by itself.

Only our own server is touched. Texts are options, and formats show options without reading formats in them.
"""

from collections.abc import Iterable, Mapping

from llmc.attention import raising
from llmc.attention.line import Line, Member, lines
from llmc.base.errors import LlmcError
from llmc.base.names import SessionName
from llmc.base.tmux import KEYS, LEFT, NEXT, RIGHT, exact, no_format
from llmc.records.items import Item
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project


class StatusLine:
    """Keeps the lines of a root's sessions current while a terminal is attached; sets only what changed."""

    def __init__(self) -> None:
        self._shown: dict[str, Line] = {}

    def show(self, project: Project, workers: Iterable[WorkerRecord], items: Iterable[Item]) -> None:
        if not project.tmux.is_watched():
            self._shown = {}  # `prepare` may set other lines before the next look
            return
        found = _lines(workers, items)
        changed = {session: line for session, line in found.items() if self._shown.get(session) != line}
        if changed:
            _set(project, changed)
            self._shown = found


def _lines(workers: Iterable[WorkerRecord], items: Iterable[Item]) -> dict[str, Line]:
    return lines([_member(record) for record in workers], items)


def _member(record: WorkerRecord) -> Member:
    first = next((line for line in record.current_prompt.splitlines() if line.strip()), "")
    subject = record.assignment.subject if record.assignment else record.current_subject
    return Member(record.name, record.session_id, record.status, subject or first)


def _set(project: Project, changed: Mapping[str, Line]) -> None:
    """A session that is gone does not keep the others from theirs."""
    for session, line in changed.items():
        target = ["-t", exact(SessionName(session))]
        words: list[str] = []
        for name, value in (
            (LEFT, line.left),
            (RIGHT, line.right),
            (NEXT, f"={line.next}:" if line.next else ""),
        ):
            words += ["set-option", *target, name, no_format(value), ";"]
        try:
            project.tmux.run(*words[:-1], check=False)
        except LlmcError:
            return  # tmux does not answer; the next change sets them


def prepare(project: Project, session: SessionName, prefix: str, *, nested: bool) -> None:
    """Before the user attaches: the lines as they are now, also without a daemon, and the keys of this terminal.

    Inside another tmux with the same prefix, that is pressed twice.
    """
    press = f"{prefix} {prefix}" if nested else prefix
    keys = f"{press} Space next · {press} d back"
    project.tmux.run("set-option", "-t", exact(session), KEYS, no_format(keys), check=False)
    try:
        _set(project, _lines(project.store.read().workers.values(), raising.current(project)))
    except LlmcError:
        pass  # a state that cannot be read does not keep the user from a terminal
