"""Why a client exited at its start, from what it printed. Pure."""

from collections.abc import Sequence

from llmc.base.text import pattern

#: what the client prints, and how to fix it
_FIXES = (
    (
        pattern(r"cannot be used with root/sudo"),
        "Run llmc as an ordinary user; in a container: `llmc config set defaults.env.IS_SANDBOX 1`",
    ),
    (pattern(r"^Failed to connect to \S"), "Check the network and the proxy settings"),
)
#: a line that says what failed; the first pattern that fits a line wins
_ERRORS = (
    pattern(r"^\W*(?:\w*Error|error|fatal|panic|E[A-Z]{3,})\b\W*:"),
    pattern(
        r"\b(?i:cannot|can't|could not|unable to|failed|fatal|refused|denied|invalid|not found|no such)\b"
    ),
    pattern(r"(?i:error)"),
)
_MOST = 300


def reason_of(lines: Sequence[str]) -> str:
    """The error among these lines, with its fix; else the last line, "" where there is none."""
    said = [line.strip() for line in lines if line.strip()]
    for known, fix in _FIXES:
        for line in said:
            if known.search(line):
                return f"{line[:_MOST].rstrip('.')}. {fix}"
    for error in _ERRORS:
        for line in said:
            if error.search(line):
                return line[:_MOST]
    return said[-1][:_MOST] if said else ""
