"""Mount points in a place that an agent can write."""

from pathlib import Path

from llmc.agents.claude.home import make_home
from llmc.sandbox.mount_points import clear
from llmc.sandbox.rules import Mount


def test_what_an_agent_made_where_the_user_s_settings_are_shown_is_removed(tmp_path: Path) -> None:
    """A user's file that is new since the last launch.

    Break: no `clear`: bubblewrap follows the link out of the box.
    """
    user, home = tmp_path / "user", tmp_path / "root/home/adam"
    (user / "skills").mkdir(parents=True)
    (user / "CLAUDE.md").touch()
    home.mkdir(parents=True)
    (home / "CLAUDE.md").symlink_to("/oldroot/planted")
    (home / "skills").touch()
    (home / "notes").symlink_to("/oldroot/planted")
    made = make_home(home, user, {"HOME": str(tmp_path)}, ())
    clear(made.mounts, str(tmp_path / "root"))
    left = {path.name for path in home.iterdir() if path.is_symlink() or path.name == "skills"}
    assert left == {"notes"}


def test_links_of_what_is_shown_at_its_own_place_stay(tmp_path: Path) -> None:
    """Break: remove every link: a virtual environment in a worktree has some."""
    (tmp_path / "worktree").mkdir()
    link = tmp_path / "worktree/lib64"
    link.symlink_to("lib")
    clear([Mount(str(tmp_path / "worktree"), True), Mount(str(link))], str(tmp_path))
    assert link.is_symlink()
