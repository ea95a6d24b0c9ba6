"""Every drill, as users run it: the failure is real, it is noticed in time, and nothing is lost."""

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmc.hook_client import PORTABLE
from llmc.rehearsal.drills.model import Kind
from llmc.rehearsal.drills.table import DRILLS
from tests.support import zygote
from tests.support.fleet import SANDBOX, Fleet
from tests.support.waiting import wait_until

#: the drills of the failure tables; the others are about goals, and the night
ROWS = [drill for drill in DRILLS.values() if drill.row]
#: the lines of docs/requirements/drills.md are in the order of the rows
_IDS = {row: f"0-{201 + index}" for index, row in enumerate(dict.fromkeys(drill.row for drill in ROWS))}
#: the one in `make test`, which shows that drills work; the rest run in `make checklist` and `make drills`
_QUICK = ("agent-killed",)


def _marks(name: str, row: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.req(_IDS[row]), *([] if name in _QUICK else [pytest.mark.drill])]


def drill(fleet: Fleet, name: str, *options: str) -> dict[str, Any]:
    env = {"TMPDIR": str(fleet.dir), zygote.COLD: "1"}  # a drill does not only start daemons
    done = fleet.llmc("drill", name, "--sandbox", SANDBOX, *options, "--json", code=None, timeout=600, **env)
    (report,) = json.loads(done.out)
    if report["skipped"]:
        pytest.skip(report["skipped"])
    return dict(report)


@pytest.mark.parametrize(
    "name", [pytest.param(drill.name, marks=_marks(drill.name, drill.row)) for drill in ROWS]
)
def test_a_drill(scripted: Fleet, name: str) -> None:
    """Break: whatever the drill is about; each was seen to fail without its part of llmc."""
    report = drill(scripted, name)
    assert report["outcome"] == "passed", json.dumps(report, indent=1)
    assert report["lost"] == []


@pytest.mark.soak
@pytest.mark.timeout(660)
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_night_in_minutes(scripted: Fleet, seed: int) -> None:
    """Break: anything that loses a task, lands one twice, or ends the supervisor for a fixable fault."""
    report = drill(scripted, "night", "--seed", str(seed), "--minutes", "4")
    assert report["outcome"] == "passed", json.dumps(report, indent=1)


#: who fixes each row, according to the document; and the drills that show llmc fixing it by itself
_BY_THE_DOCUMENT = {
    **dict.fromkeys(("3", "5", "9", "13", "24"), Kind.AUTO),
    "15a": Kind.AUTO_THEN_AI,
    **dict.fromkeys(("1", "2", "6", "7", "8", "10", "11", "12", "14", "15", "18"), Kind.AI),
    **dict.fromkeys(("20", "20a", "21", "22", "23", "27"), Kind.AI),
    **dict.fromkeys(("4", "16", "17", "19", "25", "26"), Kind.HUMAN),
}
_BY_ITSELF = ("4", "7", "8", "18", "19")


@pytest.mark.req("0-230")
def test_there_is_one_for_each_row() -> None:
    """The drill itself compares who should fix it with what happened (`_kind_problems`).

    Break: leave a row out, or change the `kind` of a drill, with or without `instead_of`.
    """
    kinds: dict[str, set[Kind]] = {}
    for one in ROWS:
        kinds.setdefault(one.row, set()).add(one.kind)
        assert (one.instead_of or one.kind) is _BY_THE_DOCUMENT[one.row]
        assert bool(one.because) == (one.instead_of is not None) == (one.row in _BY_ITSELF)
    assert kinds == {
        row: {Kind.AUTO if row in _BY_ITSELF else kind} for row, kind in _BY_THE_DOCUMENT.items()
    }
    assert Counter(_BY_THE_DOCUMENT.values()) == {"AUTO": 5, "AUTO->AI": 1, "AI": 17, "HUMAN": 6}
    found = Counter(kind for (kind,) in kinds.values())
    assert found == {"AUTO": 10, "AUTO->AI": 1, "AI": 14, "HUMAN": 4}


def test_the_command(scripted: Fleet) -> None:
    """Break: run everything when no drill is named, accept an unknown name, or start without containment."""
    listed = scripted.llmc("drill").out
    assert all(name in listed for name in DRILLS)
    assert "Run `llmc drill` to list the drills." in scripted.llmc("drill", "nonsense", code=4).err
    assert "pass drill names or --all, not both" in scripted.llmc("drill", "conflict", "--all", code=2).err
    assert [row["name"] for row in scripted.llmc("drill", "--json").json] == list(DRILLS)
    refused = scripted.llmc("drill", "agent-killed", "--sandbox", "on", code=1, PATH="/nonexistent").err
    missing = "agents cannot be contained on this system" if PORTABLE else "bubblewrap is not installed"
    assert f"cannot contain the agents: {missing}" in refused
    assert "llmc drill --sandbox off agent-killed\n" in refused, "the command does what was asked for"
    refused = scripted.llmc("drill", "--all", "--sandbox", "on", code=1, PATH="/nonexistent").err
    assert "llmc drill --sandbox off --all\n" in refused


@pytest.mark.soak
def test_ctrl_c_leaves_nothing_running(scripted: Fleet) -> None:
    """Break: wait for the drill, or end it but not its fleet."""
    env = {**scripted.env, "TMPDIR": str(scripted.dir)}
    argv = [sys.executable, "-m", "llmc", "drill", "agent-hangs", "--sandbox", SANDBOX]
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(scripted.dir.glob("llmc-drill-*/marks/never.reached")), 60)
    (directory,) = scripted.dir.glob("llmc-drill-*")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not directory.exists()
    wait_until(lambda: not mentioning(str(directory)), 5)


def mentioning(words: str) -> list[str]:
    """The processes whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if words in line else []
    return found
