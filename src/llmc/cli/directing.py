"""A worker at work: `llmc start`, `message`, `answer`, `hold` and `release`; and a look at it: `attach`, `peek`, `console`."""

import os
import sys

import click

from llmc.api import roots, workers
from llmc.api.roots import Project
from llmc.base.errors import UsageError
from llmc.base.text import fitted
from llmc.cli.arguments import complete_worker, project_of, show_receipt, text_to_send, worker_argument
from llmc.cli.output import json_option, note, print_json, read_line, say, say_lines, screen_width


@click.command("start")
@click.option("--prompt", "-p", metavar="TEXT", help="The task. Without it and --prompt-file, $EDITOR opens.")
@click.option("--prompt-file", "-f", metavar="FILE", help="A file with the task; - is standard input.")
@click.option(
    "--worker", "-w", shell_complete=complete_worker, help="Which worker (default: the first idle one)."
)
@click.option(
    "--self-review/--no-self-review",
    default=None,
    help="Let the agent read its own work once more before you do (default: as configured).",
)
@click.option("--new", is_flag=True, help="Add a worker when none is idle.")
@json_option
@click.pass_context
def start(
    ctx: click.Context,
    prompt: str | None,
    prompt_file: str | None,
    worker: str | None,
    self_review: bool | None,
    new: bool,
    as_json: bool,
) -> int:
    """Give an idle worker a task: newest base, new conversation, prompt delivered and receipted.

    \b
    Examples:
      llmc start --prompt "Fix the flaky test in tests/test_io.py"
      llmc start --worker adam --prompt-file task.md --self-review

    The answer is acknowledged, queued, unconfirmed (exit 1) or refused (exit 3); never a bare OK.
    """
    project = project_of(ctx)
    text = text_to_send(prompt, prompt_file, "task")
    return show_receipt(workers.start(project, text, worker, self_review, note, new=new), as_json)


@click.command("message")
@worker_argument
@click.argument("text", required=False)
@click.option("--file", "-f", "file", metavar="FILE", help="A file with the message; - is standard input.")
@json_option
@click.pass_context
def message(ctx: click.Context, worker: str, text: str | None, file: str | None, as_json: bool) -> int:
    """Say something to a worker in its running conversation. Without text, $EDITOR opens.

    While its work is validated to be accepted, that accept is cancelled.

    \b
    Example:
      llmc message adam "Use the existing auth helper instead"
    """
    project = project_of(ctx)
    roots.require_worker(project, worker)
    words = text_to_send(text, file, "message")
    receipt, cancelled = workers.message(project, worker, words)
    if cancelled:
        note(f"the accept of {worker} was cancelled; nothing landed")
    return show_receipt(receipt, as_json)


@click.command("answer")
@click.argument("asker", metavar="WORKER|ID", shell_complete=complete_worker)
@click.argument("text", required=False)
@click.option("--goal", "goal_id", default="", help="With the ID of a plan item: of this goal.")
@json_option
@click.pass_context
def answer(ctx: click.Context, asker: str, text: str | None, goal_id: str, as_json: bool) -> int | None:
    """Answer a question: of a worker's client, of its `llmc report blocked`, or of a goal (`llmc inbox`).

    \b
    Examples:
      llmc answer adam 2
      llmc answer adam "neither, use the old name"
      llmc answer S1.1.2 "Excel's"

    TEXT is the number of an option, or the answer in your words; without it the question of a worker is shown, and you are
    asked for the answer. Permissions, and dialogs that llmc does not recognise for certain, need `llmc attach`.
    """
    project = project_of(ctx)
    if goal_id or asker not in roots.worker_names(project):
        _answer_goal(project, asker, text, goal_id, as_json)
        return None
    asked = workers.question(project, asker)
    if text is None:
        say(asked.text)
        for number, label in enumerate(asked.options, 1):
            say(f"  {number}. {label}")
        if not sys.stdin.isatty():
            raise UsageError("an answer is missing", hint=f'llmc answer {asker} "..."')
        text = read_line("Answer")
    return show_receipt(workers.answer(project, asker, text), as_json)


def _answer_goal(project: Project, question_id: str, text: str | None, goal_id: str, as_json: bool) -> None:
    from llmc.cli.goal_verbs import answer_question  # what is asked of goals is much to load

    if not goal_id and not any(sign.isdigit() for sign in question_id):  # each id of a plan item has one
        roots.require_worker(project, question_id)
    if text is None:
        raise UsageError("an answer is missing", hint=f'llmc answer {question_id} "..."; llmc inbox')
    answer_question(project, question_id, text, goal_id, as_json)


@click.command("hold")
@worker_argument
@json_option
@click.pass_context
def hold(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Keep llmc's hands off a worker: it types, accepts and resets nothing there until `llmc release`.

    \b
    Example:
      llmc hold adam
    """
    workers.hold(project_of(ctx), worker, True)
    if as_json:
        print_json({"worker": worker, "held": True})
    else:
        say(f"{worker} is held; `llmc release {worker}` gives it back")


@click.command("release")
@worker_argument
@json_option
@click.pass_context
def release(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Give a held worker back to llmc.

    \b
    Example:
      llmc release adam
    """
    changed = workers.hold(project_of(ctx), worker, False)
    if as_json:
        print_json({"worker": worker, "held": False})
    else:
        say(f"{worker} is released" if changed else f"{worker} was not held")


@click.command("attach")
@worker_argument
@click.option("--read-only", "-r", is_flag=True, help="Look only: keys are ignored.")
@click.pass_context
def attach(ctx: click.Context, worker: str, read_only: bool) -> None:
    """Open a worker's terminal. While you are attached llmc types, accepts and resets nothing there.

    Inside a tmux of your own, it says which keys detach from the inner one.

    \b
    Example:
      llmc attach adam        # leave it with C-b d; the agent goes on
    """
    opened = workers.terminal(project_of(ctx), worker, os.environ, read_only=read_only)
    if opened.switches:
        note(f"switching to {worker}; {opened.prefix} L switches back")
    else:
        note(f"attaching to {worker}; detach with {detach_keys(opened.prefix, opened.outer_prefix)}")
    os.execvpe(opened.argv[0], opened.argv, opened.env)


def detach_keys(inner: str, around: str | None) -> str:
    """The keys that leave the worker's terminal; `around` is the prefix of the tmux that it is shown in."""
    return f"{inner} {inner} d" if around == inner else f"{inner} d"


@click.command("peek")
@worker_argument
@click.option("--lines", "-n", type=click.IntRange(1, 20000), default=40, show_default=True)
@json_option
@click.pass_context
def peek(ctx: click.Context, worker: str, lines: int, as_json: bool) -> None:
    """Print the last lines of a worker's screen; its rules and gaps are as long as fit.

    \b
    Example:
      llmc peek adam -n 100

    What is not a terminal is COLUMNS wide, or 80; --json has the lines as they are.
    """
    project = project_of(ctx)
    screen = workers.screen(project, worker, lines)
    if as_json:
        about = {"dead": screen.dead, "exit_code": screen.exit_code}
        print_json({"worker": worker, **about, "lines": screen.lines})
        return
    say_lines("\n".join(fitted(line, screen_width()) for line in screen.lines))


@click.command("console")
@worker_argument
@click.pass_context
def console(ctx: click.Context, worker: str) -> None:
    """Open your own shell in a worker's worktree; leave it with `exit`. The agent is not touched.

    \b
    Example:
      llmc console adam
    """
    project = project_of(ctx)
    worktree = workers.worktree(project, worker)
    shell = os.environ.get("SHELL") or "/bin/sh"
    note(f"a shell in {worktree}; leave it with `exit`")
    os.chdir(worktree)
    # Not LLMC_WORKER: that marks an agent, and agents may call very little.
    os.execvpe(shell, [shell], {**os.environ, "LLMC_ROOT": str(project.root.path)})
