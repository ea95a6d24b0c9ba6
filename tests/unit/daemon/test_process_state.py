"""A process may serve several roots: process-wide state is changed in one place, or nowhere."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import llmc
from llmc.agents.claude.client import ClaudeCode
from llmc.config.paths import Root
from llmc.daemon.main import Daemon, Options
from llmc.repo.project import agent_for, bare_project

#: what each root would change for the others
CHANGES = re.compile(
    r"os\.environ\[[^\]]+\]\s*=(?!=)|os\.environ\.(?:update|setdefault|pop|clear)\(|os\.(?:putenv|unsetenv|umask)\("
)
SIGNALS = re.compile(r"add_signal_handler\(")


def found(pattern: re.Pattern[str]) -> set[str]:
    home = Path(llmc.__file__).parent
    return {str(path.relative_to(home)) for path in home.rglob("*.py") if pattern.search(path.read_text())}


def test_nobody_changes_the_environment_or_the_umask() -> None:
    """Break: `os.environ["LLMC_AGENT"] = ...` in the daemon: one root's agent would be that of all."""
    assert found(CHANGES) == set()


def test_the_host_alone_takes_signals_for_the_daemon() -> None:
    """Break: add a handler in daemon/main.py, as before;
    the last root to start would take it from the others.
    """
    of_the_screen = {"tui/terminal.py"}  # which is its own process
    assert found(SIGNALS) == {"daemon/host.py", *of_the_screen}


def test_the_program_of_a_daemons_agents_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `claude` means may change while it runs.

    Break: lose it when config.toml has changed (`_as_daemon`).
    """
    monkeypatch.setenv("LLMC_AGENT", "scripted")
    (tmp_path / "config.toml").write_text("")
    project = bare_project(Root(tmp_path))
    one = Daemon(project, Options())
    one.pinned_agent = ClaudeCode("/opt/claude-1/claude")
    assert agent_for(one._as_daemon(project)).name == "claude"
    assert agent_for(replace(project)).name == "scripted", "and no other root's"
