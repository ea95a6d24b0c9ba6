"""A demo on the terminal: commands with their real output, and events as they happen."""

import os
import shlex
import sys
import time
from pathlib import Path

from llmc.base import proc
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.cli.output import paint, say, say_lines
from llmc.records.event_log import Row

_LLMC = (sys.executable, "-m", "llmc")


def title(text: str) -> None:
    say("")
    say(paint(text, "cyan", bold=True))


class Show:
    """Runs commands for one root, and prints each with its real output."""

    def __init__(self, source: Path, root: Path, agent: str = "scripted", machine: str = "") -> None:
        """`machine`: the name of the machine in a fleet demo; its commands then run in the root."""
        self.agent = agent
        self.source, self.root = source, root
        self.machine = machine
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {**proc.clean_env(), **kept, "LLMC_AGENT": agent}

    def argv(self, *args: str) -> list[str]:
        return [*_LLMC, *args]

    def llmc(self, *args: str) -> None:
        self.run(self.argv(*args), f"llmc {shlex.join(args)}")

    def until(self, worker: str, action: str) -> None:
        """Wait for an event of the worker."""
        deadline = monotonic() + 60
        while f'"action": "{action}"' not in self.output("events", "--worker", worker, "--json"):
            if monotonic() > deadline:
                raise LlmcError(f"timed out after 60 s waiting for the event `{action}` from {worker}")
            time.sleep(0.2)

    def run(self, argv: list[str], shown: str) -> None:
        say(paint(f"{self.machine}$ {shown}", "bright_black"))
        done = proc.run(argv, cwd=self._here, env=self.env, timeout_s=120, check=False)
        if said := (done.stderr + done.stdout).rstrip():
            say_lines(said)
        if not done.ok:
            raise LlmcError(f"`{shown}` exited with code {done.returncode}")

    def output(self, *args: str) -> str:
        """Run a command without printing it; returns its output."""
        return proc.run(self.argv(*args), cwd=self._here, env=self.env, timeout_s=60).stdout

    @property
    def _here(self) -> Path:
        return self.root if self.machine and self.root.exists() else self.source

    def stop(self) -> None:
        """Stop the fleet, whatever state it is in."""
        argv = self.argv("--root", str(self.root), "down", "--force")
        proc.run(argv, env=self.env, timeout_s=60, check=False)

    def history(self, *options: str) -> None:
        title("The history is linear and the tests pass")
        log = ["git", "log", "--oneline", "--graph", *options]
        self.run(log, shlex.join(log))
        self.run([sys.executable, "-m", "unittest", "-q"], "python3 -m unittest -q")


#: the events printed during a demo, each with its color and text
_TOLD = {
    "task_assigned": ("cyan", "{worker}  started task {task_id}: {subject}"),
    "rebase_conflicted": ("magenta", "{worker}  has conflicts in {files} and is resolving them"),
    "task_sent_back": ("yellow", "{worker}  is fixing task {task_id}, which failed its verify command"),
    "task_completed": ("green", "{worker}  landed task {task_id}: {subject}"),
    "task_failed": ("red", "{worker}  failed task {task_id}: {reason}"),
    "fleet_parked": ("yellow", "fleet parked: {reason}"),
}


class Story:
    """The events of a root, in the order of what happened: a task has landed once its accept is complete.

    The event `task_completed` follows only after the worker's reset, when a dependent task may be in progress already.
    """

    def __init__(self) -> None:
        self._tasks: dict[object, Row] = {}
        self._landed: set[object] = set()

    def next(self, event: Row) -> list[Row]:
        """What to print for an event: the event itself, what it means, or nothing."""
        action, worker = event["action"], event.get("worker")
        if action == "task_assigned":
            self._tasks[worker] = event
        if action == "accept_step" and event.get("step") == "complete" and worker in self._tasks:
            event = {**self._tasks[worker], "action": "task_completed", "ts": event["ts"]}
        if event["action"] != "task_completed":
            return [event]
        if event["task_id"] in self._landed:
            return []
        self._landed.add(event["task_id"])
        return [event]


def tell(event: Row) -> None:
    """Print an event if it is one of those that the demo shows."""
    if event["action"] in _TOLD:
        colour, text = _TOLD[str(event["action"])]
        files = event.get("files")
        values = {**event, "files": ", ".join(map(str, files)) if isinstance(files, list) else ""}
        when = time.strftime("%H:%M:%S", time.localtime(float(str(event["ts"]))))
        say(f"{when}  " + paint(text.format(**values), colour))
