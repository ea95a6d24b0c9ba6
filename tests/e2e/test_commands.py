"""The commands as users run them, on the scripted agent where the agent does not matter."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base.processes import is_alive
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    """A fleet with a daemon, shared by tests that leave it unchanged."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


def test_a_held_worker_is_left_alone(running: Fleet) -> None:
    """Break: leave `held` out of is_taken."""
    running.llmc("hold", "adam")
    assert running.status("adam")["held"]
    refused = running.llmc("message", "adam", "hello", "--json", code=3).json
    assert "on hold" in refused["reason"]
    running.llmc("release", "adam")
    assert running.llmc("message", "adam", "hello", "--json").json["outcome"] == "acknowledged"
    wait_until(lambda: running.client_status("adam") == "idle")


def test_peek_shows_the_screen(running: Fleet) -> None:
    running.llmc("message", "adam", "@say the answer is forty-two")
    wait_until(lambda: "forty-two" in running.screen("adam"))
    assert "forty-two" in running.llmc("peek", "adam").out
    assert len(running.llmc("peek", "adam", "-n", "3", "--json").json["lines"]) == 3
    # In a pipe it is as wide as a page, or as COLUMNS says; an unattached agent's screen is 500 wide.
    assert max(map(len, running.llmc("peek", "adam", "--json").json["lines"])) > 80
    for columns, most in (("", 80), ("60", 60)):
        shown = running.llmc("peek", "adam", COLUMNS=columns).out.splitlines()
        assert max(len(line) for line in shown if "─" in line) == most


def test_attach_needs_a_terminal(running: Fleet) -> None:
    """Break: leave it to tmux, which says only `open terminal failed: not a terminal`."""
    said = running.llmc("attach", "adam", code=2)
    assert said.err == (
        "llmc: cannot attach to adam: there is no terminal. "
        "Run the command in a terminal, or run `llmc peek adam` to see the screen.\n"
    )


@pytest.mark.req("1-011", "1-098", "1-099", "1-100")
def test_start_picks_an_idle_worker_and_never_a_busy_one(running: Fleet) -> None:
    running.llmc("start", "--worker", "adam", "--prompt", "@sleep 2\n@say slept")
    assert running.status("adam")["status"] == "working"
    running.llmc("start", "--worker", "adam", "--prompt", "@say more", code=3)
    picked = running.llmc(
        "start", "--json", "--prompt", f"@sh echo b > b.txt; git add b.txt; {COMMIT} 'B'"
    ).json
    assert picked["worker"] == "baker"
    running.wait("baker", "needs_review")
    running.llmc("accept", "baker")
    assert running.wait("adam", "needs_input")["reason"] == "stopped_clean"
    assert (
        running.llmc("message", "adam", f"@sh echo a > a.txt; git add a.txt; {COMMIT} 'A'", "--json").json[
            "outcome"
        ]
        == "acknowledged"
    )
    running.wait("adam", "needs_review")
    running.llmc("accept")
    running.llmc("wait", "--all-idle", "--timeout", "10")
    for limit in ("10", "10s"):  # on the fast path, and through click
        both = running.llmc("wait", "adam", "baker", "adam", "--status", "idle", "--timeout", limit)
        assert both.out == "adam is idle\nbaker is idle\n"


def test_wait_times_out_with_1(running: Fleet) -> None:
    result = running.llmc("wait", "adam", "--status", "working", "--timeout", "0.2", code=1)
    assert "timed out" in result.err


def test_events_follow_prints_as_things_happen(running: Fleet) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "llmc", "events", "--follow", "--json"],
        cwd=running.source,
        env=running.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    try:
        running.llmc("hold", "adam")
        running.llmc("release", "adam")
        for line in follower.stdout:
            if json.loads(line)["action"] == "released":
                break
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()


def test_events_since_and_by_worker(running: Fleet) -> None:
    known = running.events()
    assert running.printed_events()[: len(known)] == known
    newest = known[-1]
    since = running.llmc("events", "--json", "--since", str(newest["ts"])).out.splitlines()
    assert 1 <= len(since) < 10
    rows = [
        json.loads(line) for line in running.llmc("events", "--json", "--worker", "baker").out.splitlines()
    ]
    assert {row["worker"] for row in rows} == {"baker"}
    assert [row["seq"] for row in running.printed_events()] == list(range(1, newest["seq"] + 1))


@pytest.mark.req("1-095")
def test_a_worker_added_while_the_daemon_runs_is_started(running: Fleet) -> None:
    running.llmc("add", "charlie")
    wait_until(lambda: running.status("charlie")["status"] == "idle")


def test_start_new_adds_a_worker_when_none_is_idle(scripted: Fleet) -> None:
    scripted.set_up("adam")
    scripted.up()
    scripted.llmc("start", "--worker", "adam", "--prompt", "@sleep 20\n@say slept")
    assert "--new" in scripted.llmc("start", "--prompt", "@say hello", code=4).err
    assert scripted.llmc("start", "--new", "--json", "--prompt", "@say hello").json["worker"] == "baker"


def test_files_are_private(running: Fleet) -> None:
    """Break: create .llmc with the default mode."""
    for folder in (running.root / ".llmc", running.root / "logs"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        loose = [
            path
            for path in folder.rglob("*")
            if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077 and _is_ours(path)
        ]
        assert loose == []
    assert stat.S_IMODE((running.root / "state.json").stat().st_mode) == 0o600


def _is_ours(path: Path) -> bool:
    """Like the client, the scripted agent keeps its files below its configuration directory."""
    return "scripted" not in path.parts


@pytest.mark.req("1-092")
def test_up_in_the_foreground_ends_with_ctrl_c(scripted: Fleet) -> None:
    scripted.set_up("adam")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "llmc", "up"],
        cwd=scripted.source,
        env=scripted.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    for line in daemon.stdout:
        if line.startswith("ready"):
            break
    assert "already running" in scripted.llmc("up", "--detach").out
    agent = int(scripted.tmux("display-message", "-p", "-t", scripted.session("adam"), "#{pane_pid}"))
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(20) == 0
    daemon.stdout.close()
    assert not is_alive(agent)
    assert not (scripted.root / ".llmc/daemon.json").exists()
    assert scripted.status("adam")["status"] == "offline"


@pytest.mark.req("1-053")
def test_an_agent_that_never_gets_ready_is_named_with_the_fix(scripted: Fleet) -> None:
    scripted.set_up("adam", config={"defaults.ready_timeout_s": "1"})
    scripted.env["LLMC_SCRIPTED_START_DELAY"] = "30"
    out = scripted.llmc("up", "--detach", code=1).out
    assert "was not ready after" in out
    assert scripted.status("adam")["cause"] == "config"
    assert "llmc peek adam" in scripted.status("adam")["error_reason"]
    assert "llmc init --trust" not in scripted.llmc("status").out, "the client is slow, and trusts the root"


@pytest.mark.req("1-004", "1-061", "1-140", "2-030")
def test_a_crash_is_noticed_at_once_and_its_screen_kept(scripted: Fleet) -> None:
    """No patrol runs: tmux's own pane-died hook reports it. Break: leave out the pane-died hook."""
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    scripted.llmc("start", "--prompt", "@say last words\n@sleep 0.5\n@crash 7")
    view = scripted.wait("adam", "offline")
    assert view["cause"] == "crash"
    assert "code 7" in view["error_reason"]
    log = scripted.root / "logs/adam.log"
    # Right after the status; the prompt itself is in the log, too.
    wait_until(lambda: "last words" in log.read_text().partition("last lines of its screen")[2])
    assert json.loads((scripted.root / "state.json").read_text())["workers"]["adam"]["crash_count"] == 1
    result = scripted.llmc("wait", "adam", "--status", "needs_review", code=1)
    assert "code 7" in result.err


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_after_down_and_up_a_task_goes_on_with_its_conversation(fleet: Fleet) -> None:
    """Break: launch without --resume."""
    fleet.set_up("adam")
    fleet.up()
    fleet.llmc("start", "--prompt", "Remember: the word is xylophone.")
    fleet.wait("adam", "needs_input")
    fleet.llmc("down")
    assert fleet.status("adam")["status"] == "offline"
    fleet.up()
    after = fleet.wait("adam", "needs_input")
    assert after["reason"] == "restarted"
    assert fleet.events("session_started")[-1]["source"] == "resume"
    assert (
        fleet.llmc("message", "adam", f"@sh echo x > x.txt; git add x.txt; {COMMIT} 'X'", "--json").json[
            "outcome"
        ]
        == "acknowledged"
    )
    fleet.wait("adam", "needs_review")


def test_config_commands(scripted: Fleet) -> None:
    scripted.set_up()
    assert scripted.llmc("config", "get", "defaults.model").out.strip() == "opus"
    scripted.llmc("config", "set", "defaults.model", "sonnet")
    assert scripted.llmc("config", "get", "defaults.model", "--json").json == "sonnet"
    assert scripted.llmc("config", "check").out.strip().endswith("is valid")
    assert "properties" in scripted.llmc("config", "schema", "--json").out
    wrong = scripted.llmc("config", "set", "defaults.modle", "x", code=4)
    assert "defaults.model" in wrong.err or '"model"' in wrong.err
    text = (scripted.root / "config.toml").read_text()
    editor = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'a').write('[defaults]\\nmodel = 3\\n')\""
    scripted.llmc("config", "edit", code=1, EDITOR=editor)
    assert (scripted.root / "config.toml").read_text() == text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(running: Fleet, shell: str) -> None:
    assert "_LLMC_COMPLETE" in running.llmc("completion", shell).out


def test_completion_knows_commands_and_workers(running: Fleet) -> None:
    def complete(words: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("llmc"))],
            cwd=running.source,
            env={
                **running.env,
                "_LLMC_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(words.count(" ")),
            },
            capture_output=True,
            text=True,
        )
        return done.stdout

    assert "accept" in complete("llmc acc")
    assert "baker" in complete("llmc attach ba")


def test_every_command_has_help_with_an_example(running: Fleet) -> None:
    from llmc.cli.commands import COMMANDS

    listed = running.llmc("--help").out
    for name in COMMANDS:
        assert f"  {name} " in listed
        text = running.llmc(name, "--help").out
        assert f"llmc {name}" in text


def test_demo_runs_and_cleans_up(scripted: Fleet) -> None:
    """Break: let a task fail its check, or have no conflict between the two that change one line."""
    out = scripted.llmc("demo", timeout=120, TMPDIR=str(scripted.dir)).out
    assert "conflicts in greeter.py" in out
    assert "9 tasks landed" in out
    assert "Auto Mode: 3 workers, 9 tasks completed, 0 errors" in out
    assert "llmc up --auto" in out
    assert not list(scripted.dir.glob("llmc-demo-*"))


@pytest.mark.soak
def test_demo_by_hand(scripted: Fleet) -> None:
    out = scripted.llmc("demo", "--by-hand", timeout=120, TMPDIR=str(scripted.dir)).out
    assert "acknowledged" in out
    assert "Greet by name" in out
    assert "llmc init" in out
    assert not list(scripted.dir.glob("llmc-demo-*"))


@pytest.mark.soak
def test_demo_in_a_browser_has_a_change_to_review(scripted: Fleet) -> None:
    """Even after every task of the plan has landed; Ctrl-C ends it and leaves nothing.

    Break: give the worker a task of the plan: an auto worker lands it first.
    """
    argv = [sys.executable, "-m", "llmc", "demo", "--web"]
    env = {**scripted.env, "TMPDIR": str(scripted.dir)}
    demo = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert demo.stdout is not None
    try:
        said = ""
        while "/login?link=" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        (root,) = map(str, scripted.dir.glob("llmc-demo-*/root"))
        wait_until(
            lambda: (
                {
                    task["state"]
                    for task in scripted.llmc("--root", root, "tasks", "list", "--json").json["tasks"]
                }
                == {"completed"}
            ),
            60,
        )
        assert "+def good_night" in scripted.llmc("--root", root, "review", "adam", "--interface", "diff").out
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
    assert "Now try your own repository" in rest
    assert not list(scripted.dir.glob("llmc-demo-*"))


def test_logs_of_the_daemon_and_of_a_worker(running: Fleet) -> None:
    assert "action=daemon_started" in running.llmc("logs").out
    assert "daemon_started" in [
        json.loads(row)["action"] for row in running.llmc("logs", "--json").out.splitlines()
    ]
    assert "only for the daemon log" in running.llmc("logs", "auto", "--json", code=2).err
    assert running.llmc("logs", "-n", "1").out.count("\n") == 1
    assert "no worker" in running.llmc("logs", "nobody", code=4).err
    (running.root / "logs/adam.log").write_text("one\ntwo\n")
    assert running.llmc("logs", "adam", "-n", "1").out == "two\n"


def test_console_is_a_shell_in_the_worktree(running: Fleet) -> None:
    out = running.llmc("console", "adam", stdin="pwd; git branch --show-current; exit\n", SHELL="/bin/sh").out
    assert out.splitlines() == [str(running.worktree("adam")), "llmc/adam"]
