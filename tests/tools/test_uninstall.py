"""What `llmc uninstall` lists as work that is nowhere else, what it takes back outside of the root, and what it leaves."""

import json
import subprocess
from pathlib import Path

import pytest

from llmc.agents.claude_code import add_trust
from llmc.config.edit import set_value
from llmc.services import pick, provision, restore, setup, uninstall
from llmc.services.project import Project
from tests.support.repos import Repo, add_worker, make_project


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "sour ce")
    made.commit("a.txt", "a\n")
    return made


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return make_project(str(source.path), tmp_path / "ro ot")


def listed(project: Project) -> list[str]:
    return [work.what for work in uninstall.work_in(project)]


def test_the_command_that_saves_work_takes_it_off_the_list(project: Project, source: Repo) -> None:
    """Break: look at the default branch of the source only; what was restored or picked is listed for ever."""
    record, worktree = add_worker(project)
    worktree.commit("b.txt", "b\n")
    provision.reset_in_place(project, record, provision.refresh_base(project), "test")
    (entry,) = restore.entries(project.root)
    (pinned,) = uninstall.work_in(project)
    assert pinned.what == f"trash: {entry.name}: commits that have not landed"
    assert pinned.save == f"llmc trash restore {entry.name}"
    restore.restore_branch(project, entry, None)
    assert listed(project) == []
    worktree.commit("c.txt", "c\n")
    assert listed(project) == ["w1: commits that have not landed"]
    source.commit("d.txt", "d\n")  # so that what is picked is another commit
    with project.worker_lock("w1"):
        picked = pick.pick(project, "w1", "picked")
    assert picked.commit != worktree.head()
    assert listed(project) == []
    source.git("branch", "-D", "picked")
    assert listed(project) == ["w1: commits that have not landed"]
    source.git("branch", "picked", picked.commit)
    worktree.write("a.txt", "stashed\n")
    worktree.git("stash")
    (stashed,) = uninstall.work_in(project)
    assert stashed.what == "refs/stash in the root's clone"
    subprocess.run(stashed.save.replace("NAME", "stashed"), shell=True, check=True, capture_output=True)
    assert listed(project) == []


@pytest.mark.parametrize("why", ["made by llmc", "used by a person", "of another root"])
def test_the_trust_of_the_checkout_goes_or_is_named(
    project: Project, source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Break: leave the entry and do not name it; or take out one that others need."""
    monkeypatch.setenv("HOME", str(tmp_path))
    set_value(project.root.config, "defaults.agent", "claude")
    project = setup.new_project(project.root)
    config = tmp_path / ".claude.json"
    noted = {"projects": {str(source.path): {"allowedTools": []}}} if why == "used by a person" else {}
    config.write_text(json.dumps(noted))
    for place in (project.root.path, source.path):
        add_trust(place, config)
    if why == "of another root":
        source.git("config", "llmc.root", str(tmp_path / "another"))
    left = [what for what in uninstall.left_alone(project) if str(source.path) in what]
    done = uninstall._take_back_outside(project)
    trusted = set(json.loads(config.read_text())["projects"])
    assert f'projects."{project.root.path}" in {config}' in done
    if why == "made by llmc":
        assert f'projects."{source.path}" in {config}' in done
        assert (left, trusted) == ([], set())
    else:
        assert trusted == {str(source.path)}
        (said,) = left
        assert f'projects."{source.path}" in {config}: remove its hasTrustDialogAccepted' in said
