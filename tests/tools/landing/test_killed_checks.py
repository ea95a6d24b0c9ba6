"""A check that is killed while the base is checked in a worker's worktree."""

import os
import signal
from pathlib import Path

import pytest

from llmc.config.edit import set_value
from llmc.landing import validation
from llmc.landing.failing_base import BaseFails
from llmc.records.worker import WorkerRecord
from llmc.repo import git, setup
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from tests.support.repos import Repo, Worktree, add_worker, make_project

#: Python 3.12 warns of threads (the test runner has some); the children run git and exit
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Scene:
    """Work that fails validation, in a worktree that has the base's files since a check was killed."""

    def __init__(self, place: Path) -> None:
        source = Repo(place / "src")
        self.base = source.commit("a.txt", "good\n")
        root = make_project(str(source.path), place / "root").root
        kill = f"[ -e '{place}/killed' ] || {{ touch '{place}/killed'; kill -9 $PPID; }}"
        set_value(root.config, "repo.validate", f"grep -q good a.txt || exit 1; {kill}")
        set_value(root.config, "repo.validate_in", "worktree")
        self.project: Project = setup.new_project(root)
        self.record: WorkerRecord
        self.worktree: Worktree
        self.record, self.worktree = add_worker(self.project)
        self.commit = self.worktree.commit("a.txt", "bad\n")
        assert self._killed()
        assert (self.worktree.path / "a.txt").read_text() == "good\n"

    def check(self) -> None:
        validation.in_worktree(self.project, self.record, self.worktree.head(), self.base)

    def _killed(self) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                self.check()
            finally:
                os._exit(0)
        status = os.waitpid(pid, 0)[1]
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_the_next_check_is_of_the_work_again(tmp_path: Path) -> None:
    """Break: check what is in the worktree: the base's files pass, and the failing work counts as validated."""
    scene = Scene(tmp_path)
    for _ in range(2):
        with pytest.raises(CommandFailed) as failed:
            scene.check()
        assert not isinstance(failed.value, BaseFails)
    assert (scene.worktree.head(), scene.worktree.git("status", "--porcelain")) == (scene.commit, "")
    assert (scene.worktree.path / "a.txt").read_text() == "bad\n"
    remembered = (scene.project.root.slots / "worktrees.json").read_text()
    assert git.tree_of(scene.worktree.path, scene.commit) not in remembered


def test_what_was_done_since_the_kill_stays(tmp_path: Path) -> None:
    """Break: take the files of another commit for those of the killed check."""
    scene = Scene(tmp_path)
    scene.worktree.git("reset", "--hard", "-q")
    scene.worktree.commit("a.txt", "good again\n")
    scene.worktree.write("notes.txt", "mine\n")
    for _ in range(2):
        scene.check()
    assert scene.worktree.git("status", "--porcelain") == "?? notes.txt"
