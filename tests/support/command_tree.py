"""A context for a command that is inspected and not run."""

import click

from llmc.cli.app import cli


def context(command: click.Command, **more: object) -> click.Context:
    """With `llmc`'s own settings: click keeps the help option of the first context for all later ones."""
    settings = {**cli.context_settings, **command.context_settings, **more}
    return click.Context(command, **settings)
