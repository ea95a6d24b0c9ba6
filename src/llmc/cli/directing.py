"""Working with one worker: `llmc start`, `message`, `answer`, `hold`, `release`, `attach`, `peek` and `console`."""

import os
import shlex
import sys

import click
from click.shell_completion import CompletionItem

from llmc.api import roots, workers
from llmc.api.roots import Project
from llmc.base.errors import UsageError
from llmc.base.text import fitted
from llmc.cli.arguments import (
    WORKER,
    complete_file,
    message_file_option,
    pass_project,
    show_receipt,
    text_to_send,
    worker_argument,
)
from llmc.cli.output import (
    columns,
    json_option,
    note,
    plain,
    print_json,
    read_line,
    say,
    say_lines,
    say_or_json,
)
from llmc.config.options import is_auto_name


@click.command("start")
@click.option("--prompt", "-p", metavar="TEXT", help="Text of the task [default: open $EDITOR]")
@click.option(
    "--prompt-file",
    "-f",
    metavar="FILE",
    shell_complete=complete_file,
    help="Read the task from FILE (- for standard input)",
)
@click.option("--worker", "-w", type=WORKER, help="Worker to use [default: the first idle worker]")
@click.option(
    "--self-review/--no-self-review",
    default=None,
    help="Have the agent review its own work before you do [default: defaults.self_review.enabled in config.toml]",
)
@click.option("--new", is_flag=True, help="Add a worker if none is idle")
@json_option
@pass_project
def start(
    project: Project,
    prompt: str | None,
    prompt_file: str | None,
    worker: str | None,
    self_review: bool | None,
    new: bool,
    as_json: bool,
) -> int:
    """Start a task on an idle worker

    The worker starts a new conversation on the latest default branch. Prints a receipt: acknowledged, queued,
    unconfirmed (exit code 1) or refused (exit code 3).

    \b
    Examples:
      llmc start --prompt "Fix the flaky test in tests/test_io.py"
      llmc start --worker adam --prompt-file task.md --self-review
    """
    text = text_to_send(prompt, prompt_file, "task")
    return show_receipt(workers.start(project, text, worker, self_review, note, new=new), as_json)


@click.command("message")
@worker_argument
@click.argument("text", required=False)
@message_file_option
@json_option
@pass_project
def message(project: Project, worker: str, text: str | None, file: str | None, as_json: bool) -> int:
    """Send a message to a worker

    Sends the message to the worker's current conversation. Without TEXT, opens $EDITOR. A message cancels a running
    `llmc accept WORKER` unless the change has already landed.

    \b
    Example:
      llmc message adam "Use the existing auth helper instead"
    """
    roots.require_worker(project, worker)
    words = text_to_send(text, file, "message")
    receipt, cancelled = workers.message(project, worker, words)
    if cancelled:
        note(f"cancelled `llmc accept {worker}`; nothing landed")
    return show_receipt(receipt, as_json)


def _complete_asker(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from llmc.cli.goal_show import complete_question  # slow to import

    return WORKER.shell_complete(ctx, param, incomplete) + complete_question(ctx, param, incomplete)


def _complete_goal(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from llmc.cli.goal_show import complete_goal

    return complete_goal(ctx, param, incomplete)


@click.command("answer")
@click.argument("asker", metavar="WORKER|ID", type=WORKER, shell_complete=_complete_asker)
@click.argument("text", required=False)
@click.option(
    "--goal",
    "goal_id",
    default="",
    shell_complete=_complete_goal,
    help="Goal that the plan item ID belongs to",
)
@json_option
@pass_project
def answer(project: Project, asker: str, text: str | None, goal_id: str, as_json: bool) -> int | None:
    """Answer a question from a worker or a goal

    Answers a worker that has a question or is blocked, or a question listed by `llmc inbox`. TEXT is the number of an
    option, or free text. Without TEXT, shows the worker's question and prompts for the answer. For permission requests
    and unknown dialogs, use `llmc attach`. For a worker on another node of a fleet, WORKER is NODE/NAME.

    \b
    Examples:
      llmc answer adam 2
      llmc answer adam "neither, use the old name"
      llmc answer S1.1.2 "use Excel's dialect"
      llmc answer server/adam 2
    """
    node, _, asker = asker.rpartition("/")
    if node and not _is_here(project, node):
        return _answer_elsewhere(project, node, asker, text, as_json)
    if goal_id or asker not in roots.worker_names(project):
        _answer_goal(project, asker, text, goal_id, as_json)
        return None
    asked = workers.question(project, asker)
    if text is None:
        say(asked.text)
        for number, label in enumerate(asked.options, 1):
            say(f"  {number}. {label}")
        text = _typed_answer(asker)
    return show_receipt(workers.answer(project, asker, text), as_json)


def _typed_answer(asker: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("an answer is required", hint=f'Run: llmc answer {asker} "..."')
    return read_line("Answer")


def _is_here(project: Project, node: str) -> bool:
    from llmc.api import fleet_nodes  # most roots work alone

    return fleet_nodes.own_node(project) == node


def _answer_elsewhere(project: Project, node: str, worker: str, text: str | None, as_json: bool) -> int:
    from llmc.api import fleet_nodes

    asked = fleet_nodes.question(project, node, worker)
    if text is None:
        say(asked)
        text = _typed_answer(f"{node}/{worker}")
    return show_receipt(fleet_nodes.answer(project, node, worker, text, asked), as_json)


def _answer_goal(project: Project, question_id: str, text: str | None, goal_id: str, as_json: bool) -> None:
    from llmc.cli.goal_verbs import answer_question  # slow to import

    is_name = "/" in question_id or is_auto_name(question_id)
    if not goal_id and (is_name or not any(map(str.isdigit, question_id))):  # every plan item ID has a digit
        roots.require_worker(project, question_id)
    if text is None:
        raise UsageError(
            "an answer is required",
            hint=f'Run: llmc answer {shlex.quote(question_id)} "..." (`llmc inbox` shows the question)',
        )
    answer_question(project, question_id, text, goal_id, as_json)


@click.command("hold")
@worker_argument
@json_option
@pass_project
def hold(project: Project, worker: str, as_json: bool) -> None:
    """Put a worker on hold so that llmc leaves it alone

    Until `llmc release`, llmc does not type into the worker's terminal, land its changes or reset it.

    \b
    Example:
      llmc hold adam
    """
    workers.hold(project, worker, True)
    text = f"{worker} is on hold; to release it: llmc release {worker}"
    say_or_json(text, {"worker": worker, "held": True}, as_json)


@click.command("release")
@worker_argument
@json_option
@pass_project
def release(project: Project, worker: str, as_json: bool) -> None:
    """Release a worker from hold

    \b
    Example:
      llmc release adam
    """
    changed = workers.hold(project, worker, False)
    text = f"released {worker}" if changed else f"{worker} is not on hold"
    say_or_json(text, {"worker": worker, "held": False}, as_json)


@click.command("attach")
@worker_argument
@click.option("--read-only", "-r", is_flag=True, help="Watch only; ignore keyboard input")
@pass_project
def attach(project: Project, worker: str, read_only: bool) -> None:
    """Attach to a worker's terminal

    While you are attached, llmc does not type into the terminal, land the worker's changes or reset it.
    Prints the detach keys first.

    \b
    Example:
      llmc attach adam        # detach with C-b d; the agent keeps running
    """
    opened = workers.terminal(project, worker, os.environ, read_only=read_only)
    if not opened.switches and not sys.stdin.isatty():
        raise UsageError(
            f"cannot attach to {worker}: there is no terminal",
            hint=f"Run the command in a terminal, or run `llmc peek {worker}` to see the screen.",
        )
    if opened.switches:
        note(f"switching to {worker}; switch back with {opened.leave}")
    else:
        note(f"attaching to {worker}; detach with {opened.leave}")
    os.execvpe(opened.argv[0], opened.argv, opened.env)


@click.command("peek")
@worker_argument
@click.option(
    "--lines",
    "-n",
    metavar="N",
    type=click.IntRange(1, 20000),
    default=40,
    show_default=True,
    help="Number of lines to show",
)
@json_option
@pass_project
def peek(project: Project, worker: str, lines: int, as_json: bool) -> None:
    """Show the last lines of a worker's screen

    Shortens horizontal rules and wide gaps to fit the terminal width or $COLUMNS. --json prints the lines unchanged.

    \b
    Example:
      llmc peek adam -n 100
    """
    screen = workers.screen(project, worker, lines)
    if as_json:
        print_json({"worker": worker, **plain(screen)})
        return
    say_lines("\n".join(fitted(line, columns()) for line in screen.lines))


@click.command("console")
@worker_argument
@pass_project
def console(project: Project, worker: str) -> None:
    """Open a shell in a worker's worktree

    The agent keeps running. To leave the shell, type `exit`.

    \b
    Example:
      llmc console adam
    """
    worktree = workers.worktree(project, worker)
    shell = os.environ.get("SHELL") or "/bin/sh"
    note(f"opening a shell in {worktree}; type `exit` to leave")
    os.chdir(worktree)
    # Not LLMC_WORKER: that would mark you as an agent.
    environment = {**os.environ, "LLMC_ROOT": str(project.root.path)}
    try:
        os.execvpe(shell, [shell], environment)
    except OSError as error:
        raise UsageError(
            f"cannot run the shell {shell}: {error.strerror}",
            hint=f"Set $SHELL to your shell, for example: SHELL=/bin/sh llmc console {worker}",
        ) from error
