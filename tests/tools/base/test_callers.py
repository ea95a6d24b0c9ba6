"""Who runs a command, by the pane that tmux knows: even if the agent's own process has no mark."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc import launch
from llmc.hook_client import PORTABLE
from tests.support.waiting import wait_until

WHO = """
import os, sys
from llmc.sessions.caller import caller
who = caller()
open(sys.argv[1] + ".tmp", "w").write(f"{who.kind} {who.name} {who.instance} {who.why}")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
"""


@pytest.fixture
def server() -> Iterator[list[str]]:
    """A tmux server as llmc starts it."""
    name = f"llmc-test-callers-{os.getpid()}"
    env = {"PATH": os.environ["PATH"], "HOME": "/", "TERM": "screen-256color"}
    argv = [
        "env",
        "-i",
        *(f"{key}={value}" for key, value in env.items()),
        "tmux",
        "-L",
        name,
        "-f",
        "/dev/null",
    ]
    subprocess.run([*argv, "new-session", "-d", "-s", "x", "sleep 300"], check=True)
    yield argv
    subprocess.run([*argv, "kill-server"], check=True)
    Path(f"/tmp/tmux-{os.getuid()}", name).unlink(missing_ok=True)


def launched(tmp_path: Path, name: str, answer: Path, **env: str) -> list[str]:
    """What sessions.py gives to a pane, for an agent that asks who it is."""
    spec = tmp_path / f"{name}.0123456789ab.launch.json"
    argv = [sys.executable, "-c", WHO, str(answer)]
    spec.write_text(json.dumps({"argv": argv, "cwd": "/", "env": {"PATH": os.environ["PATH"], **env}}))
    return [sys.executable, "-I", "-S", launch.__file__, str(spec)]


def said(answer: Path) -> str:
    wait_until(answer.exists)
    return answer.read_text().strip()


def test_an_agent_without_marks_is_known_by_its_pane(server: list[str], tmp_path: Path) -> None:
    """A wrapper may clear the variables. Break: do not check the pane in sessions/caller.py."""
    answer = tmp_path / "answer"
    subprocess.run([*server, "new-window", "-d", *launched(tmp_path, "adam", answer)], check=True)
    assert said(answer) == "worker adam 0123456789ab"


def test_the_supervisors_agent_is_known_by_its_pane(server: list[str], tmp_path: Path) -> None:
    """Break: check only the variable; or accept any pane."""
    own, other, window = tmp_path / "own", tmp_path / "other", tmp_path / "window"
    marks = {"LLMC_WORKER": "overseer", "LLMC_INSTANCE": "0123456789ab"}
    subprocess.run([*server, "new-window", "-d", *launched(tmp_path, "overseer", own, **marks)], check=True)
    assert said(own) == "overseer overseer 0123456789ab"
    subprocess.run([*server, "new-window", "-d", *launched(tmp_path, "adam", other, **marks)], check=True)
    assert said(other).startswith("unknown")
    words = [f"{key}={value}" for key, value in marks.items()]
    argv = ["env", *words, sys.executable, "-c", WHO, str(window)]
    subprocess.run([*server, "new-window", "-d", *argv], check=True)
    assert said(window).startswith("unknown")


def test_a_window_is_a_persons_and_a_job_is_nobodys(server: list[str], tmp_path: Path) -> None:
    """Break: ignore is_job; or treat every process below the server as an agent's."""
    window, job = tmp_path / "window", tmp_path / "job"
    (tmp_path / "who.py").write_text(WHO)
    subprocess.run(
        [*server, "new-window", "-d", sys.executable, str(tmp_path / "who.py"), str(window)], check=True
    )
    assert said(window) == "person"
    subprocess.run([*server, "run-shell", "-b", f"{sys.executable} {tmp_path}/who.py {job}"], check=True)
    assert said(job).startswith("unknown   the command was started by tmux itself")


@pytest.mark.skipif(PORTABLE, reason="only on Linux")
def test_what_an_agent_leaves_behind_stays_below_it(tmp_path: Path) -> None:
    """Break: no prctl in launch.py."""
    answer = tmp_path / "answer"
    waits = "while [ ! -e $0 ]; do sleep 0.05; done"
    (tmp_path / "left.py").write_text(
        "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nparent = os.getpid()\nif os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.01)\n" + WHO
    )
    script = f"env -i PATH=$PATH {sys.executable} {tmp_path}/left.py $0; {waits}"
    spec = tmp_path / "adam.0123456789ab.launch.json"
    marks = {"PATH": os.environ["PATH"], "LLMC_WORKER": "adam", "LLMC_INSTANCE": "0123456789ab"}
    spec.write_text(json.dumps({"argv": ["/bin/sh", "-c", script, str(answer)], "cwd": "/", "env": marks}))
    subprocess.run([sys.executable, "-I", "-S", launch.__file__, str(spec)], check=True, timeout=60)
    assert said(answer) == "worker adam 0123456789ab"
