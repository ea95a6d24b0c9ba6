"""llmc init"""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from llmc.agents.claude.client import ClaudeCode
from llmc.agents.claude.files import add_trust, user_config
from llmc.base.errors import Refused, UsageError
from llmc.cli.output import ask, is_terminal, json_option, note, paint, print_json, say
from llmc.config.edit import set_value
from llmc.config.load import load_config
from llmc.config.toml_text import quoted
from llmc.doctor import programs
from llmc.doctor.programs import Lack
from llmc.doctor.rules.facts import Program
from llmc.records.task import TaskStatus
from llmc.repo.project import Project, agent_for
from llmc.repo.setup import choose_target, create_root, existing_root, find_check, find_source, new_project
from llmc.supervisor.remediation import main_directory
from llmc.tasks.source import source_of

_SET = "llmc config set repo.validate"


@click.command("init")
@click.option("--source", metavar="PATH|URL", help="The repository to work on (default: the one you are in).")
@click.option("--target", metavar="PATH", help="Where the root goes (default: ~/llmc, or ~/llmc-<repo>).")
@click.option("--agent", type=click.Choice(["claude", "scripted"]), default="claude", show_default=True)
@click.option(
    "--trust/--no-trust", default=None, help="Tell Claude Code to trust the root and the source (else asked)."
)
@click.option(
    "--validate", metavar="CMD", help="The check that work must pass before it lands (repo.validate)."
)
@click.option("--no-validate", is_flag=True, help="Propose no such check.")
@json_option
def command(
    source: str | None,
    target: str | None,
    agent: str,
    trust: bool | None,
    validate: str | None,
    no_validate: bool,
    as_json: bool,
) -> None:
    """Make a root for a repository: a clone of its own, a configuration, and an empty state.

    \b
    Examples:
      cd ~/src/myproject && llmc init
      llmc init --validate "make test" --trust

    Looks for git and tmux first, and says what else is missing. With --trust on a repository that has a root already, only
    the trust entries are added.
    """
    if validate is not None and no_validate:
        raise UsageError("--validate and --no-validate contradict each other", hint="Leave one out.")
    found = programs.require_essential()
    where = find_source(source, Path.cwd())
    existing = existing_root(where, target)
    if existing is not None and not trust and not target:
        raise Refused(
            f"this repository has a root already: {existing.path}",
            hint="Use it, or make another one with --target PATH.",
        )
    root = (existing if trust else None) or create_root(where, choose_target(target, where), agent)
    project = new_project(root)
    lacks = programs.lacks(project, found)
    trusted = _trust(project, trust)
    check = "" if root is existing or no_validate else _settle_check(project, validate)
    if as_json:
        print_json(_view(project, trusted, found, lacks))
        return
    say(f"root: {project.root.path}")
    say(f"source: {project.source}, work lands on {project.config.repo.default_branch}")
    _tell(lacks)
    if trusted is False:
        note(
            "Claude Code does not trust the root yet: run `llmc init --trust` here, or start `llmc claude` in it once."
        )
    if check:
        note(check)
    if count := 0 if root is existing else _open_tasks(project):
        note(f"its task list has {count} open tasks, of an earlier root here; `llmc tasks list` shows them")
    first = "" if project.store.read().workers else "llmc add adam && "
    say(f"next: {first}llmc up --detach")


def _open_tasks(project: Project) -> int:
    """A root that is made again at the same path has the same list."""
    tasks = source_of(project).listing().tasks.values()
    return sum(task.status is not TaskStatus.COMPLETED for task in tasks)


def _view(project: Project, trusted: bool | None, found: list[Program], lacks: list[Lack]) -> dict[str, Any]:
    config = load_config(project.root.config)
    return {
        "root": str(project.root.path),
        "source": project.source,
        "trusted": trusted,
        "validate": config.repo.validate,
        "task_list_id": config.auto.task_list_id,
        "programs": {program.name: program.version for program in found},
        "missing": [msgspec.structs.asdict(lack) for lack in lacks],
    }


def _tell(lacks: list[Lack]) -> None:
    for lack in lacks:
        if not lack.optional:
            note(paint("warning: ", "yellow", err=True) + f"{lack.problem}. {lack.fix}")
    extras = [f"{lack.problem}. {lack.fix}" for lack in lacks if lack.optional]
    if extras:
        note("optional: " + " ".join(extras))


def _settle_check(project: Project, given: str | None) -> str:
    """Set repo.validate as a person said, or says now; what is left to tell them. Never without their word: it is run."""
    if given is not None:
        set_value(project.root.config, "repo.validate", quoted(given))
        return ""
    found = find_check(project)
    if found is None:
        return f"nothing checks the work before it lands yet; for example: {_SET} 'make test'"
    question = f"Run `{found.command}` on each commit before it lands ({found.because})?"
    if sys.stdin.isatty() and is_terminal() and ask(question, default=True):
        set_value(project.root.config, "repo.validate", quoted(found.command))
        return ""
    return (
        f"nothing checks the work before it lands yet; {found.because}: {_SET} {shlex.quote(found.command)}"
    )


def _trust(project: Project, wanted: bool | None) -> bool | None:
    """Add entries to the client's own configuration, with consent; None when the agent needs none."""
    agent = agent_for(project)
    environment = {**os.environ, **project.config.defaults.env}
    # The workers' directories belong to the root; the supervisor's agent works in the source.
    places = dict.fromkeys((project.root.path, main_directory(project)[0]))
    missing = [place for place in places if agent.setup_problem(place, environment)]
    if not isinstance(agent, ClaudeCode) or not missing or (project.root.path not in missing and not wanted):
        return None
    config = user_config(environment)
    if wanted is None and sys.stdin.isatty() and is_terminal():
        asked = " and ".join(map(str, missing))
        question = (
            f"Claude Code works only in directories that you trust. Mark {asked} as trusted in {config}?"
        )
        wanted = ask(question, default=True)
    for place in missing if wanted else ():
        add_trust(place, config)
    return bool(wanted)
