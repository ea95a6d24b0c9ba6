"""What a contained Claude Code sees of the user's own `.claude.json`."""

import json
from pathlib import Path
from typing import Any

from llmc.agents.claude.home import make_home

KEY = "sk-ant-" + "0" * 30
ACCOUNT = {"accountUuid": "1", "emailAddress": "user@example.com"}
#: as the client writes it
THEIRS = {
    "hasCompletedOnboarding": True,
    "numStartups": 7,
    "theme": "dark",
    "oauthAccount": ACCOUNT,
    "primaryApiKey": "sk-ant-of-the-console",
    "customApiKeyResponses": {"approved": [KEY[-20:], "end-of-another-key"], "rejected": ["end-of-a-third"]},
    "projects": {
        "/secret/project": {"history": ["SECRET"], "mcpServers": {"db": {"env": {"TOKEN": "SECRET"}}}}
    },
    "mcpServers": {"github": {"headers": {"Authorization": "SECRET"}}},
    "githubRepoPaths": {"secret/project": ["/secret/project"]},
    "machineID": "SECRET",
    "a key of a later version": "SECRET",
}


def seen(tmp_path: Path, theirs: object, **environment: str) -> dict[str, Any]:
    """The file in the home of an agent that trusts /w."""
    (tmp_path / ".claude.json").write_text(json.dumps(theirs))
    make_home(tmp_path / "home", tmp_path, {"HOME": str(tmp_path), **environment}, (Path("/w"),))
    found = json.loads((tmp_path / "home/.claude.json").read_bytes())
    assert isinstance(found, dict)
    return found


def test_it_is_what_the_client_needs_to_start_and_no_more(tmp_path: Path) -> None:
    """Break: copy the file without its known secrets: a later version's key would be shown."""
    assert seen(tmp_path, THEIRS, ANTHROPIC_API_KEY=KEY) == {
        "hasCompletedOnboarding": True,
        "numStartups": 7,
        "theme": "dark",
        "oauthAccount": ACCOUNT,
        "primaryApiKey": "sk-ant-of-the-console",
        "customApiKeyResponses": {"approved": [KEY[-20:]]},
        "projects": {"/w": {"hasTrustDialogAccepted": True}},
    }


def test_the_answers_about_other_keys_stay_out(tmp_path: Path) -> None:
    """The settings may name the key. Break: show all answers: they have the ends of keys."""
    assert seen(tmp_path, THEIRS)["customApiKeyResponses"] == {}
    (tmp_path / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_API_KEY": "end-of-a-third"}}))
    make_home(tmp_path / "home", tmp_path, {"HOME": str(tmp_path)}, ())
    found = json.loads((tmp_path / "home/.claude.json").read_bytes())
    assert found["customApiKeyResponses"] == {"rejected": ["end-of-a-third"]}


def test_a_file_that_is_not_as_the_client_writes_it(tmp_path: Path) -> None:
    for odd in ([], {"customApiKeyResponses": []}, {"customApiKeyResponses": {"approved": None}}, "x"):
        assert seen(tmp_path, odd, ANTHROPIC_API_KEY=KEY)["customApiKeyResponses"] == {}


def test_what_an_agent_made_of_its_home_does_not_stop_the_next_launch(tmp_path: Path) -> None:
    """An unreadable home, and directories where files belong.

    Break: no `chmod` or no `remove_tree` in home.py.
    """
    seen(tmp_path, THEIRS)
    home = tmp_path / "home"
    for name in (".claude.json", "settings.json"):
        (home / name).unlink()
        (home / name / "inner").mkdir(parents=True)
    for place in (home / "projects", home):
        place.chmod(0)
    assert seen(tmp_path, THEIRS)["theme"] == "dark"
    assert (home / "settings.json").read_text() == "{}"
    assert [oct(place.stat().st_mode & 0o777) for place in (home, home / "projects")] == ["0o700"] * 2
