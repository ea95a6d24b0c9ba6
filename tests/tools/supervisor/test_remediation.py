"""The supervisor's own session: where it works, that it repairs its record, and that nothing else ends it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.base.names import OVERSEER
from llmc.base.tmux import Tmux
from llmc.config.model import Config, Repo
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo import git
from llmc.repo.project import Project, for_overseer
from llmc.sessions.sessions import end_stray
from llmc.supervisor import remediation
from llmc.workers.up_and_down import close_server, end_every_session


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    source = tmp_path / "src"
    git.git(tmp_path, "init", "-q", "-b", "main", str(source))
    (source / "a").write_text("a")
    git.git(source, "add", "a")
    git.git(source, "-c", "user.name=P", "-c", "user.email=p@example.com", "commit", "-q", "-m", "A")
    root = Root(tmp_path / "root")
    for folder in (root.logs, root.locks):
        folder.mkdir(parents=True)
    Store(root).create()
    made = Project(
        root,
        Config(repo=Repo(source=str(source), default_branch="main")),
        Store(root),
        Tmux(root.tmux_server),
    )
    yield made
    made.tmux.kill_server()


def of_source(project: Project, source: str) -> Project:
    return Project(
        project.root, Config(repo=Repo(source=source, default_branch="main")), project.store, project.tmux
    )


@pytest.mark.req("0-103")
def test_it_works_in_the_checkout_of_the_source(project: Project, tmp_path: Path) -> None:
    """Break: always use the source itself; a bare one has no files, a URL no directory."""
    source = Path(project.source)
    assert remediation.main_directory(project) == (source, "")
    (source / ".git/HEAD").write_text("broken")
    assert remediation.main_directory(project) == (source, "")
    (source / ".git/HEAD").write_text("ref: refs/heads/main\n")
    bare = tmp_path / "bare.git"
    git.git(tmp_path, "clone", "-q", "--bare", str(source), str(bare))
    place, why = remediation.main_directory(of_source(project, str(bare)))
    assert (place, why) == (project.root.path, f"{bare} has no working tree")
    git.git(bare, "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    assert remediation.main_directory(of_source(project, str(bare))) == (tmp_path / "linked", "")
    url = "https://example.com/repo.git"
    place, why = remediation.main_directory(of_source(project, url))
    assert (place, why) == (project.root.path, f"{url} is not a local directory")


def test_a_record_that_cannot_be_read_is_kept_aside_and_made_again(project: Project) -> None:
    """Break: let its store's error through; no remediation could ever run again."""
    own = project.root.path / ".llmc/overseer"
    own.mkdir()
    (own / "session.json").write_text("{ torn")
    remediation.close_session(project)
    assert [path.read_text() for path in own.glob("session.json.unreadable-*")] == ["{ torn"]
    record = for_overseer(project).store.worker(OVERSEER)
    assert (record.has_branch, record.worktree_path) == (False, project.source)


def launch(project: Project, name: str) -> None:
    marks = {"instance": f"i-{name}", "worker": name}
    project.tmux.launch(project.session(name), "/", ["sleep", "600"], ["true"], **marks)


def sessions_of(project: Project) -> dict[str, bool]:
    """Each session, and whether its pane is dead."""
    panes = project.tmux.panes()
    assert isinstance(panes, dict)
    return {pane.session: pane.dead for pane in panes.values()}


def test_nobody_else_ends_its_session(project: Project) -> None:
    """Break: kill_server in close_server, or no is_overseer in end_stray and end_every_session."""
    for name in (OVERSEER, "adam"):
        launch(project, name)
    mine = project.session(OVERSEER)
    with pytest.raises(Refused, match="the supervisor's own session"):
        end_stray(project, mine)
    close_server(project)
    assert sessions_of(project) == {mine: False}
    end_every_session(project)
    assert sessions_of(project) == {mine: False}
    project.tmux.kill_session(mine)
    launch(project, "adam")
    close_server(project)
    assert project.tmux.panes() == {}
    assert not os.path.exists(f"/tmp/tmux-{os.getuid()}/{project.tmux.server}")
