"""The digest as data, and when the user last read it."""

from llmc.repo.project import Project
from llmc.reports import digest
from llmc.reports.digest import text_of as text_of
from llmc.reports.rules.digest_parts import Digest as Digest
from llmc.reports.rules.digest_parts import as_json as as_json


def report(project: Project, since: float | None, *, for_people: bool) -> Digest:
    """The digest since a time; by default since the user last read it, which this updates."""
    found = digest.report(project, since)
    if since is None and for_people:
        digest.remember_look(project, found)
    return found
