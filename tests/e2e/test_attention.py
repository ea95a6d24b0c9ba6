"""The attention list: each kind is produced for real, and must appear on every surface.

`status`, `status --json`, `digest` and `digest --json` have it, with a command that works;
`blocked` items send a notification.
"""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llmc.base.names import WorkerName
from llmc.repo.project import open_project
from tests.support import auto, goals
from tests.support.attention import TOLD_OF_ALL, TOLD_OF_MORE, Item, is_told, listed, on_every_surface
from tests.support.auto import add, commit, set_up
from tests.support.fleet import Fleet
from tests.support.odd_client import OddClient
from tests.support.plans import COMMIT
from tests.support.supervise import QUICK, Overseer
from tests.support.waiting import wait_until
from tests.support.webhook import Webhook


@pytest.mark.req("7-040", "7-041", "7-042")
def test_what_workers_need(scripted: Fleet, hook: Webhook) -> None:
    """Review, question, dialog, hold, crash, doubt, login, unresolved conflicts, a failed accept,
    a source in use, a dead daemon.

    Break: leave a case out of `_most_urgent`, a `raise_item` out of accept, or `_tell_items` out of the daemon.
    """
    names = ("rev", "inp", "ask", "dia", "own", "cra", "unc", "log", "con")
    fleet = scripted.set_up(
        *names,
        config={
            **TOLD_OF_MORE,
            "notify.webhook": hook.url,
            "repo.validate": "echo one; echo 'E: two'; false",
        },
    )
    fleet.up()

    def start(name: str, *lines: str, code: int = 0, **env: str) -> None:
        fleet.llmc("start", "--worker", name, "--prompt", "\n".join(lines), code=code, **env)

    start("con", f"@sh echo mine > README.md; git add README.md; {COMMIT} mine", "@on-conflict true")
    start("rev", commit(1))
    start("inp", "@say nothing done")
    start("ask", "@ask Which colour?")
    start("own", "@sh sleep 600")
    start("cra", "Sort the list", "@crash 3")
    start("log", "@error 401")
    lost = ",".join(f"submit.enter:before:fail:{number}" for number in (1, 2, 3))
    start("unc", "Is it there?", code=1, LLMC_FAULT=lost)
    fleet.tmux("send-keys", "-t", fleet.session("dia"), "/cost", "Enter")
    fleet.llmc("hold", "inp")
    fleet.wait("con", "needs_review")
    fleet.commit("README.md", "theirs\n", "Theirs")
    fleet.llmc("rebase", "con", code=None)
    _client_opens_a_dialog(fleet, "own")
    fleet.wait("own", "needs_input")
    assert fleet.status("own")["reason"] == "dialog"
    wait_until(lambda: fleet.status("con")["status"] == "error", 30, fleet.story)
    items = on_every_surface(
        *(
            fleet,
            "review:rev",
            "input:inp",
            "held:inp",
            "question:ask",
            "dialog:dia",
            "dialog:own",
            "crash:cra",
        ),
        *("unconfirmed:unc", "login:log", "conflict:con"),
    )
    assert {key: item["severity"] for key, item in items.items()} == {
        **dict.fromkeys(("question:ask", "dialog:own", "crash:cra", "login:log", "conflict:con"), "blocked"),
        **dict.fromkeys(("review:rev", "input:inp", "dialog:dia", "unconfirmed:unc"), "waiting"),
        "held:inp": "notice",
    }
    assert "Inactive" not in fleet.llmc("status").out, "every worker needs the user"
    assert "exited with code 3): Sort the list" in items["crash:cra"]["text"]
    is_told(hook, "question:ask", "dialog:own", "crash:cra", "login:log", "conflict:con")

    # A two-hour hold may have been forgotten.
    with open_project(str(fleet.root)).store.transaction() as tx:
        tx.update(WorkerName("inp"), held_since_unix=tx.now - 7200)
    items = on_every_surface(fleet, "held:inp")
    assert (items["held:inp"]["severity"], items["held:inp"]["next"]) == ("waiting", "llmc release inp")
    is_told(hook, "held:inp")

    # A failed accept says why, with the last lines of output; one that finds a dirty source says that.
    assert items["review:rev"]["next"] == "llmc review rev"
    refused = fleet.llmc("accept", "rev", code=1)
    assert "main itself fails `echo one; echo 'E: two'; false`" in refused.err
    assert f"less {fleet.root}/.llmc/slots/base.log" in refused.err, "it is not the worker's fault"
    items = on_every_surface(fleet, "accept:rev", "base")
    assert items["base"]["severity"] == "blocked"
    assert "failed at step validate" in items["accept:rev"]["text"]
    assert items["accept:rev"]["text"].endswith("one | E: two")
    assert "review:rev" not in items, "the accept item says the same, and more"
    (fleet.source / "README.md").write_text("half an edit\n")
    fleet.llmc("accept", "rev", code=3)
    items = on_every_surface(fleet, "source", "accept:rev")
    assert (items["source"]["severity"], items["source"]["next"]) == (
        "blocked",
        f"git -C {fleet.source} status",
    )
    is_told(hook, "source")
    fleet.git("checkout", "-q", "README.md")
    assert "source" not in listed(fleet), "no need to accept again to see that the source is free"

    fleet.llmc("reset", "rev", "--yes")
    assert "accept:rev" not in listed(fleet), "what failed to land is in the trash"

    # No daemon is running: every surface says so, and names the command that helps.
    fleet.kill_daemon()
    items = on_every_surface(fleet, "daemon", "question:ask", "crash:cra")
    assert items["daemon"]["next"] == "llmc up --detach"
    fleet.llmc("up", "--detach")
    after = listed(fleet)
    assert {"daemon", "crash:cra"} & after.keys() == set()
    # The second failed accept is a separate one: the daemon may have seen that the first was over.
    told = [body["key"] for body in hook.got if body["key"] != "accept:rev"]
    assert sorted(told) == sorted(set(told)), "once each, as long as it lasts"


def _client_opens_a_dialog(fleet: Fleet, worker: str) -> None:
    """A client that opens its own dialog during a turn says so in its status file, and sends no hook."""
    path = fleet.status_file(worker)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "status": "waiting", "waitingFor": "dialog open"}))


@pytest.mark.req("7-040", "7-042", "7-043")
def test_what_auto_mode_needs(scripted: Fleet, hook: Webhook) -> None:
    """Quarantined and proposed tasks, a park, budgets, a source in use; a killed daemon,
    and a plain one in its place.

    Break: no `update_auto(run=...)` in AutoMode.begin, or one that a plain daemon clears; no `_held` in tasks/task_list.py.
    """
    fleet = set_up(
        scripted,
        **{"notify.webhook": hook.url, "auto.limit_backoff_secs": "600", "auto.worker_tasks": "propose"},
        **{"auto.dirty_backoff_secs": "600", "auto.concurrency": "1"},
    )
    fleet.env["LLMC_SCRIPTED_CONFIG_DIR"] = str(fleet.dir)  # the agents' task list is ours, too
    add(fleet, 1, commit(1), llmc={"verify": "echo never; false"})
    fleet.up("--auto")
    auto.wait_for(fleet, lambda: fleet.events("task_quarantined"), 60)
    items = on_every_surface(fleet, "task plan/1")
    assert (items["task plan/1"]["kind"], items["task plan/1"]["next"]) == (
        "quarantined",
        "llmc tasks requeue 1",
    )
    is_told(hook, "task plan/1")
    (fleet.source / "README.md").write_text("half an edit\n")
    add(fleet, 2, "@task An idea of mine", commit(2))
    on_every_surface(fleet, "source", "task plan/3")
    assert listed(fleet)["task plan/3"]["kind"] == "proposed"
    fleet.llmc("tasks", "approve", "3")
    assert "task plan/3" not in listed(fleet)
    fleet.llmc("tasks", "done", "3", code=None)

    # Killed: the first screen says that auto mode is not running, and still says so under a plain daemon.
    fleet.kill_daemon()
    items = on_every_surface(fleet, "auto", "source")
    assert (items["auto"]["severity"], items["auto"]["next"]) == ("blocked", "llmc up --auto --detach")
    assert "daemon not running (llmc up --auto --detach)" in fleet.llmc("status").out
    fleet.llmc("up", "--detach")
    items = on_every_surface(fleet, "auto")
    assert "was replaced" in items["auto"]["text"]
    is_told(hook, "auto")
    for command in items["auto"]["next"].split(" && "):
        fleet.llmc(*shlex.split(command)[1:], *(("--detach",) if "up" in command else ()))
    assert "auto" not in listed(fleet)
    fleet.git("checkout", "-q", "README.md")
    fleet.llmc("down")
    assert listed(fleet).keys() == {"task plan/1"}, "auto mode that was ended cleanly needs no reminder"
    # Without a daemon, the command that reads the books checks what changed.
    (auto.task_dir(fleet) / "1.json").unlink()
    os.utime(fleet.root / ".llmc/tasks.jsonl")
    assert listed(fleet) == {}, "what cannot be requeued is not offered"


@pytest.mark.parametrize(
    ("config", "does", "key", "severity", "words"),
    [
        ({"limit_backoff_secs": "600"}, "@limit 600", "parked", "notice", "auto mode is parked until "),
        (
            {"budget.run_tokens": "1"},
            "@sh sleep 600",
            "budget:run",
            "waiting",
            "auto mode is not starting new tasks",
        ),
        (
            *({"budget.day_tokens": "10000", "budget.soft": "0.001"}, "@sh sleep 600"),
            *("budget:day", "notice", "nearly used up: today"),
        ),
    ],
    ids=["parked", "spent", "near"],
)
def test_a_fleet_that_waits(
    scripted: Fleet, hook: Webhook, config: dict[str, str], does: str, key: str, severity: str, words: str
) -> None:
    """Parked until a time; a budget that is used up, or nearly.

    Break: no `_parked`, no `_tell_budgets`, no item in `_drain_over_budget`.
    """
    config = {f"auto.{name}": value for name, value in config.items()}
    fleet = set_up(scripted, **{"notify.webhook": hook.url, **TOLD_OF_ALL, **config})
    add(fleet, 1, does)
    fleet.up("--auto")
    # The cost of a turn is counted at the next hook or patrol, and this turn sleeps.
    wait_until(lambda: fleet.wake("auto-1") or key in listed(fleet))
    items = on_every_surface(fleet, key)
    assert items[key]["severity"] == severity
    assert words in items[key]["text"]
    is_told(hook, key)


def test_the_supervisor_another_daemon_an_untried_client_and_a_full_disk(
    scripted: Fleet, hook: Webhook, tmp_path: Path
) -> None:
    """Break: leave a function out of `fleet_items`; or report a killed supervisor as cleanly stopped."""
    fleet = set_up(scripted, **QUICK)
    supervisor = Overseer(fleet)
    wait_until(lambda: (fleet.root / ".llmc/overseer.json").exists(), 30, lambda: supervisor.said)
    supervisor.process.kill()
    supervisor.process.wait()
    items = on_every_surface(fleet, "supervisor")
    assert ("the supervisor was killed" in items["supervisor"]["text"], items["supervisor"]["next"]) == (
        True,
        "llmc overseer",
    )
    wait_until(lambda: fleet.llmc("down", "--force", code=None).code == 0, 30)
    OddClient(fleet)
    fleet.up("--auto")
    items = on_every_surface(fleet, "canary")
    assert "3.0.0 (odd) has not been tested" in items["canary"]["text"]
    record = fleet.root / ".llmc/daemon.json"
    real = record.read_text()
    record.write_text(json.dumps({**json.loads(real), "pid": os.getpid()}))
    items = on_every_surface(fleet, "other_daemon")
    assert f"daemon.json names process {os.getpid()}" in items["other_daemon"]["text"]
    record.write_text(real)
    fleet.llmc("down")
    _on_a_small_disk(fleet, hook, tmp_path)


def _on_a_small_disk(fleet: Fleet, hook: Webhook, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        fleet.root = disk / "root"
        fleet.llmc("init", "--target", str(fleet.root))
        fleet.llmc("config", "set", "notify.webhook", hook.url)
        fleet.llmc("add", "adam")
        items = on_every_surface(fleet, "disk")
        assert (list(items), items["disk"]["severity"]) == (["disk"], "blocked")
        fleet.up()
        is_told(hook, "disk")
        fleet.llmc("down")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_a_goal_asks_and_where_it_stalls(scripted: Fleet, hook: Webhook) -> None:
    """With a daemon the tick reports it; without one,
    the command that changes it does, wherever goals are stored.

    Break: no `tell` in `_leave_mark`, or no `after_change` in `_on_node`.
    """
    fleet = goals.set_up(
        scripted,
        **{
            "auto.concurrency": "1",
            "overseer.goals.idle_after": "1s",
            "overseer.goals.max_retries": "50",
            "overseer.goals.storage.dir": str(scripted.dir / "kept"),
            "notify.webhook": hook.url,
            **TOLD_OF_ALL,
        },
    )
    wait = f"@sh {auto.until(fleet.marks / 'go')}; llmc report blocked 'Which colour?'"
    made = goals.planner(fleet, goals.plan([[goals.leaf(1, wait)]]))
    fleet.llmc("config", "set", "overseer.goals.planner.command", made)
    goal = goals.create(fleet)
    fleet.up("--auto")

    def of_kind(kind: str) -> list[Item]:
        return [item for item in listed(fleet).values() if item["kind"] == kind]

    def shown(kind: str) -> list[Item]:
        with fleet.frozen_daemon():  # llmc keeps recovering it
            found = of_kind(kind)
            if found:
                on_every_surface(fleet, found[0]["key"])
        return found

    (stalled,) = wait_until(lambda: shown("goal_stalled"), 30, fleet.story)
    assert (stalled["who"], stalled["severity"]) == (goal, "notice")
    is_told(hook, stalled["key"])
    fleet.llmc("config", "set", "overseer.goals.idle_after", "10m")  # no message can get it past its question
    (fleet.marks / "go").touch()
    wait_until(lambda: fleet.status("auto-1")["status"] == "needs_input", 30, fleet.story)
    (asked,) = wait_until(lambda: shown("goal_question"), 30, fleet.story)
    assert "Which colour?" in asked["text"]
    # Its worker waits for the answer, until there is a task that no other worker can take.
    add(fleet, 50)
    auto.wait_completed(fleet, 1)
    assert of_kind("goal_question") == [asked]
    fleet.llmc("down")
    assert of_kind("goal_question") == [asked], "it waits without a daemon, too"
    fleet.llmc("config", "set", "overseer.goals.enabled", "false")  # no ticks
    fleet.llmc(*shlex.split(asked["next"].replace('"..."', "Blue"))[1:])
    assert of_kind("goal_question") == []


@pytest.mark.real_client
@pytest.mark.uncontained("the home of a contained client trusts its worktree")
def test_a_root_that_the_client_does_not_trust(api: Any) -> None:
    """Nothing is started. Break: list it as offline, with `llmc up` as the next command."""
    fleet = Fleet("claude", api)
    try:
        fleet.set_up("adam")
        config = fleet.config_dir / ".claude.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "projects": {}}))
        fleet.llmc("up", "--detach", code=None)
        items = on_every_surface(fleet, "trust:adam")
        assert "offline:adam" not in items
        assert items["trust:adam"]["next"] == "llmc init --trust && llmc up --detach"
        fleet.llmc("init", "--trust")
        fleet.llmc("up", "--detach")
        fleet.wait("adam", "idle")
        assert listed(fleet) == {}
    finally:
        fleet.close()
