"""Fixtures shared by several files here."""

from collections.abc import Iterator

import pytest

from tests.support.fleet import Fleet


@pytest.fixture(scope="module")
def contained_fleet() -> Iterator[Fleet]:
    """Two contained workers, shared by the tests of a file."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", "eve", config={"defaults.sandbox": "on"})
    fleet.up()
    yield fleet
    fleet.close()


@pytest.fixture
def contained(contained_fleet: Fleet) -> Iterator[Fleet]:
    """The same, for one test, which leaves them idle."""
    yield contained_fleet.new_case()
    contained_fleet.rest("adam", "eve")
