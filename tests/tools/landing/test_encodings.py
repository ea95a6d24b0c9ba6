"""The user's git settings do not change what lands."""

from pathlib import Path

import pytest

from llmc.landing import merging, undo
from llmc.repo import provision
from llmc.repo.project import Project
from tests.support.repos import Repo, Worktree, add_worker, make_project

SUBJECT = "Größe: 5 µm"


class Scene:
    def __init__(self, place: Path, settings: str) -> None:
        home = place / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(settings)
        self.source = Repo(place / "src")
        self.source.commit("a.txt")
        self.project: Project = make_project(str(self.source.path), place / "root")
        self.worktree: Worktree
        _, self.worktree = add_worker(self.project)

    def raw(self, commit: str) -> str:
        """A commit as it is stored."""
        return self.worktree.git("cat-file", "commit", commit)

    def land(self, message: str) -> str:
        tip = self.worktree.commit("b.txt", message=message)
        made = merging.landing_commit(self.project, "w1", provision.refresh_base(self.project), tip).commit
        self.source.git("fetch", "-q", str(self.project.root.path), made)
        self.source.git("merge", "-q", "--ff-only", "FETCH_HEAD")
        with self.project.store.transaction() as tx:
            tx.emit("accepted", worker="w1", commit=made, prompt="x")
        return made


@pytest.mark.parametrize(
    "settings",
    [
        "[i18n]\n\tlogOutputEncoding = ISO-8859-1\n",
        "[i18n]\n\tcommitEncoding = ISO-8859-1\n",
    ],
    ids=["shown", "stored"],
)
def test_messages_land_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    """Break: read git's output in the encoding that the user wants to see; or commit as if it were in that one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    scene = Scene(tmp_path, settings)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")  # only for the git of this test
    landed = scene.land(SUBJECT)
    assert scene.raw(landed).endswith(f"\n\n{SUBJECT}")
    assert "\nencoding " not in scene.raw(landed)
    done = undo.undo(scene.project, undo.target(scene.project).commit, lambda *_: "")
    assert done.subject == SUBJECT
    made = scene.source.git("cat-file", "commit", done.revert)
    assert made.endswith(f'\n\nRevert "{SUBJECT}"\n\nThis reverts commit {landed}.')
