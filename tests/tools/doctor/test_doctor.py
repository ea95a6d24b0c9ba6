"""What doctor sees of processes, git and files, all of them real."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc.base import locks
from llmc.base.files import append_line
from llmc.base.names import TaskId, TaskKey
from llmc.base.wake import listen, receive
from llmc.config.edit import set_value
from llmc.doctor import registry
from llmc.doctor.check import Check, Finding, Sight
from llmc.doctor.registry import diagnose, examine, notes, repair_all
from llmc.landing import default_branch
from llmc.landing.prompts import task_of, task_prompt
from llmc.records.books import Claim, entry
from llmc.records.events import read_lines
from llmc.records.task_ledger import TaskLedger
from llmc.records.worker import WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project, open_project
from llmc.reports import digest
from llmc.supervisor.model import Identity
from llmc.supervisor.supervisor_record import Former, Journal, former
from llmc.tasks.claude_files import open_files
from tests.support.fleet import in_soak
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at, run_git
from tests.support.waiting import wait_until

HOUR_AGO = time.time() - 3600


def make(place: Path) -> None:
    source = Repo(place / "source")
    source.commit("a.txt", "a\n")
    make_project(str(source.path), place / "root")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a source and a root in it."""
    return mold.place(make)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path / "root")


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return add_worker(project)


def kinds(project: Project) -> list[str]:
    return [finding.kind for finding in diagnose(examine(project.root))]


def repair(project: Project) -> None:
    facts = examine(project.root)
    done = repair_all(project, facts, diagnose(facts))
    assert [one.text for one in done if not one.done] == []


@contextmanager
def running(argv: list[str], cwd: Path) -> Iterator[None]:
    """A program that has printed its first line, and lives as long as the block."""
    with subprocess.Popen(argv, cwd=cwd, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


HOLD_OPEN = "import sys, time; file = open(sys.argv[1]); print('open', flush=True); time.sleep(600)"
GIT_IN = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'git', 0, 0, 0); print('here', flush=True); time.sleep(600)"


@pytest.mark.parametrize(("program", "cwd"), [(HOLD_OPEN, False), (GIT_IN, True)], ids=["open", "git"])
def test_a_lock_that_is_in_use_is_left_alone(
    project: Project, worker: tuple[WorkerRecord, Worktree], program: str, cwd: bool
) -> None:
    """Break: judge only by age; the index of a `git commit` with an open editor would be corrupted."""
    tree = worker[1].path
    lock = git.git_paths(tree, "index.lock")[0]
    lock.write_text("")
    os.utime(lock, (HOUR_AGO, HOUR_AGO))
    with running([sys.executable, "-c", program, str(lock)], tree if cwd else Path("/")):
        assert kinds(project) == []
    assert kinds(project) == ["index_lock"]
    repair(project)
    assert not lock.exists()
    assert kinds(project) == []


def test_a_young_lock_is_left_alone(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    git.git_paths(worker[1].path, "index.lock")[0].write_text("")
    assert kinds(project) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: run_git(root, "config", "core.bare", "false"),
        lambda root: run_git(root, "config", "rerere.enabled", "false"),
        *in_soak(
            lambda root: run_git(root, "config", "--worktree", "core.bare", "false"),
            lambda root: run_git(root, "config", "--unset", "extensions.worktreeConfig"),
        ),
    ],
    ids=["bare", "rerere", "own", "worktrees"],
)
def test_settings_of_the_clone(project: Project, damage: Callable[[Path], str]) -> None:
    """Break: leave the setting out of what is compared, or out of what is set."""
    damage(project.root.path)
    found = set(kinds(project))  # settings that redirect git are undone immediately, and only reported
    assert found
    assert found <= {"setting", "git_config"}
    repair(project)
    assert kinds(project) == []
    assert run_git(project.root.path, "rev-parse", "--is-bare-repository") == "true"
    _, tree = add_worker(project, "later")
    assert tree.git("rev-parse", "--is-bare-repository") == "false"


def test_a_source_that_is_a_url(project: Project, tmp_path: Path) -> None:
    """Break: look only for a directory of that name."""
    config = project.root.config
    good = config.read_text()
    url = f"file://{tmp_path / 'source'}"
    config.write_text(good.replace(str(tmp_path / "source"), url))
    assert kinds(project) == []
    config.write_text(good.replace(str(tmp_path / "source"), url + "-gone"))
    assert kinds(project) == ["source"]
    config.write_text(good.replace(str(tmp_path / "source"), url).replace('"main"', '"trunk"'))
    assert "source" in kinds(project)


def test_a_worktree_of_no_worker_and_its_branch_are_only_said(project: Project) -> None:
    """Break: remove the branch that is checked out there; its commits would be unreachable."""
    where = project.root.worktree("stray")
    run_git(project.root.path, "worktree", "add", "-q", "-b", "llmc/stray", str(where), "origin/main")
    (project.root.worktrees / "plain").mkdir()
    facts = examine(project.root)
    assert [stray.is_worktree for stray in facts.strays] == [False, True]
    assert kinds(project) == ["worktree_stray", "worktree_stray"]
    repair(project)
    assert where.is_dir()
    (project.root.worktrees / "plain").rmdir()
    add_worker(project, "stray")
    assert kinds(project) == [], "`llmc add` adopted it"


def test_a_worker_in_the_middle_of_being_added_has_no_stray_branch(project: Project) -> None:
    """Break: leave out the lock; the branch of a worker that is being added would be reported as stray."""
    run_git(project.root.path, "branch", "-q", "llmc/new", "origin/main")
    assert kinds(project) == ["branch"]
    facts = examine(project.root)
    with project.worker_lock("new"):
        assert kinds(project) == []
    add_worker(project, "new")
    done = repair_all(project, facts, diagnose(facts))
    assert [one.text for one in done] == ["already resolved"]
    assert git.resolve(project.root.path, "refs/heads/llmc/new")


def test_specs_that_no_agent_came_to_read_are_removed(project: Project) -> None:
    """Break: keep them; they hold the environment for an agent, including keys."""
    spec = project.root.agents / "w1.abc.launch.json"
    spec.write_text("{}")
    assert kinds(project) == [], "it may be in use just now"
    os.utime(spec, (HOUR_AGO, HOUR_AGO))
    assert kinds(project) == ["daemon_crashed"]
    repair(project)
    assert not spec.exists()


def test_a_daemon_that_came_meanwhile_keeps_its_files(project: Project) -> None:
    """Break: remove daemon.json without the daemon's lock."""
    project.root.daemon.write_text("{}")
    facts = examine(project.root)
    code = "import sys, time; from pathlib import Path; from llmc.base.locks import hold_forever\n"
    code += "hold_forever(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    argv = [sys.executable, "-c", code, str(project.root.lock("daemon"))]
    with running(argv, Path("/")):
        (one,) = repair_all(project, facts, diagnose(facts))
    assert not one.done
    assert project.root.daemon.exists()
    wait_until(lambda: not project.daemon_runs())
    repair(project)
    assert not project.root.daemon.exists()


@pytest.mark.parametrize("prompt", ["one line", "two\n\nparagraphs\n\nDO NOT push", "x" * 200_000])
def test_a_task_is_found_in_what_was_sent(
    project: Project, worker: tuple[WorkerRecord, Worktree], prompt: str
) -> None:
    """Break: cut at the last blank line, or forget that a long prompt is in a file."""
    sent = task_prompt(project, worker[0], prompt)
    if len(prompt) > 100_000:
        project.root.prompts.mkdir()
        (project.root.prompts / "task-1.md").write_text(sent)
        sent = "Your instructions are in a file."
    assert task_of(project, worker[0], "task-1", f"[llmc task-1]\n{sent}") == prompt
    assert task_of(project, worker[0], "task-2", "something else") == ""


def old(path: Path, text: str = "") -> Path:
    """A file that has not been touched for an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (HOUR_AGO, HOUR_AGO))
    return path


def test_locks_of_the_clone_are_removed_those_of_the_source_are_said(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: look only for index.lock; remove a lock that a program has open; remove a user's."""
    git_dir = project.root.path / ".git"
    ref = old(git_dir / "refs/heads/llmc/x.lock")
    packed = old(git_dir / "packed-refs.lock")
    persons = old(Path(project.source) / ".git/index.lock")
    assert kinds(project) == ["git_lock"] * 3
    with running([sys.executable, "-c", HOLD_OPEN, str(ref)], project.root.path.parent):
        assert kinds(project) == ["git_lock"] * 2
    repair(project)
    assert [path.exists() for path in (ref, packed, persons)] == [False, False, True]
    os.utime(persons)
    assert kinds(project) == [], "a new one may be in use"


def test_what_llmc_may_not_use_is_opened_for_it(project: Project) -> None:
    """Break: look only for directories that are too open; or fix records before anything can be written."""
    for path, mode in (
        (project.root.private, 0o500),
        (project.root.state, 0o400),
        (project.root.logs, 0o000),
    ):
        path.chmod(mode)
    assert kinds(project) == ["permissions"] * 3
    repair(project)
    assert kinds(project) == []
    assert project.root.state.stat().st_mode & 0o777 == 0o600


def test_what_a_supervisor_left(project: Project) -> None:
    """Break: judge by a pid, which another process may have; remove the file of one that starts, or that ended."""
    record, lock = project.root.overseer_file, project.root.lock("overseer")
    journal = Journal(project)
    journal.begin(None, ())
    assert kinds(project) == ["overseer_crashed"], "its pid lives, but no supervisor holds the lock"
    facts = examine(project.root)
    claim = locks.hold_forever(lock)
    assert claim is not None
    assert kinds(project) == [], "it runs"
    (one,) = repair_all(project, facts, diagnose(facts))
    assert (one.done, record.exists()) == (False, True), "a supervisor has started in the meantime"
    journal.end(0, "stopped on request")
    os.close(claim)
    assert kinds(project) == [], "it ended normally"
    (one,) = repair_all(project, facts, diagnose(facts))
    assert (one.text, record.exists()) == ("already resolved", True), "`llmc status` shows why it ended"
    record.write_text('{"pid": 0')
    repair(project)
    assert not record.exists()

    note = project.root.private / "manual_intervention_needed_20260101.txt"
    note.write_text("\nthe disk has to be changed\nmore\n")
    (found,) = diagnose(examine(project.root))
    assert (found.kind, found.repairable) == ("manual_intervention", False)
    assert "the disk has to be changed" in found.text
    repair(project)
    assert note.exists(), "the user's decision is not removed"
    note.rename(project.root.logs / note.name)
    assert kinds(project) == []


def test_the_daemon_of_a_killed_supervisor_can_be_taken_over(project: Project) -> None:
    """Break: remove the record while its daemon runs: the next supervisor would refuse to start beside that daemon."""
    row = {"pid": os.getpid(), "start_time_unix": 1.0, "instance_id": "a"}
    daemon = Identity.read(row)
    Journal(project).begin(daemon, (5.0, 6.0))
    claim = locks.hold_forever(project.root.lock("daemon"))
    assert claim is not None

    def found() -> Finding:
        return next(one for one in diagnose(examine(project.root)) if one.kind == "overseer_crashed")

    old(project.root.daemon, json.dumps(row))
    facts = examine(project.root)
    assert (found().repairable, "`llmc overseer`" in found().fix) == (False, True)
    repair_all(project, facts, diagnose(facts))
    assert former(project.root) == Former(daemon, (5.0, 6.0))
    old(project.root.daemon, json.dumps({**row, "instance_id": "b"}))
    assert found().repairable, "another daemon"
    facts = examine(project.root)
    old(project.root.daemon, json.dumps(row))
    (one,) = [one for one in repair_all(project, facts, diagnose(facts)) if one.finding.group == "supervisor"]
    assert (one.text, former(project.root).daemon) == ("already resolved", daemon), (
        "seen again before the repair"
    )
    os.close(claim)
    assert found().repairable, "its daemon is gone"
    repair(project)
    assert former(project.root) == Former()


def test_tasks_that_nobody_is_at_are_free_again(project: Project, tmp_path: Path) -> None:
    """Break: keep a claim whose worker has no such assignment; or do not report a broken list."""
    set_value(project.root.config, "auto.task_list_id", "plan")
    set_value(project.root.config, "auto.tasks_root", str(tmp_path / "tasks"))
    project = open_project(str(project.root.path))
    source = open_files(project)
    files = source.files
    task = old(
        files.directory / "1.json",
        '{"id": "1", "subject": "Do", "description": "", "status": "pending", "blocks": [], "blockedBy": []}',
    )
    source.claim(files.key("1"), "auto-1")
    assert kinds(project) == ["claim"]
    repair(project)
    assert ('"pending"' in task.read_text(), "owner" in task.read_text()) == (True, False)
    assert open_files(project).books().claims == {}
    assert kinds(project) == []
    old(files.directory / "2.json", "{")
    assert kinds(project) == ["task_list"]


def test_an_overwritten_state(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    """Break: trust a state without workers, and report their worktrees as strays."""
    with project.store.transaction() as tx:
        tx.emit("worker_added", worker=worker[0].name)
    assert kinds(project) == []
    project.root.state.write_text('{"workers": {}}')
    (found,) = diagnose(examine(project.root))
    assert found.kind == "state"
    assert worker[0].name in found.text


def test_a_daemon_that_is_not_itself(project: Project, tmp_path: Path) -> None:
    """Break: send something to find out whether the daemon listens;
    treat another instance's heartbeat as its own.
    """
    claim = locks.hold_forever(project.root.lock("daemon"))
    assert claim is not None
    listening = listen(project.root.wake_socket())
    try:
        registration = {"pid": os.getpid(), "auto": True, "ready": True, "instance_id": "a"}
        old(project.root.daemon, json.dumps(registration))
        beat = {"instance_id": "a", "timestamp_unix": time.time()}
        project.root.heartbeat.write_text(json.dumps(beat))
        assert kinds(project) == []
        assert receive(listening) is None, "nothing was sent"
        project.root.heartbeat.write_text(json.dumps({**beat, "instance_id": "b"}))
        assert kinds(project) == ["daemon_stalled"]
        project.root.heartbeat.write_text(json.dumps({**beat, "timestamp_unix": HOUR_AGO}))
        assert kinds(project) == ["daemon_stalled"]
        project.root.heartbeat.write_text(json.dumps(beat))
        old(project.root.daemon, json.dumps({**registration, "pid": 1}))
        assert kinds(project) == ["daemon_other"]
        old(project.root.daemon, json.dumps(registration))
        listening.close()
        assert kinds(project) == ["daemon_socket"], "a socket without a listener"
        project.root.wake_socket().unlink()
        assert kinds(project) == ["daemon_socket"]
    finally:
        listening.close()
        os.close(claim)


_BAD = (b"{not json}", b"[1]", b'{"ts": 1.0, "action": "created"}', b'{"ts": 2}', b"\x1b[31m\xff", b"null")


def test_rows_that_nobody_can_use_are_told_and_put_aside(project: Project) -> None:
    """Break: skip them silently; report a truncated line after a kill; rewrite the file under its writers."""
    ledger = TaskLedger(project.root.tasks_ledger, list_name="plan")
    row = entry("created", Claim("c1", TaskKey("plan", TaskId("1")), "adam"), 1.0)
    ledger.write(row)
    appender = project.root.tasks_ledger.open("ab")
    for line in (*_BAD, b'{"ts": 1.0, "action": "cla', b""):
        append_line(project.root.tasks_ledger, line)
    append_line(project.root.events, _BAD[0])
    with project.store.transaction() as tx:
        tx.emit("auto_started")  # the log continues after it
    assert ledger.books().created == {TaskKey("plan", TaskId("1"))}, "the rest is read without it"
    digest.tell_lists(project)
    items = project.store.read().attention
    assert {key: (one.kind, one.severity, one.next) for key, one in items.items()} == {
        "rows tasks.jsonl": ("bad_input", "waiting", "llmc doctor --repair"),
        "rows events.jsonl": ("bad_input", "notice", "llmc doctor --repair"),
    }
    assert items["rows tasks.jsonl"].text.startswith(f"6 rows in {project.root.tasks_ledger} cannot be read")
    assert kinds(project) == ["bad_rows"] * 2
    size, events = project.root.tasks_ledger.stat().st_size, len(list(read_lines(project.root.events)))
    repair(project)
    assert (kinds(project), project.store.read().attention) == ([], {})
    aside = (project.root.logs / "bad-rows.log").read_bytes()
    assert [line.partition(b": ")[2] for line in aside.splitlines()] == [*_BAD, _BAD[0]]
    # A process that has the file open, or knows an offset in it, can continue.
    assert project.root.tasks_ledger.stat().st_size == size
    assert len(list(read_lines(project.root.events))) >= events
    appender.write(
        json.dumps(entry("created", Claim("c2", TaskKey("plan", TaskId("2")), "adam"), 2.0)).encode() + b"\n"
    )
    appender.close()
    for known in (ledger, TaskLedger(project.root.tasks_ledger, list_name="plan")):
        assert {task.id for task in known.books().created} == {"1", "2"}


def test_a_check_that_fails_does_not_hide_the_others(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let the error of one check end the report."""

    def look(_: Sight) -> tuple[str, ...]:
        raise RuntimeError("no such luck")

    broken = Check("broken", "files", "something is odd", lambda facts, seen: (), look)
    monkeypatch.setattr(registry, "CHECKS", (broken, *registry.CHECKS))
    before = [finding for finding in diagnose(examine(project.root)) if finding.kind == "broken"]
    assert [(one.text, one.repairable) for one in before] == [
        ("cannot check whether something is odd: no such luck", False)
    ]
    assert len(examine(project.root).seen) > 10


def test_a_source_in_which_nothing_can_land(project: Project, tmp_path: Path) -> None:
    """The same fact as in `llmc status`.

    Break: look only for uncommitted changes; report changes that were never in the way.
    """
    source = Worktree(tmp_path / "source")
    source.git("checkout", "-q", "-b", "side")
    source.commit("a.txt", "side\n")
    source.git("checkout", "-q", "main")
    source.commit("a.txt", "main\n")
    source.git("merge", "side", check=False)
    (finding,) = diagnose(examine(project.root))
    assert (finding.kind, finding.text) == (
        "source",
        f"cannot land in {source.path}: a merge is in progress",
    )
    assert "finish or abort the merge" in finding.fix
    assert notes(examine(project.root)) == []
    source.git("merge", "--abort")
    source.write("a.txt", "changed\n")
    assert kinds(project) == []
    (note,) = notes(examine(project.root))
    assert "a.txt" in note
    with pytest.raises(default_branch.SourceBusy) as caught:
        default_branch.check_source(project)
    with project.store.transaction() as tx:
        default_branch.tell_source_busy(project, tx, caught.value)
    (finding,) = diagnose(examine(project.root))
    assert finding.text == caught.value.message
    assert notes(examine(project.root)) == []
