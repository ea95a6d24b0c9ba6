"""The address of a contained Claude Code's model, and what the client does not request."""

import json
from pathlib import Path

import pytest

from llmc.agents.claude.client import ClaudeCode
from llmc.agents.claude.home import make_home

ANTHROPIC = ("api.anthropic.com", "platform.claude.com")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, ANTHROPIC),
        ({"ANTHROPIC_BASE_URL": ""}, ANTHROPIC),
        ({"ANTHROPIC_API_KEY": "https://no.example"}, ANTHROPIC),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:4000"}, ("127.0.0.1:4000",)),
        ({"ANTHROPIC_BASE_URL": "https://user:password@Gateway.example/v1"}, ("gateway.example:443",)),
        ({"ANTHROPIC_BASE_URL": "http://[::1]"}, ("[::1]:80",)),
        ({"ANTHROPIC_BASE_URL": "no url"}, ANTHROPIC),
        ({"ANTHROPIC_BASE_URL": "http://a:99999"}, ANTHROPIC),
        ({"ANTHROPIC_BEDROCK_BASE_URL": "https://bedrock.example"}, ("bedrock.example:443",)),
    ],
)
def test_the_hosts_of_the_model(tmp_path: Path, variables: dict[str, str], wanted: tuple[str, ...]) -> None:
    assert ClaudeCode().endpoints({"CLAUDE_CONFIG_DIR": str(tmp_path), **variables}) == wanted


def test_the_user_s_settings_may_name_it(tmp_path: Path) -> None:
    """As the client reads them: they override the environment."""
    (tmp_path / "settings.json").write_text(
        json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://set.example"}})
    )
    variables = {"CLAUDE_CONFIG_DIR": str(tmp_path), "ANTHROPIC_BASE_URL": "https://other.example"}
    assert ClaudeCode().endpoints(variables) == ("set.example:443",)
    (tmp_path / "settings.json").write_text("{")
    assert ClaudeCode().endpoints(variables) == ("other.example:443",)


def test_a_contained_client_asks_for_no_news_unless_the_user_wants_them(tmp_path: Path) -> None:
    """Otherwise each agent would try unlisted hosts, and the user would be notified."""
    name = "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"
    for given, wanted in (({}, "1"), ({name: "0"}, "0")):
        home = make_home(tmp_path / "home", tmp_path, {"HOME": str(tmp_path), **given}, ())
        assert home.environment[name] == wanted
