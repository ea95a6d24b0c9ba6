"""The click application: a table of commands, each imported only when it is called."""

import difflib
import importlib
import os
import sys
import traceback
from typing import Any

import click

from llmc import __version__
from llmc.cli.output import print_error
from llmc.errors import Exit, LlmcError, Refused

#: every command: what it is for, in the order of the help text
COMMANDS: dict[str, str] = {
    "init": "Make a root for a repository.",
    "add": "Add a worker.",
    "up": "Start the agents and the daemon that looks after them.",
    "down": "Stop the agents and the daemon.",
    "status": "Show the workers.",
    "start": "Give an idle worker a task.",
    "message": "Say something to a worker.",
    "attach": "Open a worker's terminal.",
    "peek": "Print the last lines of a worker's screen.",
    "hold": "Keep llmc's hands off a worker.",
    "release": "Give a held worker back to llmc.",
    "accept": "Land a worker's work on the default branch.",
    "wait": "Wait until a worker has a status.",
    "events": "Print what happened.",
    "config": "Read, change and check the configuration.",
    "demo": "See llmc at work on a sample repository.",
    "completion": "Print the completion script of a shell.",
    "hook": "Take a hook event of an agent (agents call this).",
}

#: what an agent may call about itself; everything else is for people
FOR_AGENTS = ("status", "hook")


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"llmc.cli.{name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f' Did you mean "{near[0]}"?' if near else " `llmc --help` lists the commands."
            raise click.UsageError(f"there is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root", metavar="PATH", help="The root to work on (else LLMC_ROOT, the enclosing one, or ~/llmc)."
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, "--version", prog_name="llmc")
@click.pass_context
def cli(ctx: click.Context, root: str | None, debug: bool) -> None:
    """A fleet of Claude Code agents on one repository.

    \b
    First steps, inside a git repository:
      llmc init && llmc add adam && llmc up --detach
      llmc start --prompt "Fix the flaky test in tests/test_io.py"
      llmc wait adam --status needs_review && llmc accept adam
    """
    ctx.obj = {"root": root, "debug": debug}


def run(argv: list[str]) -> int:
    """Run a command line; every error ends here, as one line that says what to do."""
    as_json = "--json" in argv
    try:
        _refuse_agents(argv)
        code = cli.main(argv, prog_name="llmc", standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except click.UsageError as error:
        usage = f"\n{error.ctx.get_usage()}" if error.ctx else ""
        print_error(error.format_message() + usage, "", Exit.USAGE, as_json)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return 130
    except LlmcError as error:
        if "--debug" in argv:
            traceback.print_exc()
        print_error(error.message, error.hint, error.exit_code, as_json)
        return error.exit_code
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")
        return Exit.DONE
    except Exception as error:
        if "--debug" in argv:
            raise
        text = f"this is a bug in llmc: {type(error).__name__}: {error}"
        print_error(
            text, "Run it again with `llmc --debug ...` and report what it prints.", Exit.FAILED, as_json
        )
        return Exit.FAILED


def _refuse_agents(argv: list[str]) -> None:
    command = next((arg for arg in argv if not arg.startswith("-")), "")
    if os.environ.get("LLMC_WORKER") and command in COMMANDS and command not in FOR_AGENTS:
        raise Refused(
            f"`llmc {command}` is not for agents (this is worker {os.environ['LLMC_WORKER']})",
            hint="Do your task and commit; a person runs this.",
        )
