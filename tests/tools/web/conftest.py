"""A root full of hostile text, made once for a file; and one for tests that change it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repos import Mold, project_at
from tests.support.web import Place, Web, hostile_root, hostile_screen, plain_root


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        hostile_root(folder)
    return folder / "root"


@pytest.fixture
def hostile(hostile_folder: Path) -> Iterator[Web]:
    """A signed-in browser; every screen and the last order are hostile, too."""
    place = Place(project_at(hostile_folder))
    with place.served() as web:
        web.get("/board")
        assert web.portal is not None
        web.portal.call(place.live._apply, hostile_screen("w1"))
        yield web


@pytest.fixture
def web(mold: Mold) -> Iterator[Web]:
    """A signed-in browser on a root that is new for each test."""
    with Place(project_at(mold.place(plain_root) / "root")).served() as made:
        yield made
