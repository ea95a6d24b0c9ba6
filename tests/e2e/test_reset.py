"""llmc reset: from any status to a clean idle worker, and nothing is lost."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from llmc.base.processes import is_alive
from tests.support.fleet import REAL_IN_SOAK, Fleet, in_soak
from tests.support.mess import is_clean, lost, make_mess, trash_refs
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[Fleet]:
    """Agents without a daemon: only the commands themselves make progress."""
    fleet = Fleet("scripted")
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.kill_daemon()
    yield fleet
    fleet.close()


def record(fleet: Fleet) -> dict[str, object]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"]["adam"])


def set_record(fleet: Fleet, **fields: object) -> None:
    """A state that is hard to reach; no daemon and no command runs in the meantime."""
    path = fleet.root / "state.json"
    state = json.loads(path.read_text())
    state["workers"]["adam"].update(fields)
    path.write_text(json.dumps(state))


def agent_pid(fleet: Fleet) -> int:
    return int(fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid}"))


def is_fresh(fleet: Fleet) -> None:
    view = fleet.wait("adam", "idle")
    assert (view["prompt"], view["commit_sha"], view["error_reason"]) == ("", None, "")
    assert (view["accept_step"], view["delivery"]) == (None, None)
    assert is_clean(fleet, "adam")


def works(fleet: Fleet) -> None:
    """The worker takes the next task: its box is empty, its conversation new."""
    assert fleet.llmc("start", "--json", "--prompt", "@say hello").json["outcome"] == "acknowledged"
    fleet.wait("adam", "needs_input")


def test_a_worker_with_every_kind_of_work_becomes_idle_and_nothing_is_lost(running: Fleet) -> None:
    """Break: reset without a pin, or pin without the index."""
    running.llmc("reset", "adam")
    running.llmc("start", "--prompt", f"@sh echo x > x.txt; git add x.txt; {COMMIT} 'X'")
    running.wait("adam", "needs_review")
    wanted = make_mess(running, "adam", "1")
    base = running.commit("main.txt", "newer\n", "Newer base")
    pid = agent_pid(running)
    done = running.llmc("reset", "adam", "--json").json
    assert (done["status"], done["base"], done["restarted"]) == ("idle", base, False)
    assert lost(running, wanted) == []
    assert done["ref"] in trash_refs(running)
    assert running.events("work_pinned")[-1]["ref"] == done["ref"]
    assert running.events("worker_reset")[-1]["base"] == base
    assert agent_pid(running) == pid, "the agent was restarted without need"
    is_fresh(running)
    works(running)
    shown = running.llmc("reset", "adam").out
    assert "trash restore" not in shown, "there was nothing to keep"


def test_a_busy_agent_is_interrupted_first(running: Fleet) -> None:
    """Break: leave out the Escape; the agent is then restarted, and its conversation is gone."""
    running.llmc("reset", "adam")
    running.llmc(
        "start", "--prompt", f"@say begun\n@sleep 30\n@sh echo late > late.txt; git add -A; {COMMIT} 'Late'"
    )
    # Before its first output, Escape would put the prompt back into the box.
    wait_until(lambda: "● begun" in running.screen("adam") and running.client_status("adam") == "busy")
    done = running.llmc("reset", "adam", "--json").json
    assert (done["status"], done["restarted"]) == ("idle", False)
    assert running.client_status("adam") == "idle"
    is_fresh(running)
    works(running)


def test_background_work_of_the_agent_is_ended(running: Fleet) -> None:
    """Break: leave out the leftovers; they write into the next task's worktree."""
    running.llmc("reset", "adam")
    pid_file = running.dir / "background.pid"
    running.llmc("start", "--prompt", f"@background echo $$ > {pid_file}; sleep 300; true")
    pid = int(wait_until(lambda: pid_file.exists() and pid_file.read_text()))
    wait_until(lambda: running.client_status("adam") != "busy")
    running.llmc("reset", "adam")
    assert not is_alive(pid)
    is_fresh(running)
    works(running)


def test_an_agent_that_does_not_listen_is_started_anew(running: Fleet) -> None:
    """Break: wait for idle without a limit, or reset while it is busy."""
    running.llmc("reset", "adam")
    pid = agent_pid(running)
    running.llmc("start", "--prompt", "@sleep 60")
    wait_until(lambda: running.client_status("adam") == "busy")
    os.kill(pid, signal.SIGSTOP)
    done = running.llmc("reset", "adam", "--json").json
    assert (done["status"], done["restarted"]) == ("idle", True)
    assert agent_pid(running) != pid
    is_fresh(running)
    works(running)


def test_a_crashed_agent_is_started_again_and_its_crashes_are_forgotten(running: Fleet) -> None:
    """Break: leave crash_count as it is."""
    running.llmc("reset", "adam")
    running.llmc("start", "--prompt", "@crash 7")
    wait_until(lambda: running.record("adam")["status"] == "offline")
    assert record(running)["crash_count"] == 1
    assert running.llmc("reset", "adam", "--json").json["restarted"]
    assert record(running)["crash_count"] == 0
    is_fresh(running)
    works(running)


def test_held_is_refused(running: Fleet) -> None:
    running.llmc("hold", "adam")
    wanted = make_mess(running, "adam", "held")
    assert "llmc release adam" in running.llmc("reset", "adam", code=3).err
    assert (running.worktree("adam") / "new.txt").exists()
    running.llmc("release", "adam")
    running.llmc("reset", "--all", "--yes")
    assert lost(running, wanted) == []
    is_fresh(running)


def test_wrong_command_lines(running: Fleet) -> None:
    running.llmc("reset", code=2)
    running.llmc("reset", "adam", "--all", code=2)
    assert "adam" in running.llmc("reset", "adan", code=4).err


def test_an_error_is_left_by_a_reset_and_the_hints_say_so(alone: Fleet) -> None:
    """Break: print the hint of `start` in the status error."""
    set_record(alone, status="error", error_reason="it broke", cause="agent", current_prompt="old")
    assert "llmc reset adam" in alone.llmc("start", "--worker", "adam", "--prompt", "x", code=3).err
    assert "llmc reset adam" in alone.llmc("status").out
    alone.llmc("reset", "adam")
    is_fresh(alone)


@pytest.mark.parametrize("status", ["error", *in_soak("needs_input")])
def test_a_dead_agent_without_a_daemon(alone: Fleet, status: str) -> None:
    os.kill(agent_pid(alone), signal.SIGKILL)
    alone.tmux("kill-session", "-t", alone.session("adam").rstrip(":"))
    set_record(alone, status=status, error_reason="it broke", current_prompt="old")
    wanted = make_mess(alone, "adam", f"dead {status}")
    assert alone.llmc("reset", "adam", "--json").json["status"] == "offline"
    assert lost(alone, wanted) == []
    assert is_clean(alone, "adam")
    assert record(alone)["current_prompt"] == ""
    alone.up("--no-patrol")
    is_fresh(alone)
    alone.kill_daemon()


def test_an_orphan_branch_does_not_break_it(alone: Fleet) -> None:
    """Break: pin with `rev-parse HEAD`, which an orphan branch does not have."""
    wanted = make_mess(alone, "adam", "orphan")
    alone.git("checkout", "-q", "--orphan", "elsewhere", cwd=alone.worktree("adam"))
    (alone.worktree("adam") / "more.txt").write_text("on the orphan branch\n")
    wanted["more"] = alone.git("hash-object", "more.txt", cwd=alone.worktree("adam"))
    alone.llmc("reset", "adam")
    assert lost(alone, wanted) == []
    is_fresh(alone)


def test_a_stale_index_lock_does_not_break_it(alone: Fleet) -> None:
    wanted = make_mess(alone, "adam", "locked")
    (alone.root / ".git/worktrees/adam/index.lock").touch()
    alone.llmc("reset", "adam")
    assert lost(alone, wanted) == []
    is_fresh(alone)


def test_a_worktree_that_is_gone_is_made_again(alone: Fleet) -> None:
    alone.worktree("adam").rename(alone.dir / "away")
    alone.llmc("reset", "adam")
    is_fresh(alone)


def test_an_open_delivery_is_cancelled_and_never_arrives(alone: Fleet) -> None:
    """Even if killed halfway: nothing finishes the old delivery in a fresh worktree.

    Break: clear the delivery only at the end.
    """
    alone.llmc("reset", "adam")
    ran = alone.dir / "ran"
    start = ("start", "--worker", "adam", "--prompt", f"@sh echo x > {ran}")
    alone.llmc(*start, code=KILLED, LLMC_FAULT="submit.paste:after:kill")
    alone.llmc("reset", "adam", code=KILLED, LLMC_FAULT="reset.cancel:after:kill")
    assert record(alone)["delivery"] is None
    alone.llmc("reset", "adam")
    is_fresh(alone)
    works(alone)
    assert not ran.exists()
    alone.llmc("reset", "adam")


@pytest.mark.parametrize("at", ["validate", *in_soak("merge")])
def test_an_accept_that_has_not_landed_is_cancelled(alone: Fleet, at: str) -> None:
    before = alone.log()
    alone.llmc("start", "--prompt", f"@sh echo {at} > f.txt; git add f.txt; {COMMIT} 'F {at}'")
    tip = alone.wait("adam", "needs_review")["commit_sha"]
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT=f"accept.{at}:after:kill")
    alone.llmc("reset", "adam")
    is_fresh(alone)
    assert alone.log() == before
    assert lost(alone, {"tip": tip}) == []


@pytest.mark.parametrize("at", ["land", *in_soak("reset")])
def test_an_accept_that_may_have_landed_must_be_finished(alone: Fleet, at: str) -> None:
    """Break: cancel every accept; the landed one would have no `accepted` event."""
    alone.llmc("start", "--prompt", f"@sh echo {at} > l.txt; git add l.txt; {COMMIT} 'L {at}'")
    alone.wait("adam", "needs_review")
    alone.llmc("accept", "adam", code=KILLED, LLMC_FAULT=f"accept.{at}:before:kill")
    assert "llmc accept adam" in alone.llmc("reset", "adam", code=3).err
    alone.llmc("accept", "adam")
    alone.llmc("reset", "adam")
    is_fresh(alone)
    assert alone.log()[0] == f"L {at}"


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.soak)])
@pytest.mark.parametrize("step", ["cancel", "quiet", "tree", "finish"])
def test_killed_at_every_step_it_can_be_repeated(alone: Fleet, step: str, when: str) -> None:
    """Break: reset the tree before it is pinned, or forget a step when it is repeated."""
    wanted = make_mess(alone, "adam", f"{when} {step}")
    set_record(alone, status="needs_input", current_prompt="old", error_reason="")
    alone.llmc("reset", "adam", code=KILLED, LLMC_FAULT=f"reset.{step}:{when}:kill")
    alone.llmc("reset", "adam")
    assert lost(alone, wanted) == []
    is_fresh(alone)


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_on_both_agents_a_busy_worker_is_reset_and_takes_the_next_task(fleet: Fleet) -> None:
    """Break: continue with a client that put the interrupted prompt back into its box."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    late = fleet.dir / "late"
    fleet.llmc("start", "--prompt", f"@sh echo dirty > dirty.txt\n@sh sleep 20; echo x > {late}")
    wait_until(lambda: (fleet.worktree("adam") / "dirty.txt").exists(), 30)
    done = fleet.llmc("reset", "adam", "--json").json
    assert done["status"] == "idle"
    assert fleet.git("show", f"{done['ref']}:dirty.txt", cwd=fleet.root) == "dirty"
    is_fresh(fleet)
    works(fleet)
    assert not late.exists()
