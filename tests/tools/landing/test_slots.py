"""Slots: a check sees exactly the commit that would land, whatever was left there before."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.base import locks
from llmc.base.errors import Refused
from llmc.base.proc import ShuttingDown
from llmc.base.processes import is_alive
from llmc.config.edit import set_value
from llmc.doctor.registry import diagnose, examine, repair_all
from llmc.landing import failing_base, slots, validation
from llmc.landing.failing_base import BaseFails
from llmc.landing.slots import Slot
from llmc.records.state import FailingBase
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo import setup
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from tests.support.deep import nested
from tests.support.fleet import in_soak
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    advance,
    lfs_source,
    make_library,
    make_project,
    needs_lfs,
    project_at,
    run_git,
    snapshot,
)
from tests.support.waiting import wait_until

GOOD = "grep -q good a.txt && grep -q good b.txt"
SPARSE = """git config --worktree core.sparseCheckout true; mkdir -p "$(git rev-parse --git-path info)"
echo a.txt > "$(git rev-parse --git-path info/sparse-checkout)"; git read-tree -mu HEAD"""

#: other content with the same size and time
UNSEEN = """touch -d '1 hour ago' b.txt
git update-index --refresh; touch -r b.txt then; echo evil > b.txt; touch -r then b.txt; rm then"""


def make(place: Path) -> None:
    (place / "home").mkdir()
    made = Repo(place / "so'ur ce")
    made.commit(".gitignore", "*.cache\n.env\nvenv/\n")
    made.commit("a.txt", "good\n")
    make_project(str(made.path), place / "ro ot")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a home, a source and a root in it."""
    return mold.place(make)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Worktree(tmp_path / "so'ur ce")


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return project_at(tmp_path / "ro ot")


def configured(project: Project, **repo: str) -> Project:
    for key, value in repo.items():
        set_value(project.root.config, f"repo.{key}", value)
    return setup.new_project(project.root)


def first(project: Project) -> Slot:
    return slots.every(project)[0]


def work(worktree: Worktree, name: str = "b.txt", text: str = "good\n") -> tuple[str, str]:
    """A worker's commit, and its base."""
    base = worktree.head()
    return worktree.commit(name, text), base


def check(
    project: Project, record: WorkerRecord, commit: str, base: str, task: Assignment | None = None
) -> None:
    validation.check_commit(
        project, record.name, commit, base, worktree=Path(record.worktree_path), task=task
    )


def items(project: Project) -> list[str]:
    return [item.text for item in project.store.read().attention.values()]


# Exactly that commit.


def test_the_check_sees_the_commit_and_nothing_of_the_worktree(project: Project) -> None:
    """Break: run the command in the worktree."""
    project = configured(project, validate="test -e b.txt && test ! -e left.txt && grep -q good b.txt")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    worktree.write("left.txt")
    worktree.write("b.txt", "changed since\n")
    before = snapshot(worktree.path)
    check(project, record, commit, base)
    assert snapshot(worktree.path) == before
    assert worktree.git("status", "--porcelain") == "M b.txt\n?? left.txt"
    assert run_git(first(project).path, "rev-parse", "HEAD") == commit


@pytest.mark.parametrize("bit", ["--skip-worktree", *in_soak("--assume-unchanged")])
def test_index_bits_of_an_earlier_check_do_not_survive(project: Project, source: Repo, bit: str) -> None:
    """They survive checkout, reset and clean, and hide a disabled check. Break: leave out `_distrust`."""
    source.commit("check.sh", "! grep -q bad a.txt\n")
    project = configured(project, validate=f"echo 'exit 0' > check.sh; git update-index {bit} check.sh")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    project = configured(project, validate="sh check.sh")
    with pytest.raises(CommandFailed):
        check(project, record, worktree.commit("a.txt", "bad\n"), base)


@pytest.mark.parametrize(
    "spoil",
    [
        SPARSE,
        UNSEEN,
        "git config core.ignoreStat true; git update-index --refresh; rm b.txt",
        "rm -r *; rm .git",
        "echo 'gitdir: ../../../.git/worktrees/w1' > .git",
        "mkdir -p deep/own; git -C deep/own init -q; echo x > deep/own/b.txt; echo b.txt > deep/own/.gitignore",
        'rm -rf "$PWD"; touch "$PWD"',
        "git replace HEAD HEAD~1",
        "rm .git; printf 'gitdir: a\\0b' > .git",
        "rm .git; mkfifo .git",
        "printf 'b.txt merge=ours filter=none\\n' > \"$(git rev-parse --git-common-dir)/info/attributes\"",
        *in_soak(
            "mkdir empty",
            'touch "$(git rev-parse --git-path index.lock)"',
            "git rm -q a.txt; git -c user.name=x -c user.email=x@x commit -qm gone; git checkout -q --detach HEAD~1",
            "mkdir ro; touch ro/file; chmod 500 ro",
            "git checkout -q -b mine; git reset -q --hard HEAD~1",
        ),
    ],
)
def test_whatever_a_check_leaves_is_gone_for_the_next(
    project: Project, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no `clean`, no `_own_git`, or no `GIT_NO_REPLACE_OBJECTS` in repo/git.py: each fails a case."""
    monkeypatch.setenv("GIT_NO_REPLACE_OBJECTS", "1")  # for this test's own git
    project = configured(project, validate=f"({spoil}); true")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    other = worktree.git("commit-tree", f"{commit}^{{tree}}", "-p", base, "-m", "other")
    before = snapshot(worktree.path), worktree.git("status", "--porcelain", "--branch"), worktree.head()
    with contextlib.suppress(validation.NoSlot):  # it moved HEAD, so it has passed nothing
        check(project, record, commit, base)
    exactly = "test \"$(ls -A | tr '\\n' ' ')\" = '.git .gitignore a.txt b.txt ' && " + GOOD
    project = configured(project, validate=exactly)
    check(project, record, other, base)
    check(project, record, commit, base)
    after = snapshot(worktree.path), worktree.git("status", "--porcelain", "--branch"), worktree.head()
    assert after == before


def test_directories_in_each_other_do_not_keep_a_slot_from_others(project: Project) -> None:
    """Too deep for Python's recursion, with paths too long for git.

    Break: `shutil.rmtree` in `files.remove_tree`.
    """
    commit, one = run_git(project.root.path, "rev-parse", "HEAD"), first(project)
    with slots.taken(project):
        slots.check_out(project, one, commit)
        nested(one.path, "long" * 20, 1050)
        assert slots.check_out(project, one, commit)  # it was recreated
        assert sorted(os.listdir(one.path)) == [".git", ".gitignore", "a.txt"]


def test_a_check_that_moves_head_has_not_checked_the_commit(project: Project) -> None:
    """Break: do not check HEAD after the run."""
    project = configured(project, validate="git checkout -q --detach HEAD~1")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    with pytest.raises(validation.NoSlot):  # nothing has ever passed here, so no worker is blamed
        check(project, record, commit, base)
    project = configured(project, validate="test ! -e c.txt || git checkout -q --detach HEAD~1")
    check(project, record, commit, base)
    bad = worktree.commit("c.txt")
    with pytest.raises(CommandFailed, match="moved HEAD"):
        check(project, record, bad, commit)


def test_ignored_files_stay_unless_they_are_unwanted(project: Project) -> None:
    """Break: `clean -x` always, or never."""
    runs = "echo run >> warm.cache; test $(wc -l < warm.cache) -eq "
    project = configured(project, validate=f"{runs} 1")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    check(configured(project, validate=f"{runs} 2"), record, commit, base)
    set_value(project.root.config, "repo.validate_clean", True)
    check(configured(project, validate=f"{runs} 1"), record, commit, base)


@pytest.mark.parametrize(
    "left",
    [
        'touch "$(git rev-parse --git-path index.lock)"',
        "mkdir -p own; git -C own init -q; touch own/x",
        "git config --worktree core.worktree /nowhere",
        SPARSE,
    ],
)
def test_what_can_be_cleared_does_not_cost_the_caches(project: Project, left: str) -> None:
    """A slot is recreated only if nothing else helps.

    Break: `clean -fd`; or leave a name out of `_LEFT_IN_GIT`.
    """
    project = configured(project, validate=f"touch warm.cache; {left}")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    check(configured(project, validate="test -e warm.cache && test -e b.txt"), record, commit, base)


def test_without_a_command_nothing_is_checked_out(project: Project) -> None:
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    task = Assignment(task_id="1", claim="c", since_unix=0.0)  # type: ignore[arg-type]
    check(project, record, commit, base, task)
    assert not project.root.slots.exists()


def test_the_task_s_own_command_comes_second_and_sees_the_commit_too(
    project: Project, tmp_path: Path
) -> None:
    """Break: do not check out again before `verify`: what validation left behind makes it pass."""
    project = configured(project, validate=f"touch made.txt; echo validate >> '{tmp_path}/order'")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    verify = f"echo verify >> '{tmp_path}/order'; test -e made.txt"
    task = Assignment(task_id="7", claim="c", since_unix=0.0, verify=verify)  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="the verify command for task 7 failed"):
        check(project, record, commit, base, task)
    assert (tmp_path / "order").read_text().split() == ["validate", "verify"]
    project = configured(project, validate="")
    with pytest.raises(CommandFailed, match="the verify command for task 7 failed"):
        check(project, record, commit, base, task)


def test_in_the_worktree_only_what_is_checked_out_there_is_checked(project: Project, tmp_path: Path) -> None:
    """Break: run the command on whatever is there, and report the commit as validated."""
    project = configured(project, validate=f"echo ran >> '{tmp_path}/ran'")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    same = worktree.git("commit-tree", f"{commit}^{{tree}}", "-p", f"{commit}~1", "-m", "As one").strip()
    validation.in_worktree(project, record, same, base)
    worktree.commit("more.txt", "more\n")
    with pytest.raises(Refused, match=f"cannot validate {commit[:12]} in w1's worktree"):
        validation.in_worktree(project, record, commit, base)
    assert (tmp_path / "ran").read_text().split() == ["ran"]


def test_a_worker_reads_paths_of_its_own_worktree(project: Project) -> None:
    """Break: do not replace the slot's path, in the error or in the log."""
    project = configured(project, validate='echo "see $PWD/a.txt"; test ! -e b.txt')
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    with pytest.raises(CommandFailed) as failed:
        check(project, record, commit, base)
    log = project.root.log(record.name).read_text()
    for text in (failed.value.message, failed.value.output, log):
        assert f"see {worktree.path}/a.txt" in text
        assert str(project.root.slots) not in text


# Setup.


def setup_project(project: Project, tmp_path: Path, **more: str) -> Project:
    """`setup` installs what deps.txt names; validation needs everything that is imported."""
    line = f"echo ran >> '{tmp_path}/setups'; mkdir -p venv; cp requirements.txt venv/installed"
    return configured(project, setup=line, validate="sh check.sh", **more)


def setups(tmp_path: Path) -> int:
    path = tmp_path / "setups"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def with_deps(project: Project, source: Repo, tmp_path: Path) -> Project:
    source.commit("requirements.txt", "one\n")
    source.commit(
        "check.sh", "for dep in $(cat imports.txt); do grep -qx $dep venv/installed || exit 1; done\n"
    )
    source.commit("imports.txt", "one\n")
    return setup_project(project, tmp_path)


def test_set_up_runs_again_when_a_lock_file_differs_and_only_then(with_deps: Project, tmp_path: Path) -> None:
    """Break: use a mark without the inputs; or run setup before every check."""
    project = with_deps
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    before = setups(tmp_path)  # in the worker's own worktree
    check(project, record, commit, base)
    check(project, record, worktree.commit("c.txt"), base)
    assert setups(tmp_path) == before + 1
    worktree.commit("requirements.txt", "one\ntwo\n")
    added = worktree.commit("imports.txt", "one\ntwo\n")
    check(project, record, added, base)
    assert setups(tmp_path) == before + 2
    check(project, record, commit, base)
    assert setups(tmp_path) == before + 3
    (project.root.slots / "01/.git").exists()


def test_a_failure_is_repeated_after_a_set_up_before_a_worker_is_blamed(
    with_deps: Project, tmp_path: Path
) -> None:
    """A dependency that is named where llmc does not look for it. Break: blame at the first failure."""
    set_value(with_deps.root.config, "repo.setup_inputs", ["other.txt"])
    project = setup.new_project(with_deps.root)
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    before = setups(tmp_path)
    worktree.commit("requirements.txt", "one\ntwo\n")
    added = worktree.commit("imports.txt", "one\ntwo\n")
    check(project, record, added, base)
    assert setups(tmp_path) == before + 1
    broken = worktree.commit("imports.txt", "one\nthree\n")
    with pytest.raises(CommandFailed, match="validation failed"):
        check(project, record, broken, commit)
    assert setups(tmp_path) == before + 2


def test_a_set_up_that_fails_on_the_work_alone_is_the_worker_s(with_deps: Project) -> None:
    project = configured(
        with_deps,
        setup="mkdir -p venv; cp requirements.txt venv/installed && ! grep nonsense requirements.txt",
    )
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    bad = worktree.commit("requirements.txt", "one\nnonsense\n")
    with pytest.raises(CommandFailed, match=r"repo\.setup failed"):
        check(project, record, bad, commit)


def test_what_git_ignores_is_copied_and_comes_back_when_a_check_spoils_it(
    project: Project, source: Repo
) -> None:
    """Break: compare only times, as in a worktree."""
    source.write(".env", "SECRET=1\n")
    set_value(project.root.config, "repo.copy", [".env"])
    project = configured(project, validate="grep -q SECRET=1 .env && echo SPOILT > .env")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    check(project, record, commit, base)
    assert run_git(project.root.path, "for-each-ref", "refs/llmc/trash") == ""


def test_a_set_up_whose_results_git_does_not_ignore_runs_each_time(project: Project, tmp_path: Path) -> None:
    """They go with the next checkout.

    Break: remember the setup anyway; the check fails first, and is repeated.
    """
    line = f"echo ran >> '{tmp_path}/setups'; touch installed"
    project = configured(project, setup=line, validate=f"echo run >> '{tmp_path}/runs'; test -e installed")
    record, worktree = add_worker(project)
    base = worktree.head()
    (worktree.path / "installed").unlink()
    before = setups(tmp_path)
    check(project, record, worktree.commit("b.txt"), base)
    check(project, record, worktree.commit("c.txt"), base)
    assert setups(tmp_path) == before + 2
    assert (tmp_path / "runs").read_text().split() == ["run", "run"]


# The base.


def test_a_slot_in_which_the_base_fails_does_not_count(project: Project, tmp_path: Path) -> None:
    """It needs a file that only the user put into the worktree. Break: blame the worker."""
    project = configured(project, validate=f"echo run >> '{tmp_path}/runs'; test -e .env")
    record, worktree = add_worker(project)
    worktree.write(".env")
    commit, base = work(worktree)
    assert validation.in_slot(project)
    with pytest.raises(validation.NoSlot):
        check(project, record, commit, base)
    (said,) = items(project)
    assert said.startswith("llmc validates work in the workers' worktrees, not in clean checkouts: ")
    assert said.endswith(f"` fails in {first(project).path} on main itself")
    with pytest.raises(validation.NoSlot):
        check(project, record, commit, base)
    runs = len((tmp_path / "runs").read_text().splitlines())
    assert runs == 3, "the base is tried once per tree"
    assert validation.run(project, record.name, worktree.path).ok
    # Files for every slot, as configured: from now on it works.
    (Path(project.source) / ".env").write_text("x\n")
    set_value(project.root.config, "repo.copy", [".env"])
    project = setup.new_project(project.root)
    assert validation.in_slot(project)
    check(project, record, commit, base)
    assert items(project) == []


def test_a_base_that_fails_is_tried_again_but_seldom(project: Project) -> None:
    """Break: never retry, or retry each time."""
    memory = validation.Memory(failed="tree", failed_unix=1000.0, took_s=60.0)
    assert not validation._may_try_again(memory, 1599.0)
    assert validation._may_try_again(memory, 1601.0)
    assert validation._may_try_again(memory, 900.0), "the clock was set back"


def test_a_red_base_is_said_and_sends_nobody_to_the_worktrees(
    project: Project, source: Repo, tmp_path: Path
) -> None:
    """The slot has worked, so it is main that fails. Break: NoSlot for every failing base.

    Or check the base after each failure: the result is remembered, and a pass clears it.
    """
    project = configured(
        project, validate=f"git log -1 --format=%s >> '{tmp_path}/runs'; ! grep -q bad a.txt"
    )
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    red = source.commit("a.txt", "bad\n", "Red")
    worktree.git("fetch", "-q", "origin")
    worktree.git("rebase", "-q", "origin/main")
    for _ in range(2):
        with pytest.raises(BaseFails, match=r"^main itself fails `git log .*; nothing landed$"):
            check(project, record, worktree.head(), red)
    assert (tmp_path / "runs").read_text().splitlines().count("Red") == 1
    assert ["main itself fails" in text for text in items(project)] == [True]
    assert validation.in_slot(project)
    # A flaky command must not block forever: a pass of the same commit clears it.
    validation.look_at_base(project, "w1", red)
    assert project.store.read().failing_base is not None
    project = configured(project, validate="true")
    assert validation.base_is_due(project, red), "the configuration changed"
    validation.look_at_base(project, "w1", red)
    assert (project.store.read().failing_base, items(project)) == (None, [])
    project = configured(project, validate="! grep -q bad a.txt")
    with pytest.raises(validation.NoSlot):  # nothing passed here with this command
        check(project, record, worktree.head(), red)
    fixed = worktree.commit("a.txt", "good again\n")
    check(project, record, fixed, red)
    assert items(project) == []


def test_when_a_failing_base_is_checked_again() -> None:
    """Break: never retry the same commit; or retry each time."""
    failed = FailingBase(commit="c1", command="make test", checks="x", at_unix=1000.0, took_s=30.0)
    assert not failing_base.is_due(failed, "c1", "x", 1299.0)
    assert failing_base.is_due(failed, "c1", "x", 1301.0)
    assert failing_base.is_due(failed, "c1", "x", 900.0), "the clock was set back"
    assert failing_base.is_due(failed, "c2", "x", 1001.0)
    assert failing_base.is_due(failed, "c1", "y", 1001.0)
    assert not failing_base.is_due(replace(failed, took_s=0.1), "c1", "x", 1030.0)


def test_a_red_base_is_seen_in_the_worktree_too(project: Project, source: Repo, tmp_path: Path) -> None:
    """Nothing in the worktree is lost by it. Break: blame the work where no slot is used."""
    red = source.commit("a.txt", "bad\n", "Red")
    validate = f"cat a.txt >> '{tmp_path}/runs'; touch made; echo x >> a.txt; ! grep -q bad a.txt"
    project = configured(project, validate=validate, validate_in="worktree")
    record, worktree = add_worker(project)
    worktree.write("kept.cache", "ignored\n")
    commit, base = work(worktree)
    assert base == red
    for _ in range(2):
        with pytest.raises(BaseFails):
            validation.in_worktree(project, record, commit, base)
    assert (worktree.head(), worktree.git("status", "--porcelain")) == (commit, "")
    assert (worktree.path / "kept.cache").read_text() == "ignored\n"
    assert (tmp_path / "runs").read_text().split() == ["bad"] * 3, "the base once, the work twice"
    # The work fixes it: it passes, and the base's failure is forgotten. On that base, bad work is to blame.
    fixed = worktree.commit("a.txt", "good\n")
    validation.in_worktree(project, record, fixed, base)
    assert project.store.read().failing_base is None
    bad = worktree.commit("a.txt", "bad\n")
    with pytest.raises(CommandFailed) as blamed:
        validation.in_worktree(project, record, bad, fixed)
    assert not isinstance(blamed.value, BaseFails)
    assert (tmp_path / "runs").read_text().split() == [*["bad"] * 3, "good", "bad"]
    # An unknown base that passes.
    (project.root.slots / "worktrees.json").unlink()
    with pytest.raises(CommandFailed) as blamed:
        validation.in_worktree(project, record, bad, fixed)
    assert not isinstance(blamed.value, BaseFails)
    assert worktree.git("status", "--porcelain") == ""


def test_a_worker_is_blamed_without_another_run_where_the_base_is_known_to_pass(
    project: Project, tmp_path: Path
) -> None:
    """Break: try the base after each failure."""
    project = configured(project, validate=f"echo run >> '{tmp_path}/runs'; ! grep -q bad a.txt")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    bad = worktree.commit("a.txt", "bad\n")
    with pytest.raises(CommandFailed):
        check(project, record, bad, commit)
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


def test_a_cache_that_went_bad_is_not_the_worker_s_fault(project: Project) -> None:
    """Break: try the base without cleaning what git ignores."""
    project = configured(project, validate="test ! -e stale.cache")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    (first(project).path / "stale.cache").touch()
    first(project).memory.unlink()
    check(project, record, commit, base)


def test_the_worktree_can_be_chosen(project: Project) -> None:
    project = configured(project, validate="true", validate_in="worktree")
    assert not validation.in_slot(project)


# Several slots, and kills.


def test_checks_run_at_the_same_time_in_slots_of_their_own(project: Project) -> None:
    """Break: use one slot for all."""
    project = configured(project, validate="true")
    _, worktree = add_worker(project)
    commit, base = work(worktree)
    with slots.taken(project) as one:
        done = subprocess.run(
            [sys.executable, "-c", _CHECK, str(project.root.path), commit, base],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert one.number == 1
        assert not one.path.exists()
        assert slots.every(project)[1].path.exists()


def test_who_waits_for_a_slot_ends_when_told_to(project: Project) -> None:
    """A stopping daemon, or a message that cancels the accept. Break: wait for the lock in one call."""
    set_value(project.root.config, "repo.validate_slots", 1)
    project = configured(project, validate="true")
    _, worktree = add_worker(project)
    commit, base = work(worktree)
    held = locks.hold_forever(slots.lock_of(project.root, first(project)))
    assert held is not None
    told = replace(project, stopping=lambda: True)
    with pytest.raises(ShuttingDown):
        validation.check_commit(told, "w1", commit, base, worktree=worktree.path)
    os.close(held)


_CHECK = """
import sys
from msgspec.structs import replace
from pathlib import Path
from llmc.landing import validation
from llmc.repo import setup
from llmc.config.paths import Root
project = setup.new_project(Root(Path(sys.argv[1])))
validation.check_commit(project, "w1", sys.argv[2], sys.argv[3], worktree=Path("/w"))
"""


def test_after_a_kill_the_next_user_ends_what_still_runs_there_and_cleans_up(
    project: Project, tmp_path: Path
) -> None:
    """A command is its own process. Break: do not end it; it would write into the next check's files."""
    pid_file = tmp_path / "pid"
    wait = f"trap '' TERM; echo $$ > '{pid_file}.new'; mv '{pid_file}.new' '{pid_file}'; cd /; sleep 600"
    project = configured(project, validate=f"touch half.txt; ({wait}) & wait")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    argv = [sys.executable, "-c", _CHECK, str(project.root.path), commit, base]
    process = subprocess.Popen(argv)
    wait_until(pid_file.exists, 20)
    left = int(pid_file.read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    assert is_alive(left)
    assert not locks.is_locked(slots.lock_of(project.root, first(project)))
    project = configured(project, validate="test ! -e half.txt")
    check(project, record, commit, base)
    assert not is_alive(left)


def test_slots_nobody_uses_are_found_and_removed(project: Project) -> None:
    """Break: forget that a slot may be in use; or leave git's entry behind."""
    project = configured(project, validate="true")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    assert slots.left_over(project) == []
    project = configured(project, validate_in="worktree")
    [one] = slots.left_over(project)
    with slots.taken(project):
        assert slots.left_over(project) == []
    facts = examine(project.root)
    (finding,) = [found for found in diagnose(facts) if found.kind == "slot"]
    assert finding.subject == str(one.path)
    (done,) = repair_all(project, facts, [finding])
    assert (done.done, done.text) == (True, "removed")
    assert list(project.root.slots.iterdir()) == []
    assert str(one.path) not in run_git(project.root.path, "worktree", "list")
    assert worktree.git("status", "--porcelain") == ""


def test_a_slot_is_no_worktree_to_anybody_else(project: Project) -> None:
    """Break: list a slot's lock, or a slot removed by hand, as something to repair."""
    project = configured(project, validate='touch "$(git rev-parse --git-path index.lock)"')
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    strange = {"slot", "worktree_stray", "worktree_pruned", "git_lock", "branch"}
    assert not strange & {found.kind for found in diagnose(examine(project.root))}
    shutil.rmtree(first(project).path)
    assert not strange & {found.kind for found in diagnose(examine(project.root))}
    worktree.git("worktree", "prune")
    check(project, record, commit, base)


# What a commit does not contain.


@needs_lfs
def test_large_files_are_whole_in_a_slot(project: Project, source: Repo) -> None:
    """Also those that only the worker has. Break: no `furnish`, or no `lfs.set_up` before the checkout."""
    lfs_source(source)
    project = configured(project, validate="test $(cat a.bin) = large && test $(cat b.bin) = mine")
    record, worktree = add_worker(project)
    base = worktree.head()
    worktree.write("b.bin", "mine\n")
    worktree.git("add", "b.bin")
    worktree.git("commit", "-q", "-m", "Add b")
    check(project, record, worktree.head(), base)


def test_submodules_are_at_the_commit_and_clean(project: Project, source: Repo, tmp_path: Path) -> None:
    """Break: no `submodules.scrub`: a check's changes in a submodule would stay, or block the checkout."""
    library = make_library(source, tmp_path)
    spoil = "echo spoilt > lib/lib.c; touch lib/deep/inner/left.c; (cd lib; git update-index --skip-worktree lib.c)"
    project = configured(project, validate=f"cat lib/deep/inner/inner.c && {spoil}")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    advance(source, library, "2\n")
    worktree.git("fetch", "-q", "origin")
    worktree.git("rebase", "-q", "origin/main")
    project = configured(project, validate="grep -qx 2 lib/lib.c && test ! -e lib/deep/inner/left.c")
    check(project, record, worktree.head(), source.head())
    worktree.git("rm", "-qf", "lib")
    worktree.git("commit", "-q", "-m", "No submodule")
    project = configured(project, validate="test ! -e lib")
    check(project, record, worktree.head(), source.head())


@pytest.mark.soak
def test_a_change_that_is_hidden_in_a_submodule_is_gone(
    project: Project, source: Repo, tmp_path: Path
) -> None:
    """Break: no `submodules.scrub`, or one that keeps the submodule's index."""
    make_library(source, tmp_path)
    hide = "echo spoilt > lib/lib.c; cd lib; git update-index --skip-worktree lib.c"
    project = configured(project, validate=hide)
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    check(project, record, commit, base)
    check(configured(project, validate="grep -qx 1 lib/lib.c"), record, commit, base)


def test_a_sparse_clone_is_checked_whole(project: Project, source: Repo) -> None:
    """An agent made the whole clone sparse.

    Break: leave out `core.sparseCheckout=false` and the file in `_LEFT_IN_GIT`.
    """
    source.commit("deep/c.txt", "good\n")
    project = configured(project, validate="test -e deep/c.txt && test -e b.txt")
    record, worktree = add_worker(project)
    commit, base = work(worktree)
    worktree.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    worktree.git("config", "core.sparseCheckout", "true")
    (project.root.path / ".git/info/sparse-checkout").write_text("/a.txt\n")
    check(project, record, commit, base)
