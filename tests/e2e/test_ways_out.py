"""From every place where a worker can stand there is a way on, and what is said to be the way is one."""

import json
from typing import Any

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com -c core.editor=true"
COMMIT = f"{WHO} commit -q -m"


def state(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text()))


def finish_by_hand(fleet: Fleet, worker: str) -> None:
    """What a person does in `llmc console`."""
    tree = fleet.worktree(worker)
    (tree / "a.txt").write_text(f"main and {worker}\n")
    fleet.git("add", "a.txt", cwd=tree)
    fleet.git("-c", "core.editor=true", "rebase", "--continue", cwd=tree)


def test_conflicts_that_nobody_resolved(scripted: Fleet) -> None:
    """Break: leave `error` to a reset, refuse messages there, or repeat what was true when it failed."""
    fleet, names = scripted, ("adam", "baker", "carol")
    fleet.commit("a.txt", "first\n", "Add a.txt")
    fleet.set_up(*names, config={"defaults.patrol_interval_secs": "1"})
    fleet.up()
    for name in names:
        task = f"Do it\n@sh echo {name} > a.txt; git add -A; {COMMIT} 'By {name}'\n@on-conflict true"
        fleet.llmc("start", "--worker", name, "--prompt", task)
    for name in names:
        fleet.wait(name, "needs_review")
    fleet.commit("a.txt", "main\n", "Theirs")
    for name in names:
        wait_until(lambda name=name: state(fleet)["workers"][name]["status"] == "error", story=fleet.story)
    assert "resolve it (llmc console adam), or llmc message adam" in fleet.llmc("status").out
    # Talked to, it goes on with the rebase that llmc began.
    resolve = f"printf 'both\\n' > a.txt; git add a.txt; {WHO} rebase --continue"
    fleet.llmc("message", "baker", f"Resolve it like this\n@sh {resolve}")
    assert fleet.wait("baker", "needs_review")["reason"] == "conflicts resolved"
    assert state(fleet)["workers"]["baker"]["pre_rebase_sha"] == ""
    # Resolved by a person, it is seen by the daemon; and until then, what is said of it is what is so.
    finish_by_hand(fleet, "adam")
    notes = fleet.worktree("adam") / "notes"
    notes.write_text("left over\n")
    wait_until(lambda: "there are uncommitted changes" in fleet.status("adam")["error_reason"])
    notes.unlink()
    wait_until(lambda: fleet.status("adam")["status"] == "needs_review", story=fleet.story)
    assert fleet.status("adam")["reason"] == "conflicts resolved by hand"
    # Without a daemon, by whoever looks.
    fleet.kill_daemon()
    finish_by_hand(fleet, "carol")
    assert fleet.status("carol")["reason"] == "conflicts resolved by hand"
    fleet.llmc("accept", "carol")
    assert fleet.log()[0] == "By carol"
