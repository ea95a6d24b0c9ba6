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
from typing import TYPE_CHECKING, Any

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
#: options, as click names them, with which a command runs until the user stops it
_ENDLESS = ("follow", "watch")
#: commands that run until the user stops them, except with these options
_SERVERS = {"up": ("detach",), "web": ("detach", "new_link", "sign_out", "stop")}
#: commands that open an editor without one of these
_WRITTEN = {
    "start": ("prompt", "prompt_file"),
    "message": ("text", "file"),
    "reject": ("message", "file", "comments"),
}
#: with these, click prints the help of any command
_HELP = frozenset({"--help", "-h"})
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
        from llmc.cli.output import say_lines
        from llmc.tui import drawing, fleet_app
        from llmc.tui import theme as themes

        settings = project.config.ui
        glyphs = "ascii" if only_ascii else settings.glyphs
        brush = drawing.Brush(
            themes.THEMES[theme or settings.theme], themes.wants_ascii(_environ_of_user(), glyphs)
        )
        known = roots.roots_of_user()
        code, chosen = fleet_app.run(project, subscription, brush, typed(project), known, say_lines)
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
        command, given = _read(words)
        if command in _SERVERS and not any(map(given.get, _SERVERS[command])) and _HELP.isdisjoint(words):
            return (
                Exit.REFUSED,
                f"this command runs until you stop it; to run it in the background: {shlex.join(words)} --detach",
            )
        try:
            done = proc.run_bounded(
                argv(words),
                cwd=_directory(project),
                env=dict(os.environ),
                input=b"",
                timeout_s=COMMAND_S,
                most_bytes=OUTPUT_BYTES,
                stopping=stopping,
            )
        except proc.Overran as error:
            printed = f"printed more than {OUTPUT_BYTES >> 20} MiB"
            why = printed if isinstance(error, proc.PrintedTooMuch) else f"took longer than {COMMAND_S:g} s"
            raise LlmcError(
                f"llmc stopped `llmc {shlex.join(words)}`: it {why}",
                hint="Run the command in another terminal.",
            ) from error
        return done.returncode, done.stdout + done.stderr

    def needs_terminal(words: Sequence[str]) -> bool:
        command, given = _read(words)
        is_one = command.partition(" ")[0] in _INTERACTIVE or command == "config edit"
        root = str(project.root.path)
        return is_one or any(map(given.get, _ENDLESS)) or _opens_editor(root, command, given, words)

    return Typed(argv, run, needs_terminal, lambda line: _completions(project, line))


def _read(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The command that a command line names, such as `config edit`, and its parameters as click reads them."""
    from click.shell_completion import _resolve_context

    from llmc.cli.app import cli

    context = _resolve_context(cli, {}, "llmc", list(words))
    names = context.command_path.split()[1:]
    return " ".join(names), context.params


def _opens_editor(root: str, command: str, given: dict[str, Any], words: Sequence[str]) -> bool:
    """Whether a command lets the user write its text in an editor."""
    if command not in _WRITTEN or not _HELP.isdisjoint(words):
        return False
    if any(given.get(name) not in (None, False) for name in _WRITTEN[command]):
        return False
    # `llmc reject TEXT` is for the worker reviewed last; an unknown worker is an error, to be shown on the screen.
    named = given.get("worker")
    return named is None or named in roots.statuses(root)


def _directory(project: Project) -> Path:
    """Where a command runs: the directory of the user, or the root if that is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return project.root.path


def _completions(project: Project, line: str) -> list[str]:
    """Completions of the last word of a command line."""
    from click.shell_completion import ShellComplete

    from llmc.cli.app import cli
    from llmc.tui.typed import parted

    _, words, last = parted(line)
    found = ShellComplete(cli, {}, "llmc", "_LLMC_COMPLETE").get_completions(
        ["--root", str(project.root.path), *words], last
    )
    values: list[str] = []
    for item in found:
        is_plain, is_directory = item.type == "plain", item.type == "dir"
        values += [item.value] if is_plain else _paths(_directory(project), item.value, is_directory)
    option = last[: last.index("=") + 1] if last.startswith("-") and "=" in last else ""
    return [f"{option}{value}" for value in values]


def _paths(start: Path, begun: str, only_directories: bool) -> list[str]:
    """The paths that begin so; a directory ends with a slash."""
    folder, name = os.path.split(begun)
    try:
        entries = sorted(os.scandir(start / folder), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        os.path.join(folder, entry.name) + "/" * os.path.isdir(entry)
        for entry in entries
        if entry.name.startswith(name) and (name or not entry.name.startswith("."))
        if os.path.isdir(entry) or not only_directories  # unlike entry.is_dir, fails for no link
    ]
