"""llmc demo"""

import os
import shlex
import shutil
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import click

from llmc.cli.output import note, paint
from llmc.errors import LlmcError
from llmc.services import sample
from llmc.tools import proc
from llmc.tools.clock import monotonic

#: short: it becomes part of socket and session names
PREFIX = "llmc-demo-"
#: each worker's task: the file it is in, and its text
TASKS = {
    "adam": ("by-name.md", sample.BY_NAME),
    "baker": ("warmer.md", sample.WARMER),
    "clara": ("farewell.md", sample.FAREWELL),
}


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
    show.title("Three workers: each an agent in tmux, in a git worktree of its own")
    for worker in TASKS:
        show.llmc("add", worker)
    show.llmc("up", "--detach")
    show.title("A task for each, delivered and receipted by the agent's own hook")
    for worker, (name, text) in TASKS.items():
        show.file(name, text)
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{name}")
    for worker in TASKS:
        show.llmc("wait", worker, "--status", "needs_review", "--timeout", "60")
    show.llmc("status")
    show.title("clara forgot the test: what would land, and back it goes, in the same conversation")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("reject", "clara", "Please add a test for it.")
    show.llmc("wait", "clara", "--status", "needs_review", "--timeout", "60")
    show.title("adam's commit: rebased, validated, squashed, landed by fast-forward")
    before = datetime.now().isoformat(timespec="milliseconds")
    show.llmc("accept", "adam")
    show.title("baker changed the same line, so it is told, and puts both together")
    show.until("baker", "rebase_resolved")
    show.llmc("events", "--worker", "baker", "--since", before)
    show.title("The other two land on top")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("accept", "clara")
    show.llmc("accept", "baker")
    show.title("A straight history, and it is green")
    show.run(["git", "log", "--oneline", "--graph", "--stat"], "git log --oneline --graph --stat")
    show.run([sys.executable, "-m", "unittest", "-q"], "python3 -m unittest -q")
    show.llmc("status")


class Show:
    """Runs commands for the reader to see: each line shown is the real command and its real output."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "greeter"
        self.root = directory / "root"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {**proc.clean_env(), **kept, "LLMC_AGENT": "scripted"}

    def title(self, text: str) -> None:
        click.echo("\n" + paint(text, "cyan", bold=True))

    def file(self, name: str, text: str) -> None:
        """A file beside the repository, for commands that read one."""
        (self.source.parent / name).write_text(text)

    def llmc(self, *args: str) -> None:
        self.run([sys.executable, "-m", "llmc", *args], f"llmc {shlex.join(args)}")

    def until(self, worker: str, action: str) -> None:
        """Wait until this has happened to the worker, by the event log."""
        argv = [sys.executable, "-m", "llmc", "events", "--worker", worker, "--json"]
        deadline = monotonic() + 60
        while (
            f'"action": "{action}"' not in proc.run(argv, cwd=self.source, env=self.env, timeout_s=60).stdout
        ):
            if monotonic() > deadline:
                raise LlmcError(f"{worker}: {action} did not happen within a minute")
            time.sleep(0.2)

    def run(self, argv: list[str], shown: str) -> None:
        click.echo(paint(f"$ {shown}", "bright_black"))
        done = proc.run(argv, cwd=self.source, env=self.env, timeout_s=120, check=False)
        click.echo((done.stderr + done.stdout).rstrip())
        if not done.ok:
            raise LlmcError(f"`{shown}` ended with {done.returncode}")

    def quietly(self, *args: str) -> None:
        argv = [sys.executable, "-m", "llmc", "--root", str(self.root), *args]
        proc.run(argv, env=self.env, timeout_s=60, check=False)
