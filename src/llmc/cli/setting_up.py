"""`llmc init`, `add`, `uninstall`, `claude` and `completion`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

import click
from click.shell_completion import get_completion_class

from llmc.api import new_roots, roots, web_process, workers
from llmc.api import uninstall as removal
from llmc.api.new_roots import Lack, Made
from llmc.api.roots import Project
from llmc.api.uninstall import Work
from llmc.base.errors import Refused, UsageError
from llmc.base.text import counted
from llmc.cli.arguments import REQUIRED, complete_directory, confirm, pass_project, project_of, teller
from llmc.cli.output import (
    ask,
    is_terminal,
    json_option,
    note,
    plain,
    print_json,
    say,
    say_lines,
    warn,
)
from llmc.config.model import AgentName

_SET = "llmc config set repo.validate"


@click.command("init")
@click.option(
    "--source",
    metavar="PATH|URL",
    shell_complete=complete_directory,
    help="Source repository [default: the current repository]",
)
@click.option(
    "--target",
    metavar="PATH",
    shell_complete=complete_directory,
    help="Directory for the root [default: ~/llmc, or ~/llmc-REPO if that is taken]",
)
@click.option(
    "--agent",
    type=click.Choice(get_args(AgentName)),
    default="claude",
    show_default=True,
    help="Agent to run",
)
@click.option(
    "--trust/--no-trust",
    default=None,
    help="Mark the root and the source repository as trusted in Claude Code [default: ask]",
)
@click.option("--validate", metavar="CMD", help="Command that must pass before work lands (repo.validate)")
@click.option("--no-validate", is_flag=True, help="Do not suggest a validation command")
@json_option
@click.pass_context
def init(
    ctx: click.Context,
    source: str | None,
    target: str | None,
    agent: str,
    trust: bool | None,
    validate: str | None,
    no_validate: bool,
    as_json: bool,
) -> None:
    """Create an llmc root for a repository

    A root holds a clone of the repository, the configuration and the state. init checks for git, tmux and other
    programs first. If the repository already has a root, --trust only marks that root as trusted.

    \b
    Examples:
      cd ~/src/myproject && llmc init
      llmc init --validate "make test" --trust
    """
    if validate is not None and no_validate:
        raise UsageError("--validate and --no-validate cannot be used together")
    made = new_roots.make(source, target or ctx.obj["root"], agent, reuse=bool(trust))
    project = made.project
    trusted = _trust(project, trust)
    check = "" if made.existed or no_validate else _settle_check(project, validate)
    tools = None if made.existed else new_roots.settle_presets(project)
    if as_json:
        print_json(_root_view(made, trusted))
        return
    say(f"root: {project.root.path}")
    say(f"source: {project.source} (branch {project.config.repo.default_branch})")
    if tools is not None and tools.presets:
        names, hosts = ", ".join(tools.presets), ", ".join(tools.hosts)
        say(f"tools for contained agents: {names} (sandbox.presets; downloads from {hosts})")
    if made.replaced is not None:
        note(_replaced(project, made.replaced))
    _tell(made.lacks)
    if trusted is False:
        warn("Claude Code does not trust the root yet; run `llmc init --trust`")
    if check:
        note(check)
    if count := 0 if made.existed else new_roots.open_tasks(project):
        note(f"the task list has {counted(count, 'open task')} from an earlier root; see `llmc tasks list`")
    first = "" if roots.worker_names(project) else "llmc add adam && "
    say(f"next: {first}llmc up --detach")


def _root_view(made: Made, trusted: bool | None) -> dict[str, Any]:
    return {
        "root": str(made.project.root.path),
        "source": made.project.source,
        "replaced": str(made.replaced) if made.replaced else None,
        "trusted": trusted,
        **new_roots.settings(made.project),
        "programs": {program.name: program.version for program in made.found},
        "missing": [*map(plain, made.lacks)],
    }


def _replaced(project: Project, before: Path) -> str:
    back = shlex.join(["git", "-C", project.source, "config", "llmc.root", str(before)])
    return f"commands in {project.source} now use {project.root.path}, not {before}; to switch back: {back}"


def _tell(lacks: list[Lack]) -> None:
    for lack in lacks:
        if not lack.optional:
            warn(f"{lack.problem}. {lack.fix}")
    extras = [f"{lack.problem}. {lack.fix}" for lack in lacks if lack.optional]
    if extras:
        note("optional: " + " ".join(extras))


def _settle_check(project: Project, given: str | None) -> str:
    """Set repo.validate as given, or as found if the user agrees, since it is run; returns a warning if still unset."""
    if given is not None:
        new_roots.set_check(project, given)
        return ""
    found = new_roots.find_check(project)
    if found is None:
        return f"warning: repo.validate is not set; to set it, for example: {_SET} 'make test'"
    question = f"Run `{found.command}` on each commit before it lands ({found.because})?"
    if sys.stdin.isatty() and is_terminal() and ask(question, default=True):
        new_roots.set_check(project, found.command)
        return ""
    return f"warning: repo.validate is not set; run `{_SET} {shlex.quote(found.command)}` ({found.because})"


def _trust(project: Project, wanted: bool | None) -> bool | None:
    """Add entries to the client's configuration, if the user agrees; None if the agent needs none."""
    missing = new_roots.untrusted(project, asked=bool(wanted))
    if missing is None:
        return None
    if wanted is None and sys.stdin.isatty() and is_terminal():
        asked = " and ".join(map(str, missing.places))
        question = (
            f"Claude Code only runs in trusted directories. Mark {asked} as trusted in {missing.config}?"
        )
        wanted = ask(question, default=True)
    if wanted:
        new_roots.trust(missing)
    return bool(wanted)


@click.command("add")
@click.argument("name")
@click.option("--model", help="Claude model for this worker [default: defaults.model in config.toml]")
@click.option("--role-prompt", default="", help="Text to prepend to each of this worker's tasks")
@click.option(
    "--excluded-from-pool", is_flag=True, help="Exclude this worker from automatic selection by `llmc start`"
)
@json_option
@pass_project
def add(
    project: Project,
    name: str,
    model: str | None,
    role_prompt: str,
    excluded_from_pool: bool,
    as_json: bool,
) -> None:
    """Add a worker

    Creates a worktree on its own branch. If the daemon is running, it starts the agent.

    \b
    Example:
      llmc add adam --model sonnet
    """
    settings = workers.Worker(model=model, role_prompt=role_prompt, excluded_from_pool=excluded_from_pool)
    record = workers.add(project, name, settings, lambda problem: note(f"{name}: {problem}"))
    if as_json:
        print_json({"worker": name, "worktree": record.worktree_path, "branch": record.branch})
        return
    say(f"added {name}: {record.worktree_path} on {record.branch}")
    if not project.daemon_runs():
        say("next: llmc up --detach")


@click.command("uninstall")
@click.option("--dry-run", "-n", is_flag=True, help="Show what would be removed and kept; change nothing")
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help=f"Do not ask for confirmation {REQUIRED}; unlanded work is saved next to the root",
)
@click.option("--discard", is_flag=True, help="With --yes, also delete unlanded work")
@json_option
@click.pass_context
def uninstall(ctx: click.Context, dry_run: bool, yes: bool, discard: bool, as_json: bool) -> None:
    """Remove a root and everything llmc created for it

    Removes agents, worktrees, branches, settings, the trash and the root itself. The source repository keeps its branches
    and files. If the root has work that exists nowhere else, uninstall lists it and does nothing without --yes.

    \b
    Examples:
      llmc uninstall --dry-run
      llmc uninstall --yes
    """
    if discard and not (yes or dry_run):
        raise UsageError(
            "--discard requires --yes", hint="To see what would be deleted: llmc uninstall --dry-run"
        )
    project = project_of(ctx)
    root = project.root.path
    work = removal.work_in(project)
    if dry_run:
        _show_removal(project, work, discard, as_json)
        return
    removal.refuse_in_use(project)
    if work and not yes:
        _refuse_with_work(project, work)
    confirm(f"Remove {root} and everything in it?", f"this would remove {root}", yes)
    left = removal.left_alone(project)
    done = removal.take_back(project, keep=bool(work) and not discard, discard=discard)
    if as_json:
        print_json({**plain(done), "left": left, "program": how_to_remove()})
        return
    for what in done.removed:
        say(f"removed {what}")
    if done.kept:
        say(
            f"saved the clone with all unlanded commits, the trash, the goals and the logs in {done.kept} "
            "(a git repository; run `git log --all` there)"
        )
    if Path(project.source).is_dir():
        say(
            f"commands in {project.source} now use {done.next_root}"
            if done.next_root
            else f"{project.source} has no other llmc root"
        )
    for what in left:
        note(f"not removed: {what}")
    note(f"to remove llmc itself: {how_to_remove()}")


def _refuse_with_work(project: Project, work: list[Work]) -> None:
    rows = "\n".join(f"  {one.what} -> {one.save}" for one in work)
    refusal = Refused(
        f"cannot remove {project.root.path}: it has work that exists nowhere else:\n{rows}",
        hint="Run `llmc uninstall --yes` to remove the root and save this work next to it; add --discard to delete the work.",
    )
    refusal.details["work"] = [*map(plain, work)]
    raise refusal


def _show_removal(project: Project, work: list[Work], discard: bool, as_json: bool) -> None:
    kept = str(removal.place_to_keep(project)) if work and not discard else None
    left = removal.left_alone(project)
    server = web_process.pid_of(project)
    if as_json:
        body = {"root": str(project.root.path), "work": [*map(plain, work)], "kept": kept, "left": left}
        print_json({**body, "web_server": server})
        return
    say(f"would remove {project.root.path} and its entries in other configuration files")
    if server is not None:
        say(f"would stop the web server (pid {server})")
    for name in roots.worker_names(project):
        say(f"would stop and remove worker {name}")
    for one in work:
        say(f"not landed: {one.what} -> {one.save}")
    if kept:
        say(f"would save unlanded work in {kept}")
    if other := removal.next_root(project):
        say(f"commands in {project.source} would use {other}")
    for what in left:
        say(f"would keep: {what}")


def how_to_remove() -> str:
    """The command that uninstalls llmc itself."""
    prefix = sys.prefix
    if "/uv/tools/" in prefix:
        return "uv tool uninstall llmc"
    if "/pipx/" in prefix:
        return "pipx uninstall llmc"
    return f"{shlex.quote(sys.executable)} -m pip uninstall llmc"


@click.command("claude", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def claude(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run the Claude Code client that llmc uses

    For example, use it to log in. The client is defaults.agent_command, else `claude` on your PATH, else the one
    installed with llmc's `claude` extra. llmc sets the variables in defaults.env, as it does for workers.

    \b
    Examples:
      llmc claude auth login
      llmc claude auth status
      llmc claude -- --version
    """
    program, env = roots.client(ctx.find_root().obj["root"], teller(ctx))
    # As for workers: no update unless the user makes one.
    environment = {**os.environ, **env, "DISABLE_AUTOUPDATER": "1"}
    os.execve(program[0], [*program, *arguments], environment)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script

    \b
    Example:
      llmc completion bash > ~/.local/share/bash-completion/completions/llmc
    """
    completer = get_completion_class(shell)
    assert completer is not None
    root = ctx.find_root().command
    say_lines(completer(root, {}, "llmc", "_LLMC_COMPLETE").source())
