"""Which programs a contained agent sees."""

from pathlib import Path

from llmc.sandbox.shown_programs import places


def test_a_program_beside_a_hidden_place_is_shown_alone(tmp_path: Path) -> None:
    """Break: show only directories: a client directly in the home would be missing inside."""
    home, tools = tmp_path / "home", tmp_path / "tools"
    client, script = home / "claude", home / "script.sh"
    for file in (client, script, tools / "bin/plain"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tools / "bin/script").symlink_to(script)
    hidden = [str(home), str(tmp_path / "root")]
    shown = places(str(tools / "bin"), str(client), hidden)
    assert {str(client), str(script), str(tools / "bin")} <= set(shown)
    assert not {str(home), str(tmp_path), str(tools)} & set(shown)
    # A directory with nothing hidden in it is shown whole: a client may need the files beside it.
    assert str(tools / "bin") in places("", str(tools / "bin/plain"), hidden)
