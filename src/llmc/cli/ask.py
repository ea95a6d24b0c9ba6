"""Asking before something is done that a person may regret."""

import sys

from llmc.base.errors import UsageError
from llmc.cli.output import ask


def confirm(question: str, what: str, yes: bool) -> None:
    """Go on only after a yes; without a terminal, `--yes` has to say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}; this is not a terminal", hint="Pass --yes.")
    ask(question, abort=True)
