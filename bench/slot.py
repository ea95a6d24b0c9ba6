"""A validation slot of ten thousand files, set up for a commit, against the git commands that it needs.

Both come from another commit, and find files from an earlier check. Besides the ratio there is a limit in seconds: a
check costs at most half a second beyond its command.
"""

import itertools
import statistics
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import fleet, pace_ms
from bench.measure import Row, clock_ms, interleave, row
from bench.repos import commit, fill, git
from llmc.landing import slots, validation
from llmc.repo import provision
from llmc.repo.project import Project, open_project

NAME = "slot"
TARGET = 2.0
LIMIT_MS = 500.0
ROUNDS = 12


def run() -> list[Row]:
    with fleet("scripted", "adam", up=None) as (made, _):
        fill(made.source)
        made.llmc("config", "set", "repo.validate", "true")
        made.llmc("config", "set", "repo.setup", "true")
        project = open_project(str(made.root))
        git(made.worktree("adam"), "reset", "-q", "--hard", provision.refresh_base(project))
        cases = {"check": _check(made, project), "git": _bare_git(made), "true": _command(made, project)}
        cases["pace"] = pace_ms
        times = interleave(cases, ROUNDS, warm_up=1)
    command_ms = statistics.median(times["true"])
    beyond = [elapsed - command_ms for elapsed in times["check"]]
    floor_ms = statistics.median(times["git"])
    note = f"the command itself: {command_ms:.0f} ms"
    return [
        row(NAME, "10,000 files", beyond, "its git commands", floor_ms, target=TARGET, note=note),
        row(NAME, "10,000 files", beyond, "half a second", LIMIT_MS, target=1.0, pace_ms=times["pace"]),
    ]


def _check(made: Fleet, project: Project) -> Callable[[], float]:
    """A whole check whose command does nothing."""
    numbers = itertools.count()
    worktree = made.worktree("adam")

    def timed() -> float:
        base = git(worktree, "rev-parse", "HEAD")
        commit(worktree, "work.txt", f"{next(numbers)}\n")
        made_now = git(worktree, "rev-parse", "HEAD")
        _leave_something(slots.every(project)[0].path)
        return clock_ms(lambda: validation.check_commit(project, "adam", made_now, base, worktree=worktree))

    return timed


def _command(made: Fleet, project: Project) -> Callable[[], float]:
    return lambda: clock_ms(lambda: validation.run(project, "adam", made.worktree("adam")))


def _bare_git(made: Fleet) -> Callable[[], float]:
    place = made.root / ".llmc/bare"
    git(made.root, "worktree", "add", "-q", "--detach", str(place), "origin/main")
    worktree = made.worktree("adam")

    def again() -> None:
        git(place, "ls-files", "-v", "-z")
        git(place, "checkout", "-q", "--force", "--detach", git(worktree, "rev-parse", "HEAD"))
        git(place, "clean", "-ffdq")
        git(place, "status", "--porcelain")
        git(place, "ls-files", "-s", "-z", "--", ":(glob)**/package.json")

    def timed() -> float:
        _leave_something(place)
        return clock_ms(again)

    return timed


def _leave_something(place: Path) -> None:
    if place.exists():
        (place / "work.txt").write_text("changed by a check\n")
        (place / "left.txt").write_text("left by a check\n")
