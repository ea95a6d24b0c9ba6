"""llmc demo"""

import json
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
from llmc.cli.output import note, paint, say
from llmc.cli.web import GET_IT, is_installed
from llmc.rehearsal import fleet_demo, sample
from llmc.rehearsal.show import Show, Story, tell, title


def begin(show: Show) -> None:
    title("llmc creates a root for a sample repository")
    sample.create(show.source)
    validate = ["--validate", sample.VALIDATE]
    show.llmc("init", "--target", str(show.root), "--agent", show.agent, *validate)


WORKERS = 3
#: a model takes much longer than the scripted agent
LIMITS_S = {"scripted": 120.0, "claude": 3600.0}
REDRAW_S = 0.25


def tell_auto(show: Show) -> None:
    begin(show)
    show.llmc("config", "set", "auto.tasks_root", str(show.root.parent / "tasks"))
    title("The plan has nine tasks in Markdown files, with labels and dependencies")
    sample.write(show.source.parent / "plan", scripted=show.agent == "scripted")
    show.llmc("tasks", "import", "../plan")
    show.llmc("tasks", "graph")
    title("Three auto workers run the tasks; each result is rebased, validated and landed as one commit")
    show.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    watch(show, LIMITS_S[show.agent])
    show.history()
    title("The digest sums up the run")
    show.llmc("digest")
    show.llmc("status")


def watch(show: Show, limit_s: float) -> None:
    """Print events until every task is completed."""
    deadline = monotonic() + limit_s
    told = done = 0
    story = Story()
    while done < len(sample.TASKS):
        events = [json.loads(line) for line in show.output("events", "--json").splitlines()]
        for event in events[told:]:
            for news in story.next(event):
                tell(news)
            done += event["action"] == "task_completed"
        told = len(events)
        if monotonic() > deadline:
            raise LlmcError(f"only {done} of {len(sample.TASKS)} tasks were completed within {limit_s:g} s")
        if any(event["action"] == "auto_failed" for event in events):
            raise LlmcError("auto mode stopped before all tasks were completed")
        time.sleep(REDRAW_S)


#: each worker's task
TASKS = {"adam": "by-name", "baker": "warmer", "clara": "farewell"}


def tell_by_hand(show: Show) -> None:
    begin(show)
    title("Each of the three workers has an agent in tmux and a git worktree")
    for worker in TASKS:
        show.llmc("add", worker)
    show.llmc("up", "--detach")
    title("Each worker gets a task, and the agent's hook confirms the delivery")
    for worker, task in TASKS.items():
        (show.source.parent / f"{task}.md").write_text(sample.prompt(task))
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{task}.md")
    for worker in TASKS:
        show.llmc("wait", worker, "--status", "needs_review", "--timeout", "60")
    show.llmc("status")
    title("clara forgot the test: the user reviews the work and requests changes in the same conversation")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("reject", "clara", "Add a test for farewell().")
    show.llmc("wait", "clara", "--status", "needs_review", "--timeout", "60")
    title("adam's work is rebased, validated, squashed and landed by fast-forward")
    before = datetime.now().isoformat(timespec="milliseconds")
    show.llmc("accept", "adam")
    title("baker changed the same line: llmc reports the conflict and baker merges both changes")
    show.until("baker", "rebase_resolved")
    show.llmc("events", "--worker", "baker", "--since", before)
    title("The work of the other two workers lands on top")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("accept", "clara")
    show.llmc("accept", "baker")
    show.history("--stat")
    show.llmc("status")


#: what needs you on the web page: the review of a change outside the plan, and a question
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
    begin(show)
    show.llmc("config", "set", "auto.tasks_root", str(show.root.parent / "tasks"))
    sample.write(show.source.parent / "plan", scripted=show.agent == "scripted")
    show.llmc("tasks", "import", "../plan")
    title("Two manual workers and three auto workers start")
    for worker in ("adam", "baker"):
        show.llmc("add", worker)
    show.llmc("up", "--auto", "--detach", "--concurrency", str(WORKERS))
    for worker, text in (("adam", REVIEWED), ("baker", ASKS)):
        (show.source.parent / f"{worker}.md").write_text(text)
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{worker}.md")
    title("The web page shows the fleet; press Ctrl-C to end the demo")
    proc.run_attached(show.argv("--root", str(show.root), "web", "--port", "0"), env=show.env)


@click.command("demo")
@click.option("--by-hand", is_flag=True, help="Show manual mode instead (review, reject and accept)")
@click.option(
    "--agent",
    type=click.Choice(["scripted", "claude"]),
    default="scripted",
    help="Agent to run; `claude` runs Claude Code and bills your account",
)
@click.option("--web", is_flag=True, help="Show a running fleet in a browser until you press Ctrl-C")
@click.option("--fleet", is_flag=True, help="Show three machines that share one queue (needs PostgreSQL)")
@click.option(
    "--tasks",
    type=click.IntRange(1, len(sample.LANGUAGES)),
    default=len(sample.LANGUAGES),
    show_default=True,
    help="Number of tasks with --fleet",
)
@click.option("--keep", is_flag=True, help="Keep the demo's workers running after it ends")
def demo(by_hand: bool, agent: str, web: bool, fleet: bool, tasks: int, keep: bool) -> None:
    """Run a demo on a sample repository

    Requires no account or configuration, and does not touch your files.

    \b
    Examples:
      llmc demo              three auto workers land nine tasks
      llmc demo --by-hand    review and accept the work of three workers
      llmc demo --web        watch a running fleet in a browser
      llmc demo --fleet      three machines land 30 tasks from one queue

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
    if fleet and (by_hand or web or keep or agent != "scripted"):
        raise UsageError("the only option allowed with --fleet is --tasks", hint="Run: llmc demo --fleet")
    if fleet:
        fleet_demo.run(tasks)
        return
    directory = Path(tempfile.mkdtemp(prefix=fleet_demo.PREFIX))
    show = Show(directory / "greeter", directory / "root", agent)
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
        say(paint("The workers are still running. Try:", "green", bold=True))
        say(f"  export LLMC_ROOT={shlex.quote(str(show.root))}")
        worker = next(iter(TASKS)) if by_hand else "auto-1"
        say(f"  llmc status --watch      llmc attach {worker}      llmc events")
        say(f"  llmc down && rm -r {shlex.quote(str(directory))}")
        return
    shutil.rmtree(directory, ignore_errors=True)
    say("")
    say(paint("Now try your own repository:", "green", bold=True))
    if shutil.which("llmc") is None:
        say(f'  export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"')
    if by_hand:
        say("  cd your-repository && llmc init && llmc add adam && llmc up --detach")
        say("  llmc start --prompt 'What to do'")
    else:
        say("  cd your-repository && llmc init")
        say("  llmc tasks add 'What to do' && llmc up --auto --detach")
    say("  (llmc demo --keep leaves its workers running; llmc demo --by-hand shows manual mode)")
