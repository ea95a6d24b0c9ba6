"""llmc uninstall: nothing of a root is left, the source is untouched, and no work is lost silently."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base.processes import is_alive
from llmc.config.root_layout import tmux_server
from tests.support.fleet import Fleet, in_soak
from tests.support.mess import lost, make_mess
from tests.support.repos import snapshot

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.fixture
def alone() -> Iterator[Fleet]:
    """No daemon and no agent."""
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    yield fleet
    fleet.close()


def source_of(fleet: Fleet) -> tuple[str, object]:
    return fleet.git("for-each-ref"), snapshot(fleet.source)


def is_gone(fleet: Fleet) -> None:
    assert not fleet.root.exists()
    assert "llmc.root" not in fleet.git("config", "--list", "--local")
    assert not (fleet.home / ".local/state/llmc").exists(), "it was the only root"
    assert not Path("/tmp", f"tmux-{os.getuid()}", tmux_server(str(fleet.root))).exists()
    assert not list(fleet.dir.glob(".root.*")), "half a root"
    assert "llmc init" in fleet.llmc("status", code=4).err


def saved(fleet: Fleet) -> list[Path]:
    return list(fleet.dir.glob("root-saved-*"))


def test_a_running_fleet_without_open_work_goes_and_nothing_else(scripted: Fleet) -> None:
    """Break: leave the daemon, the tmux server, llmc.root or the registration; start while the user has a
    worker; or treat landed commits as work that would be lost.
    """
    fleet = scripted.set_up("adam", "baker", config={"repo.validate": "true"})
    fleet.up("--no-patrol")
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh echo x > x; git add x; {COMMIT} Landed")
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    fleet.git("branch", "llmc/adam")  # the user's own, whatever its name
    before, daemon = source_of(fleet), fleet.daemon_pid()
    looked = fleet.llmc("uninstall", "--dry-run", "--json").json
    assert (looked["work"], looked["kept"]) == ([], None)
    assert fleet.has_daemon()
    assert "--yes" in fleet.llmc("uninstall", code=2).err
    fleet.tmux("new-session", "-d", "-s", "mine", "cat")
    assert "(mine)" in fleet.llmc("uninstall", "--yes", code=3).err
    assert fleet.has_daemon(), "the user's pane is in the way, and nothing was ended"
    fleet.tmux("kill-session", "-t", "=mine")
    fleet.llmc("hold", "baker")
    assert "llmc release baker" in fleet.llmc("uninstall", "--yes", code=3).err
    assert fleet.has_daemon(), "nothing starts while the user has a worker"
    assert fleet.worktree("adam").exists()
    fleet.llmc("release", "baker")
    # What a supervisor left, which keeps the server running.
    agent = ["env", "LLMC_WORKER=overseer", "LLMC_INSTANCE=gone", "sleep", "600"]
    fleet.tmux("new-session", "-d", "-s", f"llmc-{fleet.root.name}-overseer", *agent)
    done = fleet.llmc("uninstall", "--yes", "--json").json
    assert str(fleet.root) in done["removed"]
    assert done["kept"] is None
    assert "uninstall llmc" in done["program"]
    assert not is_alive(daemon)
    is_gone(fleet)
    assert saved(fleet) == []
    assert source_of(fleet) == before
    assert fleet.log()[0] == "Landed"
    fleet.llmc("init", "--target", str(fleet.root))
    assert fleet.llmc("status", "--json").json["workers"] == [], "it can be created again"


def test_work_that_is_nowhere_else_is_listed_and_kept(alone: Fleet) -> None:
    """Break: check only commits, or only worktrees; or remove the clone with its pins."""
    first = make_mess(alone, "adam", "first")
    alone.llmc("reset", "adam")
    second = make_mess(alone, "adam", "second")
    alone.git("branch", "side", "refs/heads/llmc/adam", cwd=alone.root)
    before = source_of(alone)
    refused = alone.llmc("uninstall", "--json", code=3)
    rows = [row["what"] for row in refused.json["work"]]
    assert rows[0].startswith("adam: ")
    assert "uncommitted file" in rows[0]
    assert "unlanded commits" in rows[0]
    assert rows[1].startswith("trash: adam/")
    assert "refs/heads/side in the root's clone" in rows
    assert "--discard" in refused.json["hint"]
    assert all(row["save"] for row in refused.json["work"])
    assert (alone.root / "config.toml").exists()
    alone.llmc("hold", "adam")
    assert "llmc release adam" in alone.llmc("uninstall", "--yes", code=3).err
    alone.llmc("release", "adam")
    assert alone.worktree("adam").exists(), "nothing is done while the user has a worker"
    done = alone.llmc("uninstall", "--yes", "--json").json
    is_gone(alone)
    assert source_of(alone) == before
    (place,) = saved(alone)
    assert done["kept"] == str(place)
    assert alone.git("rev-parse", "side", cwd=place)
    alone.root = place
    assert lost(alone, first) + lost(alone, second) == []


def test_discarded_is_gone(alone: Fleet) -> None:
    make_mess(alone, "adam", "gone")
    assert "--yes" in alone.llmc("uninstall", "--discard", code=2).err
    alone.llmc("uninstall", "--yes", "--discard")
    is_gone(alone)
    assert saved(alone) == []


@pytest.mark.parametrize(
    "at",
    [
        *in_soak("uninstall.workers:before", "uninstall.workers:after", "uninstall.end:after"),
        "uninstall.outside:after",
        *in_soak("uninstall.root:before"),
    ],
)
def test_killed_anywhere_the_next_one_goes_on(alone: Fleet, at: str) -> None:
    """Break: remove the root first; llmc.root and the registration would stay forever."""
    wanted = make_mess(alone, "adam", "kept")
    step, _, when = at.partition(":")
    alone.llmc("uninstall", "--yes", code=-signal.SIGKILL, LLMC_FAULT=f"{step}:{when}:kill")
    assert alone.root.exists()
    alone.llmc("--root", str(alone.root), "uninstall", "--yes")
    is_gone(alone)
    (place,) = saved(alone)
    alone.root = place
    assert lost(alone, wanted) == []


def test_what_was_saved_is_named(alone: Fleet) -> None:
    """The goals, too. The failed planner names the command for this goal. Break: print `GOAL` in its hint."""
    made = alone.llmc("goal", "create", "--title", "Import", "--json", code=1).json
    assert f"llmc goal plan {made['goalId']} --from FILE" in made["hint"]
    said = alone.llmc("uninstall", "--yes").out
    (place,) = saved(alone)
    assert f"saved the clone with all unlanded commits, the trash, the goals and the logs in {place}" in said
