"""The click application: imports a command when it is called, and reports every error."""

import errno
import importlib
import os
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from llmc import __version__
from llmc.api.agent_calls import FOR_AGENTS
from llmc.api.roots import Kind, caller
from llmc.base.errors import Exit, LlmcError, NotFound, Refused, StateError, UnknownWorker, UsageError
from llmc.base.files import explain
from llmc.base.text import did_you_mean
from llmc.cli.arguments import complete_directory
from llmc.cli.commands import ABOUT, COMMANDS, MOST_WIDTH, OPTIONS, PLACES
from llmc.cli.output import print_error, say_lines

#: commands that the remediation agent may not run, because the supervisor does
NOT_FOR_OVERSEER = ("up", "overseer")

#: errors of the machine, not of llmc
OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
#: errors of a path, mostly one that the user gave
OF_A_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def load(name: str) -> click.Command:
    """Import a command by its name."""
    command: click.Command = getattr(importlib.import_module(PLACES[name]), name)
    return command


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return load(name) if name in COMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            hint = did_you_mean(name, COMMANDS, "Run `llmc --help` for a list of commands.")
            raise UsageError(f"unknown command {name!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MOST_WIDTH},
    help=ABOUT,
)
@click.option("--root", metavar="PATH", shell_complete=complete_directory, help=OPTIONS["--root PATH"])
@click.option("--debug", is_flag=True, help=OPTIONS["--debug"])
@click.version_option(__version__, "--version", prog_name="llmc")
@click.pass_context
def cli(ctx: click.Context, root: str | None, debug: bool) -> None:
    refuse_agents(ctx)
    ctx.obj = {"root": root, "debug": debug}


def run(argv: list[str]) -> int:
    """Run a command line and return its exit code; errors are printed."""
    try:
        _refuse_bytes(argv)
        code = cli.main(argv, prog_name="llmc", standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except NoArgsIsHelpError as error:  # a group without a command prints its help
        say_lines(error.format_message())
        return Exit.DONE
    except BrokenPipeError:
        raise
    except SystemExit as error:  # how click reports a closed pipe
        raise BrokenPipeError from error
    except Exception as error:
        return ended(error, argv)


def ended(error: Exception, argv: list[str]) -> int:
    """Print the error that ended a command, and return the exit code."""
    return 130 if isinstance(error, click.Abort) else report(error, argv)


def _refuse_bytes(argv: list[str]) -> None:
    """Refuse bytes that are not UTF-8, except in paths."""
    for word in argv:
        is_path = "/" in word and os.path.isdir(os.path.dirname(word))
        if not is_path and any("\ud800" <= char <= "\udfff" for char in word):
            raise UsageError(
                f"argument is not valid UTF-8: {word}", hint="If this is a path, write it as ./NAME."
            )


def report(error: Exception, argv: list[str]) -> int:
    """Print an error with its hint, and return its exit code."""
    if "--debug" in argv:
        import traceback  # slow to import, and only this needs it

        say_lines("".join(traceback.format_exception(error)), err=True, nl=False)
    shown = _for_people(error, argv)
    print_error(shown.message, shown.hint, shown.exit_code, "--json" in argv, shown.details)
    return shown.exit_code


def _for_people(error: Exception, argv: list[str]) -> LlmcError:
    if isinstance(error, UnknownWorker):
        from llmc.api.fleet_nodes import not_here  # rarely needed

        root, command = _parts(argv)
        return not_here(root, error, command)
    if isinstance(error, LlmcError):
        return error
    from llmc.api.seeing import Unreadable  # most commands end without an error

    if isinstance(error, Unreadable):
        return StateError("cannot read state.json", hint="Run `llmc doctor` to find out why.")
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "llmc"
        hint = f"Run `{path} --help` for usage."
        if isinstance(error, click.NoSuchOption) and error.option_name in ("--root", "--debug"):
            hint = f"{error.option_name} goes before the command; run `llmc --help` for usage."
        return UsageError(error.format_message(), hint=hint)
    if isinstance(error, click.ClickException):
        return LlmcError(error.format_message())
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        return explain(error, f"cannot use {error.filename}" if error.filename else "cannot write")
    if isinstance(error, OSError) and error.errno in OF_A_PATH and error.filename:
        shown = explain(error, f"cannot use {error.filename}")
        shown.hint = "Check the path, then run the command again."
        return shown
    if isinstance(error, FileNotFoundError) and _directory_is_gone():
        hint = "Change to an existing directory, then run the command again."
        return NotFound("the current directory no longer exists", hint=hint)
    bug = LlmcError(
        f"internal error: {type(error).__name__}: {error}",
        hint="This is a bug in llmc. Run the command again with `llmc --debug ...` and report the output.",
    )
    bug.exit_code = Exit.BUG
    return bug


def _directory_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _parts(argv: list[str]) -> tuple[str | None, list[str]]:
    """The root that a command line names, and its words from the command on."""
    root = None
    while argv and argv[0].startswith("-"):
        name, _, value = argv[0].partition("=")
        takes_next = name == "--root" and not value
        if name == "--root":
            root = value or "".join(argv[1:2])
        argv = argv[2 if takes_next else 1 :]
    return root, argv


def refuse_agents(ctx: click.Context) -> None:
    """Refuse an agent, whatever its environment says, unless the command is in FOR_AGENTS."""
    called, is_top = ctx.invoked_subcommand or "", ctx.parent is None
    allowed = FOR_AGENTS if is_top else FOR_AGENTS[ctx.info_name or ""]
    known = isinstance(ctx.command, click.Group) and called in ctx.command.list_commands(ctx)
    if not known or called in allowed:
        return
    who = caller()
    words = called if is_top else f"{ctx.info_name} {called}"
    match who.kind:
        case Kind.WORKER:
            raise Refused(
                f"`llmc {words}` is not available to agents (worker {who.name or 'unknown'})",
                hint="Finish your task and commit; only the user can run this command.",
            )
        case Kind.UNKNOWN:
            raise Refused(
                f"cannot tell who is running `llmc {words}`: {who.why}",
                hint="Run the command from your own shell.",
            )
        case Kind.OVERSEER if is_top and called in NOT_FOR_OVERSEER:
            # Only the supervisor starts its daemon.
            raise Refused(
                f"`llmc {called}` is not available to the remediation agent",
                hint="Fix the cause and end your turn; the supervisor restarts the daemon.",
            )
