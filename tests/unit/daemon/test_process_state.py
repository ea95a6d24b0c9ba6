"""A process may work for several roots: what belongs to the process is changed in one place, or nowhere."""

import re
from pathlib import Path

import llmc

#: what each root would change under the others' feet
CHANGES = re.compile(
    r"os\.environ\[[^\]]+\]\s*=(?!=)|os\.environ\.(?:update|setdefault|pop|clear)\(|os\.(?:putenv|unsetenv|umask)\("
)
SIGNALS = re.compile(r"add_signal_handler\(")


def found(pattern: re.Pattern[str]) -> set[str]:
    home = Path(llmc.__file__).parent
    return {str(path.relative_to(home)) for path in home.rglob("*.py") if pattern.search(path.read_text())}


def test_nobody_changes_the_environment_or_the_umask() -> None:
    """Break: `os.environ["LLMC_AGENT"] = ...` in the daemon, as it was; the agent of one root would be that of all."""
    assert found(CHANGES) == set()


def test_the_host_alone_takes_signals_for_the_daemon() -> None:
    """Break: add a handler in daemon/main.py, as it was; the last root to start would take it from the others."""
    assert found(SIGNALS) == {"daemon/host.py"}
