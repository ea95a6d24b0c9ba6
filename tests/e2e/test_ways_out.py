"""A worker can always be unblocked, and the suggested way works."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc.base.locks import Rank, lock
from llmc.config.root_layout import tmux_server
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com -c core.editor=true"
COMMIT = f"{WHO} commit -q -m"


def state(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text()))


def finish_by_hand(fleet: Fleet, worker: str) -> None:
    """What the user does in `llmc console`."""
    tree = fleet.worktree(worker)
    (tree / "a.txt").write_text(f"main and {worker}\n")
    fleet.git("add", "a.txt", cwd=tree)
    fleet.git("-c", "core.editor=true", "rebase", "--continue", cwd=tree)


def test_conflicts_that_nobody_resolved(scripted: Fleet) -> None:
    """Break: leave only a reset for `error`, refuse messages there, or repeat an outdated reason."""
    fleet, names = scripted, ("adam", "baker", "carol")
    fleet.commit("a.txt", "first\n", "Add a.txt")
    fleet.set_up(*names)
    fleet.up()
    for name in names:
        task = f"Do it\n@sh echo {name} > a.txt; git add -A; {COMMIT} 'By {name}'\n@on-conflict true"
        fleet.llmc("start", "--worker", name, "--prompt", task)
    for name in names:
        fleet.wait(name, "needs_review")
    fleet.commit("a.txt", "main\n", "Theirs")
    for name in names:
        fleet.llmc("rebase", name, code=1)
    for name in names:
        wait_until(lambda name=name: state(fleet)["workers"][name]["status"] == "error", story=fleet.story)
    assert "llmc console adam (resolve the conflicts there), or llmc message" in fleet.llmc("status").out
    # After a message, it continues the rebase that llmc started.
    resolve = f"printf 'both\\n' > a.txt; git add a.txt; {WHO} rebase --continue"
    fleet.llmc("message", "baker", f"Resolve it like this\n@sh {resolve}")
    assert fleet.wait("baker", "needs_review")["reason"] == "conflicts resolved"
    assert state(fleet)["workers"]["baker"]["pre_rebase_sha"] == ""
    # Resolved by the user, it is noticed by the daemon; until then, the output shows what is true.
    finish_by_hand(fleet, "adam")
    notes = fleet.worktree("adam") / "notes"
    notes.write_text("left over\n")
    fleet.wake("adam")  # as a patrol does
    wait_until(lambda: "uncommitted changes" in state(fleet)["workers"]["adam"]["error_reason"])
    notes.unlink()
    assert fleet.status("adam")["reason"] == "conflicts resolved by hand", (
        "a user who checks sees it right away"
    )
    # Without a daemon, by any command that checks.
    fleet.kill_daemon()
    finish_by_hand(fleet, "carol")
    assert fleet.status("carol")["reason"] == "conflicts resolved by hand"
    fleet.llmc("accept", "carol")
    assert fleet.log()[0] == "By carol"


@pytest.mark.soak
def test_work_in_progress_is_seen_and_comes_back_from_the_trash(scripted: Fleet) -> None:
    """Break: check under the worker's lock, with its own index, or only for commits;
    restore without uncommitted changes.
    """
    fleet = scripted
    fleet.commit("b.txt", "b\n", "Add b.txt")
    fleet.set_up("adam", "baker")
    fleet.up()
    go, tree = fleet.dir / "go", fleet.worktree("adam")
    work = f"echo one > a.txt; git add a.txt; {COMMIT} One; echo more >> b.txt; echo new > new.txt"
    prompt = f"Write a file\n@sh {work}; while ! test -e {go}; do sleep 0.02; done"
    fleet.llmc("start", "--worker", "adam", "--prompt", prompt)
    task = fleet.record("adam")["task_prompt"]
    wait_until((tree / "new.txt").exists)
    index = Path(fleet.git("rev-parse", "--path-format=absolute", "--git-path", "index", cwd=tree))

    def touched() -> object:
        return index.read_bytes(), index.stat().st_mtime_ns, (fleet.root / "state.json").read_bytes()

    with fleet.frozen_daemon(), lock(fleet.root / ".llmc/locks/worker-adam.lock", Rank.WORKER):
        before = touched()
        seen = fleet.llmc("review", "adam", "--json").json
        shown = fleet.llmc("review", "adam").out
        assert touched() == before
    assert (seen["so_far"], seen["ahead"]) == ("working", 1)
    assert [file["path"] for file in seen["files"]] == ["a.txt", "b.txt", "new.txt"]
    assert all(line in seen["diff"] for line in ("+one", "+more", "+new"))
    assert "adam  working (" in shown
    assert "note: uncommitted files: b.txt, new.txt" in shown
    assert "no changes" in fleet.llmc("review", "baker").out
    # It goes to the trash, and is restored to another worker as it was, even if llmc is killed on the way.
    fleet.llmc("reset", "adam")
    (entry,) = (row["name"] for row in fleet.llmc("trash", "list", "--json").json)
    restore = ("trash", "restore", entry, "--to", "baker")
    for when in ("before", "after"):
        fleet.llmc(*restore, code=-9, LLMC_FAULT=f"restore.files:{when}:kill")
        assert "has other work" in fleet.llmc(*restore, code=3).err
        fleet.llmc("reset", "baker")
    told = fleet.llmc(*restore).out
    assert "with 2 uncommitted files; baker is needs_input" in told
    assert "llmc message baker 'Continue this work and commit it.'" in told
    other = fleet.worktree("baker")
    assert fleet.git("status", "--porcelain", cwd=other).splitlines() == ["M b.txt", "?? new.txt"]
    assert fleet.git("log", "-1", "--format=%s", cwd=other) == "One"
    assert "is needs_input" in fleet.llmc(*restore, code=3).err
    assert (fleet.status("baker")["prompt"], fleet.record("baker")["task_prompt"]) == (prompt, task)
    assert "Write a file" in fleet.llmc("status").out
    fleet.llmc("message", "baker", f"@sh git add -A; {COMMIT} Two")
    fleet.wait("baker", "needs_review")
    fleet.llmc("accept", "baker")
    assert fleet.log()[0] == "One"
    assert fleet.events("accepted")[-1]["prompt"] == prompt


@contextmanager
def person_in(fleet: Fleet, server: str, session: str) -> Iterator[None]:
    """A terminal attached to a session of a tmux server."""
    pid, keyboard = pty.fork()
    if pid == 0:
        os.execvpe("tmux", ["tmux", "-L", server, "attach-session", "-t", session], fleet.env)
    try:
        clients = ["tmux", "-L", server, "list-clients", "-F", "#{client_session}"]
        wait_until(lambda: subprocess.run(clients, env=fleet.env, capture_output=True).stdout.strip())
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(keyboard)


def test_a_person_inside_tmux(scripted: Fleet) -> None:
    """Break: name the keys of the outer tmux, follow TMUX_TMPDIR,
    start a nested client on the same server, or let rules wrap.
    """
    fleet = scripted
    fleet.set_up("adam")
    fleet.up()
    ours, own = tmux_server(str(fleet.root)), f"own-{os.getpid()}"
    # The user's own shell has its tmux servers elsewhere.
    attach = f"TMUX_TMPDIR={fleet.dir} {sys.executable} -m llmc attach adam 2> {fleet.dir}/%s; cat"

    def runs(server: str, said: str) -> None:
        argv = [
            "tmux",
            "-L",
            server,
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "mine",
            "-x",
            "80",
            "-y",
            "24",
        ]
        subprocess.run([*argv, attach % said], env=fleet.env, cwd=fleet.source, check=True)

    try:
        # In their own tmux, with the same prefix: the inner one gets the second.
        runs(own, "nested")
        wait_until(lambda: fleet.status("adam")["attached"], story=fleet.story)
        assert (fleet.dir / "nested").read_text() == "attaching to adam; detach with C-b C-b d\n"
    finally:
        fleet.end_tmux(own)
    wait_until(lambda: not fleet.status("adam")["attached"])
    # In a window on llmc's own server: that client switches sessions.
    gate = fleet.dir / "gate"
    attach = f"while ! test -e {gate}; do sleep 0.02; done; {attach}"
    runs(ours, "switched")
    with person_in(fleet, ours, "mine"):
        gate.touch()
        wait_until(lambda: fleet.status("adam")["attached"], story=fleet.story)
        assert (fleet.dir / "switched").read_text() == "switching to adam; switch back with C-b L\n"
        assert len(fleet.tmux("list-clients").splitlines()) == 1
    fleet.tmux("kill-session", "-t", "=mine")
    # Viewed on a narrow terminal, while the screen is wide again.
    wait_until(lambda: fleet.status("adam")["attached"] is False)
    fleet.tmux("resize-window", "-t", fleet.session("adam"), "-x", "500", "-y", "100")
    wait_until(lambda: "─" * 300 in fleet.llmc("peek", "adam", "--json").out, story=fleet.story)
    shown = fleet.on_terminal("peek", "adam", columns=70).replace("\r", "").splitlines()
    assert "─" * 70 in shown
    assert max(map(len, shown)) <= 70


def test_words_of_the_command_line(scripted: Fleet) -> None:
    """Break: print the start of a traceback, columns that do not align, or advice that would be refused."""
    fleet = scripted
    fleet.set_up("adam", config={"auto.task_list_id": "plan", "auto.tasks_root": str(fleet.dir / "tasks")})
    fleet.llmc("tasks", "add", "Add the model", "--label", "db")
    fleet.llmc("tasks", "add", "Print the bill")
    assert fleet.llmc("tasks", "list").out.splitlines() == [
        "1  ready       p3 [db]  Add the model",
        "2  ready       p3       Print the bill",
    ]
    assert fleet.llmc("accept", "adam", code=3).err.endswith("Next: llmc up --detach\n")
    again = fleet.llmc("init", "--trust").out
    assert "next: llmc up --detach" in again
    plan = fleet.dir / "plan.md"
    plan.write_text("# Empty\n")
    assert (
        "is not a valid plan" in fleet.llmc("goal", "create", "--title", "x", "--from", str(plan), code=2).err
    )
    assert fleet.llmc("goal", "list", "--all", "--json").json["goals"] == []
