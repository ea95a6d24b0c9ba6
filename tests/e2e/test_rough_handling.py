"""What users do that no tutorial shows: Ctrl-C, crashes, broken files, commands in the wrong place."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from llmc.base.processes import is_alive
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def finish_a_task(fleet: Fleet, worker: str, subject: str) -> None:
    name = subject.lower()
    fleet.llmc(
        "start", "--worker", worker, "--prompt", f"@sh echo x > {name}; git add {name}; {COMMIT} '{subject}'"
    )
    fleet.wait(worker, "needs_review")


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam", "baker")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    """A shared fleet: its workers are idle, and nothing is validated."""
    shared.configure({"repo.validate": ""})
    shared.plant({})
    yield shared.new_case()
    shared.rest("adam", "baker")


def test_ctrl_c_stops_an_accept_for_good(running: Fleet) -> None:
    """Break: keep the journal; the daemon would finish what the user stopped."""
    before = running.log()
    running.configure({"repo.validate": f"touch {running.dir}/began; sleep 5"})
    finish_a_task(running, "adam", "Stopped")
    accept = subprocess.Popen(
        [sys.executable, "-m", "llmc", "accept", "adam"],
        cwd=running.source,
        env=running.env,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((running.dir / "began").exists)
    accept.send_signal(signal.SIGINT)
    said = accept.communicate(timeout=10)[1]
    assert accept.returncode == 130
    assert said.endswith("interrupted; nothing landed\n")
    assert running.status("adam")["accept_step"] is None
    running.wake("adam")
    running.llmc("message", "adam", "hello")  # waits for the worker's lock, so the daemon's round is over
    assert running.log() == before


def test_a_resumed_accept_is_judged_by_todays_configuration(running: Fleet) -> None:
    """Break: let the daemon keep the configuration it started with."""
    before = running.log()
    finish_a_task(running, "adam", "Unchecked")
    running.llmc("config", "set", "repo.validate", "false")
    running.llmc("accept", "adam", code=-signal.SIGKILL, LLMC_FAULT="accept.validate:before:kill")
    running.wake("adam")
    wait_until(lambda: running.events("accept_failed"))
    assert running.log() == before


def test_up_starts_what_does_not_run_and_leaves_the_rest(running: Fleet) -> None:
    daemon = running.daemon_pid()
    pids = [
        int(running.tmux("display-message", "-p", "-t", running.session(w), "#{pane_pid}"))
        for w in ("adam", "baker")
    ]
    os.kill(pids[0], signal.SIGKILL)
    running.wait("adam", "offline")
    again = running.llmc("up", "--detach")
    assert "adam: idle" in again.out
    assert running.daemon_pid() == daemon
    now = [
        int(running.tmux("display-message", "-p", "-t", running.session(w), "#{pane_pid}"))
        for w in ("adam", "baker")
    ]
    assert now[0] != pids[0]
    assert now[1] == pids[1]
    os.kill(now[0], signal.SIGKILL)
    running.wait("adam", "offline")


def test_down_needs_neither_configuration_nor_state(scripted: Fleet) -> None:
    """Break: load config.toml in `down`."""
    scripted.set_up("adam", "baker")
    for spoil in ("config.toml", "state.json"):
        scripted.up("--no-patrol")
        agent = int(scripted.tmux("display-message", "-p", "-t", scripted.session("adam"), "#{pane_pid}"))
        good = (scripted.root / spoil).read_bytes()
        if spoil == "state.json":
            (scripted.root / spoil).unlink()
        else:
            (scripted.root / spoil).write_text("[nonsense")
        scripted.llmc("down")
        assert not is_alive(agent)
        assert scripted.tmux("list-sessions") == ""
        (scripted.root / spoil).write_bytes(good)


def test_init_says_no_where_it_would_do_harm(scripted: Fleet) -> None:
    scripted.set_up("adam")
    assert "already has one" in scripted.llmc("init", code=3).err
    inside = scripted.llmc(
        "--root",
        str(scripted.root),
        "init",
        "--target",
        str(scripted.dir / "two"),
        code=3,
        cwd=scripted.worktree("adam"),
    )
    assert "is an llmc root" in inside.err
    empty = scripted.dir / "empty"
    empty.mkdir()
    scripted.git("init", "-q", "-b", "main", cwd=empty)
    target = str(scripted.dir / "three")
    assert "no commits yet" in scripted.llmc("init", "--target", target, code=None, cwd=empty).err
    (empty / "x").write_text("x")
    scripted.git("add", "x", cwd=empty)
    scripted.git("commit", "-q", "-m", "First", cwd=empty)
    scripted.llmc("init", "--target", target, cwd=empty)


def test_commits_on_another_branch_are_not_dropped_in_silence(running: Fleet) -> None:
    """Break: accept whatever HEAD is."""
    first = f"echo x > x; git add x; {COMMIT} 'X'"
    second = f"git checkout -q -b other origin/main; echo y > y; git add y; {COMMIT} 'Y'"
    running.llmc("start", "--prompt", f"@sh {first}; {second}")
    running.wait("adam", "needs_review")
    assert "is not on its branch" in running.llmc("accept", "adam", code=3).err
    running.llmc(
        "message",
        "adam",
        "@sh git checkout -q llmc/adam; git -c user.name=W -c user.email=w@example.com cherry-pick other >/dev/null",
    )
    running.wait("adam", "working,needs_review")
    running.wait("adam", "needs_review")
    wait_until(lambda: running.client_status("adam") == "idle")
    running.llmc("accept", "adam")
    assert sorted(running.git("ls-tree", "--name-only", "main").splitlines()) == ["README.md", "x", "y"]


def test_a_worktree_that_vanished_is_made_again(running: Fleet) -> None:
    shutil.rmtree(running.worktree("adam"))
    running.llmc("down")
    running.up("--no-patrol")
    finish_a_task(running, "adam", "Again")
    running.llmc("accept", "adam")


def test_a_worker_that_start_added_is_looked_after(running: Fleet) -> None:
    """Break: wake the daemon with a name it does not know, and let it ignore that."""
    for name in ("adam", "baker"):
        running.llmc("hold", name)
    work = f"@sh echo n > n; git add n; {COMMIT} 'N'"
    new = running.llmc("start", "--new", "--json", "--prompt", work).json["worker"]
    assert new not in ("adam", "baker")
    running.wait(new, "needs_review")
