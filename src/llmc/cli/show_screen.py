"""The interactive screen, without click, which is slow to import: `llmc` alone on a terminal, and `llmc ui`.

`dispatch` runs the plain command lines; all others go to click, whose command calls `show` too.
"""

import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Callable, Sequence
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
#: options with which a command runs until the user stops it
_ENDLESS = frozenset({"--follow", "-F", "--watch"})
#: commands that run until the user stops them, except with these options
_SERVERS = {
    "up": frozenset({"--detach", "-d", "--help"}),
    "web": frozenset({"--detach", "--link", "--sign-out", "--stop", "--help"}),
}
#: time limit of a typed command; it may take long, since an accept validates
COMMAND_S = 3600.0
#: most output of a typed command, since the screen keeps it
OUTPUT_BYTES = 1 << 24


def dispatch(argv: list[str]) -> int | None:
    """Run `llmc`, `llmc ui` or `llmc --root PATH ui` on a terminal; None for another command line or an agent."""
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
    """Show a root, then each root that the user switches to."""
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
    """The environment without the LC_CTYPE that Python itself sets if the locale is C."""
    environ = dict(os.environ)
    if sys.flags.utf8_mode and environ.get("LC_CTYPE") == "C.UTF-8":
        del environ["LC_CTYPE"]
    return environ


def typed(project: Project) -> "Typed":
    """How commands that the user types on the screen are completed and run."""
    from llmc.tui.typed import Typed

    def argv(words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "llmc", "--root", str(project.root.path), *words]

    def run(words: Sequence[str], stopping: Callable[[], bool]) -> tuple[int, str]:
        if words and words[0] in _SERVERS and _SERVERS[words[0]].isdisjoint(words):
            return (
                Exit.REFUSED,
                f"this command runs until you stop it; to run it in the background: {shlex.join(words)} --detach",
            )
        done = proc.run_bounded(
            argv(words),
            cwd=Path.cwd(),
            env=dict(os.environ),
            input=b"",
            timeout_s=COMMAND_S,
            most_bytes=OUTPUT_BYTES,
            stopping=stopping,
        )
        return done.returncode, done.stdout + done.stderr

    def needs_terminal(words: Sequence[str]) -> bool:
        is_endless = not _ENDLESS.isdisjoint(words)
        is_one = bool(words) and words[0] in _INTERACTIVE
        return is_one or is_endless or list(words[:2]) in (["config", "edit"], ["status", "-w"])

    return Typed(argv, run, needs_terminal, lambda line: _completions(str(project.root.path), line))


def _completions(root: str, line: str) -> list[str]:
    """Completions of the last word of a command line."""
    from click.shell_completion import ShellComplete

    from llmc.cli.app import cli

    words = line.split(" ")
    found = ShellComplete(cli, {}, "llmc", "_LLMC_COMPLETE").get_completions(
        ["--root", root, *words[:-1]], words[-1]
    )
    return [item.value for item in found]
