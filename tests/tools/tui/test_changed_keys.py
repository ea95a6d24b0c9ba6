"""Keys that `ui.keys` changes: the screen names them everywhere."""

from llmc.config.edit import set_value
from llmc.repo.project import Project
from tests.support.repos import project_at
from tests.tools.tui.conftest import Driver, drive


def test_the_screen_names_the_keys_that_work(project: Project) -> None:
    """Break: write a key into a text."""
    changed = {"message": "ctrl+g", "back": "b", "mouse": "ctrl+o", "down": "J"}
    for action, key in changed.items():
        set_value(project.root.path / "config.toml", f"ui.keys.{action}", key)

    async def look(screen: Driver) -> None:
        app = screen.app
        assert "C-g message" in app._bar(200).plain
        app._tell_typing()
        assert "press C-g to send " in app.said[-1].outcome
        await screen.press("tab")
        assert app.said[-1].outcome.startswith("J and k scroll the pane")
        await screen.press("tab", "?")
        page = "\n".join(line.plain for line in app.page_lines)
        words = " ".join(page.split())
        assert "  C-g " in page
        assert "press C-o to turn the mouse off" in words
        await screen.press("b")
        assert app.view == ""

    drive(project_at(project.root.path), look)
