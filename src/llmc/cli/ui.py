"""`llmc ui`: the fleet on one screen; and what `llmc` alone does on a terminal."""

import contextlib
import gc
import os
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from llmc.api import roots
from llmc.api.roots import Project
from llmc.api.subscription import Subscription
from llmc.base import proc
from llmc.base.errors import Exit, LlmcError, UsageError
from llmc.cli.arguments import project_of
from llmc.cli.output import is_terminal, note, say

if TYPE_CHECKING:
    from llmc.tui.typed import Typed

#: commands that need the terminal for themselves
_INTERACTIVE = (
    "attach",
    "console",
    "review",
    "claude",
    "init",
    "uninstall",
    "ui",
    "overseer",
    "demo",
    "drill",
)
#: options with which a command goes on until the user ends it
_ENDLESS = frozenset({"--follow", "-F", "--watch"})
GET_IT = "pip install 'llmc[ui]'"
#: a typed command may take long: an accept validates
COMMAND_S = 3600.0


@click.command("ui")
@click.option("--theme", type=click.Choice(["dark", "light"]), help="Color theme [default: ui.theme]")
@click.option("--ascii", "only_ascii", is_flag=True, help="Draw with ASCII characters only")
@click.option("--plain", is_flag=True, help="Print lines instead of drawing a screen, for screen readers")
@click.pass_context
def ui(ctx: click.Context, theme: str | None, only_ascii: bool, plain: bool) -> int:
    """Show the fleet on an interactive screen

    Press ? to list the keys. Without textual (pip install 'llmc[ui]'), shows `llmc status --watch` instead.

    \b
    Examples:
      llmc ui --theme light
      llmc ui --plain
    """
    if not sys.stdin.isatty() or not is_terminal():
        raise UsageError(
            "`llmc ui` requires a terminal", hint="Run `llmc status`, or `llmc status --json` in a script."
        )
    project = project_of(ctx)
    if plain:
        from llmc.tui import plain as lines

        return lines.run(project, _typed(project), say)
    if not is_installed():
        from llmc.cli.watching import status

        note(f"the interactive screen requires textual; to install it: {GET_IT}")
        ctx.invoke(status, watch=True)
        return Exit.DONE
    return _show(project, theme, only_ascii)


def is_installed() -> bool:
    """Whether the screen can be drawn."""
    return find_spec("textual") is not None


def _show(project: Project, theme: str | None, only_ascii: bool) -> int:
    """Show one root after the other, as the user switches."""
    gc.disable()  # until the first frame is drawn
    while True:
        subscription = Subscription(project).start()  # reads the fleet while textual is imported
        from llmc.tui import drawing, fleet_app
        from llmc.tui import theme as themes

        settings = project.config.ui
        glyphs = "ascii" if only_ascii else settings.glyphs
        brush = drawing.Brush(themes.THEMES[theme or settings.theme], themes.wants_ascii(os.environ, glyphs))
        chosen = fleet_app.run(project, subscription, brush, _typed(project), roots.roots_of_user())
        if chosen is None:
            return Exit.DONE
        with contextlib.suppress(LlmcError):
            project = roots.open_project(chosen)


def _typed(project: Project) -> "Typed":
    """How commands that the user types on the screen are completed and run."""
    from llmc.tui.typed import Typed

    def argv(line: str) -> list[str]:
        return [sys.executable, "-m", "llmc", "--root", str(project.root.path), *shlex.split(line)]

    def run(line: str) -> tuple[int, str]:
        try:
            words = argv(line)
        except ValueError as error:
            return Exit.USAGE, f"cannot parse the command: {error}"
        done = proc.run(words, env=dict(os.environ), timeout_s=COMMAND_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def needs_terminal(line: str) -> bool:
        words = line.split()
        is_endless = not _ENDLESS.isdisjoint(words)
        is_one = words[:1] and words[0] in _INTERACTIVE
        return bool(is_one or is_endless or words[:2] in (["config", "edit"], ["status", "-w"]))

    return Typed(argv, run, needs_terminal, lambda line: _completions(str(project.root.path), line))


def _completions(root: str, line: str) -> list[str]:
    """How the last word of a command line can go on."""
    from click.shell_completion import ShellComplete

    from llmc.cli.app import cli

    words = line.split(" ")
    found = ShellComplete(cli, {}, "llmc", "_LLMC_COMPLETE").get_completions(
        ["--root", root, *words[:-1]], words[-1]
    )
    return [item.value for item in found]
