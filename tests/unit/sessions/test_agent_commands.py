"""What the daemon runs for a contained agent: nothing that it does not know word for word."""

import pytest

from llmc.sessions.rules.agent_commands import shown_to_agents


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        ("status", "status"),
        ("status --json", "status --json"),
        ("tasks list", "tasks list"),
        ("tasks --json list", "tasks list --json"),
        ("tasks list -a --json", "tasks list --json -a"),
        ("tasks list --state ready,waits", "tasks list --state ready,waits"),
        ("tasks list -s ready --all", "tasks list --all --state ready"),
        ("tasks list --state=ready", "tasks list --state ready"),
        ("tasks show 7", "tasks show -- 7"),
        ("tasks show --json 7", "tasks show --json -- 7"),
    ],
)
def test_what_any_agent_may_see_is_run(given: str, runs: str) -> None:
    assert shown_to_agents(given.split()) == runs.split()


@pytest.mark.parametrize(
    "given",
    [
        "",
        "accept eve",
        "status accept",
        "status --watch",
        "status --json --root /",
        "--root / status",
        "status --debug",
        "--json=1 status",
        "tasks",
        "tasks approve 1",
        "tasks add x",
        "tasks list extra",
        "tasks list --state",
        "tasks list --state ../x",
        "tasks list --state --json",
        "tasks show",
        "tasks show 1 2",
        "tasks show ../1",
        "tasks show 1 --state ready",
        "report done",
        "hook x y",
    ],
)
def test_nothing_else_is_run(given: str) -> None:
    """Break: pass on options that are not listed."""
    assert shown_to_agents(given.split()) is None
