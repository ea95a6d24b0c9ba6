"""What the demos are made of: real commands on a sample repository, shown with their real output."""

import os
import shlex
import sys
import time
from pathlib import Path

from llmc.base import proc
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.cli.output import paint, say, say_lines


class Show:
    """Runs commands for the reader to see: each line shown is the real command and its real output."""

    def __init__(self, directory: Path, agent: str = "scripted") -> None:
        self.agent = agent
        self.source = directory / "greeter"
        self.root = directory / "root"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {**proc.clean_env(), **kept, "LLMC_AGENT": agent}

    def title(self, text: str) -> None:
        say("")
        say(paint(text, "cyan", bold=True))

    def file(self, name: str, text: str) -> None:
        """A file beside the repository, for commands that read one."""
        (self.source.parent / name).write_text(text)

    def llmc(self, *args: str) -> None:
        self.run([sys.executable, "-m", "llmc", *args], f"llmc {shlex.join(args)}")

    def until(self, worker: str, action: str) -> None:
        """Wait until this has happened to the worker, by the event log."""
        deadline = monotonic() + 60
        while f'"action": "{action}"' not in self.output("events", "--worker", worker, "--json"):
            if monotonic() > deadline:
                raise LlmcError(f"{worker}: {action} did not happen within a minute")
            time.sleep(0.2)

    def run(self, argv: list[str], shown: str) -> None:
        say(paint(f"$ {shown}", "bright_black"))
        done = proc.run(argv, cwd=self.source, env=self.env, timeout_s=120, check=False)
        say_lines((done.stderr + done.stdout).rstrip())
        if not done.ok:
            raise LlmcError(f"`{shown}` ended with {done.returncode}")

    def output(self, *args: str) -> str:
        """What a command prints, not shown."""
        argv = [sys.executable, "-m", "llmc", *args]
        return proc.run(argv, cwd=self.source, env=self.env, timeout_s=60).stdout

    def quietly(self, *args: str) -> None:
        argv = [sys.executable, "-m", "llmc", "--root", str(self.root), *args]
        proc.run(argv, env=self.env, timeout_s=60, check=False)
