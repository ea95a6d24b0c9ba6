"""What `llmc status` shows beyond the state, and asks git for: the subjects of commits."""

from llmc.base.errors import LlmcError
from llmc.repo import git
from llmc.repo.project import Project


def subjects(project: Project, commits: list[str]) -> dict[str, str]:
    """The subjects of commits, all in one call; one that is gone, or git's failure, leaves a gap."""
    if not commits:
        return {}
    options = ["--no-walk=unsorted", "--ignore-missing", "--no-show-signature", "-z", "--format=%H %s"]
    try:
        shown = git.git(project.root.path, "log", *options, *commits, check=False)
    except LlmcError:
        return {}
    return {sha: subject for sha, _, subject in (row.partition(" ") for row in git.rows(shown.stdout))}
