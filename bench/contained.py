"""A check of about a second, contained, against the same check that is not."""

import itertools
import statistics
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import fleet
from bench.measure import Row, clock_ms, interleave, row
from bench.repos import commit, fill, git
from llmc.landing import validation
from llmc.repo import provision
from llmc.repo.project import Project, open_project

NAME = "contained"
TARGET = 1.1
ROUNDS = 10
#: as test suites do: many short programs, which read and write the checkout
COMMAND = "for i in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 -c 'import json, unittest' && git status --short && ls -R > listed; done"


def run() -> list[Row]:
    with fleet("scripted", "adam", up=None) as (made, _):
        fill(made.source)
        made.llmc("config", "set", "repo.validate", COMMAND)
        project = open_project(str(made.root))
        git(made.worktree("adam"), "reset", "-q", "--hard", provision.refresh_base(project))
        cases = {setting: _check(made, setting) for setting in ("on", "off")}
        times = interleave(cases, ROUNDS, warm_up=1)
    floor_ms = statistics.median(times["off"])
    return [row(NAME, "validation", times["on"], "the same, not contained", floor_ms, target=TARGET)]


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
