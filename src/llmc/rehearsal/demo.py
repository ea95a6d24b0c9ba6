"""llmc demo"""

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import click

from llmc.base import proc
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, UsageError
from llmc.cli.output import note, paint, say, say_lines
from llmc.cli.web import GET_IT, is_installed
from llmc.rehearsal import sample

_LLMC = (sys.executable, "-m", "llmc")


class Show:
    """Runs commands and shows each with its real output."""

    def __init__(self, directory: Path, agent: str = "scripted") -> None:
        self.agent = agent
        self.source = directory / "greeter"
        self.root = directory / "root"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMC_")}
        self.env = {**proc.clean_env(), **kept, "LLMC_AGENT": agent}

    def title(self, text: str) -> None:
        say("")
        say(paint(text, "cyan", bold=True))

    def llmc(self, *args: str) -> None:
        self.run([*_LLMC, *args], f"llmc {shlex.join(args)}")

    def until(self, worker: str, action: str) -> None:
        """Wait for an event of the worker."""
        deadline = monotonic() + 60
        while f'"action": "{action}"' not in self.output("events", "--worker", worker, "--json"):
            if monotonic() > deadline:
                raise LlmcError(f"timed out after 60 s waiting for the event `{action}` from {worker}")
            time.sleep(0.2)

    def run(self, argv: list[str], shown: str) -> None:
        say(paint(f"$ {shown}", "bright_black"))
        done = proc.run(argv, cwd=self.source, env=self.env, timeout_s=120, check=False)
        say_lines((done.stderr + done.stdout).rstrip())
        if not done.ok:
            raise LlmcError(f"`{shown}` exited with code {done.returncode}")

    def output(self, *args: str) -> str:
        """The output of a command that is not shown."""
        return proc.run([*_LLMC, *args], cwd=self.source, env=self.env, timeout_s=60).stdout

    def stop(self) -> None:
        """Stop the fleet, whatever state it is in."""
        argv = [*_LLMC, "--root", str(self.root), "down", "--force"]
        proc.run(argv, env=self.env, timeout_s=60, check=False)

    def begin(self) -> None:
        self.title("llmc creates a root for a sample repository")
        sample.create(self.source)
        validate = ["--validate", "python3 -m unittest -q"]
        self.llmc("init", "--target", str(self.root), "--agent", self.agent, *validate)

    def history(self, *options: str) -> None:
        self.title("The history is linear and the tests pass")
        log = ["git", "log", "--oneline", "--graph", *options]
        self.run(log, shlex.join(log))
        self.run([sys.executable, "-m", "unittest", "-q"], "python3 -m unittest -q")


WORKERS = 3
#: a model takes its time; the scripted agent needs seconds
LIMITS_S = {"scripted": 120.0, "claude": 3600.0}
REDRAW_S = 0.25

#: events shown while it runs
_TOLD = {
    "task_assigned": ("cyan", "{worker}  started task {task_id}: {subject}"),
    "rebase_conflicted": ("magenta", "{worker}  has conflicts in {files} and is resolving them"),
    "task_sent_back": ("yellow", "{worker}  is fixing task {task_id}, which failed its verify command"),
    "task_completed": ("green", "{worker}  landed task {task_id}: {subject}"),
    "task_failed": ("red", "{worker}  failed task {task_id}: {reason}"),
    "fleet_parked": ("yellow", "fleet parked: {reason}"),
}


def tell_auto(show: Show) -> None:
    show.begin()
    show.llmc("config", "set", "auto.tasks_root", str(show.root.parent / "tasks"))
    show.title("The plan has nine tasks in Markdown files, with labels and dependencies")
    sample.write(show.source.parent / "plan", scripted=show.agent == "scripted")
    show.llmc("tasks", "import", "../plan")
    show.llmc("tasks", "graph")
    show.title("Three auto workers run the tasks; each result is rebased, validated and landed as one commit")
    show.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    watch(show, LIMITS_S[show.agent])
    show.history()
    show.title("The digest sums up the run")
    show.llmc("digest")
    show.llmc("status")


def watch(show: Show, limit_s: float) -> None:
    """Print events until every task is completed."""
    deadline = monotonic() + limit_s
    told = done = 0
    while done < len(sample.TASKS):
        events = [json.loads(line) for line in show.output("events", "--json").splitlines()]
        for event in events[told:]:
            _tell_one(event)
            done += event["action"] == "task_completed"
        told = len(events)
        if monotonic() > deadline:
            raise LlmcError(f"only {done} of {len(sample.TASKS)} tasks were completed within {limit_s:g} s")
        if any(event["action"] == "auto_failed" for event in events):
            raise LlmcError("auto mode stopped before all tasks were completed")
        time.sleep(REDRAW_S)


def _tell_one(event: dict[str, object]) -> None:
    if event["action"] in _TOLD:
        colour, text = _TOLD[str(event["action"])]
        files = event.get("files")
        values = {**event, "files": ", ".join(map(str, files)) if isinstance(files, list) else ""}
        when = time.strftime("%H:%M:%S", time.localtime(float(str(event["ts"]))))
        say(f"{when}  " + paint(text.format(**values), colour))


#: each worker's task
TASKS = {"adam": "by-name", "baker": "warmer", "clara": "farewell"}


def tell_by_hand(show: Show) -> None:
    show.begin()
    show.title("Each of the three workers has an agent in tmux and a git worktree")
    for worker in TASKS:
        show.llmc("add", worker)
    show.llmc("up", "--detach")
    show.title("Each worker gets a task, and the agent's hook confirms the delivery")
    for worker, task in TASKS.items():
        (show.source.parent / f"{task}.md").write_text(sample.prompt(task))
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{task}.md")
    for worker in TASKS:
        show.llmc("wait", worker, "--status", "needs_review", "--timeout", "60")
    show.llmc("status")
    show.title(
        "clara forgot the test: the user reviews the work and requests changes in the same conversation"
    )
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("reject", "clara", "Add a test for farewell().")
    show.llmc("wait", "clara", "--status", "needs_review", "--timeout", "60")
    show.title("adam's work is rebased, validated, squashed and landed by fast-forward")
    before = datetime.now().isoformat(timespec="milliseconds")
    show.llmc("accept", "adam")
    show.title("baker changed the same line: llmc reports the conflict and baker merges both changes")
    show.until("baker", "rebase_resolved")
    show.llmc("events", "--worker", "baker", "--since", before)
    show.title("The work of the other two workers lands on top")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("accept", "clara")
    show.llmc("accept", "baker")
    show.history("--stat")
    show.llmc("status")


#: what needs you on the web page: a review of what no task of the plan does, and a question
REVIEWED = """\
Say good night

In night.py, add good_night(), which says good night by name.

@sh printf 'def good_night(name="world"):\\n    return f"Good night, {name}!"\\n' > night.py
@sh git add -A && git commit -q -m "Say good night"
@on-reject printf '\\n\\nif __name__ == "__main__":\\n    print(good_night())\\n' >> night.py && git add -A && git commit -q --amend --no-edit
"""
ASKS = "Choose the color of the greeting\n@ask Which color should the greeting have?"


def tell_web(show: Show) -> None:
    """A running fleet in a browser: auto workers land tasks, one worker waits for a review, one asks a question."""
    show.begin()
    show.llmc("config", "set", "auto.tasks_root", str(show.root.parent / "tasks"))
    sample.write(show.source.parent / "plan", scripted=show.agent == "scripted")
    show.llmc("tasks", "import", "../plan")
    show.title("Two manual workers and three auto workers start")
    for worker in ("adam", "baker"):
        show.llmc("add", worker)
    show.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    for worker, text in (("adam", REVIEWED), ("baker", ASKS)):
        (show.source.parent / f"{worker}.md").write_text(text)
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{worker}.md")
    show.title("The web page shows the fleet; press Ctrl-C to end the demo")
    argv = [*_LLMC, "--root", str(show.root), "web", "--port", "0"]
    proc.run_attached(argv, env=show.env)


#: short: it becomes part of socket and session names
PREFIX = "llmc-demo-"


@click.command("demo")
@click.option("--by-hand", is_flag=True, help="Show manual mode instead (review, reject and accept)")
@click.option(
    "--agent",
    type=click.Choice(["scripted", "claude"]),
    default="scripted",
    help="Agent to run; `claude` runs Claude Code and bills your account",
)
@click.option("--web", is_flag=True, help="Show a running fleet in a browser until you press Ctrl-C")
@click.option("--keep", is_flag=True, help="Keep the fleet running after the demo")
def demo(by_hand: bool, agent: str, web: bool, keep: bool) -> None:
    """Run a demo on a sample repository

    Requires no account or configuration, and does not touch your files.

    \b
    Examples:
      llmc demo              three auto workers land nine tasks
      llmc demo --by-hand    review and accept the work of three workers
      llmc demo --web        watch a running fleet in a browser

    By default, the agent is the scripted agent that ships with llmc. Everything else (tmux, git, hooks, receipts) is real.
    """
    if by_hand and agent != "scripted":
        raise UsageError(
            "--by-hand and --agent claude cannot be used together", hint="Run: llmc demo --agent claude"
        )
    if web and (by_hand or keep or agent != "scripted"):
        raise UsageError("--web cannot be used with other options", hint="Run: llmc demo --web")
    if web and not is_installed():
        raise UsageError("the web server requires starlette and uvicorn", hint=f"Run: {GET_IT}")
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    show = Show(directory, agent)
    try:
        (tell_web if web else tell_by_hand if by_hand else tell_auto)(show)
        if not keep:
            show.llmc("down")
    except BaseException:
        show.stop()
        note(f"the demo did not finish; its files are in {directory}")
        raise
    if keep:
        say("")
        say(paint("The fleet is still running. Try:", "green", bold=True))
        say(f"  export LLMC_ROOT={show.root}")
        say("  llmc status --watch      llmc attach auto-1      llmc events")
        say(f"  llmc down && rm -r {directory}")
        return
    shutil.rmtree(directory, ignore_errors=True)
    say("")
    say(paint("Now try your own repository:", "green", bold=True))
    if shutil.which("llmc") is None:
        say(f'  export PATH="{Path(sys.executable).parent}:$PATH"')
    if by_hand:
        say("  cd your-repository && llmc init && llmc add adam && llmc up --detach")
        say("  llmc start --prompt 'What to do'")
    else:
        say("  cd your-repository && llmc init")
        say("  llmc tasks add 'What to do' && llmc up --auto --detach")
    say("  (llmc demo --keep leaves the fleet running; llmc demo --by-hand shows manual mode)")
