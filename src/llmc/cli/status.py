"""llmc status"""

import time

import click

from llmc.cli import fast
from llmc.cli.output import json_option, paint
from llmc.cli.views import Raw
from llmc.cli.workers import project_of
from llmc.config.durations import format_duration

_COLORS = {
    "idle": "green",
    "working": "blue",
    "reviewing": "blue",
    "rejected": "blue",
    "rebasing": "magenta",
    "needs_review": "yellow",
    "needs_input": "yellow",
    "no_changes": "green",
    "error": "red",
    "offline": "bright_black",
}


@click.command("status")
@click.option("--watch", "-w", is_flag=True, help="Go on showing it until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds, with --watch."
)
@json_option
@click.pass_context
def command(ctx: click.Context, watch: bool, interval: float, as_json: bool) -> int:
    """Show the workers: what each does, since when, and the next useful command.

    \b
    Example:
      llmc status --watch
    """
    project = project_of(ctx)
    project.store.read()  # says what is wrong with a state that cannot be read
    root = str(project.root.path)
    if as_json:
        return fast.status(root)
    if not watch:
        click.echo(render(fast.current(root), time.time()))
        return 0
    while True:
        text = render(fast.current(root), time.time())
        click.clear()
        click.echo(text)
        click.echo(f"\nevery {interval:g} s; Ctrl-C ends this")
        time.sleep(interval)


def render(view: Raw, now: float) -> str:
    """The status as text, one line a worker."""
    daemon = view["daemon"]
    runs = f"daemon {daemon['pid']} runs" if daemon["running"] else "no daemon runs (llmc up)"
    lines = [f"{view['root']}  {runs}"]
    width = max((len(w["name"]) for w in view["workers"]), default=0)
    for worker in view["workers"]:
        lines += _worker_lines(worker, width, now)
    if not view["workers"]:
        lines.append("no workers yet; next: llmc add adam")
    return "\n".join(lines)


def _worker_lines(worker: Raw, width: int, now: float) -> list[str]:
    status = worker["status"]
    age = format_duration(max(0.0, now - worker["since_unix"]))
    marks = "".join(f" ({word})" for word in ("held", "attached", "reviewed") if worker[word])
    why = f" {worker['reason']}" if worker["reason"] and status in ("needs_input", "offline", "error") else ""
    step = f" accepting: {worker['accept_step']}" if worker["accept_step"] else ""
    prompt = " ".join(worker["prompt"].split())
    shown = (prompt[:57] + "...") if len(prompt) > 60 else prompt
    badge = paint(f"[{status}]", _COLORS.get(status, "white"))
    line = f"  {worker['name']:<{width}}  {badge}{why}{step}{marks}  {shown}  {age}".rstrip()
    extra = [paint(f"      {worker['error_reason']}", "red")] if worker["error_reason"] else []
    command_line = next_command(worker)
    return [line, *extra, *([paint(f"      {command_line}", "bright_black")] if command_line else [])]


def next_command(worker: Raw) -> str:
    """What a person would most likely do now."""
    name = worker["name"]
    if worker["delivery"] in ("pending", "typed") and worker["status"] in ("idle", "no_changes"):
        return f"llmc up  (finishes the delivery of {worker['prompt_id']})"
    accept_or_reject = f"llmc accept {name}   or: llmc reject {name} ..."
    return {
        "offline": "llmc up",
        "needs_review": accept_or_reject if worker["reviewed"] else f"llmc review {name}",
        "needs_input": f"llmc attach {name}   or: llmc message {name} ...",
        "error": f"llmc peek {name}   or: llmc reset {name}",
    }.get(worker["status"], "")
