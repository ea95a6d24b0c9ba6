"""Asking before something is done that a person may regret."""

import sys

import click

from llmc.errors import UsageError


def confirm(question: str, what: str, yes: bool) -> None:
    """Go on only after a yes; where nobody can be asked, `--yes` has to say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}, and nobody can be asked", hint="Say so with --yes.")
    click.confirm(question, abort=True, err=True)
