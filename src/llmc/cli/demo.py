"""llmc demo"""

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from llmc.cli.output import note, paint
from llmc.errors import LlmcError
from llmc.services import sample
from llmc.tools import proc

#: short: it becomes part of socket and session names
PREFIX = "llmc-demo-"


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave the fleet running, and say how to look at it.")
def command(keep: bool) -> None:
    """See llmc at work on a sample repository: no account, no configuration, nothing of yours is touched.

    The agent is the scripted one that ships with llmc; everything else (tmux, git, hooks, receipts) is real.
    """
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    show = Show(directory)
    try:
        _tell(show)
        if not keep:
            show.llmc("down")
    except BaseException:
        show.quietly("down", "--force")
        note(f"the demo did not finish; its files are in {directory}")
        raise
    if keep:
        click.echo(paint("\nThe fleet is still running. Look at it:", "green", bold=True))
        click.echo(f"  export LLMC_ROOT={show.root}")
        click.echo("  llmc status --watch      llmc attach adam      llmc events")
        click.echo(f"  llmc down && rm -r {directory}")
        return
    shutil.rmtree(directory, ignore_errors=True)
    click.echo(paint("\nNow your own repository:", "green", bold=True))
    click.echo("  cd your-repository && llmc init && llmc add adam && llmc up --detach")
    click.echo(
        "  llmc start --prompt 'What to do'    (llmc demo --keep leaves this fleet running to look at)"
    )


def _tell(show: "Show") -> None:
    show.title("A sample repository, and a root for it")
    sample.create(show.source)
    show.llmc("init", "--target", str(show.root), "--agent", "scripted")
    show.llmc("config", "set", "repo.validate", "python3 -m unittest -q")
    show.title("One worker: an agent of its own, in tmux, in its own git worktree")
    show.llmc("add", "adam")
    show.llmc("up", "--detach")
    show.title("One prompt, delivered and receipted by the agent's own hook")
    show.llmc(
        "start",
        "--worker",
        "adam",
        "--prompt",
        sample.TASK,
        shown="start --worker adam --prompt-file task.md",
    )
    show.llmc("wait", "adam", "--status", "needs_review", "--timeout", "60")
    show.llmc("status")
    show.title("Its commit: rebased, validated, squashed, landed by fast-forward")
    show.llmc("accept", "adam")
    show.run(["git", "log", "--oneline", "--stat", "-1"], "git log --oneline --stat -1")
    show.title("What happened, from the event log")
    show.llmc("events")


class Show:
    """Runs commands for the reader to see: each line shown is the real command and its real output."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "greeter"
        self.root = directory / "root"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {**proc.clean_env(), **kept, "LLMC_AGENT": "scripted"}

    def title(self, text: str) -> None:
        click.echo("\n" + paint(text, "cyan", bold=True))

    def llmc(self, *args: str, shown: str | None = None) -> None:
        self.run([sys.executable, "-m", "llmc", *args], f"llmc {shown or shlex.join(args)}")

    def run(self, argv: list[str], shown: str) -> None:
        click.echo(paint(f"$ {shown}", "bright_black"))
        done = proc.run(argv, cwd=self.source, env=self.env, timeout_s=120, check=False)
        click.echo((done.stderr + done.stdout).rstrip())
        if not done.ok:
            raise LlmcError(f"`{shown}` ended with {done.returncode}")

    def quietly(self, *args: str) -> None:
        argv = [sys.executable, "-m", "llmc", "--root", str(self.root), *args]
        proc.run(argv, env=self.env, timeout_s=60, check=False)
