"""A contained agent works like any other: tasks, hooks, keys, exits."""

import os
import pty
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from llmc.base.processes import Process, ancestors, identify, is_alive
from llmc.repo.own_repos import path_of
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import Fleet, in_soak
from tests.support.waiting import wait_until

pytestmark = needs_bubblewrap

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
CONTAINED = {"defaults.sandbox": "on"}
#: what llmc itself keeps in a home
LLMC_S_OWN = ["roots.json", "roots.json.lock"]


def held_by(fleet: Fleet, worker: str = "adam") -> tuple[int, int]:
    """The pid of the pane, and of the agent inside it."""
    pane = int(fleet.tmux("display-message", "-p", "-t", fleet.session(worker), "#{pane_pid}").strip())
    agent, _, _ = (fleet.root / f".llmc/home/{worker}.pid").read_text().split()
    return pane, int(agent)


def test_a_task_becomes_one_commit_and_the_next_one_too(fleet: Fleet) -> None:
    """On both agents. Break: no `.claude.json` in agents/claude/home.py: the client stops at its dialogs."""
    fleet.set_up("adam", config=CONTAINED)
    fleet.up()
    assert fleet.record("adam")["contained"]
    work = f"@sh echo hello > new.txt && git add new.txt && {COMMIT} 'Add new.txt'\n@say done"
    assert fleet.llmc("start", "--json", "--prompt", work).json["outcome"] == "acknowledged"
    assert fleet.wait("adam", "needs_review")["commit_sha"]
    assert "+hello" in fleet.llmc("review", "adam").out
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["Add new.txt", "First commit"]
    fetch = "git fetch -q origin && git merge-base --is-ancestor origin/main HEAD"
    fleet.llmc("start", "--prompt", f"@sh {fetch} && echo 2 > n && git add n && {COMMIT} 'Number 2'")
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["Number 2", "Add new.txt", "First commit"]
    assert fleet.client_status("adam") == "idle"
    # Its conversations are in its own home, and nothing of them is in the user's.
    record = fleet.record("adam")
    home = fleet.root / ".llmc/home/adam"
    assert record["config_dir"] == str(home)
    assert record["transcript_path"].startswith(f"{home}/projects/")
    assert not list(fleet.config_dir.glob("projects/*/*"))
    assert not list(fleet.config_dir.glob("sessions/*.json"))
    assert sorted(path.name for path in fleet.home.rglob("*") if path.is_file()) == LLMC_S_OWN
    fleet.llmc("down")
    assert not is_alive(held_by_file(home))


def held_by_file(home: Path) -> int:
    return int(home.with_name(f"{home.name}.pid").read_text().split()[0])


@pytest.mark.soak
def test_the_end_of_a_turn_is_seen_at_once_also_by_a_daemon_that_started_under_it(scripted: Fleet) -> None:
    """Break: mount the socket without its directory in sessions/containing.py: only patrol sees it."""
    scripted.set_up("adam", config={**CONTAINED, "defaults.patrol_interval_secs": "600"})
    scripted.up()
    scripted.llmc("start", "--prompt", f"@sh sleep 4; echo x > x; git add x; {COMMIT} 'X'")
    scripted.wait("adam", "working")
    scripted.kill_daemon()
    scripted.up()
    wait_until(lambda: scripted.record("adam")["status"] == "needs_review", 20)
    (ended,) = [row for row in scripted.events("status_changed") if row["to"] == "needs_review"]
    committed = int(scripted.git("log", "-1", "--format=%ct", cwd=scripted.worktree("adam")))
    assert ended["ts"] - committed < 2.5


def test_init_finds_the_tools_of_the_repository(scripted: Fleet) -> None:
    """And shows them to the user. Break: no `settle_presets` in cli/setting_up.py."""
    scripted.plant({"pyproject.toml": "", "package.json": "{}"})
    (scripted.home / ".npmrc").write_text("registry=https://user:secret@npm.example/\n")
    said = scripted.llmc("init", "--target", str(scripted.root)).out
    hosts = "pypi.org, files.pythonhosted.org, registry.npmjs.org, registry.yarnpkg.com, npm.example"
    assert f"tools for contained agents: pip, npm (sandbox.presets; downloads from {hosts})" in said
    assert '\npresets = ["pip", "npm"]\n' in (scripted.root / "config.toml").read_text()


@pytest.mark.soak
def test_esc_interrupts_a_turn(contained: Fleet) -> None:
    contained.llmc("start", "--worker", "adam", "--prompt", "@say begun\n@sh sleep 60\n@say never said")
    wait_until(lambda: "begun" in contained.screen("adam") and contained.client_status("adam") == "busy")
    contained.tmux("send-keys", "-t", contained.session("adam"), "Escape")
    assert contained.wait("adam", "needs_input")["reason"] == "interrupted"


def test_a_new_size_reaches_the_program(contained: Fleet) -> None:
    """Break: `--new-session` in sandbox/rules.py: the program is not in the terminal's foreground."""
    before = max(len(line) for line in contained.screen("adam").splitlines())
    contained.tmux("resize-window", "-t", contained.session("adam"), "-x", "90", "-y", "30")
    wait_until(lambda: max(len(line) for line in contained.screen("adam").splitlines()) == 90)
    contained.tmux("resize-window", "-t", contained.session("adam"), "-x", str(before), "-y", "50")


@pytest.mark.soak
def test_keys_end_it_with_its_own_exit_code(scripted: Fleet) -> None:
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    pane, agent = held_by(scripted)
    for _ in range(2):
        scripted.tmux("send-keys", "-t", scripted.session("adam"), "C-c")
    wait_until(lambda: not is_alive(agent) and not is_alive(pane))
    scripted.wait("adam", "offline")
    (ended,) = scripted.events("agent_exited")
    assert ended["exit_code"] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, *in_soak(signal.SIGTERM)])
def test_a_killed_agent_is_a_crash_with_its_signal(scripted: Fleet, number: signal.Signals) -> None:
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    scripted.llmc("start", "--prompt", "@sh setsid sleep 300 & sleep 300")
    scripted.wait("adam", "working")
    pane, agent = held_by(scripted)
    os.kill(agent if number is signal.SIGKILL else pane, number)
    wait_until(lambda: not is_alive(pane))
    scripted.wait("adam", "offline")
    (ended,) = scripted.events("agent_exited")
    assert ended["exit_code"] == 128 + number


def test_one_that_cannot_be_contained_does_not_start(scripted: Fleet) -> None:
    """Without bubblewrap, `on` refuses; `auto` continues and says so."""
    scripted.set_up("adam", config=CONTAINED)
    programs = scripted.dir / "bin"
    programs.mkdir()
    for folder in reversed(os.environ["PATH"].split(":")):
        for path in Path(folder).glob("*") if Path(folder).is_dir() else ():
            link = programs / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    (programs / "bwrap").unlink()
    scripted.env["PATH"] = str(programs)
    refused = scripted.llmc("up", "--detach", code=None)
    assert refused.code != 0
    assert "bubblewrap is not installed" in refused.out + refused.err
    scripted.llmc("down")
    found = scripted.llmc("doctor", code=None).out
    assert "apt-get install bubblewrap" in found
    scripted.configure({"defaults.sandbox": "auto"})
    said = scripted.llmc("up", "--detach")
    assert "warning: agents are not contained: bubblewrap is not installed" in said.out + said.err
    assert scripted.record("adam")["contained"] is False
    assert "its agent is not contained: bubblewrap is not installed" in scripted.llmc("status").out
    (item,) = [
        item for item in scripted.llmc("status", "--json").json["attention"] if item["kind"] == "uncontained"
    ]
    assert item["severity"] == "notice"


def test_workers_move_to_a_repository_of_their_own_and_back(scripted: Fleet) -> None:
    """At the next launch or reset, with all they have. Break: no copy of git's entry in repo/own_repos.py."""
    scripted.set_up("adam", "eve")
    scripted.up()
    scripted.llmc("start", "--worker", "adam", "--prompt", f"@sh echo 1 > one; git add one; {COMMIT} 'One'")
    scripted.wait("adam", "needs_review")
    worktree = scripted.worktree("adam")
    scripted.llmc("down")
    (worktree / "staged").write_text("staged\n")
    scripted.git("add", "staged", cwd=worktree)
    (worktree / "loose").write_text("loose\n")
    scripted.git("checkout", "-q", "-b", "aside", cwd=worktree)
    scripted.git("checkout", "-q", "llmc/adam", cwd=worktree)
    before = seen(scripted, worktree)
    own = path_of(scripted.root, "adam")
    for setting in ("on", "off", "on"):
        scripted.configure({"defaults.sandbox": setting})
        said = scripted.llmc("up", "--detach").out
        assert scripted.record("adam")["contained"] is (setting == "on"), said
        assert scripted.record("adam")["status"] != "offline"
        assert own.is_dir() is (setting == "on")
        assert seen(scripted, worktree) == before
        scripted.llmc("down")
    # A reset moves a worker whose agent is running.
    scripted.configure({"defaults.sandbox": "off"})
    scripted.up()
    scripted.configure({"defaults.sandbox": "on"})
    scripted.llmc("reset", "eve")
    assert scripted.record("eve")["contained"] is True
    done = scripted.llmc("nuke", "adam", "--yes", "--json").json
    assert scripted.git("log", "-1", "--format=%s", f"{done['ref']}^1", cwd=scripted.root) == "One"
    assert scripted.git("show", f"{done['ref']}:staged", cwd=scripted.root) == "staged"
    assert not own.exists()


def seen(fleet: Fleet, worktree: Path) -> tuple[str, str, str]:
    """What git reports about a worktree: branch, files, commits, and staged changes."""
    return (
        fleet.git("status", "--porcelain=v2", "--branch", cwd=worktree),
        fleet.git("log", "--format=%s", cwd=worktree),
        fleet.git("diff", "--cached", cwd=worktree),
    )


def test_a_conflict_is_resolved_inside(contained: Fleet) -> None:
    """The rebase that llmc started continues in the same repository."""
    resolve = "printf 'both\\n' > a.txt; git add a.txt; git -c core.editor=true -c user.name=W -c user.email=w@x rebase --continue"
    contained.llmc(
        "start",
        *("--worker", "adam", "--prompt"),
        f"@sh echo mine > a.txt; git add a.txt; {COMMIT} 'Mine'\n@on-conflict {resolve}",
    )
    contained.wait("adam", "needs_review")
    contained.commit("a.txt", "main\n", "Theirs")
    contained.llmc("accept", "adam", code=1)
    assert contained.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    contained.llmc("accept", "adam")
    assert (contained.source / "a.txt").read_text() == "both\n"


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("on", "contain.move:before"),
        pytest.param("on", "contain.move:after", marks=pytest.mark.soak),
        pytest.param("off", "contain.pin:before", marks=pytest.mark.soak),
        pytest.param("off", "contain.pin:after", marks=pytest.mark.soak),
        pytest.param("off", "contain.move:before", marks=pytest.mark.soak),
        ("off", "contain.move:after"),
    ],
)
def test_killed_while_it_moves(scripted: Fleet, setting: str, fault: str) -> None:
    """The next `up` finishes the move, and no work is lost."""
    first = "off" if setting == "on" else "on"
    scripted.set_up("adam", config={"defaults.sandbox": first})
    scripted.up()
    scripted.llmc("start", "--prompt", f"@sh echo 1 > one; git add one; {COMMIT} 'One'; echo 2 > two")
    wait_until(lambda: scripted.record("adam")["status"] not in ("idle", "working"))
    scripted.llmc("down")
    worktree = scripted.worktree("adam")
    before = seen(scripted, worktree)
    scripted.configure({"defaults.sandbox": setting})
    scripted.llmc("up", "--detach", code=None, LLMC_FAULT=f"{fault}:kill")
    wait_until(lambda: not scripted.has_daemon())
    scripted.up()
    assert scripted.record("adam")["contained"] is (setting == "on")
    assert path_of(scripted.root, "adam").is_dir() is (setting == "on")
    assert seen(scripted, worktree) == before


@pytest.mark.soak
def test_a_lost_state_is_rebuilt(scripted: Fleet) -> None:
    """Break: start the holder without the marks of its launch: its agent would belong to no worker."""
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    scripted.llmc("start", "--prompt", f"@sh echo 1 > one; git add one; {COMMIT} 'One'")
    scripted.wait("adam", "needs_review")
    before = scripted.record("adam")
    scripted.kill_daemon()
    (scripted.root / "state.json").unlink()
    (scripted.root / "state.json.bak").unlink()
    scripted.llmc("doctor", "--rebuild", "--yes")
    after = scripted.record("adam")
    for name in ("status", "instance", "config_dir", "contained", "transcript_path", "commit_sha"):
        assert after[name] == before[name], name
    scripted.llmc("accept", "adam")
    assert scripted.log() == ["One", "First commit"]


@pytest.mark.soak
def test_a_person_attaches_and_types(scripted: Fleet) -> None:
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    with attached(scripted) as keys:
        keys(b"@sh echo typed > typed.txt\r")
        wait_until((scripted.worktree("adam") / "typed.txt").exists)
        keys(b"\x02d")


@contextmanager
def attached(fleet: Fleet) -> Iterator[Callable[[bytes], object]]:
    """A terminal with `llmc attach adam`; call the result with keys to type them."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(
            sys.executable,
            [sys.executable, "-m", "llmc", "--root", str(fleet.root), "attach", "adam"],
            fleet.env,
        )
    reader = threading.Thread(target=drain, args=(master,))
    reader.start()
    try:
        wait_until(lambda: fleet.status("adam")["attached"])
        yield lambda data: os.write(master, data)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        reader.join(5)
        os.close(master)


def drain(master: int) -> None:
    with suppress(OSError):  # the end of a terminal is an error
        while os.read(master, 65536):
            pass


#: clears its environment, leaves its session, and loses its parent: no mark finds it
HIDES = "(env -i /usr/bin/setsid /bin/sh -c 'while :; do echo x > hidden.txt; sleep 0.02; done' &)"


def in_the_box(fleet: Fleet, worker: str) -> list[Process]:
    """Every process beside and below a worker's agent: all descend from bubblewrap's process 1."""
    _, agent = held_by(fleet, worker)
    first = ancestors(agent)[0]
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    found = [identify(pid) for pid in pids if first in ancestors(pid)]
    return [process for process in found if process is not None]


@pytest.mark.soak
@pytest.mark.parametrize("how", ["reset", "down", "nuke", "kill"])
def test_nothing_that_it_hid_lives_on(scripted: Fleet, how: str) -> None:
    """Break: no `strayed` in agents/kinds.py: it writes into the worktree of the next task."""
    scripted.set_up("adam", config=CONTAINED)
    scripted.up()
    scripted.llmc("start", "--prompt", f"@sh {HIDES}\n@say hidden")
    hidden = scripted.worktree("adam") / "hidden.txt"
    wait_until(hidden.exists)
    scripted.wait("adam", "needs_input")
    before = in_the_box(scripted, "adam")
    assert len(before) >= 2  # the agent, and what it hid
    pane, agent = held_by(scripted)
    if how == "kill":
        os.kill(pane, signal.SIGKILL)
        scripted.wait("adam", "offline")
    else:
        scripted.llmc(*{"down": ["down"], "nuke": ["nuke", "adam", "--yes"]}.get(how, [how, "adam"]))
    assert [process for process in before if process.is_alive and process.pid != agent] == []
    assert hidden.exists() == (how in ("down", "kill"))
