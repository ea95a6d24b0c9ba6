"""Why a client exited at its start: the error in its output, not the last line."""

import pytest

from llmc.agents.claude.reader import reason_of

NO_NETWORK = """
 Unable to connect to Anthropic services

 Failed to connect to api.anthropic.com: ENOTFOUND

 Please check your internet connection and network settings.

 Note: Claude Code might not be available in your country. Check supported countries at
 https://anthropic.com/supported-countries
"""
AS_ROOT = "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
NODE = """node:internal/modules/cjs/loader:1215
  throw err;
Error: Cannot find module '/opt/claude/cli.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1212:15)
  code: 'MODULE_NOT_FOUND',
Node.js v20.19.0
"""


@pytest.mark.parametrize(
    ("screen", "reason"),
    [
        (NO_NETWORK, "Failed to connect to api.anthropic.com: ENOTFOUND. Check your network connection and proxy settings"),
        (NODE, "Error: Cannot find module '/opt/claude/cli.js'"),
        ("Traceback (most recent call last):\n  raise x\nModuleNotFoundError: No module named 'x'\n\nbye", "ModuleNotFoundError: No module named 'x'"),
        ("Invalid API key\n─────────\nPress any key", "Invalid API key"),
        ("one\n\ntwo\n", "two"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_error_is_the_reason(screen: str, reason: str) -> None:
    """Break: take the last line."""
    assert reason_of(screen.splitlines()) == reason


def test_root_is_told_the_way_out() -> None:
    """Break: leave the fix out; users would not find the setting by themselves."""
    said = reason_of(["", AS_ROOT, "", "Note: see the docs"])
    assert said.startswith(AS_ROOT)
    assert "as a non-root user" in said
    assert "`llmc config set defaults.env.IS_SANDBOX 1`" in said
