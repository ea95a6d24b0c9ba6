"""Fallbacks that need nothing specific to Linux: what they report about real processes, files and sockets."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmc.base import processes, wake
from tests.support.waiting import wait_until

#: what both ways report about a process, its ancestors and its working directory
ASK = """
import json, os, sys
from llmc.base import callers, locks, panes, processes as p
pid, place, lock = int(sys.argv[1]), sys.argv[2], sys.argv[3]
from pathlib import Path
print(json.dumps({
    "alive": p.is_alive(pid), "gone": p.is_alive(2**22 - 1), "name": p.name_of(pid), "words": p.command_of(pid),
    "ancestors": p.ancestors(pid), "works_in": pid in p.works_in(place), "waits": p.waits_for_a_turn(pid),
    "marked": [one.pid for one in p.marked("LLMC_INSTANCE", "portable-1")],
    "environment": p.environment(pid).get("LLMC_INSTANCE"), "instance": panes.instance_of(pid),
    "no_instance": panes.instance_of(2**22 - 1), "same": p.identify(pid, parent=os.getppid()) is not None,
    "sessions": [kin[2] for kin in p.lineage(pid)],
    "holds": [locks.holds(pid, Path(lock)), locks.holds(os.getpid(), Path(lock))],
    "terminal": [kin[3] != 0 for kin in p.lineage(pid)], "marks": [str(kin[6]) for kin in p.lineage(pid)],
}))
"""
HOLD = (
    "import sys, time; from pathlib import Path; from llmc.base.locks import hold_forever\n"
    "hold_forever(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
)


def test_both_ways_say_the_same_of_processes(tmp_path: Path) -> None:
    """Break: leave the marks out of portable.lineage, or treat another user's process as unmarked."""
    lock = tmp_path / "daemon.lock"
    env = {**os.environ, "LLMC_INSTANCE": "portable-1"}
    argv = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            said = []
            for switch in ("", "1"):
                ask = [sys.executable, "-c", ASK, str(child.pid), str(tmp_path), str(lock)]
                done = subprocess.run(
                    ask, env={**os.environ, "LLMC_PORTABLE": switch}, capture_output=True, check=True
                )
                said.append(json.loads(done.stdout))
        finally:
            child.kill()
    assert said[0] == said[1]
    assert said[0]["marked"] == [child.pid]
    assert said[0]["holds"] == [True, False]
    assert said[0]["works_in"]
    assert said[0]["ancestors"][0] == os.getpid()


def test_a_directory_that_is_looked_at_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: compare only names: a rewritten file would go unnoticed."""
    monkeypatch.setattr(wake, "PORTABLE", True)
    monkeypatch.setattr(wake, "POLL_S", 0.005)
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "1.json").write_text("{}")
    watch = wake.open_watch(folder)
    seen: set[str] = set()

    def sees(name: str) -> bool:
        seen.update(watch.changed() or ())
        return name in seen

    try:
        assert watch.changed() == set()
        (folder / "2.json").write_text("{}")
        wait_until(lambda: sees("2.json"))
        (folder / "1.json").write_text('{"more": 1}')
        wait_until(lambda: sees("1.json"))
        folder.rename(tmp_path / "elsewhere")
        wait_until(lambda: watch.changed() is None)
    finally:
        watch.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "watch"]


def test_a_wake_up_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: drop wake-ups without credentials, although the system has none."""
    monkeypatch.setattr(wake, "PORTABLE", True)
    with wake.listen(tmp_path / "s") as sock:
        wake.wake(tmp_path / "s", "adam")
        assert wake.receive(sock) == "adam"
        assert wake.receive(sock) is None
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0


def test_a_signal_without_a_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        process = processes.identify(child.pid)
        assert process is not None
        monkeypatch.setattr(processes, "PORTABLE", True)
        monkeypatch.setattr(processes, "portable", processes, raising=False)
        monkeypatch.setattr(processes, "_state", lambda pid: ("S", process.ticks))
        assert processes.send(process, 9)
        child.wait(10)
