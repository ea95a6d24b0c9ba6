"""The morning report, as data; and that a person has read it."""

from llmc.repo.project import Project
from llmc.reports import digest
from llmc.reports.digest import text_of as text_of
from llmc.reports.rules.digest_parts import Digest as Digest
from llmc.reports.rules.digest_parts import as_json as as_json


def report(project: Project, since: float | None, *, for_people: bool) -> Digest:
    """From a time on; without one since a person last looked, and what is shown to people is the next such look."""
    found = digest.report(project, since)
    if since is None and for_people:
        digest.remember_look(project, found)
    return found
