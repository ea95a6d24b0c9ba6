"""An auto worker's next steps are done one by one, and never over and over."""

import os
import signal
import sys
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.auto import attend as auto
from llmc.auto import landing
from llmc.auto.auto_run import BEGINS, HardFailure, Run
from llmc.auto.rules.steps import GiveUp
from llmc.auto.usage import Spending
from llmc.base import processes
from llmc.base.clock import now_unix
from llmc.base.names import TaskId, TaskKey
from llmc.base.panes import Pane
from llmc.goals import dispatch
from llmc.goals.drive.intents import NUDGE
from llmc.goals.model import Mode, Result
from llmc.records.worker import Assignment, Cause
from llmc.repo.project import Project, open_project
from llmc.repo.provision import set_up_mark
from llmc.sessions import submit
from llmc.tasks import queue
from llmc.workers import start
from llmc.workers.rules import Clock
from tests.support import on_postgres
from tests.support.auto import add, at_work, commit, set_up, until, wait_completed, wait_for
from tests.support.fleet import Fleet
from tests.support.goal_workshop import action
from tests.support.plans import COMMIT
from tests.support.waiting import wait_until


def run_of(project: Project, worker: str) -> Run:
    return Run(
        queue=queue.open_queue(project),
        workers=(worker,),
        on_change=lambda: None,
        look_again=lambda _, __: None,
        say=lambda _: None,
        spending=Spending(),
    )


def test_an_agent_that_is_killed_at_its_delivery_has_crashed(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after its worktree was ready, before a key was typed.

    Break: GiveUp(AGENT) for a refusal by a dead pane.
    """
    fleet = set_up(scripted)
    fleet.up("--auto", "--concurrency", "1")
    wait_until(lambda: fleet.status("auto-1")["status"] == "idle")
    fleet.kill_daemon()
    project = open_project(str(fleet.root))
    pane = project.pane(project.store.worker("auto-1"))
    assert isinstance(pane, Pane)
    real = start.provision.refresh_base

    def killed_meanwhile(project: Project) -> str:
        base = real(project)
        os.kill(pane.pid, signal.SIGKILL)
        wait_until(lambda: not processes.is_alive(pane.pid))
        monkeypatch.setattr(start.provision, "refresh_base", real)
        return base

    monkeypatch.setattr(start.provision, "refresh_base", killed_meanwhile)
    monkeypatch.setattr(submit.intake, "apply_pending", lambda project, name: project.store.worker(name))
    monkeypatch.setattr(auto, "give_up", lambda *arguments: gave_up.append(arguments[-1]))
    gave_up: list[GiveUp] = []
    add(fleet, 1)
    with project.worker_lock("auto-1"):
        auto.attend(run_of(project, "auto-1"), project, "auto-1", Clock(now_unix()))
    assert [(why.cause, why.counts) for why in gave_up] == [(Cause.CRASH, True)]


def test_a_hold_that_comes_while_a_task_is_chosen(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: check `held` only before the task is chosen; the held worker gets it anyway."""
    fleet = set_up(scripted)
    fleet.up("--auto", "--concurrency", "1")
    wait_until(lambda: fleet.status("auto-1")["status"] == "idle")
    fleet.kill_daemon()
    project = open_project(str(fleet.root))
    run = run_of(project, "auto-1")
    real = run.queue.take_next

    def held_meanwhile(*arguments: Any) -> Any:
        found = real(*arguments)
        fleet.llmc("hold", "auto-1")
        return found

    monkeypatch.setattr(run.queue, "take_next", held_meanwhile)
    add(fleet, 1)
    with project.worker_lock("auto-1"):
        auto.attend(run, project, "auto-1", Clock(now_unix()))
    assert fleet.events("task_assigned") == []
    assert [row["reason"] for row in fleet.events("task_released")] == ["auto-1 is on hold"]
    assert run.queue.count_ready() == 1, "free for any worker, and not charged"
    assert project.store.worker("auto-1").assignment is None


def test_a_nudge_that_meets_a_draft_was_not_tried(scripted: Fleet) -> None:
    """Break: count it as an error; the ladder would advance because of the user's half sentence."""
    scripted.set_up("adam", config={"auto.task_list_id": "plan"})
    scripted.up()
    project = open_project(str(scripted.root))
    nudge = action("D1", NUDGE, mode=Mode.SEND, session_key="llmc:adam", text="@say still here")
    scripted.tmux("send-keys", "-t", scripted.session("adam"), "-l", "half a thought")
    wait_until(lambda: "half a thought" in scripted.screen("adam"))
    done = dispatch._send(project, nudge)
    assert (done.result, "draft" in done.notes) == (None, True)
    assert "half a thought" in scripted.screen("adam")
    assert not scripted.events("prompt_pending"), "not even tried"
    scripted.tmux("send-keys", "-t", scripted.session("adam"), "C-u")
    wait_until(lambda: "half a thought" not in scripted.screen("adam"))
    assert dispatch._send(project, nudge).result is Result.OK


def test_a_step_that_changes_nothing_is_put_off_and_ends_as_a_bug(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the comparison with the previous step out of `attend`; it never returns."""
    scripted.set_up("adam", config={"auto.task_list_id": "plan"})
    project = open_project(str(scripted.root))
    with project.store.transaction() as tx:
        tx.update("adam", assignment=Assignment(task_id=TaskId("1"), claim="nobodys", since_unix=now_unix()))
    later: list[float] = []
    run = Run(
        queue=queue.open_queue(project),
        workers=("adam",),
        on_change=lambda: None,
        look_again=lambda _, delay_s: later.append(delay_s),
        say=lambda _: None,
        spending=Spending(),
    )
    done = []
    monkeypatch.setattr(auto, "_do", lambda *_: done.append(1) or True)
    clock = Clock(now_unix())
    for _ in range(BEGINS):
        auto.attend(run, project, "adam", clock)
    assert len(done) == BEGINS
    assert later == sorted(set(later)), "each wait is longer"
    with pytest.raises(HardFailure) as failed:
        auto.attend(run, project, "adam", clock)
    assert failed.value.cause is Cause.BUG


def test_a_run_with_fewer_workers_frees_the_tasks_of_the_others(scripted: Fleet) -> None:
    """After a kill. Its agent may still be at work; what it has done so far is pinned.

    Break: settle only claims that no record has; nothing would look at the worker, and its task would stay claimed.
    """
    fleet = set_up(scripted)
    go_on = fleet.marks / "go-on"
    for number in (1, 2):
        work = f"echo {number} > file-{number}; git add .; {COMMIT} 'Task {number}'"
        add(fleet, number, f"@sh {work}; touch {fleet.marks}/{number}; {until(go_on)}")
    fleet.up("--auto", "--concurrency", "2")
    wait_for(fleet, lambda: all((fleet.marks / str(number)).exists() for number in (1, 2)))
    fleet.kill_daemon()
    had = at_work(fleet)
    assert had.keys() == {"auto-1", "auto-2"}
    agent = fleet.agent_pid("auto-2")
    fleet.up("--auto", "--concurrency", "1")
    assert at_work(fleet) == {"auto-1": had["auto-1"]}
    (released,) = fleet.events("task_released")
    assert (released["worker"], released["task_id"]) == ("auto-2", had["auto-2"])
    assert f"file-{had['auto-2']}" in fleet.git("ls-tree", "--name-only", released["ref"], cwd=fleet.root)
    assert not processes.is_alive(agent), "it no longer has a task"
    go_on.touch()
    wait_completed(fleet, 2)
    assert {row["worker"] for row in fleet.events("accepted")} == {"auto-1"}


@on_postgres.CHECKOUT
def test_workers_that_meet_the_users_changes_at_once_count_one_wait(scripted: Fleet) -> None:
    """At the end of a wait all workers with finished work are woken, and each may look before another has failed.

    Break: count an attempt although a wait has begun; ten retries end after ten divided by the number of workers.
    """
    workers = ("adam", "baker")
    scripted.set_up(*workers, config={"auto.task_list_id": "plan"})
    scripted.up()
    for number, name in enumerate(workers):
        scripted.llmc("start", "--worker", name, "--prompt", commit(number))
    for name in workers:
        scripted.wait(name, "needs_review")
    scripted.kill_daemon()
    (scripted.source / "README.md").write_text("a person writes\n")
    project = open_project(str(scripted.root))
    for name in workers:
        with project.store.transaction() as tx:
            tx.update(name, assignment=Assignment(task_id=TaskId("1"), claim=name, since_unix=now_unix()))

    def land_all() -> None:
        for name in workers:
            with project.worker_lock(name):
                assert not landing.land(run_of(project, name), project, project.store.worker(name))

    def waits() -> tuple[int, float]:
        auto = project.store.read().auto
        return auto.source_repo_dirty_retry_count, auto.source_repo_dirty_backoff_secs

    land_all()
    first_s = project.config.auto.dirty_backoff_secs
    assert waits() == (1, first_s)
    with project.store.transaction() as tx:
        tx.update_auto(source_repo_dirty_retry_after_unix=tx.now)
    land_all()
    assert waits() == (2, 2 * first_s)
    assert [row["attempt"] for row in scripted.events("source_dirty")] == [1, 2]


def test_tasks_are_counted_while_the_daemon_asks_for_them(scripted: Fleet) -> None:
    """Lanes begin tasks in threads. Break: read `_begun` without its lock: the daemon ends with a bug."""
    scripted.set_up("adam", config={"auto.task_list_id": "plan"})
    run = run_of(open_project(str(scripted.root)), "adam")
    run.max_tasks = 1_000_000
    keys = [TaskKey("plan", TaskId(str(number))) for number in range(20_000)]
    default_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        lane = threading.Thread(target=lambda: [run.begin(key) for key in keys])
        lane.start()
        while lane.is_alive():
            assert not run.is_full
        lane.join()
    finally:
        sys.setswitchinterval(default_s)
    assert len(run.begun) == len(keys)
    run.take_back(keys[0])
    assert keys[0] not in run.begun


@pytest.mark.parametrize("at", ["launch", "setup"])
def test_a_stop_while_a_worker_gives_up_loses_no_failure(scripted: Fleet, at: str) -> None:
    """The ledger has the failure, so the event log must have it, too.

    Break: let ShuttingDown leave the reset; the digest of the run has the task in progress, and no error. Or count a
    launch that a stopping daemon did not do as a failed one.
    """
    fleet = set_up(scripted)
    fleet.up("--auto", "--concurrency", "1")
    ready = fleet.marks / "ready"
    add(fleet, 1, f"@sh echo half > half; touch {ready}; {until(fleet.marks / 'never')}")
    wait_for(fleet, ready.exists)
    fleet.kill_daemon()
    if at == "setup":
        fleet.llmc("config", "set", "repo.setup", "sleep 60")
    stopping = threading.Event()
    project = replace(open_project(str(fleet.root)), stopping=stopping.is_set)
    record = project.store.worker("auto-1")
    if at == "setup":
        set_up_mark(record).unlink()
    pane = project.pane(record)
    assert isinstance(pane, Pane)
    os.kill(pane.pid, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(pane.pid))
    run, later = run_of(project, "auto-1"), list[float]()
    run.look_again = lambda _, wait_s: later.append(wait_s)
    why = GiveUp(Cause.CRASH, "the agent exited")
    stopping.set()
    with project.worker_lock("auto-1"):
        assert not landing.give_up(run, project, project.store.worker("auto-1"), why)
        for _ in range(landing.LAUNCHES + 1):
            assert not landing.start_over(run, project, project.store.worker("auto-1"))
    ((failed,), (pinned,)) = fleet.events("task_failed"), fleet.events("work_pinned")
    assert (failed["cause"], failed["attempt"]) == ("crash", 1)
    assert failed["ref"] == (pinned["ref"] if at == "launch" else None)
    assert project.store.read().auto.errors == 1
    assert (later, fleet.events("session_launched")[1:]) == ([], [])
