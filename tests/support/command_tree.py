"""A context for a command that is looked at and not run."""

import click

from llmc.cli.app import cli


def context(command: click.Command, **more: object) -> click.Context:
    """With the settings of `llmc` itself: click keeps the help option that it makes for the first context, for all later ones."""
    settings = {**cli.context_settings, **command.context_settings, **more}
    return click.Context(command, **settings)
