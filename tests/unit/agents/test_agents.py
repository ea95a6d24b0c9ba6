"""The two agents behind the protocol: neither is a kind of the other, and both start the same way."""

from pathlib import Path

import pytest

from llmc.agents.claude.client import ClaudeCode
from llmc.agents.claude.layout import CONFIG_DIR, ENCLOSING_MARKS
from llmc.agents.protocol import Agent, Launch
from llmc.agents.scripted import command_line
from llmc.agents.scripted.client import Scripted
from llmc.base.names import ClaudeSessionId

LAUNCH = Launch(
    settings=Path("/s/settings.json"),
    model="opus",
    skip_permissions=True,
    allowed_tools=("Bash", "Edit"),
    unattended=True,
    resume=ClaudeSessionId("11111111-2222-4333-8444-555555555555"),
)

AGENTS: list[Agent] = [ClaudeCode("/bin/true"), Scripted(Path("/r/.llmc/agents"))]


def test_neither_is_a_kind_of_the_other() -> None:
    """What only one of them has is in its own methods. Break: let Scripted inherit from ClaudeCode."""
    assert not issubclass(Scripted, ClaudeCode)


def test_both_take_the_same_flags_and_settings() -> None:
    """Break: give one of them its own flag; tests with the scripted agent would prove less."""
    claude, scripted = (agent.argv(LAUNCH)[len(agent.program()) :] for agent in AGENTS)
    assert claude == scripted
    assert AGENTS[0].settings("hook") == AGENTS[1].settings("hook")


def test_the_scripted_agent_understands_each_flag() -> None:
    """Break: take a flag out of agents/scripted/command_line.py."""
    chosen = command_line.parse(AGENTS[1].argv(LAUNCH)[len(AGENTS[1].program()) :])
    assert (chosen.settings, chosen.model, chosen.resume) == ("/s/settings.json", "opus", LAUNCH.resume)
    assert (chosen.skip_permissions, chosen.allowed_tools) == (True, ["Bash", "Edit"])
    assert not chosen.allows("AskUserQuestion")


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_nothing_of_an_enclosing_client_is_inherited(agent: Agent) -> None:
    """Break: start it with the whole environment."""
    around = dict.fromkeys(ENCLOSING_MARKS, "1") | {"HOME": "/home/p", "KEPT": "1"}
    environment = agent.environment(around)
    assert environment["KEPT"] == "1"
    assert not environment.keys() & set(ENCLOSING_MARKS)


def test_the_scripted_agent_keeps_out_of_a_persons_files() -> None:
    """Break: use the user's CLAUDE_CONFIG_DIR, or ~/.claude."""
    theirs = {"HOME": "/home/p", CONFIG_DIR: "/home/p/theirs"}
    claude, scripted = AGENTS
    assert scripted.environment(theirs)[CONFIG_DIR] == "/r/.llmc/agents/scripted"
    assert claude.config_dir(theirs) == Path("/home/p/theirs")
    assert claude.config_dir({"HOME": "/home/p"}) == Path("/home/p/.claude")
