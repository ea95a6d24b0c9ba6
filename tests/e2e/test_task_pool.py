"""Tasks from a command, and the log of what happened to tasks."""

import json
import re

import pytest

from llmc.repo.project import open_project
from llmc.tasks.pool_command import take_up
from llmc.tasks.source import source_of
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, auto_config, tasks_of
from tests.support.waiting import wait_until

#: what has not landed yet, in the source; other output is for the log. Runs where the daemon was started
POOL = """\
echo looking $FROM_THERE >&2
echo x >> asked
cd "$LLMC_SOURCE"
test -e second && exit 4
if test -e first; then cat {tickets}/2; else cat {tickets}/1; fi
"""


def landed(fleet: Fleet, *subjects: str) -> bool:
    return set(subjects) <= set(fleet.log())


@pytest.mark.req("0-007", "0-010", "0-057", "0-094", "0-095", "4-105")
@pytest.mark.soak
def test_a_command_gives_tasks_until_it_fails(scripted: Fleet) -> None:
    """Break: ignore the keys of open tasks in take_in; or do not raise for code 3; or leave ledger.note out.

    Or run the commands where the daemon works (/), or in the source;
    or no `about` for the post-accept command.
    """
    tickets = scripted.dir / "tickets"
    tickets.mkdir()
    script = scripted.dir / "pool.sh"
    script.write_text(POOL.format(tickets=tickets))
    work = "@sh echo {0} > {0}; git add {0}; " + COMMIT + " {0}"
    (tickets / "1").write_text(f"id: T-1\nThe first\n\n@sh sleep 3\n{work.format('first')}\n")
    config = auto_config(
        scripted, **{"auto.task_pool_command": f"sh {script}", "defaults.patrol_interval_secs": "1"}
    )
    trap = scripted.dir / "trap"
    trap.mkdir()
    for program in ("lat", "lattice"):
        (trap / program).write_text(f"#!/bin/sh\ntouch {scripted.dir}/called\n")
        (trap / program).chmod(0o755)
    scripted.env["PATH"] = f"{trap}:{scripted.env['PATH']}"
    scripted.set_up(
        config={**config, "auto.concurrency": "2", "auto.post_accept_command": "echo posted; pwd"}
    )
    second = {"key": "T-2", "subject": "The second", "description": work.format("second"), "priority": 0}
    (tickets / "2").write_text(json.dumps(second))
    place = scripted.dir / "elsewhere"
    place.mkdir()
    scripted.llmc(
        "--root", str(scripted.root), "up", "--detach", "--auto", "--no-canary", cwd=place, FROM_THERE="yes"
    )
    asked = place / "asked"
    wait_until(lambda: asked.exists() and len(asked.read_text().split()) > 2, 60)
    assert list(tasks_of(scripted)) == ["1"], "it is printed every time while it is open"
    wait_until(lambda: landed(scripted, "first", "second"), 60)
    files = tasks_of(scripted)
    assert [(file["subject"], file["metadata"]["llmc"]["key"]) for file in files.values()] == [
        ("The first", "T-1"),
        ("The second", "T-2"),
    ]
    assert files["2"]["metadata"]["priority"] == 0
    assert [row["task_id"] for row in scripted.events("task_received")] == ["1", "2"]
    before = len(asked.read_text().split())
    wait_until(lambda: len(asked.read_text().split()) > before, 60)
    assert scripted.events("auto_failed") == [], "no ready task is not a failure"

    told = scripted.root / "logs/task_pool.log"
    wait_until(lambda: "exit code 4\n" in told.read_text(), 60)
    log = told.read_text()
    for line in (
        r"task 1 discovered: The first",
        r"auto-\d task 1 selected; ready tasks: 1",
        r"auto-\d task 1 claimed",
        r"auto-\d task 1 completed",
        rf"\$ sh {script}",
        r"exit code 4",
    ):
        assert re.search(rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{{4}} {line}$", log, re.MULTILINE), line
    assert "looking yes\n" in log
    assert '"key": "T-2"' in log

    posted = (scripted.root / "logs/post_accept.log").read_text()
    stamp, whose = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", r"auto-\d task 1"
    entry = rf"{stamp} {whose} \$ echo posted; pwd\nposted\n{re.escape(str(place))}\n{stamp} {whose} exit code 0\n"
    assert re.match(entry, posted), posted
    assert not (scripted.dir / "called").exists(), "the old task manager is not involved"

    script.write_text("echo 'too many claims'; exit 3\n")
    failed = wait_until(lambda: scripted.events("auto_failed"), 60)[0]
    assert (failed["cause"], failed["reason"]) == (
        "command",
        "the task pool command reached its claim limit (code 3)",
    )
    wait_until(lambda: not (scripted.root / ".llmc/daemon.json").exists(), 60)
    assert "too many claims" in (scripted.root / "logs/auto.log").read_text()


def test_an_answer_that_a_crash_cut_off_is_taken_up_once(scripted: Fleet) -> None:
    """Break: forget the entries that became tasks in take_up."""
    scripted.set_up(config=auto_config(scripted))
    project = open_project(str(scripted.root))
    project.root.task_pool.mkdir()
    for _ in range(2):
        (project.root.task_pool / "answer-17.txt").write_text("Do it\n")
        take_up(project, source_of(project), crashed=True)
    files = tasks_of(scripted)
    assert [file["subject"] for file in files.values()] == ["Do it"]
    assert list(project.root.task_pool.iterdir()) == []
