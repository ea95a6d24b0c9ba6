"""Shared by the tests of the tools."""

import pytest

from tests.support.repos import Mold


@pytest.fixture(scope="module")
def mold(tmp_path_factory: pytest.TempPathFactory) -> Mold:
    return Mold(tmp_path_factory.mktemp("mold"))
