"""llmc completion"""

import click
from click.shell_completion import get_completion_class

from llmc.cli.output import say_lines


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      llmc completion bash > ~/.local/share/bash-completion/completions/llmc
    """
    completer = get_completion_class(shell)
    assert completer is not None
    root = ctx.find_root().command
    say_lines(completer(root, {}, "llmc", "_LLMC_COMPLETE").source())
