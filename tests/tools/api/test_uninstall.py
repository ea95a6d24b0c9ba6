"""What `llmc uninstall` lists as unsaved work, what it removes outside the root, and what it leaves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmc.agents.claude.trusted_dirs import ClaudeTrust
from llmc.api import uninstall, web_process
from llmc.base.names import TaskId
from llmc.cli.setting_up import _show_removal
from llmc.config.edit import set_value
from llmc.goals import goals, planning
from llmc.goals.goals import new_goal
from llmc.landing import pick
from llmc.records.worker import AcceptJournal, Assignment
from llmc.repo import provision, setup
from llmc.repo.project import Project
from llmc.workers import reset, restore
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
    """Break: check only the source's default branch; restored or picked work would be listed forever."""
    record, worktree = add_worker(project)
    worktree.commit("b.txt", "b\n")
    provision.reset_in_place(project, record, provision.refresh_base(project), "test")
    (entry,) = restore.entries(project)
    (pinned,) = uninstall.work_in(project)
    assert pinned.what == f"trash: {entry.name}: unlanded commits"
    assert pinned.save == f"llmc trash restore {entry.name}"
    restore.restore_branch(project, entry, None)
    assert listed(project) == []
    worktree.commit("c.txt", "c\n")
    assert listed(project) == ["w1: unlanded commits"]
    source.commit("d.txt", "d\n")  # so that the picked commit is another one
    with project.worker_lock("w1"):
        picked = pick.pick(project, "w1", "picked")
    assert picked.commit != worktree.head()
    assert listed(project) == []
    source.git("branch", "-D", "picked")
    assert listed(project) == ["w1: unlanded commits"]
    source.git("branch", "picked", picked.commit)
    worktree.write("a.txt", "stashed\n")
    worktree.git("stash")
    (stashed,) = uninstall.work_in(project)
    assert stashed.what == "refs/stash in the root's clone"
    subprocess.run(stashed.save.replace("NAME", "stashed"), shell=True, check=True, capture_output=True)
    assert listed(project) == []


def test_what_is_in_no_commit_is_work_too(project: Project) -> None:
    """Break: leave out untracked files, a task in progress, or open goals."""
    _, worktree = add_worker(project)
    assert listed(project) == []
    goal = planning.create(project, new_goal("Import"), None).view.goal
    assert listed(project) == ["goal: Import (active)"]
    goals.pause(project, goal.goal_id)
    assert listed(project) == ["goal: Import (paused)"]
    goals.cancel(project, goal.goal_id)
    assert listed(project) == []
    worktree.write("new.txt", "not tracked\n")
    assert listed(project) == ["w1: 1 uncommitted file"]
    worktree.git("clean", "-fdq")
    with project.store.transaction() as tx:
        tx.update("w1", assignment=Assignment(task_id=TaskId("1"), claim="c", since_unix=1.0))
    assert listed(project) == ["w1: an unfinished task"]


def test_the_way_to_save_a_workers_work_is_one_that_works(project: Project) -> None:
    """Break: give the same advice for all: `pick` refuses uncommitted files, `accept` an offline worker."""
    _, worktree = add_worker(project)

    def save() -> str:
        (found,) = uninstall.work_in(project)
        return found.save

    def cleared() -> None:
        with project.worker_lock("w1"):
            reset.reset_worker(project, "w1")
        (entry,) = uninstall.work_in(project)
        command, _, name = entry.save.rpartition(" ")
        assert command == "llmc trash restore", "the rest is in the trash, with its own command"
        restore.restore_branch(project, restore.find(project, name), None)
        assert listed(project) == []

    to_trash = "llmc reset w1 (moves the work to the trash), then llmc uninstall --dry-run"
    worktree.write("new.txt", "not tracked\n")
    assert save() == to_trash
    cleared()
    worktree.commit("b.txt", "b\n")
    worktree.write("new.txt", "not tracked\n")
    assert save() == to_trash
    cleared()
    worktree.commit("c.txt", "c\n")
    assert save() == "llmc pick w1"
    with project.worker_lock("w1"):
        pick.pick(project, "w1", "kept")
    assert listed(project) == []
    with project.store.transaction() as tx:
        tx.update("w1", accept=AcceptJournal(step="verify", started_unix=1.0, tip=""))
    assert save() == "llmc accept w1"


def test_commits_that_landed_are_no_work_and_files_beside_them_are(project: Project, source: Repo) -> None:
    """Break: trust a pin's name; or check only the branch, which may have changed since."""
    record, worktree = add_worker(project)

    def pinned(name: str, why: str, *, dirty: bool = False) -> None:
        worktree.commit(name, "the worker's\n")
        if dirty:
            worktree.write("files.txt", "left\n")
        base = source.commit(name, "someone else's\n")
        provision.refresh_base(project)
        assert provision.reset_in_place(project, record, base, why)

    pinned("landed.txt", "accepted")
    assert listed(project) == []
    pinned("late.txt", "late")
    pinned("left.txt", "accepted", dirty=True)
    names = [entry.name for entry in restore.entries(project) if entry.why != "accepted"]
    assert len(names) == 1
    dirty = listed(project)
    assert len(dirty) == 2
    assert f"trash: {names[0]}: unlanded commits" in dirty


@pytest.mark.parametrize("why", ["made by llmc", "used by a person", "of another root", "of an older root"])
def test_the_trust_of_the_checkout_goes_or_is_named(
    project: Project, source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Break: leave the entry without naming it; or remove one that others need."""
    monkeypatch.setenv("HOME", str(tmp_path))
    set_value(project.root.config, "defaults.agent", "claude")
    project = setup.new_project(project.root)
    config = tmp_path / ".claude.json"
    noted = {"projects": {str(source.path): {"allowedTools": []}}} if why == "used by a person" else {}
    config.write_text(json.dumps(noted))
    for place in (project.root.path, source.path):
        ClaudeTrust(config).add(place)
    if why == "of another root":
        source.git("config", "llmc.root", str(tmp_path / "another"))
    if why == "of an older root":
        make_project(str(source.path), tmp_path / "older")
        source.git("config", "llmc.root", str(project.root.path))
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
        assert f'projects."{source.path}" in {config}: remove hasTrustDialogAccepted' in said


@pytest.mark.parametrize("as_json", [False, True])
def test_the_web_server_stops_with_its_root(
    project: Project, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """Break: leave the server running: its lock, and so `llmc web --stop`, would be gone with the root."""
    server = [
        sys.executable,
        "-m",
        "llmc",
        "--root",
        str(project.root.path),
        "web",
        "--port",
        "0",
        "--no-link",
    ]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == web_process.SERVING
            _show_removal(project, [], True, as_json)
            said = capsys.readouterr().out
            shown = f'"web_server": {process.pid}' if as_json else f"the web server (pid {process.pid})"
            assert shown in said
            done = uninstall.take_back(project, keep=False, discard=True)
            assert f"the web server (pid {process.pid})" in done.removed
            process.wait(10)
            assert not project.root.path.exists()
        finally:
            process.kill()
