"""llmc init"""

import os
import sys
from pathlib import Path

import click

from llmc import urls
from llmc.agents.claude_code import ClaudeCode, add_trust, user_config
from llmc.cli.output import ask, is_terminal, json_option, note, print_json, say
from llmc.errors import Refused
from llmc.services import lfs
from llmc.services.overseer_session import main_directory
from llmc.services.project import Project, agent_for
from llmc.services.setup import choose_target, create_root, existing_root, find_source, new_project


@click.command("init")
@click.option("--source", metavar="PATH|URL", help="The repository to work on (default: the one you are in).")
@click.option("--target", metavar="PATH", help="Where the root goes (default: ~/llmc, or ~/llmc-<repo>).")
@click.option("--agent", type=click.Choice(["claude", "scripted"]), default="claude", show_default=True)
@click.option(
    "--trust/--no-trust", default=None, help="Tell Claude Code to trust the root and the source (else asked)."
)
@json_option
def command(source: str | None, target: str | None, agent: str, trust: bool | None, as_json: bool) -> None:
    """Make a root for a repository: a clone of its own, a configuration, and an empty state.

    \b
    Example:
      cd ~/src/myproject && llmc init

    With --trust on a repository that has a root already, only the trust entries are added.
    """
    where = find_source(source, Path.cwd())
    existing = existing_root(where, target)
    if existing is not None and not trust and not target:
        raise Refused(
            f"this repository has a root already: {existing.path}",
            hint="Use it, or make another one with --target PATH.",
        )
    root = (existing if trust else None) or create_root(where, choose_target(target, where), agent)
    project = new_project(root)
    trusted = _trust(project, trust)
    if as_json:
        print_json({"root": str(root.path), "source": urls.split(where.location).address, "trusted": trusted})
        return
    say(f"root: {root.path}")
    say(f"source: {urls.split(where.location).address}, work lands on {project.config.repo.default_branch}")
    if trusted is False:
        note(
            "Claude Code does not trust the root yet: run `llmc init --trust` here, or start `claude` in it once."
        )
    if lfs.is_used(root.path, project.base) and not lfs.is_installed():
        note(lfs.NOT_INSTALLED)
    first = "" if project.store.read().workers else "llmc add adam && "
    say(f"next: {first}llmc up --detach")


def _trust(project: Project, wanted: bool | None) -> bool | None:
    """Add entries to the client's own configuration, with consent; None when the agent needs none."""
    agent = agent_for(project)
    environment = {**os.environ, **project.config.defaults.env}
    # The workers' directories belong to the root; the supervisor's agent works in the source.
    places = dict.fromkeys((project.root.path, main_directory(project)[0]))
    missing = [place for place in places if agent.setup_problem(place, environment)]
    if not isinstance(agent, ClaudeCode) or not missing or (project.root.path not in missing and not wanted):
        return None
    config = user_config(agent, environment)
    if wanted is None and sys.stdin.isatty() and is_terminal():
        asked = " and ".join(map(str, missing))
        question = (
            f"Claude Code asks once whether it may work in a directory. Answer for {asked} now, in {config}?"
        )
        wanted = ask(question, default=True)
    for place in missing if wanted else ():
        add_trust(place, config)
    return bool(wanted)
