"""All processes of a launch are ended, even those that start while others are being ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmc import launch
from llmc.base import processes
from llmc.base.tmux import Tmux
from llmc.config.model import Config, Repo
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo.project import Project
from llmc.sandbox import probe
from llmc.sessions import leftovers
from tests.support.contained import needs_bubblewrap
from tests.support.waiting import wait_until


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = Root(tmp_path)
    store = Store(root)
    store.create()
    return Project(root, Config(repo=Repo(source=str(tmp_path))), store, Tmux("none"))


def test_one_that_starts_another_as_it_is_ended(project: Project) -> None:
    """Break: check once. What the trap starts did not exist at the check, and would keep running."""
    instance = os.urandom(6).hex()
    env = {"PATH": os.environ["PATH"], "LLMC_INSTANCE": instance, "CLAUDE_CODE_CHILD_SESSION": "1"}
    script = "trap 'setsid sleep 300 & exit' TERM; while :; do sleep 5; done"
    first = subprocess.Popen(["sh", "-c", script], env=env)
    wait_until(lambda: len(leftovers.of(instance)) == 2)  # it sleeps, so the trap is set
    leftovers.end_launch(project, "adam", instance)
    first.wait(10)
    assert leftovers.of(instance) == []


#: an agent that adopts orphans, as launch.py sets it up: with a helper, and commands in their own sessions
AGENT = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
helper = subprocess.Popen(["/bin/sleep", "301"], env={})
subprocess.run(["/bin/sh", "-c", sys.argv[1]], start_new_session=True)
helper.wait()
"""
#: its parents exit, so it is an orphan in its own session
HIDES = "(env -i /usr/bin/setsid /bin/sleep 302 &) & (env -i /bin/sleep 303 &)"


def commands(instance: str) -> list[str]:
    return sorted(processes.command_of(process.pid) for process in leftovers.of(instance))


def test_one_that_cleared_its_environment(project: Project) -> None:
    """Break: no `strayed` in agents/kinds.py: it keeps writing in the next task.
    The agent's own processes stay.
    """
    instance = os.urandom(6).hex()
    env = {"PATH": os.environ["PATH"], "LLMC_INSTANCE": instance}
    agent = subprocess.Popen([sys.executable, "-c", AGENT, HIDES], env=env, start_new_session=True)
    try:
        wait_until(lambda: commands(instance) == ["/bin/sleep 302", "/bin/sleep 303"])
        leftovers.end_launch(project, "adam", instance)
        assert commands(instance) == []
        assert agent.poll() is None
    finally:
        os.killpg(agent.pid, 9)
        agent.wait()


def test_the_proxy_of_a_contained_agent_is_none() -> None:
    """Even where bubblewrap's own processes are unreadable.

    Break: count the holder among those that adopt.
    """
    instance = os.urandom(6).hex()
    script = "import subprocess; subprocess.run(['/bin/sleep', '305'], env={}, start_new_session=True)"
    env = {"PATH": os.environ["PATH"], "LLMC_INSTANCE": instance}
    holder = subprocess.Popen(
        [sys.executable, "-c", script, launch.__file__], env=env, start_new_session=True
    )
    try:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        wait_until(lambda: children.read_text() != "" and is_in_its_own_session(int(children.read_text())))
        assert leftovers.of(instance) == []
    finally:
        for pid in [*map(int, children.read_text().split()), holder.pid]:
            os.kill(pid, 9)
        holder.wait()


def is_in_its_own_session(pid: int) -> bool:
    return os.getsid(pid) == pid


@needs_bubblewrap
def test_the_box_of_an_agent_that_ended(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no `_end_box`: a process that no mark finds may write while its worktree is moved."""
    monkeypatch.setattr(leftovers, "END_GRACE_S", 0.1)
    instance = os.urandom(6).hex()
    env = {"PATH": os.environ["PATH"], "LLMC_INSTANCE": instance}
    bubblewrap = probe.bubblewrap()
    assert bubblewrap is not None
    argv = [bubblewrap, "--ro-bind", "/", "/", "--unshare-pid", "--die-with-parent", "--"]
    box = subprocess.Popen([*argv, "/usr/bin/env", "-i", "/bin/sh", "-c", "sleep 304"], env=env)
    wait_until(lambda: len(processes.marked("LLMC_INSTANCE", instance)) == 2)
    inside = [process for process in processes.marked("LLMC_INSTANCE", instance) if process.pid != box.pid]
    leftovers.end_launch(project, "adam", instance)
    assert not any(process.is_alive for process in inside)
    box.wait(10)
