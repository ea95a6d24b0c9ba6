"""llmc doctor: break a real fleet in every known way; each problem is found and fixed, nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc.base.locks import Rank, lock
from llmc.base.processes import is_alive
from tests.support.fleet import Fleet
from tests.support.mess import is_clean, lost, make_mess, trash_refs
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
KILLED = -signal.SIGKILL
LONG_AGO_S = 7200


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    """Two idle workers and a daemon; each test leaves them working."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", "zoe", config={"defaults.start_stagger_s": "0"})
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


def findings(fleet: Fleet, *args: str) -> list[tuple[str, str]]:
    """Kind and worker of everything that doctor reports."""
    view = fleet.llmc("doctor", "--json", *args, code=None).json
    return [(row["kind"], row["worker"] or "") for row in view["findings"]]


def change_state(fleet: Fleet, **workers: dict[str, object]) -> None:
    """A state that is hard to reach; no daemon and no command runs in the meantime."""
    path = fleet.root / "state.json"
    state = json.loads(path.read_text())
    for name, fields in workers.items():
        state["workers"][name].update(fields)
    path.write_text(json.dumps(state))


def record(fleet: Fleet, worker: str) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"][worker])


def everything(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a root, including git's own: mode, modification time and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (info.st_mode, info.st_mtime_ns, data)
    return found


def pane_pid(fleet: Fleet, session: str) -> int:
    return int(fleet.tmux("display-message", "-p", "-t", session, "#{pane_pid}"))


def works(fleet: Fleet, worker: str) -> None:
    """The worker takes a task, and its work can be accepted."""
    name = f"{worker}-{os.urandom(2).hex()}.txt"
    prompt = f"@sh echo work > {name}; git add {name}; {COMMIT} 'Work in {name}'"
    fleet.llmc("start", "--worker", worker, "--prompt", prompt)
    fleet.wait(worker, "needs_review")
    fleet.llmc("accept", worker)
    assert fleet.log()[0] == f"Work in {name}"


@pytest.mark.req("1-117")
def test_in_good_order_it_only_looks(shared: Fleet) -> None:
    """Break: write anything while checking, e.g. create the inbox or take a lock; or report a problem."""
    assert shared.wait("zoe", "idle")
    with shared.frozen_daemon():  # so that only doctor could write
        before = everything(shared.root)
        shown = shared.llmc("doctor").out
        assert shown.splitlines()[-1] == "no problems"
        assert "tmux" in shown.splitlines()[0]
        view = shared.llmc("doctor", "--json").json
        assert (view["healthy"], view["findings"], view["not_seen"]) == (True, [], {})
        shared.llmc("doctor", "--repair")
        assert everything(shared.root) == before
    assert "--repair" in shared.llmc("doctor", "--yes", code=2).err
    shared.llmc("doctor", "--repair", "--rebuild", code=2)


def break_everything(fleet: Fleet) -> dict[str, str]:
    """Each worker with its own problem; maps what must not be lost to its object."""
    for worker, prompt in {
        "lost": "@say begun",
        "review": f"@sh echo r > r.txt; git add r.txt; {COMMIT} 'For review'",
        "empty": "@say begun\n@sleep 300",
        "rebase": "@say begun",
    }.items():
        fleet.llmc("start", "--worker", worker, "--prompt", prompt)
    for worker, status in {"lost": "needs_input", "review": "needs_review", "rebase": "needs_input"}.items():
        fleet.wait(worker, status)
    fleet.llmc("hold", "held")
    fleet.kill_daemon()
    wanted = {f"error {what}": thing for what, thing in make_mess(fleet, "error", "error").items()}
    fleet.tmux("kill-session", "-t", fleet.session("lost"))
    os.kill(pane_pid(fleet, fleet.session("crashed")), signal.SIGKILL)
    dead = "#{pane_dead}"
    wait_until(lambda: "1" in fleet.tmux("display-message", "-p", "-t", fleet.session("crashed"), dead))
    wanted |= leave_a_rebase(fleet, "rebase")
    shutil.rmtree(fleet.worktree("gone"))
    (fleet.worktree("broken") / "precious.txt").write_text("precious\n")
    wanted["precious"] = fleet.git("hash-object", "precious.txt", cwd=fleet.worktree("broken"))
    (fleet.worktree("broken") / ".git").unlink()
    (fleet.worktree("dirty") / "dirt.txt").write_text("dirt\n")
    wanted["dirt"] = fleet.git("hash-object", "dirt.txt", cwd=fleet.worktree("dirty"))
    stale_lock(fleet, "review")
    error = {"status": "error", "error_reason": "it broke", "cause": "git"}
    far = time.time() + 1e6
    change_state(
        fleet,
        error=error,
        held=error,
        review={"commit_sha": None, "since_unix": far, "last_activity_unix": far},
        empty={"current_prompt": ""},
    )
    return {**wanted, **break_the_root(fleet)}


def leave_a_rebase(fleet: Fleet, worker: str) -> dict[str, str]:
    """An abandoned rebase with a conflict; the commit it was to move, and what was resolved."""
    tree = fleet.worktree(worker)
    (tree / "README.md").write_text("of the worker\n")
    fleet.git("commit", "-q", "-a", "-m", "README of the worker", cwd=tree)
    before = fleet.git("rev-parse", "HEAD", cwd=tree)
    fleet.commit("README.md", "of main\n", "README of main")
    fleet.git("fetch", "-q", "origin", "+refs/heads/main:refs/remotes/origin/main", cwd=fleet.root)
    argv = ["git", "rebase", "refs/remotes/origin/main"]
    assert subprocess.run(argv, cwd=tree, env=fleet.env, capture_output=True).returncode != 0
    (tree / "README.md").write_text("half resolved\n")
    return {"rebase": before, "resolved": fleet.git("hash-object", "README.md", cwd=tree)}


def stale_lock(fleet: Fleet, worker: str) -> Path:
    path = Path(fleet.git("rev-parse", "--path-format=absolute", "--git-path", "index.lock", cwd=fleet.worktree(worker)))  # fmt: skip
    path.write_text("")
    os.utime(path, (time.time() - LONG_AGO_S, time.time() - LONG_AGO_S))
    return path


def break_the_root(fleet: Fleet) -> dict[str, str]:
    tree = fleet.worktree("dirty")
    head = fleet.git("rev-parse", "HEAD", cwd=tree)
    made = {}
    for name in ("ghost", "detached"):
        content = fleet.git("rev-parse", "HEAD^{tree}", cwd=tree)
        made[name] = fleet.git("commit-tree", content, "-p", head, "-m", name, cwd=fleet.root)
    fleet.git("branch", "-q", "llmc/ghost", made["ghost"], cwd=fleet.root)
    fleet.git("branch", "-q", "llmc/merged", "refs/remotes/origin/main", cwd=fleet.root)
    fleet.git("branch", "-q", "llmc/restored/mine", head, cwd=fleet.root)
    elsewhere = fleet.dir / "elsewhere"
    fleet.git("worktree", "add", "-q", "--detach", str(elsewhere), made["detached"], cwd=fleet.root)
    shutil.rmtree(elsewhere)
    fleet.git("config", "gc.auto", "6700", cwd=fleet.root)
    fleet.git("config", "--unset", "remote.origin.pushurl", cwd=fleet.root)
    (fleet.root / "logs").chmod(0o755)
    (fleet.root / ".llmc/bin/llmc").write_text('#!/bin/sh\nexec /gone/python -P -m llmc "$@"\n')
    (fleet.root / ".llmc/agents/empty.settings.json").unlink()
    agent = ["env", "LLMC_WORKER=ghost", "LLMC_INSTANCE=60057", "sleep", "1000"]
    fleet.tmux("new-session", "-d", "-s", f"llmc-{fleet.root.name}-ghost", *agent)
    return made


#: what `break_everything` breaks
BROKEN = {
    ("launcher", ""),
    ("record", "review"),
    ("record", "empty"),
    ("daemon_crashed", ""),
    ("session_without_worker", ""),
    ("session_missing", "lost"),
    ("session_dead", "crashed"),
    ("hooks", "empty"),
    ("worker_error", "error"),
    ("worker_error", "held"),
    ("worktree_missing", "gone"),
    ("worktree_broken", "broken"),
    ("worktree_dirty", "dirty"),
    ("worktree_pruned", ""),
    ("index_lock", "review"),
    ("rebase", "rebase"),
    ("setting", ""),
    ("git_config", ""),
    ("branch", ""),
    ("permissions", ""),
}


@pytest.mark.req("1-117", "1-118", "1-119", "1-120", "1-121", "1-122", "1-123", "1-124")
def test_everything_is_named_and_fixed_and_nothing_is_lost(scripted: Fleet) -> None:
    """Break: leave any one repair out; abort the rebase, remove a branch or prune without a pin."""
    fleet = scripted
    workers = ("lost", "crashed", "error", "held", "review", "empty", "rebase", "gone", "broken", "dirty")
    fleet.set_up(*workers, config={"defaults.start_stagger_s": "0"})
    begun = fleet.llmc("up", "--detach", "--no-patrol").out
    assert "not started" not in begun, f"{begun}\n{fleet.story()}"
    wanted = break_everything(fleet)
    shown = fleet.llmc("doctor", code=1).out
    assert set(findings(fleet)) == BROKEN
    assert "22 problems, 21 fixable with --repair" in shown, shown
    assert "stale index.lock (2 hours old)" in shown
    ghost = pane_pid(fleet, f"=llmc-{fleet.root.name}-ghost:")

    # Nothing without a yes.
    assert "--yes" in fleet.llmc("doctor", "--repair", code=2).err
    assert fleet.answered(b"n\n", "doctor", "--repair") == 130
    assert set(findings(fleet)) == BROKEN

    done = fleet.llmc("doctor", "--repair", "--yes", "--json", code=1).json
    assert [row for row in done["repairs"] if not row["done"]] == []
    assert [(row["kind"], row["worker"]) for row in done["findings"]] == [("worker_error", "held")]
    assert "llmc release held" in done["findings"][0]["fix"]
    assert lost(fleet, wanted) == []
    assert not is_alive(ghost)
    assert fleet.git("for-each-ref", "--format=%(refname)", "refs/heads/llmc/ghost", cwd=fleet.root) == ""
    assert fleet.git("for-each-ref", "refs/heads/llmc/restored/mine", cwd=fleet.root), "that is the user's"
    assert {row["kind"] for row in fleet.events("repaired")} == {kind for kind, _ in BROKEN}

    # Each worker is where it belongs.
    status = {row["name"]: row["status"] for row in fleet.llmc("status", "--json").json["workers"]}
    assert status == {
        **dict.fromkeys(("error", "gone", "broken", "dirty"), "idle"),
        "lost": "offline",
        "crashed": "offline",
        "held": "error",
        "review": "needs_review",
        "empty": "working",
        "rebase": "needs_input",
    }
    review = record(fleet, "review")
    assert review["commit_sha"] == fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("review"))
    assert max(review["since_unix"], review["last_activity_unix"]) <= time.time()
    assert record(fleet, "empty")["current_prompt"] == "@say begun\n@sleep 300"
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("rebase")) == wanted["rebase"]
    assert is_clean(fleet, "error")
    assert is_clean(fleet, "dirty")
    for worker in ("gone", "broken"):  # from their branch, which is not on the latest base
        assert (
            fleet.git("status", "--porcelain", "--branch", cwd=fleet.worktree(worker)) == f"## llmc/{worker}"
        )

    # And the held one, once it is released.
    fleet.llmc("release", "held")
    assert fleet.answered(b"y\n", "doctor", "--repair") == 0
    assert fleet.llmc("doctor").out.splitlines()[-1] == "no problems"
    fleet.up("--no-patrol")
    fleet.llmc("accept", "review")
    for worker in ("lost", "empty", "rebase"):
        fleet.llmc("reset", worker)
    for worker in workers:
        receipt = fleet.llmc("start", "--worker", worker, "--prompt", "@say hello", "--json").json
        assert receipt["outcome"] == "acknowledged", worker
    for worker in workers:
        fleet.wait(worker, "needs_input")
    assert fleet.llmc("doctor").out.splitlines()[-1] == "no problems"


def break_one(fleet: Fleet, kind: str) -> dict[str, str]:
    if kind == "rebase":
        return leave_a_rebase(fleet, "adam")
    content = fleet.git("rev-parse", "refs/remotes/origin/main^{tree}", cwd=fleet.root)
    ghost = fleet.git("commit-tree", content, "-m", "ghost", cwd=fleet.root)
    fleet.git("branch", "-q", "llmc/ghost", ghost, cwd=fleet.root)
    return {"ghost": ghost}


@pytest.mark.req("1-123")
@pytest.mark.parametrize(
    "kind",
    [
        "rebase",
        pytest.param("branch", marks=pytest.mark.soak),
    ],
)
def test_killed_at_any_step_the_next_repair_goes_on(scripted: Fleet, kind: str) -> None:
    """Break: remove before pinning; what a killed repair was working on would be gone."""
    fleet = scripted
    fleet.set_up("adam")
    wanted = break_one(fleet, kind)
    assert [found for found, _ in findings(fleet)] == [kind]
    for step in ("repair.pin", "repair.remove"):
        for when in ("before", "after"):
            fault = f"{step}:{when}:kill"
            fleet.llmc("doctor", "--repair", "--yes", code=KILLED, LLMC_FAULT=fault)
            readme = fleet.worktree("adam") / "README.md"
            here = {"resolved"} if readme.exists() and readme.read_text() == "half resolved\n" else set()
            assert set(lost(fleet, wanted)) <= here, fault
    assert findings(fleet, "--repair", "--yes") == []
    assert lost(fleet, wanted) == []
    if kind == "rebase":
        assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == wanted["rebase"]


@pytest.mark.req("1-117")
def test_beside_a_running_daemon(shared: Fleet) -> None:
    """Break: leave the agent in the deleted directory; or repair a worker that is in use."""
    shutil.rmtree(shared.worktree("adam"))
    (shared.worktree("zoe") / "dirt.txt").write_text("dirt\n")
    assert set(findings(shared)) == {("worktree_missing", "adam"), ("worktree_dirty", "zoe")}
    with lock(shared.root / ".llmc/locks/worker-zoe.lock", Rank.WORKER):
        view = shared.llmc("doctor", "--repair", "--yes", "--json").json
        assert [row["worker"] for row in view["repairs"]] == ["adam"]
        assert "zoe" in view["notes"][0]
        assert (shared.worktree("zoe") / "dirt.txt").exists()
    shared.wait("adam", "idle")
    agent = pane_pid(shared, shared.session("adam"))
    assert os.readlink(f"/proc/{agent}/cwd") == str(shared.worktree("adam")), (
        "in the new directory, not the old one"
    )
    assert findings(shared, "--repair", "--yes") == []
    assert is_clean(shared, "zoe")
    for worker in ("adam", "zoe"):
        works(shared, worker)


@pytest.mark.req("1-117")
def test_where_little_works(shared: Fleet, tmp_path: Path) -> None:
    """Break: open the project, or call git or tmux, without handling failure."""
    copy = tmp_path / "copy"
    shutil.copytree(shared.root, copy, ignore=shutil.ignore_patterns("*.sock", "daemon.json"))

    def look(**env: str) -> dict[str, Any]:
        return dict(shared.llmc("--root", str(copy), "doctor", "--json", code=1, **env).json)

    def kinds(**env: str) -> set[str]:
        return {row["kind"] for row in look(**env)["findings"]}

    state, config = copy / "state.json", copy / "config.toml"
    good_state, good_config = state.read_text(), config.read_text()
    for content, fix in {
        "{": "--rebuild",
        '{"version": 99, "workers": {}}': "the version of llmc that wrote it",
    }.items():
        state.write_text(content)
        (finding,) = [row for row in look()["findings"] if row["kind"] == "state"]
        assert fix in finding["fix"]
        assert state.read_text() == content
    state.unlink()
    assert "state" in kinds()
    state.write_text(good_state)

    config.write_text(good_config + "\n[nonsense]\n")
    assert "config" in kinds()
    assert "config edit" in shared.llmc("--root", str(copy), "doctor", "--repair", "--yes", code=3).err
    config.unlink()
    assert "config" in kinds()
    config.write_text(good_config.replace(str(shared.source), "/gone/source"))
    assert "source" in kinds()
    config.write_text(good_config.replace('"main"', '"trunk"'))
    assert "source" in kinds()
    config.write_text(good_config)

    for missing in ("git", "tmux"):
        bin_dir = tmp_path / f"without-{missing}"
        bin_dir.mkdir()
        for name in {"git", "tmux", "sh", "env"} - {missing}:
            (bin_dir / name).symlink_to(str(shutil.which(name)))
        view = look(PATH=str(bin_dir))
        assert any(row["kind"] == "program" and missing in row["text"] for row in view["findings"])
        assert ("worktrees" if missing == "git" else "sessions") in view["not_seen"]
        shown = shared.llmc("--root", str(copy), "doctor", code=1, PATH=str(bin_dir)).out
        assert f"not checked: {missing} is missing or unusable" in shown
    assert "program" in kinds(LLMC_AGENT="/gone/claude")


@pytest.mark.req("1-125")
@pytest.mark.soak
def test_both_agents_can_be_found_again(fleet: Fleet) -> None:
    """Break: read the status file or the transcript in a format that only one of the agents writes."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    prompt = f"@sh echo r > r.txt; git add r.txt; {COMMIT} 'For review'"
    fleet.llmc("start", "--prompt", prompt)
    fleet.wait("adam", "needs_review")
    before = record(fleet, "adam")
    assert fleet.llmc("doctor").out.splitlines()[-1] == "no problems"
    fleet.kill_daemon()
    (fleet.root / "state.json").write_text("")
    row = rebuilt(fleet)["adam"]
    assert (row["status"], row["prompt"], row["unknown"]) == ("needs_review", prompt, [])
    same = (
        "instance",
        "agent",
        "config_dir",
        "claude_session_id",
        "transcript_path",
        "commit_sha",
        "task_prompt",
    )
    assert {key: record(fleet, "adam")[key] for key in same} == {key: before[key] for key in same}
    assert findings(fleet, "--repair", "--yes") == []
    fleet.llmc("accept", "adam")


def rebuilt(fleet: Fleet, *args: str) -> dict[str, dict[str, Any]]:
    view = fleet.llmc("doctor", "--rebuild", "--json", *args).json
    return {row["name"]: row for row in view["workers"]}


@pytest.mark.req("1-125")
@pytest.mark.soak
def test_a_new_state_from_what_is_there(scripted: Fleet) -> None:
    """Break: treat an accepted task as open; report a busy agent as idle; lose the old file."""
    fleet = scripted
    workers = ("busy", "done", "dirty", "fresh", "offline", "review")
    fleet.set_up(*workers, config={"defaults.start_stagger_s": "0"})
    fleet.up("--no-patrol")
    works(fleet, "done")
    review = f"@sh echo r > r.txt; git add r.txt; {COMMIT} 'For review'"
    for worker, prompt, status in (
        ("review", review, "needs_review"),
        ("offline", review.replace("r.txt", "o.txt"), "needs_review"),
        ("dirty", "@sh echo d > d.txt", "needs_input"),
    ):
        fleet.llmc("start", "--worker", worker, "--prompt", prompt)
        fleet.wait(worker, status)
    gate = fleet.dir / "gate"
    waits = f"@sh while [ ! -e {gate} ]; do sleep 0.1; done; echo b > b.txt; git add b.txt; {COMMIT} 'Busy'"
    fleet.llmc("start", "--worker", "busy", "--prompt", waits)
    before = {worker: record(fleet, worker) for worker in workers}
    assert "llmc down" in fleet.llmc("doctor", "--rebuild", "--yes", code=3).err

    fleet.kill_daemon()
    fleet.tmux("kill-session", "-t", fleet.session("offline"))
    assert "--yes" in fleet.llmc("doctor", "--rebuild", code=2).err, "a valid state is not replaced unasked"
    wait_until(lambda: fleet.client_status("busy") == "busy")
    state = fleet.root / "state.json"
    state.write_text('{"workers": {')
    assert "llmc doctor --rebuild" in fleet.llmc("status", code=1).err
    assert fleet.llmc("doctor", "--rebuild", code=KILLED, LLMC_FAULT="state.replace:before:kill").out == ""
    assert state.read_text() == '{"workers": {', "killed before the write, the old one is still there"

    made = rebuilt(fleet)
    assert {name: row["status"] for name, row in made.items()} == {
        "busy": "working",
        "done": "idle",
        "dirty": "needs_input",
        "fresh": "idle",
        "offline": "offline",
        "review": "needs_review",
    }
    assert {name: row["prompt"] for name, row in made.items()} == {
        **dict.fromkeys(("done", "fresh"), ""),
        **{name: before[name]["current_prompt"] for name in ("busy", "dirty", "offline", "review")},
    }
    same = ("instance", "claude_session_id", "transcript_path", "branch", "worktree_path", "commit_sha")
    for worker in ("busy", "dirty", "review"):
        assert {key: record(fleet, worker)[key] for key in same} == {key: before[worker][key] for key in same}
    assert [path.read_text() for path in fleet.root.glob("state.json.*.broken")] == ['{"workers": {'] * 2

    # Work continues from there: hooks arrive, work is accepted, the conversation is resumed.
    gate.touch()
    fleet.wait("busy", "needs_review")
    fleet.llmc("accept", "review")
    fleet.up("--no-patrol")
    fleet.wait("offline", "needs_review")
    assert record(fleet, "offline")["claude_session_id"] == before["offline"]["claude_session_id"]
    assert fleet.events("state_rebuilt")[-1]["workers"] == sorted(workers)
    numbers = [event["seq"] for event in fleet.events()]
    assert numbers == sorted(set(numbers)), "the log continues where it was"

    # Again, by the user's choice and with nothing running; a held worker stays held.
    fleet.llmc("hold", "fresh")
    fleet.llmc("down")
    assert {row["status"] for row in rebuilt(fleet, "--yes").values()} == {"offline"}
    assert record(fleet, "fresh")["held"]
    (fleet.root / "state.json").unlink()
    assert "--rebuild" in fleet.llmc("status", code=4).err
    assert rebuilt(fleet).keys() == set(workers)
    fleet.up("--no-patrol")
    fleet.wait("dirty", "needs_input")
    for worker in ("busy", "offline"):
        fleet.wait(worker, "needs_review")
        fleet.llmc("accept", worker)
    works(fleet, "fresh")
    assert trash_refs(fleet)
