"""What `llmc status` shows beyond the state: commit subjects, open dialogs, and who is busy with a worker now."""

from msgspec import Struct

from llmc.agents.protocol import ClientStatus
from llmc.errors import LlmcError
from llmc.panes import Pane
from llmc.services.project import Project
from llmc.services.sessions import status_of
from llmc.tools import git, locks
from llmc.tools.tmux import Unknown
from llmc.workers.model import Status, WorkerRecord


class Glance(Struct, frozen=True):
    """One worker, at this moment."""

    #: of the commit that waits for review; empty where it cannot be read
    subject: str = ""
    #: the agent waits for an answer, and text sent to it would be one
    dialog: bool = False
    #: a command, or the daemon, is doing something to it
    acting: bool = False


def look(project: Project) -> dict[str, Glance]:
    """Every worker; nothing is changed, and no lock is waited for."""
    workers = project.store.read().workers
    subjects = _subjects(project, [record.commit_sha for record in workers.values() if record.commit_sha])
    return {
        name: Glance(
            subject=subjects.get(record.commit_sha or "", ""),
            dialog=_has_dialog(record, project.pane(record)),
            acting=locks.is_locked(project.root.lock(f"worker-{name}")),
        )
        for name, record in workers.items()
    }


def _subjects(project: Project, commits: list[str]) -> dict[str, str]:
    """The subjects of commits, all in one call; one that is gone, or git's failure, leaves a gap."""
    if not commits:
        return {}
    options = ["--no-walk=unsorted", "--ignore-missing", "--no-show-signature", "-z", "--format=%H %s"]
    try:
        shown = git.git(project.root.path, "log", *options, *commits, check=False)
    except LlmcError:
        return {}
    return {sha: subject for sha, _, subject in (row.partition(" ") for row in git.rows(shown.stdout))}


def _has_dialog(record: WorkerRecord, pane: Pane | Unknown | None) -> bool:
    """The client's own word; where it gives none, what its hooks said last."""
    if not isinstance(pane, Pane) or pane.dead:
        return False
    said = status_of(record, pane)
    asked = record.status is Status.NEEDS_INPUT and record.reason in ("question", "permission")
    return said is ClientStatus.WAITING or (said is ClientStatus.UNKNOWN and asked)
