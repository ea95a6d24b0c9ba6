"""A root in a fleet: what it shares is part of the opened project, and ends with it."""

from pathlib import Path

from llmc.config.model import Config, Fleet, Repo
from llmc.config.paths import Root
from llmc.repo.project import for_overseer, opened


def test_a_root_that_left_its_fleet_lands_at_home(tmp_path: Path) -> None:
    """Break: remember this process's fleets by path; a root that left one would land there forever."""
    source, remote = str(tmp_path / "mine"), "git@example.com:project.git"
    fleet = Fleet(database="postgresql://llmc@/none?host=/nonexistent", node="one", remote=remote)
    inside = opened(Root(tmp_path), Config(repo=Repo(source=source), fleet=fleet))
    assert (inside.upstream, inside.lands_elsewhere) == (remote, True)
    assert for_overseer(inside).shared is inside.shared
    outside = opened(Root(tmp_path), Config(repo=Repo(source=source)))
    assert (outside.upstream, outside.lands_elsewhere) == (source, False)
    assert inside.upstream == remote, "an open one stays as it was"
