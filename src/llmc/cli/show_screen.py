"""The interactive screen, without click, which is slow to import: `llmc` alone on a terminal, and `llmc ui`.

`dispatch` runs the plain command lines; all others go to click, whose command calls `show` too.
"""

import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.api import roots
from llmc.api.roots import Kind, Project
from llmc.api.subscription import Subscription
from llmc.base import proc
from llmc.base.errors import Exit, LlmcError

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
#: commands that go on until the user ends them, but not with these options
_SERVERS = {
    "up": frozenset({"--detach", "-d", "--help"}),
    "web": frozenset({"--detach", "--link", "--sign-out", "--stop", "--help"}),
}
#: a typed command may take long: an accept validates
COMMAND_S = 3600.0
#: the screen keeps what it printed
OUTPUT_BYTES = 1 << 24


def dispatch(argv: list[str]) -> int | None:
    """Run `llmc`, `llmc ui` and `llmc --root PATH ui` on a terminal; None for any other command line, or if an agent calls."""
    match argv:
        case []:
            opens, root = roots.has_fleet(), None
        case ["ui"]:
            opens, root = True, None
        case ["--root", root, "ui"]:
            opens = True
        case _:
            return None
    if not opens or not is_installed() or roots.caller().kind is not Kind.PERSON:
        return None
    try:
        return show(roots.open_project(root), None, False)
    except Exception as error:
        from llmc.cli.app import ended

        return ended(error, argv)


def is_installed() -> bool:
    """Whether the screen can be drawn."""
    return find_spec("textual") is not None


def show(project: Project, theme: str | None, only_ascii: bool) -> int:
    """Show one root after the other, as the user switches."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return show_lines(project)
    gc.disable()  # until the first frame is drawn
    while True:
        subscription = Subscription(project).start()  # reads the fleet while textual is imported
        from llmc.tui import drawing, fleet_app
        from llmc.tui import theme as themes

        settings = project.config.ui
        glyphs = "ascii" if only_ascii else settings.glyphs
        brush = drawing.Brush(
            themes.THEMES[theme or settings.theme], themes.wants_ascii(_environ_of_user(), glyphs)
        )
        code, chosen = fleet_app.run(project, subscription, brush, typed(project), roots.roots_of_user())
        if chosen is None:
            return code
        with contextlib.suppress(LlmcError):
            project = roots.open_project(chosen)


def show_lines(project: Project) -> int:
    """Print lines instead of drawing a screen."""
    from llmc.cli.output import say
    from llmc.tui import plain

    return plain.run(project, typed(project), say)


def _environ_of_user() -> dict[str, str]:
    """The environment without the LC_CTYPE that Python itself sets where the locale is C."""
    environ = dict(os.environ)
    if sys.flags.utf8_mode and environ.get("LC_CTYPE") == "C.UTF-8":
        del environ["LC_CTYPE"]
    return environ


def typed(project: Project) -> "Typed":
    """How commands that the user types on the screen are completed and run."""
    from llmc.tui.typed import Typed

    def argv(line: str) -> list[str]:
        return [sys.executable, "-m", "llmc", "--root", str(project.root.path), *shlex.split(line)]

    def run(line: str, stopping: Callable[[], bool]) -> tuple[int, str]:
        try:
            words = argv(line)
        except ValueError as error:
            return Exit.USAGE, f"cannot parse the command: {error}"
        given = shlex.split(line)
        if given and given[0] in _SERVERS and _SERVERS[given[0]].isdisjoint(given):
            return (
                Exit.REFUSED,
                f"this command runs until you stop it; to run it in the background: {line} --detach",
            )
        done = proc.run_bounded(
            words,
            cwd=Path.cwd(),
            env=dict(os.environ),
            input=b"",
            timeout_s=COMMAND_S,
            most_bytes=OUTPUT_BYTES,
            stopping=stopping,
        )
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
