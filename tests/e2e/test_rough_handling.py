"""What people do that no tutorial shows: Ctrl-C, crashes, broken files, commands in the wrong place."""

import os
import signal
import subprocess
import sys

from llmc.tools.processes import is_alive
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def finish_a_task(fleet: Fleet, worker: str, subject: str) -> None:
    name = subject.lower()
    fleet.llmc(
        "start", "--worker", worker, "--prompt", f"@sh echo x > {name}; git add {name}; {COMMIT} '{subject}'"
    )
    fleet.wait(worker, "needs_review")


def test_ctrl_c_stops_an_accept_for_good(scripted: Fleet) -> None:
    """Break that fails it: leave the journal; the daemon would finish what the person stopped."""
    scripted.set_up("adam", config={"repo.validate": f"touch {scripted.dir}/began; sleep 5"})
    scripted.up("--no-patrol")
    finish_a_task(scripted, "adam", "Stopped")
    accept = subprocess.Popen(
        [sys.executable, "-m", "llmc", "accept", "adam"], cwd=scripted.source, env=scripted.env
    )
    wait_until((scripted.dir / "began").exists)
    accept.send_signal(signal.SIGINT)
    assert accept.wait(10) == 130
    assert scripted.status("adam")["accept_step"] is None
    scripted.wake("adam")
    scripted.llmc("message", "adam", "hello")  # waits for the worker's lock, so the daemon's round is over
    assert scripted.log() == ["First commit"]


def test_a_resumed_accept_is_judged_by_todays_configuration(scripted: Fleet) -> None:
    """Break that fails it: let the daemon keep the configuration it started with."""
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    finish_a_task(scripted, "adam", "Unchecked")
    scripted.llmc("config", "set", "repo.validate", "false")
    scripted.llmc("accept", "adam", code=-signal.SIGKILL, LLMC_FAULT="accept.validate:before:kill")
    scripted.wake("adam")
    wait_until(lambda: scripted.events("accept_failed"))
    assert scripted.log() == ["First commit"]


def test_a_worker_that_start_added_is_looked_after(scripted: Fleet) -> None:
    """Break that fails it: wake the daemon with a name it does not know, and let it drop that."""
    scripted.set_up()
    scripted.up("--no-patrol")
    scripted.llmc("start", "--new", "--prompt", f"@sh echo n > n; git add n; {COMMIT} 'N'")
    scripted.wait("adam", "needs_review")


def test_up_starts_what_does_not_run_and_leaves_the_rest(scripted: Fleet) -> None:
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    daemon = scripted.daemon_pid()
    pids = [
        int(scripted.tmux("display-message", "-p", "-t", scripted.session(w), "#{pane_pid}"))
        for w in ("adam", "baker")
    ]
    os.kill(pids[0], signal.SIGKILL)
    scripted.wait("adam", "offline")
    again = scripted.llmc("up", "--detach")
    assert "adam: idle" in again.out
    assert scripted.daemon_pid() == daemon
    now = [
        int(scripted.tmux("display-message", "-p", "-t", scripted.session(w), "#{pane_pid}"))
        for w in ("adam", "baker")
    ]
    assert now[0] != pids[0]
    assert now[1] == pids[1]
    os.kill(now[0], signal.SIGKILL)
    scripted.wait("adam", "offline")


def test_down_needs_neither_configuration_nor_state(scripted: Fleet) -> None:
    """Break that fails it: load config.toml in `down`."""
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
    assert "has a root already" in scripted.llmc("init", code=3).err
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


def test_commits_on_another_branch_are_not_dropped_in_silence(scripted: Fleet) -> None:
    """Break that fails it: accept whatever HEAD is."""
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    first = f"echo x > x; git add x; {COMMIT} 'X'"
    second = f"git checkout -q -b other origin/main; echo y > y; git add y; {COMMIT} 'Y'"
    scripted.llmc("start", "--prompt", f"@sh {first}; {second}")
    scripted.wait("adam", "needs_review")
    assert "left its branch" in scripted.llmc("accept", "adam", code=3).err
    scripted.llmc(
        "message",
        "adam",
        "@sh git checkout -q llmc/adam; git -c user.name=W -c user.email=w@example.com cherry-pick other >/dev/null",
    )
    scripted.wait("adam", "working,needs_review")
    scripted.wait("adam", "needs_review")
    wait_until(lambda: scripted.client_status("adam") == "idle")
    scripted.llmc("accept", "adam")
    assert sorted(scripted.git("ls-tree", "--name-only", "main").splitlines()) == ["README.md", "x", "y"]


def test_a_message_during_an_accept_cancels_it(scripted: Fleet) -> None:
    scripted.set_up("adam", config={"repo.validate": f"touch {scripted.dir}/began; sleep 2"})
    scripted.up("--no-patrol")
    finish_a_task(scripted, "adam", "Busy")
    accept = scripted.spawn("accept", "adam")
    wait_until((scripted.dir / "began").exists)
    assert "accept of adam was cancelled" in scripted.llmc("message", "adam", "wait").err
    assert accept.wait(20) != 0
    assert "Busy" not in scripted.log()


def test_a_worktree_that_vanished_is_made_again(scripted: Fleet) -> None:
    import shutil

    scripted.set_up("adam")
    scripted.up("--no-patrol")
    shutil.rmtree(scripted.worktree("adam"))
    scripted.llmc("down")
    scripted.up("--no-patrol")
    finish_a_task(scripted, "adam", "Again")
    scripted.llmc("accept", "adam")
