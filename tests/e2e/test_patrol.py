"""Patrol: finds what no hook reports, keeps waiting work on the latest base, and never disturbs the user."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.base.processes import is_alive
from llmc.config.paths import Root
from llmc.records.store import Store
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com -c core.editor=true"
COMMIT = f"{WHO} commit -q -m"
CONTINUE = f"{WHO} rebase --continue"
RESOLVE = f"printf 'main\\nmine\\n' > a.txt; git add a.txt; {CONTINUE}"
OFTEN = {"defaults.patrol_interval_secs": "0.2"}


def record(fleet: Fleet, worker: str = "adam") -> dict[str, Any]:
    return dict(state(fleet)["workers"][worker])


def state(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text()))


def patrols(fleet: Fleet, count: int = 2) -> None:
    """Wait until `count` more patrols have started; all but the last are then complete for all workers."""
    for _ in range(count):
        last = state(fleet)["patrol_last_run_unix"]
        wait_until(lambda last=last: state(fleet)["patrol_last_run_unix"] > last)


def is_on_main(fleet: Fleet, worker: str) -> bool:
    return fleet.git("rev-parse", "main") in fleet.git("log", "--format=%H", cwd=fleet.worktree(worker))


def work(fleet: Fleet, worker: str, change: str, on_conflict: str = "") -> str:
    """A worker that waits for review; returns its commit."""
    task = f"Do what I say\n@sh {change}; git add -A; {COMMIT} 'Of {worker}'"
    task += f"\n@on-conflict {on_conflict}" if on_conflict else ""
    fleet.llmc("start", "--worker", worker, "--prompt", task)
    return str(fleet.wait(worker, "needs_review")["commit_sha"])


def prompts(fleet: Fleet, kind: str) -> list[str]:
    return [text for text in fleet.user_turns() if text.startswith(f"[llmc {kind}-")]


def backdate(fleet: Fleet, worker: str, *fields: str, by_s: float = 400) -> None:
    """Pretend that it happened some time ago, without waiting."""
    with Store(Root(fleet.root)).transaction() as tx:
        old = tx.worker(worker)
        tx.update(worker, **{name: getattr(old, name) - by_s for name in fields})
        if old.delivery is not None:
            tx.update(worker, delivery=replace(old.delivery, at_unix=old.delivery.at_unix - by_s))


@pytest.mark.req("1-084", "2-014")
def test_work_that_waits_stays_on_the_newest_base(scripted: Fleet) -> None:
    """Break: no rules.Rebase in decide, no fetch in begin_patrol, no check of `taken`, or no remember_patrol."""
    scripted.set_up("adam", "baker", config=OFTEN)
    scripted.up()
    work(scripted, "adam", "echo a > a.txt")
    work(scripted, "baker", "echo b > b.txt")
    scripted.llmc("review", "adam")
    before = scripted.status("adam")
    scripted.llmc("hold", "baker")
    scripted.commit("c.txt", "by a person\n", "Of a person")
    wait_until(lambda: is_on_main(scripted, "adam"))
    wait_until(lambda: record(scripted)["pre_rebase_sha"] == "")
    after = scripted.status("adam")
    assert after["commit_sha"] == scripted.git("rev-parse", "HEAD", cwd=scripted.worktree("adam"))
    assert after["reviewed"], "the same change, under another name"
    assert (after["status"], after["since_unix"]) == ("needs_review", before["since_unix"])
    patrols(scripted)
    assert not is_on_main(scripted, "baker"), "held"
    scripted.llmc("release", "baker")
    wait_until(lambda: is_on_main(scripted, "baker"))
    (scripted.worktree("baker") / "draft.txt").write_text("not committed")
    scripted.commit("d.txt", "once more\n", "Once more")
    wait_until(lambda: is_on_main(scripted, "adam"))
    patrols(scripted)
    assert not is_on_main(scripted, "baker"), "dirty"
    assert abs(state(scripted)["patrol_last_run_unix"] - time.time()) < 10
    assert state(scripted)["last_reviewed_worker"] == "adam"
    assert len(scripted.events("rebased")) == 3
    assert not prompts(scripted, "conflict")


@pytest.mark.soak
@pytest.mark.req("1-130", "1-136")
def test_conflicts_are_found_alike_by_accept_rebase_and_patrol(scripted: Fleet) -> None:
    """Break: report conflicts in a second way; or let patrol rebase again what the worker gave up."""
    scripted.commit("a.txt", "one\n", "Add a.txt")
    scripted.set_up("adam", config=OFTEN)
    scripted.up("--no-patrol")
    tip = work(scripted, "adam", "echo mine > a.txt", f"{WHO} rebase --abort")
    scripted.commit("a.txt", "main\n", "Theirs")
    for command in ("accept", "rebase"):
        told = scripted.llmc(command, "adam", "--json", code=1).json
        assert (told["status"], told["conflicts"]) == ("rebasing", ["a.txt"])
        assert scripted.wait("adam", "needs_review")["reason"] == "rebase aborted by the worker"
    scripted.llmc("down")
    scripted.up()
    wait_until(lambda: len(scripted.events("rebase_aborted")) == 3)
    found = scripted.events("rebase_conflicted")
    assert [row["files"] for row in found] == [["a.txt"]] * 3
    assert len({row["base"] for row in found}) == 1
    texts = {prompt.partition("\n")[2] for prompt in prompts(scripted, "conflict")}
    assert len(prompts(scripted, "conflict")) == 3
    assert len(texts) == 1, "word for word the same"
    patrols(scripted, 3)
    assert len(scripted.events("rebase_conflicted")) == 3, "what its worker gave up is left to the user"
    assert scripted.status("adam")["commit_sha"] == tip


@pytest.mark.req("1-115")
def test_after_an_accept_the_others_follow(scripted: Fleet) -> None:
    """Break: no queue_others in accept or undo, no wake_queued after it, no rebase_if_queued in a check."""
    scripted.set_up("adam", "baker", "carol")
    scripted.up("--no-patrol")
    for worker in ("adam", "baker", "carol"):
        work(scripted, worker, f"echo {worker} > {worker}.txt")
    scripted.llmc("hold", "carol")
    scripted.llmc("accept", "adam")
    wait_until(lambda: is_on_main(scripted, "baker"))
    assert not is_on_main(scripted, "carol")
    scripted.llmc("release", "carol")
    wait_until(lambda: is_on_main(scripted, "carol"))
    scripted.llmc("undo", "--yes")
    wait_until(lambda: is_on_main(scripted, "baker") and is_on_main(scripted, "carol"))
    wait_until(lambda: not record(scripted, "baker")["rebase_due"])
    scripted.kill_daemon()
    scripted.llmc("accept", "baker")
    assert not is_on_main(scripted, "carol"), "no daemon is running"
    assert record(scripted, "carol")["rebase_due"]
    scripted.up("--no-patrol")
    wait_until(lambda: is_on_main(scripted, "carol"))
    wait_until(lambda: not record(scripted, "carol")["rebase_due"])
    assert scripted.status("carol")["status"] == "needs_review"


@pytest.mark.req("1-083")
@pytest.mark.soak
def test_commits_whose_end_was_never_told(scripted: Fleet) -> None:
    """Break: leave out turn_runs in commits_without_stop, or the rule for an idle agent without a Stop.

    Or leave the cap out of Clock.age_s: what happened while the daemon was frozen looks old immediately.
    """
    scripted.set_up("adam", "baker", config=OFTEN)
    scripted.up()
    for worker in ("adam", "baker"):
        task = f"@say begun\n@sh echo x > x; git add x; {COMMIT} 'X'\n@hang"
        scripted.llmc("start", "--worker", worker, "--prompt", task)
    for worker in ("adam", "baker"):
        wait_until(lambda worker=worker: record(scripted, worker)["commits_seen_unix"])
    backdate(scripted, "adam", "commits_seen_unix")
    patrols(scripted, 3)
    moves = [row["to"] for row in scripted.events("status_changed") if row["worker"] == "adam"]
    assert moves == ["idle", "working"], "its turn is still running"
    for worker in ("adam", "baker"):
        scripted.tmux("send-keys", "-t", scripted.session(worker), "Escape")
    for worker in ("adam", "baker"):
        assert scripted.wait(worker, "needs_input")["reason"] == "interrupted"
        wait_until(lambda worker=worker: record(scripted, worker)["commits_seen_unix"])
    patrols(scripted)
    assert scripted.status("adam")["status"] == "needs_input", "not before the wait is over"
    backdate(scripted, "adam", "commits_seen_unix")
    done = scripted.wait("adam", "needs_review")
    assert done["reason"] == "committed, but did not run the Stop hook"
    assert done["commit_sha"] == scripted.git("rev-parse", "HEAD", cwd=scripted.worktree("adam"))
    assert not scripted.events("clock_jump")
    with scripted.frozen_daemon():
        backdate(scripted, "baker", "commits_seen_unix")
        last = state(scripted)["patrol_last_run_unix"]
        wait_until(lambda: time.time() - last > 4.5)
    wait_until(lambda: scripted.events("clock_jump"))
    patrols(scripted, 2)
    assert scripted.status("baker")["status"] == "needs_input", "a full wait is granted after a freeze"
    assert "late" in scripted.events("clock_jump")[0]["why"]
    assert '"action": "clock_jump"' in (scripted.root / "logs/daemon.jsonl").read_text()


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_shells_that_were_left_behind_are_ended(fleet: Fleet) -> None:
    """Break: end them without the grace period, complete without ending them, or end other processes, too."""
    fleet.set_up("adam", config={**OFTEN, "defaults.background_grace_s": "2"})
    fleet.up()
    pid_file = fleet.dir / "background.pid"
    background = f"@background echo $$ > {pid_file}; sleep 300; true"
    fleet.llmc("start", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'X'\n{background}")
    pid = int(wait_until(lambda: pid_file.exists() and pid_file.read_text()))
    wait_until(lambda: record(fleet)["background_since_unix"])
    assert is_alive(pid)
    assert fleet.status("adam")["status"] == "working"
    fleet.wait("adam", "needs_review")
    assert not is_alive(pid)
    (ended,) = fleet.events("background_ended")
    assert pid in ended["pids"]
    assert any("sleep 300" in command for command in ended["commands"])
    (stopped,) = [row for row in fleet.events("agent_stopped") if row.get("background")]
    assert ended["ts"] - stopped["ts"] > 1.5
    assert not fleet.events("agent_exited"), "the agent itself is left alone"
    # The shell's end is news for the agent, and may start a turn; after that it still waits for review.
    wait_until(lambda: fleet.client_status("adam") == "idle" and not _has_pending(fleet))
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")


def _has_pending(fleet: Fleet) -> bool:
    return any(path.suffix == ".json" for path in (fleet.root / ".llmc/inbox/adam").iterdir())


@pytest.mark.req("2-024", "1-136", "2-016")
@pytest.mark.soak
def test_a_rebase_in_which_nothing_moves_is_an_error(scripted: Fleet) -> None:
    """Break: no rule stalled_rebase; no bell for an error; or a prompt, an abort or a reset after it.

    Or no EndTurn: what the user resolves by hand in baker would be an error, too.
    """
    scripted.commit("a.txt", "one\n", "Add a.txt")
    scripted.set_up("adam", "baker", config=OFTEN)
    scripted.up()
    for worker in ("adam", "baker"):
        work(scripted, worker, "echo mine > a.txt", "while :; do sleep 0.1; done")
    scripted.commit("a.txt", "main\n", "Theirs")
    for worker in ("adam", "baker"):
        scripted.wait(worker, "rebasing")
    opened = record(scripted)
    assert opened["conflicted_files"] == ["a.txt"]
    assert opened["resolution_attempts"] == 0
    assert abs(opened["rebase_started_at_unix"] - time.time()) < 30
    wait_until(lambda: scripted.client_status("adam") == "busy")
    age(scripted)
    patrols(scripted, 3)
    assert scripted.status("adam")["status"] == "rebasing", "its turn is running"
    scripted.tmux("send-keys", "-t", scripted.session("adam"), "Escape")
    wait_until(lambda: scripted.client_status("adam") == "idle")
    patrols(scripted)
    assert scripted.status("adam")["status"] == "rebasing", "it has just written"
    age(scripted)
    failed = scripted.wait("adam", "error")
    assert "the rebase has made no progress for" in failed["error_reason"]
    assert failed["cause"] == "git"
    assert len(scripted.events("rebase_stalled")) == 1
    shown = scripted.root / "logs/daemon.out"
    wait_until(lambda: "adam: error (no progress in the rebase)\a" in shown.read_text())
    sent, tree = len(scripted.prompts_in_transcripts()), (scripted.worktree("adam") / "a.txt").read_text()
    patrols(scripted, 3)
    assert scripted.status("adam")["status"] == "error"
    assert len(scripted.prompts_in_transcripts()) == sent
    assert (scripted.worktree("adam") / "a.txt").read_text() == tree
    assert "<<<<<<<" in tree
    assert "rebase in progress" in scripted.git("status", cwd=scripted.worktree("adam"))
    scripted.tmux("send-keys", "-t", scripted.session("baker"), "Escape")
    wait_until(lambda: scripted.client_status("baker") == "idle")
    (scripted.worktree("baker") / "a.txt").write_text("main\nmine\n")
    scripted.git("add", "a.txt", cwd=scripted.worktree("baker"))
    scripted.git("-c", "core.editor=true", "rebase", "--continue", cwd=scripted.worktree("baker"))
    assert scripted.wait("baker", "needs_review")["reason"] == "conflicts resolved"


def age(fleet: Fleet, by_s: float = 400) -> None:
    """As if nothing had been written for some time."""
    worktree = fleet.worktree("adam")
    names = fleet.git(
        *["rev-parse", "--path-format=absolute"],
        *[arg for name in ("index", "logs/HEAD", "rebase-merge") for arg in ("--git-path", name)],
        cwd=worktree,
    )
    old = time.time() - by_s
    for path in [Path(name) for name in names.splitlines()] + [Path(record(fleet)["transcript_path"])]:
        os.utime(path, (old, old))
    backdate(fleet, "adam", "since_unix", "rebase_started_at_unix", by_s=by_s)
