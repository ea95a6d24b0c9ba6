"""A landing on a remote that several machines share, against a loop of bare pushes to the same server.

Both push one commit on top of the branch, over a loopback connection. llmc also reads the fence, writes the
ledger (a file here), makes a new fence value, fetches to prove that the commit landed,
and checks for unfinished work to remove.
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from tests.support.file_ledger import FileLedger
from tests.support.git_daemon import serving
from tests.support.nodes import task
from tests.support.remotes import BareRemote
from tests.support.repos import make_project

from bench.measure import Row, clock_ms, interleave, row
from bench.repos import git
from llmc.landing import ways
from llmc.repo.project import Project, Shared
from llmc.repo.rules.fenced_push import Remote

NAME = "fleet_landing"
#: at least half as many landings as the loop
TARGET = 2.0
ROUNDS = 40


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as place, serving(Path(place)) as server:
        folder = Path(place)
        remotes = {name: BareRemote(folder / f"{name}.git") for name in ("llmc", "bare")}
        project = make_project(server.url("llmc.git"), folder / "root")
        ledger = FileLedger(folder / "ledger.json")
        project = replace(project, shared=Shared(Remote(project.source, "main"), ledger))
        clone = folder / "clone"
        git(folder, "clone", "-q", server.url("bare.git"), str(clone))
        cases = {"llmc": _landing(project, ledger), "bare": _pushing(clone)}
        times = interleave(cases, ROUNDS)
        landed = {name: len(remote.log()) for name, remote in remotes.items()}
    if len(set(landed.values())) != 1:
        raise RuntimeError(f"not everything landed: {landed}")
    bare_ms, ours_ms = (statistics.median(times[name]) for name in ("bare", "llmc"))
    note = f"{60_000 / ours_ms:.0f} against {60_000 / bare_ms:.0f} landings a minute"
    return [row(NAME, "one machine", times["llmc"], "git push", bare_ms, target=TARGET, note=note)]


def _landing(project: Project, ledger: FileLedger) -> Callable[[], float]:
    way, root = ways.way_of(project), project.root.path
    numbers = itertools.count()

    def timed() -> float:
        number = next(numbers)
        base = git(root, "rev-parse", project.base)
        key = task(number)
        offer = ways.Offer("w", _commit(root, base, number), base, task=key, claim=ledger.claim(key))

        def land() -> None:
            way.begin(project, offer)
            if not way.verify(project, offer.commit):
                raise RuntimeError(f"{offer.commit} did not land")
            way.spread(project, offer)

        return clock_ms(land)

    return timed


def _pushing(clone: Path) -> Callable[[], float]:
    numbers = itertools.count()

    def timed() -> float:
        commit = _commit(clone, git(clone, "rev-parse", "origin/main"), next(numbers))
        return clock_ms(lambda: git(clone, "push", "-q", "origin", f"{commit}:refs/heads/main"))

    return timed


def _commit(repo: Path, base: str, number: int) -> str:
    """A commit on top of `base`; what it changes does not matter here."""
    tree = git(repo, "rev-parse", f"{base}^{{tree}}")
    return git(repo, "commit-tree", tree, "-p", base, "-m", f"Landing {number}")
