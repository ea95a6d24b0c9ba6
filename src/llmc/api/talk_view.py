"""The end of a worker's conversation, as text."""

from msgspec import Struct

from llmc.agents.kinds import reader_of
from llmc.base.errors import LlmcError
from llmc.repo.project import Project


class Turn(Struct, frozen=True):
    """Something that was said."""

    #: `user`, `assistant` or `error`
    role: str
    at_unix: float
    text: str


def talk(project: Project, name: str, most: int = 30) -> list[Turn]:
    """The last messages of a worker's conversation, oldest first; empty if there is none."""
    record = project.store.worker(name)
    if not record.transcript_path:
        return []
    try:
        rows = reader_of(record.agent).transcript(record.transcript_path).last_messages(most)
    except (LlmcError, OSError):
        return []
    return [Turn(role, at, text) for _, role, at, text in rows]
