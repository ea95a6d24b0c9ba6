"""One bare remote and two machines that push to it."""

from pathlib import Path

import pytest

from tests.support.remotes import BareRemote, Machine


@pytest.fixture
def bare(tmp_path: Path) -> BareRemote:
    return BareRemote(tmp_path / "remote.git")


@pytest.fixture
def one(bare: BareRemote, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "one", bare.remote)


@pytest.fixture
def other(bare: BareRemote, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "other", bare.remote)
