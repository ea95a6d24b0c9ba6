"""A worktree of ten thousand files: reset in place, against removing and adding it again."""

import itertools
import statistics
from collections.abc import Callable

from tests.support.fleet import Fleet

from bench.fleets import fleet
from bench.measure import Row, clock_ms, interleave, row
from bench.repos import commit, fill, git
from llmc.repo import provision
from llmc.repo.project import Project

NAME = "worktree_reset"
TARGET = 1 / 3
ROUNDS = 12


def run() -> list[Row]:
    with fleet("scripted", "adam", up=None) as (made, project):
        fill(made.source)
        provision.refresh_base(project)
        times = interleave({"in place": _in_place(made, project), "anew": _anew(made)}, ROUNDS, warm_up=1)
    floor_ms = statistics.median(times["anew"])
    return [row(NAME, "10,000 files", times["in place"], "worktree remove + add", floor_ms, target=TARGET)]


def _in_place(made: Fleet, project: Project) -> Callable[[], float]:
    numbers = itertools.count()
    record = project.store.worker("adam")

    def timed() -> float:
        number = next(numbers)
        commit(made.worktree("adam"), "work.txt", f"{number}\n")
        commit(made.source, "moved.txt", f"{number}\n")
        base = provision.refresh_base(project)
        return clock_ms(lambda: provision.reset_in_place(project, record, base, "bench"))

    return timed


def _anew(made: Fleet) -> Callable[[], float]:
    place = made.root / ".worktrees/anew"
    git(made.root, "worktree", "add", "-q", "-b", "anew", str(place), "origin/main")

    def again() -> None:
        git(made.root, "worktree", "remove", "--force", str(place))
        git(made.root, "worktree", "add", "-q", "-B", "anew", str(place), "origin/main")

    def timed() -> float:
        commit(place, "work.txt", "work\n")
        return clock_ms(again)

    return timed
