"""A launch, a delivery and a check of about a second: contained against not contained."""

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

from bench import submit_receipt
from bench.fleets import fleet, pace_ms
from bench.measure import Row, clock_ms, interleave, row
from bench.repos import commit, fill, git
from llmc.landing import validation
from llmc.repo import provision
from llmc.repo.project import Project, open_project
from llmc.sessions import sessions

NAME = "contained"
TARGET = 1.1
ROUNDS = 10
#: like a test suite: many short programs that read and write the checkout
COMMAND = "for i in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 -c 'import json, unittest' && git status --short && ls -R > listed; done"


#: how much longer a launch may take
LAUNCH_MORE_MS = 150.0
SETTINGS = ("on", "off")


def run() -> list[Row]:
    return [*_agents(), _validation()]


def _agents() -> list[Row]:
    """Two workers, one of them contained: launches until the agent is ready, and messages until their receipt."""
    with fleet("scripted", *SETTINGS, up=None) as (made, _):
        made.configure({f"workers.{name}.sandbox": name for name in SETTINGS})
        made.up()
        project = open_project(str(made.root))
        launches = {name: _launch(made, project, name) for name in SETTINGS}
        launched = interleave({**launches, "pace": pace_ms}, ROUNDS, warm_up=1)
        messages = {
            name: submit_receipt.timer(project, name, submit_receipt.prompt(1024)) for name in SETTINGS
        }
        sent = interleave(messages, ROUNDS, warm_up=1)
    more = [max(0.0, on - off) for on, off in zip(launched["on"], launched["off"], strict=True)]
    usual = f"{statistics.median(launched['on']):.0f} ms, not contained {statistics.median(launched['off']):.0f} ms"
    limit = "a limit in milliseconds"
    return [
        row(
            NAME,
            "launch, more",
            more,
            limit,
            LAUNCH_MORE_MS,
            target=1.0,
            note=usual,
            pace_ms=launched["pace"],
        ),
        row(NAME, "delivery", sent["on"], "the same, not contained", statistics.median(sent["off"])),
    ]


def _launch(made: Fleet, project: Project, name: str) -> Callable[[], float]:
    def timed() -> float:
        with project.worker_lock(name):
            sessions.end(project, name, "measured")
            begun = time.time()
            sessions.start(project, name)
        started = wait_until(lambda: _started(made, name, begun), 60)
        return 1000 * (started - begun)

    return timed


def _started(made: Fleet, name: str, since: float) -> float:
    rows = [row for row in made.events("session_started") if row["worker"] == name and row["ts"] > since]
    return float(rows[-1]["ts"]) if rows else 0.0


def _validation() -> Row:
    with fleet("scripted", "adam", up=None) as (made, _):
        fill(made.source)
        made.llmc("config", "set", "repo.validate", COMMAND)
        project = open_project(str(made.root))
        git(made.worktree("adam"), "reset", "-q", "--hard", provision.refresh_base(project))
        cases = {setting: _check(made, setting) for setting in ("on", "off")}
        times = interleave(cases, ROUNDS, warm_up=1)
    floor_ms = statistics.median(times["off"])
    return row(NAME, "validation", times["on"], "the same, not contained", floor_ms, target=TARGET)


def _check(made: Fleet, setting: str) -> Callable[[], float]:
    made.configure({"sandbox.checks": setting})
    project, worktree = open_project(str(made.root)), made.worktree("adam")
    numbers = itertools.count()

    def timed() -> float:
        base = git(worktree, "rev-parse", "HEAD")
        commit(worktree, "work.txt", f"{setting} {next(numbers)}\n")
        return clock_ms(lambda: _validate(project, worktree, base))

    return timed


def _validate(project: Project, worktree: Path, base: str) -> None:
    made_now = git(worktree, "rev-parse", "HEAD")
    validation.check_commit(project, "adam", made_now, base, worktree=worktree)
