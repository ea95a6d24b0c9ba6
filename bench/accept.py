"""`llmc accept` on ten thousand files, against the git commands that it needs, run one after another.

Both find a branch that has moved by one commit, and land one commit of the worker. Two ways by hand: with a rebase, as
users do it, and by merging trees, as llmc does. The target is relative to the first.
"""

import itertools
import os
import statistics
from collections.abc import Callable
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import fleet, llmc, python, wait_for_rest
from bench.measure import Row, clock_ms, interleave, program_ms, row
from bench.repos import IDENTITY, commit, fill, git
from llmc.records.worker import Status
from llmc.repo.project import Project

NAME = "accept"
TARGET = 1.25
ROUNDS = 12


def run() -> list[Row]:
    with fleet("scripted", "adam", up=None) as (made, project):
        fill(made.source)
        for key, value in IDENTITY.items():  # as users have one, and as git by hand has it here
            git(made.root, "config", key, value)
        made.up("--no-patrol")
        times = interleave(
            {
                "llmc": _accept(made, project),
                "rebase": _bare_git(made.dir / "rebase", _rebased),
                "trees": _bare_git(made.dir / "trees", _merged),
                "start-up": _start_up,
            },
            ROUNDS,
            warm_up=1,
        )
    note = f"of which python and imports: {statistics.median(times['start-up']):.0f} ms"
    rebase_ms, trees_ms = statistics.median(times["rebase"]), statistics.median(times["trees"])
    return [
        row(NAME, "10,000 files", times["llmc"], "git, by a rebase", rebase_ms, target=TARGET, note=note),
        row(NAME, "10,000 files", times["llmc"], "git, by merging trees", trees_ms),
    ]


def _accept(made: Fleet, project: Project) -> Callable[[], float]:
    numbers = itertools.count()

    def timed() -> float:
        number = next(numbers)
        script = (
            f"echo {number} > work.txt; git add work.txt; git -c user.name=W -c user.email=w@e commit -qm W"
        )
        made.llmc("start", "--prompt", f"@sh {script}")
        wait_for_rest(project, "adam", Status.NEEDS_REVIEW)
        commit(made.source, "moved.txt", f"{number}\n")
        return program_ms([llmc(), "accept", "adam", "--json"], os.environ)

    return timed


def _start_up() -> float:
    """The cost of the command before it does anything."""
    return program_ms([python(), "-c", "import llmc.cli.accept_work, llmc.landing.accept"], os.environ)


def _rebased(worktree: Path) -> str:
    git(worktree, "rebase", "-q", "origin/main")
    return "HEAD^{tree}"


def _merged(worktree: Path) -> str:
    return git(worktree, "merge-tree", "--write-tree", "origin/main", "HEAD")


def _bare_git(place: Path, onto_base: Callable[[Path], str]) -> Callable[[], float]:
    """The same landing by hand: a source, a clone of it, and a worktree of the clone."""
    source, root, worktree = place / "src", place / "root", place / "root/.worktrees/w"
    source.mkdir(parents=True)
    git(source, "init", "-q", "-b", "main")
    fill(source)
    git(place, "clone", "-q", "--local", "--no-checkout", str(source), str(root))
    git(root, "config", "core.bare", "true")
    git(root, "worktree", "add", "-q", "-b", "w", str(worktree), "origin/main")
    numbers = itertools.count()

    def land() -> None:
        git(worktree, "status", "--porcelain")
        git(source, "status", "--porcelain", "--untracked-files=no")
        git(root, "fetch", "-q", "origin", "+refs/heads/main:refs/remotes/origin/main")
        tree = onto_base(worktree)
        squash = git(worktree, "commit-tree", tree, "-p", "origin/main", "-m", "W")
        git(root, "update-ref", "refs/land", squash)
        git(source, "fetch", "-q", str(root), "refs/land")
        git(source, "merge", "-q", "--ff-only", squash)
        git(root, "fetch", "-q", "origin", "+refs/heads/main:refs/remotes/origin/main")
        git(worktree, "update-ref", f"refs/trash/{squash}", "HEAD")
        git(worktree, "reset", "-q", "--hard", "origin/main")
        git(worktree, "clean", "-fdq")
        git(worktree, "status", "--porcelain")

    def timed() -> float:
        number = next(numbers)
        commit(worktree, "work.txt", f"{number}\n")
        commit(source, "moved.txt", f"{number}\n")
        return clock_ms(land)

    return timed
