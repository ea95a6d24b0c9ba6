"""A root full of hostile text, created and served once per file; and one for tests that change it."""

from collections.abc import Iterator

import pytest

from tests.support.repos import Mold, project_at
from tests.support.web import Place, Web, hostile_root, hostile_screen, plain_root


@pytest.fixture(scope="module")
def hostile_web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("TMUX_TMPDIR", str(tmp_path_factory.mktemp("tmux")))
        hostile_root(folder)
        with Place(project_at(folder / "root")).served() as web:
            yield web


@pytest.fixture
def hostile(hostile_web: Web) -> Web:
    """A signed-in browser; an agent's screen is hostile, too."""
    live = hostile_web.place.live
    hostile_web.get("/board")
    assert hostile_web.portal is not None
    hostile_web.portal.call(live._apply, hostile_screen("w1"))
    return hostile_web


@pytest.fixture
def web(mold: Mold) -> Iterator[Web]:
    """A signed-in browser on a new root for each test."""
    with Place(project_at(mold.place(plain_root) / "root")).served() as made:
        yield made
