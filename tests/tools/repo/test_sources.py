"""A source that cannot be fetched: the message, the proposed branch, and the attention item."""

import logging
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.base.errors import ToolFailed
from llmc.daemon.chores import begin_patrol
from llmc.repo import provision, sources
from llmc.repo.project import Project
from tests.support.repos import Repo, make_project

LOG = logging.getLogger("test")


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "source")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "root")


def using(project: Project, **repo: str) -> Project:
    return replace(project, config=replace(project.config, repo=replace(project.config.repo, **repo)))


def said(project: Project) -> tuple[str, str]:
    """What a fetch reports, and the fix, which is on the attention list, too."""
    with pytest.raises(sources.NoSource) as caught:
        provision.refresh_base(project)
    (item,) = project.store.read().attention.values()
    assert (item.kind, item.severity, item.text) == ("no_source", "blocked", caught.value.message)
    assert item.next == caught.value.fix
    assert caught.value.fix in caught.value.hint
    return caught.value.message, caught.value.fix


SET = "llmc config set repo.default_branch"


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_the_branch_that_is_proposed(project: Project, source: Repo, form: str) -> None:
    """Break: propose the checked-out branch although another one is where the default branch was."""
    project = using(project, source=form.format(source.path))
    source.git("branch", "-m", "main", "tr-unk")
    assert said(project) == ("the source repository has no branch 'main'; it has 'tr-unk'", f"{SET} tr-unk")
    source.git("checkout", "-q", "-b", "feature")
    source.commit("b.txt")
    assert said(project)[1] == f"{SET} tr-unk", "where main was"
    source.git("checkout", "-q", "tr-unk")
    source.commit("c.txt")
    assert said(project)[1] == f"{SET} tr-unk", "the current one"
    source.git("checkout", "-q", "--detach")
    assert said(project) == ("the source repository has no branch 'main'", f"{SET} BRANCH")
    assert said(using(project, default_branch=""))[1] == f"{SET} BRANCH"
    source.git("branch", "main", "tr-unk")
    assert provision.refresh_base(project) == source.head("main")
    assert project.store.read().attention == {}


def test_a_source_that_is_gone_or_no_repository(project: Project, source: Repo, tmp_path: Path) -> None:
    """Break: print git's error."""
    fix = "llmc config set repo.source PATH-OR-URL"
    os.rename(source.path, tmp_path / "moved")
    assert said(project) == (f"the source repository {source.path} does not exist", fix)
    url = using(project, source=f"file://{source.path}")
    assert said(url)[0].startswith(f"cannot reach the source repository file://{source.path}: ")
    source.path.mkdir()
    assert said(project) == (f"repo.source: {source.path} is not a git repository", fix)
    provision.refresh_base(using(project, source=str(tmp_path / "moved")))


def test_another_failure_of_a_fetch_is_not_about_the_source(project: Project, source: Repo) -> None:
    """Break: treat every failed fetch as a missing source."""
    source.commit("b.txt")
    (project.root.path / ".git/objects").rename(project.root.path / ".git/gone")
    with pytest.raises(ToolFailed) as caught:
        provision.refresh_base(project)
    assert "source repository" not in caught.value.message
    assert project.store.read().attention == {}


def test_patrol_finds_it_and_its_end(project: Project, source: Repo) -> None:
    """Even while no worker waits for review. Break: check only before a fetch."""
    source.git("branch", "-m", "main", "trunk")
    begin_patrol(project, LOG, "")
    assert sources.is_listed(project)
    begin_patrol(using(project, default_branch="trunk"), LOG, "")
    assert not sources.is_listed(project)
    assert source.head() in (project.root.path / ".git/refs/remotes/origin/trunk").read_text()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("/a", True),
        ("/a:b", True),
        ("a/b:c", True),
        ("host:a", False),
        ("git@host:a/b", False),
        ("https://h/a", False),
    ],
)
def test_paths_and_addresses(project: Project, address: str, local: bool) -> None:
    """A possible address is never reported as missing before it was tried.

    Break: recognize only `git@` and `://`.
    """
    found = sources.look(using(project, source=address))
    assert (found is not None) is local
