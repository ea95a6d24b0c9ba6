"""A user in the way of an auto worker is not a failure: no charge, the draft stays, the night goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from llmc.base import processes
from tests.support import auto
from tests.support.auto import Daemon, add, commit, set_up, until
from tests.support.fleet import CLIENTS_IN_SOAK, Fleet
from tests.support.plans import ledger
from tests.support.waiting import wait_until

DRAFT = "half a thought"


def type_in(fleet: Fleet, worker: str, text: str = DRAFT) -> None:
    """The user types half a line, and leaves."""
    wait_until(lambda: fleet.client_status(worker) == "idle")
    fleet.tmux("send-keys", "-t", fleet.session(worker), "-l", text)
    wait_until(lambda: text in fleet.screen(worker))


def rub_out(fleet: Fleet, worker: str) -> None:
    fleet.tmux("send-keys", "-t", fleet.session(worker), "C-u")


def open_panel(fleet: Fleet, worker: str) -> None:
    """One of the client's own dialogs, left open."""
    wait_until(lambda: fleet.client_status(worker) == "idle")
    fleet.tmux("send-keys", "-t", fleet.session(worker), "/config", "Enter")
    wait_until(lambda: fleet.client_status(worker) == "waiting")


def close_panel(fleet: Fleet, worker: str) -> None:
    def is_closed() -> bool:
        fleet.tmux("send-keys", "-t", fleet.session(worker), "Escape")
        return processes.wait_until(lambda: fleet.client_status(worker) == "idle", 1)

    wait_until(is_closed)  # a client may ignore keys at first


def listed(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The users that auto mode waits for, according to `llmc status --json`."""
    items = fleet.llmc("status", "--json", cwd=fleet.root).json["attention"]
    return {item["who"]: item for item in items if item["kind"] == "person"}


def waited_for(fleet: Fleet) -> set[str]:
    """The same from the state: polling it costs no process."""
    return {
        item["who"] for item in auto.state(fleet).get("attention", {}).values() if item["kind"] == "person"
    }


def pids(fleet: Fleet) -> list[str]:
    return fleet.tmux("list-panes", "-a", "-F", "#{session_name} #{pane_pid}").split("\n")


def uncharged(fleet: Fleet) -> None:
    assert not [row for row in ledger(fleet) if row["action"] == "failed"], ledger(fleet)
    for action in ("task_failed", "auto_failed", "task_quarantined"):
        assert not fleet.events(action), fleet.events(action)
    assert auto.auto(fleet).get("errors", 0) == 0


WAYS: dict[str, tuple[Callable[[Fleet, str], None], Callable[[Fleet, str], None], str]] = {
    # what the user leaves open, how it is cleared, and what the client reports in the meantime
    "draft": (type_in, rub_out, "idle"),
    "dialog": (open_panel, close_panel, "waiting"),
}


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
@pytest.mark.parametrize(
    "ways",
    [
        ("draft", "dialog"),
        pytest.param(("dialog", "draft"), marks=pytest.mark.soak),
        pytest.param(("draft", "draft"), marks=pytest.mark.soak),
        pytest.param(("dialog", "dialog"), marks=pytest.mark.soak),
    ],
    ids="-".join,
)
@pytest.mark.soak
def test_every_worker_has_a_person_in_its_way(fleet: Fleet, ways: tuple[str, str]) -> None:
    """Break: count a refusal because of a draft or dialog as a failure; two drafts end the night in seconds.

    Or tell only the worker with the draft about a new task.
    """
    way = dict(zip(("auto-1", "auto-2"), ways, strict=True))
    set_up(fleet)
    daemon = Daemon(fleet, "--concurrency", "2", "--no-canary")
    auto.wait_for(fleet, lambda: "auto mode started with 2 workers" in daemon.said)
    for worker, name in way.items():
        WAYS[name][0](fleet, worker)
    before = pids(fleet)
    add(fleet, 1)
    add(fleet, 2)
    auto.wait_for(fleet, lambda: waited_for(fleet) == set(way))
    items = listed(fleet)
    for worker, name in way.items():
        item = items[worker]
        expected = (f"person:{worker}", "blocked", f"llmc attach {worker}")
        assert (item["key"], item["severity"], item["next"]) == expected
        assert name in item["text"]
    auto.wait_for(fleet, lambda: "every worker is waiting for you" in daemon.said)
    assert auto.statuses(fleet) == {"1": "pending", "2": "pending"}
    uncharged(fleet)
    assert pids(fleet) == before, "a session was restarted"
    for worker, name in way.items():
        assert name != "draft" or DRAFT in fleet.screen(worker), worker
        assert fleet.client_status(worker) == WAYS[name][2], worker
    # One user has gone: that worker does everything, new tasks too.
    WAYS[ways[1]][1](fleet, "auto-2")
    auto.wait_completed(fleet, 2)
    add(fleet, 3)
    auto.wait_completed(fleet, 3)
    assert {row["worker"] for row in fleet.events("task_completed")} == {"auto-2"}
    assert set(listed(fleet)) == {"auto-1"}
    WAYS[ways[0]][1](fleet, "auto-1")
    auto.wait_for(fleet, lambda: not waited_for(fleet))
    assert not listed(fleet)
    add(fleet, 4)
    auto.wait_completed(fleet, 4)
    assert sorted(auto.landed(fleet)) == [1, 2, 3, 4]
    uncharged(fleet)
    assert daemon.stop() == 0


@pytest.mark.soak
def test_a_draft_that_comes_with_the_task(scripted: Fleet) -> None:
    """The user is faster than the prompt: the claim is released, uncharged. Break: GiveUp for a refusal."""
    fleet = set_up(scripted)
    daemon = Daemon(fleet, "--concurrency", "1", LLMC_FAULT="claim.record:after:hang")
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    add(fleet, 1)
    auto.wait_for(fleet, lambda: auto.at_work(fleet) == {"auto-1": "1"})
    type_in(fleet, "auto-1")
    fleet.kill_daemon()
    daemon = Daemon(fleet, "--concurrency", "1")
    auto.wait_for(fleet, lambda: "auto-1" in waited_for(fleet))
    assert "auto-1" in listed(fleet)
    assert DRAFT in fleet.screen("auto-1")
    uncharged(fleet)
    rub_out(fleet, "auto-1")
    auto.wait_completed(fleet, 1)
    uncharged(fleet)
    assert daemon.stop() == 0


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
def test_a_draft_where_a_commit_is_asked_for(fleet: Fleet) -> None:
    """A draft blocks the request to commit: another worker does the task. Break: charge it, or reset it."""
    set_up(fleet)
    go = fleet.marks / "go"
    # The first worker stops without a commit; the next one makes it.
    once = fleet.marks / "once"
    add(
        fleet,
        1,
        f"@sh if test -e {once}; then {commit(1)[4:]}; else echo x > half; {until(go)}; touch {once}; fi",
    )
    daemon = Daemon(fleet, "--concurrency", "2", "--no-canary")
    worker = next(iter(auto.wait_for(fleet, lambda: auto.at_work(fleet))))
    auto.wait_for(fleet, lambda: (fleet.worktree(worker) / "half").exists())
    before = pids(fleet)
    fleet.tmux("send-keys", "-t", fleet.session(worker), "-l", DRAFT)
    wait_until(lambda: DRAFT in fleet.screen(worker))
    go.touch()
    auto.wait_completed(fleet, 1)
    assert [row["worker"] for row in fleet.events("task_completed")] != [worker]
    assert set(listed(fleet)) == {worker}
    assert DRAFT in fleet.screen(worker)
    assert pids(fleet) == before
    assert (fleet.worktree(worker) / "half").exists(), "its work is left alone while the user is there"
    uncharged(fleet)
    rub_out(fleet, worker)
    auto.wait_for(fleet, lambda: not waited_for(fleet))
    assert not listed(fleet)
    fleet.wait(worker, "idle")
    assert not (fleet.worktree(worker) / "half").exists()
    ref = fleet.events("worker_reset")[-1]["ref"]
    assert fleet.git("show", f"{ref}:half", cwd=fleet.root) == "x", "its work is kept"
    uncharged(fleet)
    assert daemon.stop() == 0


@pytest.mark.soak
def test_a_draft_behind_which_work_goes_on(scripted: Fleet) -> None:
    """One fleet, one case after another; each starts and ends with no user in the way.

    Break, by case: let a draft keep finished work from landing; charge the task for a prompt that was not
    typed; let it land without a self-review because of a draft.
    """
    fleet = set_up(scripted)
    daemon = Daemon(fleet, "--concurrency", "2")

    def behind_a_draft(number: int, script: str, *lines: str, **metadata: Any) -> tuple[str, str]:
        """Who started the task, and who completed it: a draft is typed while the first worker has it."""
        once, go = fleet.marks / f"once-{number}", fleet.marks / f"go-{number}"
        first = f"touch {once}; {until(go)}"
        add(fleet, number, commit(number, f"if ! test -e {once}; then {first}; {script}"), *lines, **metadata)
        began = next(iter(auto.wait_for(fleet, lambda: once.exists() and auto.at_work(fleet))))
        fleet.tmux("send-keys", "-t", fleet.session(began), "-l", DRAFT)
        wait_until(lambda: DRAFT in fleet.screen(began))
        go.touch()
        auto.wait_completed(fleet, number)
        assert DRAFT in fleet.screen(began), f"task {number}"
        uncharged(fleet)
        (done,) = [row["worker"] for row in fleet.events("task_completed") if row["task_id"] == str(number)]
        return began, done

    # Landing types nothing: finished work lands.
    began, done = behind_a_draft(1, "fi")
    assert (began == done, auto.landed(fleet)) == (True, [1])
    rub_out(fleet, began)
    # A failed check: the work cannot go back to its worker, so another one starts.
    began, done = behind_a_draft(2, "else touch good; git add good; fi", llmc={"verify": "test -e good"})
    assert (began == done, set(listed(fleet))) == (False, {began}), "a failed check"
    rub_out(fleet, began)
    auto.wait_for(fleet, lambda: not waited_for(fleet))
    # A self-review: another worker does the task, with a self-review of its own.
    assert daemon.stop() == 0
    fleet.llmc("config", "set", "defaults.self_review.enabled", "true")
    daemon = Daemon(fleet, "--concurrency", "2")  # a running one reads its configuration at the next patrol
    reviewed = fleet.marks / "reviewed"
    began, done = behind_a_draft(3, "fi", f"@on-review echo $PWD >> {reviewed}")
    assert (began == done, set(listed(fleet))) == (False, {began}), "a self-review"
    assert len(reviewed.read_text().splitlines()) == 1
    assert not fleet.events("self_review_failed")
    assert sorted(auto.landed(fleet)) == [1, 2, 3]
    assert daemon.stop() == 0


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
@pytest.mark.soak
def test_a_task_that_takes_too_long_behind_a_draft(fleet: Fleet) -> None:
    """The turn is interrupted; the draft stays. Break: end the session; or let a draft protect the turn."""
    set_up(fleet, **{"auto.task_timeout_secs": "5"})
    add(fleet, 1, f"@say begun\n@sh touch {fleet.marks}/begun; python3 -c 'import time; time.sleep(90)'")
    daemon = Daemon(fleet, "--concurrency", "1", "--no-canary")
    auto.wait_for(fleet, lambda: (fleet.marks / "begun").exists())
    before = pids(fleet)
    fleet.tmux("send-keys", "-t", fleet.session("auto-1"), "-l", DRAFT)
    wait_until(lambda: DRAFT in fleet.screen("auto-1"))
    failed = auto.wait_for(fleet, lambda: fleet.wake("auto-1") or fleet.events("task_failed"))
    assert [row["reason"] for row in failed] == ["timed out after 5 s"], "its own failures still count"
    wait_until(lambda: fleet.client_status("auto-1") == "idle")
    assert (DRAFT in fleet.screen("auto-1"), pids(fleet)) == (True, before)
    auto.wait_for(fleet, lambda: waited_for(fleet) == {"auto-1"})
    assert set(listed(fleet)) == {"auto-1"}
    assert daemon.stop() == 0


@pytest.mark.soak
def test_when_an_item_is_off_the_list(scripted: Fleet) -> None:
    """Break: leave the item out for a held worker, or keep it after the user has let go.

    Or keep it when its worker, or the daemon, is gone.
    """
    fleet = set_up(scripted)
    fleet.up("--auto", "--concurrency", "2")
    type_in(fleet, "auto-1")
    fleet.llmc("hold", "auto-2")
    add(fleet, 1)
    auto.wait_for(fleet, lambda: waited_for(fleet) == {"auto-1", "auto-2"})
    items = listed(fleet)
    assert {who: item["next"] for who, item in items.items()} == {
        "auto-1": "llmc attach auto-1",
        "auto-2": "llmc release auto-2",
    }
    fleet.llmc("nuke", "auto-1", "--yes")
    assert set(listed(fleet)) == {"auto-2"}, "its worker is gone"
    fleet.llmc("release", "auto-2")
    auto.wait_completed(fleet, 1)
    assert not listed(fleet), "it was released"
    uncharged(fleet)
    type_in(fleet, "auto-2")
    add(fleet, 2)
    auto.wait_for(fleet, lambda: waited_for(fleet) == {"auto-2"})
    fleet.llmc("reset", "auto-2", "--yes")
    auto.wait_completed(fleet, 2)
    assert not listed(fleet), "its worker was reset"
    type_in(fleet, "auto-2")
    add(fleet, 3)  # without a task there is no check for a user in the way
    auto.wait_for(fleet, lambda: waited_for(fleet) == {"auto-2"})
    fleet.llmc("down")
    assert not listed(fleet), "the daemon is down"
