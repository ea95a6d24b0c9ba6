"""What the supervisor reads from a real log, a real process and a real task list."""

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import llmc
from llmc.base.files import private_dir
from llmc.base.names import SessionName, TaskId, WorkerName
from llmc.base.processes import Process, identify, is_alive
from llmc.base.rotation import Limit, rotate
from llmc.config.edit import set_value
from llmc.config.model import Config, Overseer
from llmc.config.model import Repo as RepoConfig
from llmc.daemon.log import open_log
from llmc.records.state import AutoState, State
from llmc.records.worker import Assignment, Status, WorkerRecord
from llmc.repo.project import open_project
from llmc.supervisor import daemon_process, supervisor_record
from llmc.supervisor import watch as supervisor_watch
from llmc.supervisor.daemon_process import Running
from llmc.supervisor.model import Failure, Identity
from llmc.supervisor.rules import decide
from llmc.supervisor.watch import LogTail, Progress, Since, Watch
from tests.support.auto import add, set_up, task_dir
from tests.support.fleet import Fleet
from tests.support.records import worker
from tests.support.repos import Repo, make_project
from tests.support.waiting import wait_until

ERROR = b'{"level": "ERROR", "message": "%d", "cause": "git"}\n'


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.req("0-113", "0-114")
def test_a_log_that_is_rotated_and_truncated(tmp_path: Path) -> None:
    """Break: open the log at its start, forget the end of the old file, or keep the offset in a new one."""
    path = tmp_path / "daemon.jsonl"
    append(path, ERROR % 0)
    tail = LogTail(path)

    def new() -> list[str]:
        return [record.message for record in tail.read()]

    assert new() == [], "earlier lines do not count"
    append(path, ERROR % 1 + b'{"level": "INFO"}\n' + (ERROR % 2)[:20])
    assert new() == ["1"]
    append(path, (ERROR % 2)[20:])
    assert new() == ["2"]
    append(path, ERROR % 3)
    path.rename(tmp_path / "daemon.jsonl.1")
    append(tmp_path / "daemon.jsonl.1", ERROR % 4)
    append(path, ERROR % 5)
    assert new() == ["3", "4", "5"], "the end of the old file, then the new one"
    path.write_bytes(ERROR % 6)
    os.truncate(path, 0)
    assert new() == []
    append(path, ERROR % 7)
    assert new() == ["7"]
    path.unlink()
    assert new() == []
    append(path, ERROR % 8)
    assert new() == ["8"]
    tail.close()


@pytest.mark.req("0-114")
def test_a_log_that_is_rotated_twice_between_two_looks(tmp_path: Path) -> None:
    """Break: go from the file that was read to the latest one; a file rotated in between is never read."""
    path = tmp_path / "daemon.jsonl"
    append(path, ERROR % 0)
    rotate(path, Limit(1, keep=5))
    append(path, ERROR % 1)
    tail = LogTail(path)
    for number in (2, 4):
        append(path, ERROR % number)
        rotate(path, Limit(1, keep=5))
        append(path, ERROR % (number + 1))
    assert [record.message for record in tail.read()] == ["2", "3", "4", "5"]
    tail.close()


@pytest.mark.req("0-114")
@given(st.lists(st.sampled_from(["INFO", "WARNING", "ERROR"]), max_size=8), st.data())
def test_lines_in_any_pieces(levels: list[str], data: st.DataObject) -> None:
    """Break: drop the start of a line whose end is not written yet."""
    rows = [{"level": level, "message": str(index)} for index, level in enumerate(levels)]
    whole = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder, "daemon.jsonl"), list[str]()
        tail = LogTail(path)
        while whole:
            size = data.draw(st.integers(1, len(whole)))
            append(path, whole[:size])
            whole = whole[size:]
            found += [record.message for record in tail.read()]
        tail.close()
    assert found == [row["message"] for row in rows if row["level"] != "INFO"]


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    """Break: raise while the daemon has not created its log, or skip its first lines."""
    tail = LogTail(tmp_path / "daemon.jsonl")
    assert tail.read() == []
    append(tmp_path / "daemon.jsonl", ERROR % 1)
    assert [record.message for record in tail.read()] == ["1"]
    tail.close()


@pytest.mark.req("0-113")
def test_every_failure_in_the_log_says_its_cause(tmp_path: Path) -> None:
    """Break: leave "cause" out of one call in daemon/, or of the formatter."""
    log = open_log(tmp_path / "daemon.jsonl")
    tail = LogTail(tmp_path / "daemon.jsonl")
    log.warning("careless")
    log.error("careful", extra={"action": "auto_failed", "cause": "git", "worker": "auto-1"})
    log.info("well")
    found = [(r.level, r.message, r.action, r.cause) for r in tail.read()]
    tail.close()
    assert found == [("WARNING", "careless", "failed", "bug"), ("ERROR", "careful", "auto_failed", "git")]
    seen = 0
    for path in Path(llmc.__file__).parent.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr in (
                "warning",
                "error",
                "exception",
                "critical",
            ):
                extra = next((word.value for word in call.keywords if word.arg == "extra"), None)
                text = ast.unparse(extra) if extra is not None else ""
                where = f"{path}:{call.lineno}"
                assert text == "extra" or ("'action'" in text and "'cause'" in text), where
                seen += 1
    assert seen >= 5


def running(process: "subprocess.Popen[bytes]") -> Running:
    identity = Identity(process.pid, 1.0, "i-1")
    found = identify(process.pid)
    assert found is not None
    return Running(identity, found, process, time.monotonic())


@pytest.mark.req("0-121", "0-122")
def test_a_zombie_is_not_alive_and_nobody_survives(scripted: Fleet) -> None:
    """Break: use kill(pid, 0) in is_alive, leave SIGKILL out, or do not wait for the child."""
    project = open_project(str(scripted.set_up().root))
    dead = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    zombie = running(dead)
    assert zombie.is_alive()
    assert dead.stdin is not None
    dead.stdin.close()
    wait_until(lambda: Path(f"/proc/{dead.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    os.kill(dead.pid, 0)  # the kernel still knows it
    assert not is_alive(dead.pid)
    adopted = Running(zombie.identity, zombie.process, None, 0.0)
    assert not adopted.is_alive()
    assert not zombie.is_alive()
    assert zombie.exit_code() == 0, "and it is reaped"
    stubborn = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)",
        ],
        stdout=subprocess.PIPE,
    )
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    found = running(stubborn)
    assert found.is_alive()
    daemon_process.end_all(project, found, 0.2)
    assert not is_alive(stubborn.pid)
    assert (stubborn.returncode, found.exit_code()) == (-signal.SIGKILL, -signal.SIGKILL)
    stubborn.stdout.close()
    # The same pid with another start time is another process: it is left alone.
    other = subprocess.Popen(["sleep", "99"])
    reused = Running(Identity(other.pid, 1.0, "i-1"), Process(other.pid, "12345"), None, 0.0)
    assert not reused.is_alive()
    daemon_process.end_all(project, reused, 0.2)
    assert is_alive(other.pid)
    other.kill()
    other.wait()


@pytest.mark.req("0-104", "0-105")
def test_only_its_own_daemon_is_taken(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: accept any new registration, or that of an earlier run."""
    project = open_project(str(scripted.set_up().root))
    folder = scripted.dir / "bin"
    folder.mkdir()
    program, pids = folder / "llmc", scripted.dir / "pids"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def start(script: str, limit_s: float) -> Running | Failure:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return daemon_process.start(project, lambda: False, limit_s)

    row = {"pid": os.getpid(), "start_time_unix": 1.0, "instance_id": "old"}
    project.root.daemon.write_text(json.dumps(row))
    gone = start("echo it is broken; exit 7", 30)
    assert isinstance(gone, Failure)
    assert gone.text == "`llmc up --auto` exited with code 7: it is broken"
    # A new registration, but by a process that we did not start.
    foreign = json.dumps({**row, "instance_id": "new"})
    other = start(f"echo $$ >> {pids}; echo '{foreign}' > {project.root.daemon}; exec sleep 99", 1.0)
    assert isinstance(other, Failure)
    assert "did not start the daemon within 1 s" in other.text
    assert not is_alive(int(pids.read_text()))
    row_of_its_own = '{"pid": %d, "start_time_unix": 2.0, "instance_id": "mine"}'
    ours = start(f"printf '{row_of_its_own}' $$ > {project.root.daemon}; exec sleep 99", 30)
    assert isinstance(ours, Running)
    assert (ours.identity.instance_id, ours.is_alive()) == ("mine", True)
    daemon_process.end_all(project, ours, 5)
    assert not ours.is_alive()


@pytest.mark.req("0-115", "0-243")
def test_a_stall_needs_work_and_time(scripted: Fleet) -> None:
    """Break: treat an empty list as work, or a worker that the user has as free."""
    fleet = set_up(scripted)
    fleet.llmc("add", "adam")
    project = open_project(str(fleet.root))
    fleet.llmc("up", "--auto", "--detach")
    fleet.llmc("down")
    daemon = Running(Identity(os.getpid(), 1.0, "i-1"), Process(os.getpid(), ""), None, time.monotonic())
    settings = Overseer(heartbeat_timeout_secs=1e9, stall_timeout_secs=-1.0, check_interval_secs=1.0)
    tail = LogTail(fleet.root / "logs/daemon.jsonl")

    def has_work() -> bool:
        return Watch(project, daemon, tail, settings).look().has_work

    assert not has_work(), "nothing to do"
    add(fleet, 1)
    assert has_work()
    with project.store.transaction() as tx:
        tx.update("auto-1", held=True)
    assert not has_work(), "the user has the only worker"
    with project.store.transaction() as tx:
        tx.update("auto-1", held=False)
    assert has_work()
    (task_dir(fleet) / "1.json").unlink()
    assert not has_work()
    tail.close()


@pytest.mark.req("0-115")
def test_a_worker_that_waits_for_an_answer_is_not_stalled(tmp_path: Path) -> None:
    """Decision 0049. Break: count it as at work, or count its task as ready for the others."""
    source = Repo(tmp_path / "source")
    source.commit("a.txt", "a\n")
    config = make_project(str(source.path), tmp_path / "root").root.config
    set_value(config, "auto.task_list_id", "plan")
    set_value(config, "auto.tasks_root", str(tmp_path / "tasks"))
    project = open_project(str(tmp_path / "root"))
    daemon = Running(Identity(os.getpid(), 1.0, "i-1"), Process(os.getpid(), ""), None, time.monotonic())
    settings = Overseer(heartbeat_timeout_secs=1e9, stall_timeout_secs=-1.0)
    tail = LogTail(project.root.logs / "daemon.jsonl")
    part = Assignment(task_id=TaskId("1"), claim="c1", since_unix=1.0, dispatch="D_1")
    asks = worker(Status.NEEDS_INPUT, reason="blocked", auto=True, assignment=part)
    free = worker(Status.IDLE, name=WorkerName("w2"), auto=True)

    def task(number: int, status: str) -> None:
        row = {"id": str(number), "subject": "Do", "description": "", "blocks": [], "blockedBy": []}
        folder = private_dir(tmp_path / "tasks/plan")
        (folder / f"{number}.json").write_text(json.dumps({**row, "status": status}))

    def has_work(*records: WorkerRecord) -> bool:
        with project.store.transaction() as tx:
            for record in records:
                tx.put(record)
        return Watch(project, daemon, tail, settings).look().has_work

    task(1, "in_progress")
    assert not has_work(asks), "only the user can go on"
    assert supervisor_watch.stalled_workers(project) == []
    assert not has_work(free), "no task is ready"
    task(2, "pending")
    assert has_work(), "a free worker should have taken it"
    assert supervisor_watch.stalled_workers(project) == [], "its conversation is kept"
    assert has_work(replace(free, held=True)), "then the worker that waits gives up its task for it"
    dialog = replace(asks, reason="question")
    assert has_work(dialog), "auto mode gives up that task"
    assert supervisor_watch.stalled_workers(project) == ["w1"]
    tail.close()


@pytest.mark.req("0-111", "0-115")
def test_after_a_clock_jump_nothing_is_old(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop slept. Break: judge by old ages, or treat each late check on a busy machine as a jump."""
    project = open_project(str(set_up(scripted).root))
    clocks = {"monotonic": 1000.0, "now_unix": 5000.0}
    for name in clocks:
        monkeypatch.setattr(supervisor_watch, name, lambda name=name: clocks[name])
    daemon = Running(Identity(os.getpid(), 1.0, "i-1"), Process(os.getpid(), ""), None, 0.0)
    settings = Overseer(heartbeat_timeout_secs=30.0, stall_timeout_secs=1e9, check_interval_secs=2.0)
    tail = LogTail(scripted.root / "logs/daemon.jsonl")
    watch = Watch(project, daemon, tail, settings)

    def pass_by(mono: float, wall: float) -> str:
        clocks["monotonic"] += mono
        clocks["now_unix"] += wall
        return watch.clock_jump()

    assert pass_by(5.0, 5.0) == "", "a busy machine"
    assert watch.look().beat_age_s == 5.0
    assert "clock" in pass_by(2.0, 3600.0)
    assert watch.look().beat_age_s == 0.0, "one full limit from now on"
    assert pass_by(2.0, 2.0) == ""
    assert watch.look().beat_age_s == 2.0
    assert pass_by(600.0, 600.0) != "", "the check itself came too late"
    assert watch.look().beat_age_s == 0.0
    replaced_while_it_is_looked_at(watch, daemon, settings, scripted.root / ".llmc/daemon.json", monkeypatch)
    tail.close()


def replaced_while_it_is_looked_at(
    watch: Watch, daemon: Running, settings: Overseer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another daemon is reported, not a death. Break: read the registration before checking the process."""

    def is_alive(_: Running) -> bool:
        other = {"pid": 1, "start_time_unix": 2.0, "instance_id": "i-2", "ready": True}
        file.write_text(json.dumps(other))
        return False

    file.write_text(
        json.dumps({"pid": os.getpid(), "start_time_unix": 1.0, "instance_id": "i-1", "ready": True})
    )
    monkeypatch.setattr(Running, "is_alive", is_alive)
    failure = decide.judge(daemon.identity, watch.look(), settings)
    assert failure is not None
    assert failure.kind == "identity"


def test_what_counts_as_progress(tmp_path: Path) -> None:
    """Break: count the user's rows, forget the end of a park, or count quiet time during a park."""
    transcript = tmp_path / "t.jsonl"
    transcript.touch()
    record = WorkerRecord(
        name=WorkerName("auto-1"),
        worktree_path="/w",
        branch="llmc/auto-1",
        session_id=SessionName("s"),
        created_at_unix=0.0,
        auto=True,
        assignment=Assignment(task_id=TaskId("1"), claim="c", since_unix=0.0),
        transcript_path=str(transcript),
    )

    def state(**auto: float) -> State:
        return State(workers={record.name: record}, auto=AutoState(**auto))  # type: ignore[arg-type]

    progress = Progress(Since(0.0))
    old = {"last_task_completion_unix": 5.0, "last_task_assignment_unix": 4.0}
    assert progress.quiet_s(state(**old), 10.0) == 0.0, "an earlier run does not count"
    assert progress.quiet_s(state(**old), 40.0) == 30.0
    append(transcript, b'{"type": "user", "message": {"content": "[llmc task-1] assistant, go on"}}\n')
    append(
        transcript, b'{"type": "assistant", "message": {"model": "<synthetic>", "content": "API Error"}}\n'
    )
    assert progress.quiet_s(state(**old), 50.0) == 40.0, "our own prompt is not work"
    append(transcript, b'{"type": "assistant", "message": {"model": "opus"}}\n')
    assert progress.quiet_s(state(**old), 60.0) == 0.0
    assert progress.quiet_s(state(**old), 70.0) == 10.0
    later = time.time() + 1000
    for now in (80.0, 200.0, 9000.0):
        assert progress.quiet_s(state(**old, parked_until_unix=later), now) == 0.0, "parked"
    assert progress.quiet_s(state(**old, resumed_unix=7.0), 9100.0) == 0.0
    assert progress.quiet_s(state(**old, resumed_unix=7.0), 9200.0) == 100.0
    dirty = {"source_repo_dirty_retry_after_unix": later}
    assert progress.quiet_s(state(**old, resumed_unix=7.0, **dirty), 9999.0) == 0.0, "the source is in use"


@pytest.mark.req("0-102", "0-244")
def test_its_settings() -> None:
    """Break: change any default."""
    found = Config(repo=RepoConfig(source="/s")).overseer
    assert (found.heartbeat_timeout_secs, found.stall_timeout_secs, found.restart_cooldown_secs) == (
        30,
        3600,
        60,
    )
    assert (found.remediation_timeout_secs, found.max_remediations_per_day) == (1800, 6)
    assert 1 <= found.check_interval_secs <= 5
    assert found.remediation_prompt == ""


@pytest.mark.req("0-241")
def test_an_old_state_still_loads() -> None:
    """Break: add a field without a default."""
    old = msgspec.json.decode(b'{"version": 1, "workers": {}, "auto": {"tasks_completed": 3}}', type=State)
    assert (old.auto.tasks_completed, old.auto.last_task_completion_unix, old.overseer_active) == (
        3,
        0.0,
        False,
    )


def test_what_a_killed_supervisor_left(scripted: Fleet) -> None:
    """Break: forget its remediations, or take over the daemon of a supervisor that exited cleanly."""
    root = open_project(str(scripted.set_up().root)).root
    assert supervisor_record.former(root) == supervisor_record.Former()
    body = {
        "state": "remediating",
        "daemon": {"pid": 3, "start_time_unix": 2.0, "instance_id": "i"},
        "remediations": [1.5, "x"],
    }
    root.overseer_file.write_text(json.dumps(body))
    assert supervisor_record.former(root) == supervisor_record.Former(Identity(3, 2.0, "i"), (1.5,))
    root.overseer_file.write_text(json.dumps({**body, "state": "terminated"}))
    assert supervisor_record.former(root) == supervisor_record.Former()
    root.overseer_file.write_text("[1")
    assert supervisor_record.former(root) == supervisor_record.Former()


@pytest.mark.req("0-107")
def test_the_daemon_does_not_know_its_supervisor() -> None:
    """Break: check in daemon/ whether a supervisor is active, or import anything from it."""
    words = ("overseer_active", "OVERSEER_FILE", "overseer_file", "llmc.supervisor")
    for path in (Path(llmc.__file__).parent / "daemon").glob("*.py"):
        code = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute)
        ]
        assert not [word for word in words if any(word in ast.unparse(node) for node in code)], path


_VAGUE = {
    "util",
    "utils",
    "helper",
    "helpers",
    "manager",
    "common",
    "misc",
    "base",
    "core",
    "main",
    "lib",
    "stuff",
}


@pytest.mark.req("0-246")
def test_files_are_small_and_say_what_they_are_about() -> None:
    """Break: add a `utils` to the supervisor, or a file with 401 lines;
    or a file `auto...` beside the folders.
    """
    source = Path(llmc.__file__).parent
    rooms = ("auto/**/*.py", "supervisor/**/*.py", "daemon/*auto*.py")
    found = [path for room in rooms for path in source.glob(room) if path.stem != "__init__"]
    assert len(found) > 15
    for path in found:
        words = [*path.parent.relative_to(source).parts, *path.stem.split("_")]
        assert len(words) >= 2, path
        assert not _VAGUE & set(words), path
        most = 600 if "auto" in words else 400
        assert len(path.read_text().splitlines()) <= most, path
    assert not [*source.glob("auto*.py"), *source.glob("overseer*.py"), *source.glob("supervis*.py")]
