"""What a refused pick advises."""

from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.landing import merging, pick
from llmc.records.transitions import step
from llmc.records.worker import Status
from llmc.repo import provision
from tests.support.repos import Repo, add_worker, make_project

FREE = {
    Status.NEEDS_REVIEW: "Run `llmc rebase w1`",
    Status.IDLE: "Run `llmc message w1 '",
    Status.OFFLINE: "Next: ",
}


@pytest.mark.parametrize("status", FREE)
def test_the_command_in_a_hint_is_possible(tmp_path: Path, status: Status) -> None:
    """Break: name a command that refuses a worker with this status."""
    source = Repo(tmp_path / "src")
    source.commit("a.txt")
    project = make_project(str(source.path), tmp_path / "root")
    _, worktree = add_worker(project)
    tip = worktree.commit("a.txt", "mine\n")
    source.commit("a.txt", "theirs\n")
    with project.store.transaction() as tx:
        if status is not Status.OFFLINE:
            tx.move("w1", step(Status.IDLE, "it runs"))
        if status is Status.NEEDS_REVIEW:
            tx.move("w1", step(status, "done", commit_sha=tip))
    with (
        project.worker_lock("w1"),
        pytest.raises(Refused, match=r"conflict with main in a\.txt") as conflicts,
    ):
        pick.pick(project, "w1", "mine")
    assert (conflicts.value.hint or "").startswith(FREE[status])
    worktree.git("checkout", "-q", "--orphan", "other")
    unrelated = worktree.commit("b.txt")
    with pytest.raises(Refused, match="unrelated histories") as found:
        merging.work_of(project, "w1", provision.refresh_base(project), unrelated)
    wanted = FREE[status] if status is Status.OFFLINE else FREE[Status.IDLE]
    assert (found.value.hint or "").startswith(wanted)
    assert "llmc message w1 'Rebase your work onto origin/main.'" in (found.value.hint or "")
